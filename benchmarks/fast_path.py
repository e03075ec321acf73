"""The fast path beside gloo's own all_reduce, in one run; two to four minutes.

    python -m benchmarks.fast_path
    python -m benchmarks.fast_path --ranks 4

Each group first calibrates, then both are timed anew, in turns: what a choice was based on is
not what it is judged by. Below 1 means that the fast path took less time. Where it chose the
backend, both are the same program, and the spread shows the noise of the machine.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
import torch.distributed as dist

from commlab.real import RankError, run
from commlab.real.calibrate import SIZES, calls_per_block, time_in_turns
from commlab.real.fast import FastAllReduce
from commlab.real.measure import about_this_machine
from commlab.real.workers import FLOAT32_BYTES
from commlab.units import format_bytes, format_rate, format_seconds

BLOCKS = 25
SECONDS_PER_SIZE = 8.0
MIN_BLOCKS = 7


def measure(sizes: list[int]) -> dict[str, object] | None:
    """Calibrate, then time both at every size; rank 0 returns what there is to print."""
    start = time.perf_counter()
    all_reduce = FastAllReduce()
    calibration = all_reduce.calibration
    seconds_to_calibrate = time.perf_counter() - start
    rows = []
    for nbytes in sizes:
        vector = torch.zeros(nbytes // FLOAT32_BYTES)
        calls = [
            lambda vector=vector: dist.all_reduce(vector),
            lambda vector=vector: all_reduce(vector),
        ]
        repeats = calls_per_block(nbytes)
        first = time_in_turns(calls, 2, repeats)[:, 1]
        affordable = int(SECONDS_PER_SIZE / (first.sum() * repeats))
        blocks = min(BLOCKS, max(MIN_BLOCKS, affordable))
        backend, fast = time_in_turns(calls, blocks, repeats)
        rows.append(
            {
                "nbytes": nbytes,
                "algorithm": calibration.decision_for(nbytes).algorithm,
                "backend": float(np.median(backend)),
                "fast": float(np.median(fast)),
                "ratio": np.percentile(fast / backend, [25, 50, 75]).tolist(),
            }
        )
    return {
        "alpha": calibration.alpha,
        "beta": calibration.beta,
        "seconds": seconds_to_calibrate,
        "rows": rows,
    }


def print_table(n_ranks: int, measured: dict) -> None:
    """Print one line per size, with the middle half of the turns' ratios."""
    print(
        f"\nN = {n_ranks}: α = {format_seconds(measured['alpha'])}, "
        f"β = {format_rate(measured['beta'])}, calibrated in {measured['seconds']:.0f} s"
    )
    print(f"{'size':>8} {'gloo':>9} {'fast path':>9} {'ratio':>6} {'middle half':>14}  runs")
    for row in measured["rows"]:
        low, median, high = row["ratio"]
        print(
            f"{format_bytes(row['nbytes']):>8} {format_seconds(row['backend']):>9} "
            f"{format_seconds(row['fast']):>9} {median:6.2f} {f'{low:.2f} to {high:.2f}':>14}  "
            f"{row['algorithm']}"
        )


def main() -> None:
    """Measure for several N, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    options = parser.parse_args()
    print(about_this_machine())
    for n_ranks in options.ranks:
        try:
            # By name: run as a script, this module is __main__, which the ranks cannot import.
            answers = run(
                "benchmarks.fast_path:measure", ranks=n_ranks, timeout=600, sizes=list(SIZES)
            )
        except RankError as error:
            raise SystemExit(str(error)) from None
        print_table(n_ranks, answers[0])


if __name__ == "__main__":
    main()
