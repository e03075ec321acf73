"""Measure gloo's all_reduce on this machine and hold the α-β model against it.

``python -m commlab.real.measure`` prints a table; ``--output FILE`` also stores it as JSON.
``commlab/real/data/gloo_loopback.json`` was made like that, and says where and when.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
from collections.abc import Sequence
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import numpy as np

from commlab.calibrate.fit_ring import fit_alpha_beta
from commlab.cost import alpha_beta_ring_allreduce
from commlab.real.launch import RankError, run
from commlab.units import KIB, format_bytes, format_rate, format_seconds

SIZES = [KIB * 2**power for power in range(17)]
BLOCKS = 21


def measure_all_reduce(
    sizes: Sequence[int], ranks: int = 4, blocks: int = BLOCKS, timeout: float = 300.0
) -> dict[str, Any]:
    """Time all_reduce between processes of this machine.

    Parameters
    ----------
    sizes : sequence of int
        S, the bytes of the vector that each rank holds; at least 4.
    ranks : int
        Number of processes, 2 or more.
    blocks : int
        How often each size is timed.
    timeout : float
        Seconds for the whole run.

    Returns
    -------
    dict
        ``ranks``, ``nbytes`` and, per size, the ``low``, ``median`` and ``high`` seconds per
        call: the quartiles of what the slowest rank saw. With ``date`` and ``machine``.
    """
    if ranks < 2:
        raise ValueError(f"ranks is {ranks!r}: one rank has nobody to talk to, give 2 or more.")
    if min(sizes) < 4:
        raise ValueError(f"the size {min(sizes)} is less than one float32: give 4 bytes or more.")
    by_rank = run(
        "commlab.real.workers:time_all_reduce",
        ranks=ranks,
        timeout=timeout,
        sizes=list(sizes),
        blocks=blocks,
    )
    low, median, high = np.percentile(by_rank[0], [25, 50, 75], axis=1)
    return {
        "date": datetime.date.today().isoformat(),
        "machine": about_this_machine(),
        "ranks": ranks,
        "nbytes": list(sizes),
        "low": low.tolist(),
        "median": median.tolist(),
        "high": high.tolist(),
    }


def about_this_machine() -> str:
    """Processor, cores, system and versions, in one line."""
    processor = platform.processor() or platform.machine()
    cpu_file = Path("/proc/cpuinfo")
    if cpu_file.exists():
        for line in cpu_file.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                processor = line.partition(":")[2].strip()
                break
    return (
        f"{processor}, {os.cpu_count()} cores, {platform.system()}, "
        f"Python {platform.python_version()}, torch {metadata.version('torch')}"
    )


def bus_bandwidth(nbytes: float, seconds: float, n_ranks: int) -> float:
    """Bytes per second that each rank sends if all_reduce is a ring (nccl-tests' busbw)."""
    return 2 * (n_ranks - 1) / n_ranks * nbytes / seconds


def stored_measurement() -> dict[str, Any]:
    """Read the measurement that ships with the book, as `measure_all_reduce` returned it."""
    file = resources.files("commlab.real") / "data" / "gloo_loopback.json"
    return json.loads(file.read_text(encoding="utf-8"))


def print_table(measured: dict[str, Any]) -> None:
    """Print a measurement beside the α-β line fitted to it."""
    n_ranks = measured["ranks"]
    alpha, beta = fit_alpha_beta(measured["nbytes"], measured["median"], n_ranks)
    print(f"{measured['date']}, {measured['machine']}")
    print(f"{n_ranks} ranks, fitted α = {format_seconds(alpha)}, β = {format_rate(beta)}")
    print(f"{'size':>9} {'median':>9} {'middle half of the blocks':>26} {'busbw':>10} {'model':>9}")
    for nbytes, low, median, high in zip(
        *(measured[column] for column in ("nbytes", "low", "median", "high")), strict=True
    ):
        spread = f"{format_seconds(low)} to {format_seconds(high)}"
        rate = format_rate(bus_bandwidth(nbytes, median, n_ranks))
        model = format_seconds(alpha_beta_ring_allreduce(nbytes, n_ranks, alpha, beta))
        print(
            f"{format_bytes(nbytes):>9} {format_seconds(median):>9} {spread:>26} "
            f"{rate:>10} {model:>9}"
        )


def main() -> None:
    """Measure, print and, if asked, store."""
    parser = argparse.ArgumentParser(description="Measure gloo's all_reduce on this machine.")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--output", type=Path, help="also store the measurement as JSON")
    options = parser.parse_args()
    try:
        measured = measure_all_reduce(SIZES, ranks=options.ranks)
    except RankError as error:
        raise SystemExit(str(error)) from None
    print_table(measured)
    if options.output:
        options.output.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
