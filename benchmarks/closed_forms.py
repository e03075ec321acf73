"""Time every closed form of `commlab.cost` over a million points, and for a single number.

    python -m benchmarks.closed_forms

A form is any public function of `commlab.cost` whose first argument is `nbytes` and may be an
array, so that a new one is measured without being named here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import numpy as np

from benchmarks.timing import fastest_call, fastest_seconds, machine
from commlab import cost
from commlab.hardware import ALPHA, INFINIBAND, NVLINK
from commlab.units import GIB, MIB

POINTS = 1_000_000
SINGLE = {
    "nbytes": GIB,
    "bucket_nbytes": 25 * MIB,
    "n_ranks": 64,
    "n_nodes": 8,
    "gpus_per_node": 8,
    "rails": 8,
    "pipeline_chunks": 16,
    "alpha": ALPHA,
    "beta": NVLINK,
    "beta_intra": NVLINK,
    "beta_inter": INFINIBAND,
}


def closed_forms() -> dict[str, Callable[..., object]]:
    """Return the functions that take an array of sizes, by name."""
    found = {}
    for name in cost.__all__:
        member = getattr(cost, name)
        if not inspect.isfunction(member):
            continue
        first = next(iter(inspect.signature(member).parameters.values()))
        if first.name == "nbytes" and first.annotation in ("Scalars", cost.Scalars):
            found[name] = member
    return found


def required(form: Callable[..., object]) -> list[str]:
    """Return the names of the arguments without a default."""
    parameters = inspect.signature(form).parameters.values()
    return [each.name for each in parameters if each.default is inspect.Parameter.empty]


def many_points() -> dict[str, np.ndarray]:
    """Return a million values of each argument, N from 2 to 1024."""
    rng = np.random.default_rng(0)
    points = {name: np.full(POINTS, float(value)) for name, value in SINGLE.items()}
    points["nbytes"] = np.logspace(0, 12, POINTS)
    points["n_ranks"] = rng.integers(2, 1025, POINTS)
    points["n_nodes"] = rng.integers(2, 65, POINTS)
    return points


def main() -> None:
    """Print a line for each form."""
    print(machine())
    points = many_points()
    print(f"{'S varies':>10} {'all vary':>10} {'one number':>12}   (µs a point; µs a call)")
    for name, form in closed_forms().items():
        unknown = [argument for argument in required(form) if argument not in SINGLE]
        if unknown:
            print(f"not measured: {name} needs {', '.join(unknown)}; give SINGLE a value for it.")
            continue
        single = {argument: SINGLE[argument] for argument in required(form)}
        sizes = {**single, "nbytes": points["nbytes"]}
        everything = {argument: points[argument] for argument in single}
        seconds = fastest_seconds(
            {
                "sizes": lambda form=form, sizes=sizes: form(**sizes),
                "everything": lambda form=form, everything=everything: form(**everything),
            }
        )
        call = fastest_call(lambda form=form, single=single: form(**single))
        print(
            f"{seconds['sizes'] * 1e6 / POINTS:10.4f} {seconds['everything'] * 1e6 / POINTS:10.4f} "
            f"{call * 1e6:12.0f}   {name}",
            flush=True,
        )


if __name__ == "__main__":
    main()
