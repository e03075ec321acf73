"""Time the core: importing it, a ring of 1024 ranks, and a simulation of real size.

    python -m benchmarks.core

Timings are measured here and nowhere asserted.
"""

from __future__ import annotations

import resource
import subprocess
import sys

import numpy as np

import commlab
from benchmarks.timing import fastest_seconds, machine, seconds_of_children
from commlab.algorithms import ring_all_reduce
from commlab.hardware import ALPHA, NVLINK
from commlab.units import GIB, MIB


def imports() -> None:
    """Print what `import commlab` takes, in all and on top of numpy."""
    statements = ("pass", "import numpy", "import commlab")
    seconds = fastest_seconds(
        {
            statement: lambda statement=statement: subprocess.run(
                [sys.executable, "-c", statement], check=True
            )
            for statement in statements
        },
        repeats=20,
        clock=seconds_of_children,
    )
    python, numpy, commlab_ = (seconds[statement] for statement in statements)
    print(
        f"import commlab: {commlab_ - python:.3f} s, of which numpy takes {numpy - python:.3f} s "
        f"and commlab itself {commlab_ - numpy:.3f} s"
    )


def ring_1024() -> None:
    """Print the times of all readers of a ring of 1024 ranks, and the peak memory."""
    n_ranks = 1024
    schedule = ring_all_reduce(n_ranks)
    topology = commlab.flat_topology(n_ranks, ALPHA, NVLINK)
    seconds = fastest_seconds(
        {
            "build": lambda: ring_all_reduce(n_ranks),
            "verify": lambda: commlab.verify(schedule),
            "price": lambda: commlab.price(schedule, topology, GIB),
        },
        repeats=5,
    )
    print(f"ring N = 1024, {sum(len(step) for step in schedule.steps)} transfers:")
    for name, value in seconds.items():
        print(f"  {name}: {value:.2f} s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"  peak memory so far: {peak / 1e6:.0f} MB")

    def add_up() -> None:
        book = commlab.ledger(schedule)
        _ = book.sent, book.received, book.critical, book.by_link

    buffers = [np.ones(n_ranks) for _ in range(n_ranks)]
    seconds = fastest_seconds(
        {"ledger": add_up, "simulate": lambda: commlab.simulate(schedule, buffers)}, repeats=2
    )
    print(f"  ledger, added up by rank, step and link: {seconds['ledger']:.2f} s")
    print(f"  simulate, one element a chunk: {seconds['simulate']:.1f} s")


def simulation() -> None:
    """Print the time of a simulated ring against the bare additions and copies.

    `simulate` promises not to change its input, so each rank's memory is a copy: the
    comparison is with numpy that copies first. Numpy that overwrites its input is given
    as well; it moves fewer bytes and needs no fresh memory.
    """
    n_ranks, n_elements = 8, 64 * MIB // 4
    buffers = [np.ones(n_elements, dtype=np.float32) for _ in range(n_ranks)]
    overwritten = [buffer.copy() for buffer in buffers]
    schedule = ring_all_reduce(n_ranks)
    chunk = n_elements // n_ranks
    rows = [row for step in schedule.steps for row in step.transfers]

    def bare(ranks: list[np.ndarray]) -> list[np.ndarray]:
        for src, dst, piece, op in rows:
            part = slice(piece * chunk, (piece + 1) * chunk)
            if op == commlab.REDUCE:
                ranks[dst][part] += ranks[src][part]
            else:
                ranks[dst][part] = ranks[src][part]
        return ranks

    def copying() -> list[np.ndarray]:
        return bare([buffer.copy() for buffer in buffers])

    simulated = commlab.simulate(schedule, buffers).buffers
    assert all(np.array_equal(*pair) for pair in zip(simulated, copying(), strict=True))
    del simulated
    seconds = fastest_seconds(
        {
            "simulate": lambda: commlab.simulate(schedule, buffers),
            "copying": copying,
            "overwriting": lambda: bare(overwritten),
        }
    )
    print(
        f"simulate ring N = 8, 64 MiB per rank: {seconds['simulate']:.3f} s, "
        f"{seconds['simulate'] / seconds['copying']:.2f} x the bare numpy copies and additions "
        f"({seconds['copying']:.3f} s), "
        f"{seconds['simulate'] / seconds['overwriting']:.2f} x numpy that overwrites its input "
        f"({seconds['overwriting']:.3f} s)"
    )


def main() -> None:
    """Print all of them."""
    print(machine())
    imports()
    ring_1024()
    simulation()


if __name__ == "__main__":
    main()
