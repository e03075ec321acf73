"""Runs with known α and β, as the reader would return them, and logs of them as text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from commlab.calibrate.bus import bus_factor
from commlab.calibrate.records import Row, Run
from tools.lints.pages import ROOT

FIRST_LINE = 20
H100 = "NVIDIA H100 80GB HBM3"
A100 = "NVIDIA A100-SXM4-40GB"

# Logs of real clusters, where somebody has them.
REAL_LOGS = Path(os.environ.get("COMMLAB_LOGS", ROOT.parent / "shared" / "nccl_logs"))
REAL_LOG_FILES = sorted(path for path in REAL_LOGS.glob("*") if path.suffix in (".txt", ".log"))


def doubling(smallest: int, largest: int) -> list[int]:
    """Sizes as ``-b smallest -e largest -f 2`` has them."""
    sizes = [smallest]
    while 2 * sizes[-1] <= largest:
        sizes.append(2 * sizes[-1])
    return sizes


def noisy(seconds: np.ndarray, noise: float, seed: int) -> np.ndarray:
    """Times with normal relative noise of this standard deviation."""
    return seconds * (1 + noise * np.random.default_rng(seed).standard_normal(len(seconds)))


def line_times(
    sizes: Sequence[int], op: str, n_ranks: int, alpha: float, beta: float
) -> np.ndarray:
    """T = α + factor·S/β of one call."""
    return alpha + bus_factor(op, n_ranks) * np.array(sizes, dtype=float) / beta


def run_of(
    sizes: Sequence[int],
    seconds: Sequence[float],
    op: str = "all_reduce",
    n_ranks: int = 8,
    n_nodes: int | None = 1,
    in_place: Sequence[float] | None = None,
    **fields: object,
) -> Run:
    """A run; times are rounded to five digits, as logs print them."""
    rows = tuple(
        Row(
            int(size),
            float(f"{time:.5g}"),
            FIRST_LINE + n,
            None if in_place is None else float(in_place[n]),
        )
        for n, (size, time) in enumerate(zip(sizes, seconds, strict=True))
    )
    return Run(op, n_ranks, rows, n_nodes, **fields)


def straight_run(
    sizes: Sequence[int],
    alpha: float = 20e-6,
    beta: float = 370e9,
    noise: float = 0.03,
    seed: int = 0,
    op: str = "all_reduce",
    n_ranks: int = 8,
    **fields: object,
) -> Run:
    """A run whose times are one straight line with noise."""
    times = noisy(line_times(sizes, op, n_ranks, alpha, beta), noise, seed)
    return run_of(sizes, times, op, n_ranks, **fields)


def log_text(run: Run, with_devices: bool = True) -> str:
    """The run as nccl-tests prints it."""
    lines = ["# nccl-tests version 2.17.8 nccl-headers=22902 nccl-library=22902"]
    lines += [f"# Collective test starting: {run.op}_perf", "# nThread 1 nGpus 1", "#"]
    n_nodes = run.n_nodes or 1
    if with_devices:
        lines.append("# Using devices")
        for rank in range(run.n_ranks):
            node, device = divmod(rank, run.n_ranks // n_nodes)
            lines.append(
                f"#  Rank {rank:2d} Group  0 Pid {10000 + rank:6d} on      node{node} device "
                f"{device:2d} [0000:1b:00] {run.hardware or H100}"
            )
    lines += [
        "#",
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)        ",
    ]
    factor = bus_factor(run.op, run.n_ranks)
    for row in run.rows:
        rate = row.nbytes / row.seconds / 1e9
        half = f"{row.seconds * 1e6:9.6g} {rate:7.2f} {factor * rate:7.2f} {0:7d}"
        lines.append(
            f"{row.nbytes:12d} {row.nbytes // 4:13d}     float     sum      -1 {half} {half}"
        )
    return "\n".join([*lines, "# Out of bounds values : 0 OK", "#", ""])
