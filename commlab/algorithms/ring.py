"""Ring algorithms: every rank talks to its neighbours only."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

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


def ring_reduce_scatter(n_ranks: int, owner_shift: int = 0) -> Schedule:
    """Ring reduce-scatter: rank r ends with the sum of chunk ``(r + owner_shift) % N``.

    ``owner_shift=0`` is what `torch.distributed` promises; the first half of the textbook
    ring all-reduce has ``owner_shift=1``.
    """
    n_ranks = check_n_ranks(n_ranks)
    everything = tuple(range(n_ranks))
    return Schedule(
        "reduce_scatter",
        n_ranks,
        shares=[Fraction(1, n_ranks)] * n_ranks,
        starts=[everything] * n_ranks,
        ends=[[(r + owner_shift) % n_ranks] for r in range(n_ranks)],
        steps=reduce_scatter_steps(n_ranks, owner_shift),
        name="ring",
    )


def ring_all_gather(n_ranks: int) -> Schedule:
    """Ring all-gather: rank r starts with chunk r, and every rank ends with all chunks."""
    n_ranks = check_n_ranks(n_ranks)
    return Schedule(
        "all_gather",
        n_ranks,
        shares=[Fraction(1, n_ranks)] * n_ranks,
        starts=[[r] for r in range(n_ranks)],
        ends=[tuple(range(n_ranks))] * n_ranks,
        steps=all_gather_steps(n_ranks, owner_shift=0),
        name="ring",
    )


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
