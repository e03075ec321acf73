"""Pipelined algorithms: the vector is cut into k chunks that follow each other.

While one pair of ranks moves chunk j, the pair before it already moves chunk j + 1.
"""

from __future__ import annotations

import numpy as np

from commlab.algorithms.equal_chunks import equal_chunks_schedule
from commlab.checks import check_n_ranks, check_rank
from commlab.schedule import COPY, REDUCE, Schedule, Step

PIPELINE_CHUNKS = 8
"""k where a caller gives none; `commlab.cost.best_chain_chunks` has the best one for a size."""


def pipelined_chain_broadcast(
    n_ranks: int, root: int = 0, pipeline_chunks: int = PIPELINE_CHUNKS
) -> Schedule:
    """Broadcast along the chain root, root + 1, ..., in k chunks: N - 2 + k steps of S/k."""
    steps = chain_broadcast_steps(n_ranks, root, pipeline_chunks)
    return equal_chunks_schedule(
        "broadcast", n_ranks, pipeline_chunks, steps, "pipelined_chain", starts_at=root
    )


def pipelined_chain_reduce(
    n_ranks: int, root: int = 0, pipeline_chunks: int = PIPELINE_CHUNKS
) -> Schedule:
    """Reduce along the same chain towards the root: the broadcast backwards, with additions."""
    steps = backwards(chain_broadcast_steps(n_ranks, root, pipeline_chunks), REDUCE)
    return equal_chunks_schedule(
        "reduce", n_ranks, pipeline_chunks, steps, "pipelined_chain", ends_at=root
    )


def pipelined_chain_all_reduce(n_ranks: int, pipeline_chunks: int = PIPELINE_CHUNKS) -> Schedule:
    """All-reduce: a pipelined chain reduce to rank 0, then a pipelined chain broadcast."""
    broadcast = chain_broadcast_steps(n_ranks, 0, pipeline_chunks)
    return equal_chunks_schedule(
        "all_reduce",
        n_ranks,
        pipeline_chunks,
        backwards(broadcast, REDUCE) + broadcast,
        "pipelined_chain",
    )


def pipelined_binary_tree_all_reduce(
    n_ranks: int, pipeline_chunks: int = PIPELINE_CHUNKS
) -> Schedule:
    """All-reduce: reduce along a complete binary tree to rank 0, then broadcast along it.

    Rank r has the children 2r + 1 and 2r + 2. With one port a rank serves its two children
    in turn, so each phase moves a chunk every two steps and 4 S go through an inner rank.
    """
    broadcast = binary_tree_broadcast_steps(n_ranks, pipeline_chunks)
    return equal_chunks_schedule(
        "all_reduce",
        n_ranks,
        pipeline_chunks,
        backwards(broadcast, REDUCE) + broadcast,
        "pipelined_binary_tree",
    )


def chain_broadcast_steps(n_ranks: int, root: int, pipeline_chunks: int) -> list[Step]:
    """In step s, the link at distance i from the root carries chunk s - i."""
    n_ranks = check_n_ranks(n_ranks)
    root = check_rank(root, n_ranks)
    k = check_n_ranks(pipeline_chunks, "pipeline_chunks")
    distance = np.arange(n_ranks - 1)
    steps = []
    for s in range(n_ranks - 2 + k):
        chunk = s - distance
        busy = (chunk >= 0) & (chunk < k)
        src = (root + distance[busy]) % n_ranks
        steps.append(Step(src=src, dst=(src + 1) % n_ranks, chunk=chunk[busy], op=COPY))
    return steps if n_ranks > 1 else []


def binary_tree_broadcast_steps(n_ranks: int, pipeline_chunks: int) -> list[Step]:
    """Rank r hands chunk j to its first child one step after receiving it, then to its second."""
    n_ranks = check_n_ranks(n_ranks)
    k = check_n_ranks(pipeline_chunks, "pipeline_chunks")
    child = np.arange(1, n_ranks)
    first_step = binary_tree_arrivals(n_ranks)[1:]
    return without_pauses(steps_every_second(child, (child - 1) // 2, first_step, k))


def binary_tree_arrivals(n_ranks: int) -> np.ndarray:
    """Return the step in which each rank receives chunk 0; -1 for the root, shape (N,)."""
    arrival = np.full(n_ranks, -1)
    for rank in range(1, n_ranks):
        is_second_child = rank % 2 == 0
        arrival[rank] = arrival[(rank - 1) // 2] + 1 + is_second_child
    return arrival


def steps_every_second(
    child: np.ndarray, parent: np.ndarray, first_step: np.ndarray, pipeline_chunks: int
) -> list[Step]:
    """Copies down tree edges that each carry their chunk j in step ``first_step + 2 j``."""
    if not child.size:
        return []
    steps = []
    for s in range(int(first_step.max()) + 2 * (pipeline_chunks - 1) + 1):
        chunk, parity = np.divmod(s - first_step, 2)
        busy = (parity == 0) & (chunk >= 0) & (chunk < pipeline_chunks)
        steps.append(Step(src=parent[busy], dst=child[busy], chunk=chunk[busy], op=COPY))
    return steps


def without_pauses(steps: list[Step]) -> list[Step]:
    """Leave out steps in which nobody sends, as between the chunks of a short tree."""
    return [step for step in steps if len(step)]


def backwards(steps: list[Step], op: int) -> list[Step]:
    """The same transfers in reverse order and direction: a broadcast becomes a reduction."""
    return [Step(src=step.dst, dst=step.src, chunk=step.chunk, op=op) for step in reversed(steps)]
