"""Schedules on a virtual cluster, measured beside their price; two minutes, Linux only.

    python -m benchmarks.virtual_cluster

Times of the same run, so that the ratio says how good the model is, and not how fast the
machine. See `commlab.real.cluster`, whose own command stores such a measurement.
"""

from __future__ import annotations

from commlab.real.cluster import ClusterUnavailable
from commlab.real.cluster.experiments import measure_all


def main() -> None:
    """Run all experiments; print the table and the range of the ratios."""
    try:
        measured = measure_all(show=lambda name: print(name, flush=True))
    except ClusterUnavailable as refusal:
        print(refusal)
        return
    ratios = [row.ratio for row in measured.rows]
    print(measured)
    print(f"measured / priced: {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main()
