"""Ring algorithms: every rank talks to its neighbours only."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from commlab.algorithms.equal_chunks import (
    all_gather_schedule,
    equal_chunks_schedule,
    reduce_scatter_schedule,
)
from commlab.algorithms.node_size import node_shape
from commlab.checks import check_n_ranks
from commlab.schedule import COPY, REDUCE, Schedule, Step


def ring_all_reduce(n_ranks: int) -> Schedule:
    """Ring all-reduce: a reduce-scatter, then an all-gather, around one ring.

    2(N-1) steps of one chunk of S/N. Every rank sends 2(N-1)/N S.

    References
    ----------
    Patarasuk and Yuan (2009), "Bandwidth Optimal All-reduce Algorithms for Clusters of
    Workstations".
    """
    steps = reduce_scatter_steps(n_ranks, owner_shift=1) + all_gather_steps(n_ranks, owner_shift=1)
    everything = tuple(range(n_ranks))
    return Schedule(
        "all_reduce",
        n_ranks,
        shares=[Fraction(1, n_ranks)] * n_ranks,
        starts=[everything] * n_ranks,
        ends=[everything] * n_ranks,
        steps=steps,
        name="ring",
    )


def bidirectional_ring_all_reduce(n_ranks: int) -> Schedule:
    """Two ring all-reduces at once: one half of the vector goes each way round.

    2(N-1) steps in which every rank sends S/(2N) to both neighbours, so it needs two ports.
    Where each direction has wires of its own this halves the time of the bytes; where a
    rank's bandwidth is one budget for all its ports it gains nothing.

    Chunks 0 to N-1 go to the right, chunks N to 2N-1 to the left.
    """
    n_ranks = check_n_ranks(n_ranks)
    rightward = reduce_scatter_steps(n_ranks, owner_shift=1) + all_gather_steps(n_ranks, 1)
    steps = []
    for right in rightward:
        # The mirror image: rank -r does to the left what rank r does to the right.
        mirrored = -right.src % n_ranks, -right.dst % n_ranks
        steps.append(
            Step(
                src=np.concatenate([right.src, mirrored[0]]),
                dst=np.concatenate([right.dst, mirrored[1]]),
                chunk=np.concatenate([right.chunk, n_ranks + right.chunk]),
                op=np.concatenate([right.op, right.op]),
            )
        )
    return equal_chunks_schedule("all_reduce", n_ranks, 2 * n_ranks, steps, "bidirectional_ring")


def multi_rail_ring_all_reduce(
    n_ranks: int, gpus_per_node: int | None = None, rails: int | None = None
) -> Schedule:
    """R ring all-reduces at once, each through all GPUs, leaving nodes through another rail.

    Ring c visits the GPUs of a node from ``c g/R`` on, in a circle, and then goes to the next
    node: every network interface carries one ring out and one in. Each ring has 1/R of the
    vector. NCCL's channels are rings of this kind. A rank may send inside its node and out
    of it in one step, so it needs two ports.

    Parameters
    ----------
    n_ranks : int
        N = m g, node by node.
    gpus_per_node : int, optional
        g; see `usual_gpus_per_node` for the default.
    rails : int, optional
        R, network interfaces per node; a divisor of g, all of them by default.
    """
    m, g = node_shape(n_ranks, gpus_per_node)
    n_ranks = m * g
    rails = g if rails is None else check_n_ranks(rails, "rails")
    if g % rails:
        raise ValueError(f"{rails} rails do not serve {g} GPUs evenly: rails must divide g.")
    ring = reduce_scatter_steps(n_ranks, owner_shift=1) + all_gather_steps(n_ranks, 1)
    # seat[c, i] is the rank that stands at place i of ring c.
    place = np.arange(n_ranks)
    first_gpu = np.arange(rails)[:, None] * (g // rails)
    seat = place // g * g + (place + first_gpu) % g
    offset = np.arange(rails)[:, None] * n_ranks
    steps = [
        Step(
            src=seat[:, step.src].reshape(-1),
            dst=seat[:, step.dst].reshape(-1),
            chunk=(step.chunk + offset).reshape(-1),
            op=np.tile(step.op, rails),
        )
        for step in ring
    ]
    return equal_chunks_schedule("all_reduce", n_ranks, rails * n_ranks, steps, "multi_rail_ring")


def ring_reduce_scatter(n_ranks: int, owner_shift: int = 0) -> Schedule:
    """Ring reduce-scatter: rank r ends with the sum of chunk ``(r + owner_shift) % N``.

    ``owner_shift=0`` is what `torch.distributed` promises; the first half of the textbook
    ring all-reduce has ``owner_shift=1``.
    """
    n_ranks = check_n_ranks(n_ranks)
    steps = reduce_scatter_steps(n_ranks, owner_shift)
    return reduce_scatter_schedule(n_ranks, steps, "ring", owner_shift)


def ring_all_gather(n_ranks: int) -> Schedule:
    """Ring all-gather: rank r starts with chunk r, and every rank ends with all chunks."""
    n_ranks = check_n_ranks(n_ranks)
    return all_gather_schedule(n_ranks, all_gather_steps(n_ranks, owner_shift=0), "ring")


def reduce_scatter_steps(n_ranks: int, owner_shift: int) -> list[Step]:
    """In step s, rank r adds chunk ``r - s`` (shifted) to its right neighbour's."""
    r = np.arange(check_n_ranks(n_ranks))
    return [
        Step(src=r, dst=(r + 1) % n_ranks, chunk=(r - s - 1 + owner_shift) % n_ranks, op=REDUCE)
        for s in range(n_ranks - 1)
    ]


def all_gather_steps(n_ranks: int, owner_shift: int) -> list[Step]:
    """In step s, rank r hands on the chunk that it completed or received s steps ago."""
    r = np.arange(check_n_ranks(n_ranks))
    return [
        Step(src=r, dst=(r + 1) % n_ranks, chunk=(r - s + owner_shift) % n_ranks, op=COPY)
        for s in range(n_ranks - 1)
    ]
