"""Run the benchmarks of the science and the comparisons with peers, one after the other.

    python -m benchmarks

The sliders have a script of their own, `python -m benchmarks.sliders`, which takes minutes.
"""

from __future__ import annotations

from benchmarks import closed_forms, core, peer_mlsysim, peer_torch

if __name__ == "__main__":
    for script in (core, closed_forms, peer_mlsysim, peer_torch):
        print(f"\n== {script.__name__}", flush=True)
        script.main()
