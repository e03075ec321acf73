"""Time the core: a ring of 1024 ranks, and the closed forms over many points.

    python -m benchmarks.core

Timings are measured here and nowhere asserted.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable

import numpy as np

import commlab
from commlab.algorithms import ring_all_reduce
from commlab.hardware import ALPHA, NVLINK
from commlab.units import GIB, MIB

REPEATS = 5


def median_seconds(function: Callable[[], object]) -> float:
    """Return the median time of a few calls."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def ring_1024() -> None:
    """Print the times to build, verify and price a ring of 1024 ranks, and the peak memory."""
    schedule = ring_all_reduce(1024)
    topology = commlab.flat_topology(1024, ALPHA, NVLINK)
    for name, function in (
        ("build", lambda: ring_all_reduce(1024)),
        ("verify", lambda: commlab.verify(schedule)),
        ("price", lambda: commlab.price(schedule, topology, GIB)),
    ):
        print(f"ring N = 1024, {name}: {median_seconds(function):.2f} s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"peak memory of this process: {peak / 1e6:.0f} MB")


def simulation() -> None:
    """Print the time of a simulated ring against the bare additions and copies."""
    n_ranks, n_elements = 8, 16 * MIB // 4
    buffers = [np.ones(n_elements, dtype=np.float32) for _ in range(n_ranks)]
    schedule = ring_all_reduce(n_ranks)
    chunk = n_elements // n_ranks

    def bare() -> None:
        ranks = [buffer.copy() for buffer in buffers]
        for step in schedule.steps:
            for src, dst, piece, op in step.transfers:
                part = slice(piece * chunk, (piece + 1) * chunk)
                if op == commlab.REDUCE:
                    ranks[dst][part] += ranks[src][part]
                else:
                    ranks[dst][part] = ranks[src][part]

    ratio = median_seconds(lambda: commlab.simulate(schedule, buffers)) / median_seconds(bare)
    print(f"simulate ring N = 8, 16 MiB per rank: {ratio:.2f} x the bare numpy operations")


def closed_forms() -> None:
    """Print the time of a closed form per point."""
    sizes = np.logspace(0, 12, 1_000_000)
    seconds = median_seconds(lambda: commlab.alpha_beta_ring_allreduce(sizes, 64, ALPHA, NVLINK))
    print(f"alpha_beta_ring_allreduce: {seconds * 1e6 / sizes.size:.3f} µs a point")


if __name__ == "__main__":
    ring_1024()
    simulation()
    closed_forms()
