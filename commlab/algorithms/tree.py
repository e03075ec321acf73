"""Binomial trees: the number of ranks that are done doubles in every step."""

from __future__ import annotations

import numpy as np

from commlab.algorithms.equal_chunks import equal_chunks_schedule
from commlab.algorithms.ring import all_gather_steps
from commlab.checks import check_n_ranks, check_rank
from commlab.schedule import COPY, REDUCE, Schedule, Step


def binomial_tree_all_reduce(n_ranks: int) -> Schedule:
    """All-reduce along a binomial tree: reduce to rank 0, then broadcast.

    2 ceil(log2 N) steps of the whole vector.

    References
    ----------
    Thakur, Rabenseifner and Gropp (2005), "Optimization of Collective Communication
    Operations in MPICH".
    """
    steps = reduce_steps(n_ranks, root=0) + broadcast_steps(n_ranks, root=0)
    return equal_chunks_schedule("all_reduce", n_ranks, 1, steps, "binomial_tree")


def binomial_tree_reduce(n_ranks: int, root: int = 0) -> Schedule:
    """Reduce along a binomial tree: ``root`` ends with the sum, in ceil(log2 N) steps."""
    return equal_chunks_schedule(
        "reduce", n_ranks, 1, reduce_steps(n_ranks, root), "binomial_tree", ends_at=root
    )


def binomial_tree_broadcast(n_ranks: int, root: int = 0) -> Schedule:
    """Broadcast along a binomial tree: everybody ends with ``root``'s vector."""
    steps = broadcast_steps(n_ranks, root)
    return equal_chunks_schedule("broadcast", n_ranks, 1, steps, "binomial_tree", starts_at=root)


def scatter_all_gather_broadcast(n_ranks: int, root: int = 0) -> Schedule:
    """Broadcast of long vectors: a binomial-tree scatter, then a ring all-gather.

    ceil(log2 N) + N - 1 steps, 2(N-1)/N S on the critical path. Source: Barnett, Gupta,
    Payne, Shuler, van de Geijn and Watts (1994), "Interprocessor collective communication
    library", and Thakur et al. (2005), as above.
    """
    n_ranks = check_n_ranks(n_ranks)
    root = check_rank(root, n_ranks)
    # Place p of the ring is rank p + root; it is to own chunk p.
    gather = [
        Step((step.src + root) % n_ranks, (step.dst + root) % n_ranks, step.chunk, step.op)
        for step in all_gather_steps(n_ranks, owner_shift=0)
    ]
    steps = scatter_steps(n_ranks, root) + gather
    return equal_chunks_schedule(
        "broadcast", n_ranks, n_ranks, steps, "scatter_all_gather", starts_at=root
    )


def scatter_steps(n_ranks: int, root: int) -> list[Step]:
    """At distance d = ..., 4, 2, 1, a holder passes on the chunks of the next d places."""
    steps = []
    distance = 1 << max(0, (n_ranks - 1).bit_length() - 1)
    while distance and n_ranks > 1:
        holder, offset = (
            axis.reshape(-1)
            for axis in np.meshgrid(
                np.arange(0, n_ranks - distance, 2 * distance), np.arange(distance), indexing="ij"
            )
        )
        chunk = holder + distance + offset
        exists = chunk < n_ranks
        steps.append(
            Step(
                src=(holder[exists] + root) % n_ranks,
                dst=(holder[exists] + distance + root) % n_ranks,
                chunk=chunk[exists],
                op=COPY,
            )
        )
        distance //= 2
    return steps


def reduce_steps(n_ranks: int, root: int) -> list[Step]:
    """At distance d = 1, 2, 4, ..., every other surviving rank adds its vector to one lower."""
    ranks = np.arange(check_n_ranks(n_ranks))
    root = check_rank(root, n_ranks)
    steps = []
    distance = 1
    while distance < n_ranks:
        senders = ranks[ranks % (2 * distance) == distance]
        steps.append(
            Step(
                src=(senders + root) % n_ranks,
                dst=(senders - distance + root) % n_ranks,
                chunk=np.zeros_like(senders),
                op=REDUCE,
            )
        )
        distance *= 2
    return steps


def broadcast_steps(n_ranks: int, root: int) -> list[Step]:
    """The reduction backwards, with copies instead of additions."""
    return [
        Step(src=step.dst, dst=step.src, chunk=step.chunk, op=COPY)
        for step in reversed(reduce_steps(n_ranks, root))
    ]
