"""Bruck's algorithms: ceil(log2 N) steps for any N, at distances 1, 2, 4, ..."""

from __future__ import annotations

import numpy as np

from commlab.algorithms.all_to_all import all_to_all_schedule
from commlab.algorithms.equal_chunks import all_gather_schedule
from commlab.checks import check_n_ranks
from commlab.schedule import COPY, Schedule, Step


def bruck_all_gather(n_ranks: int) -> Schedule:
    """All-gather in ceil(log2 N) steps for any N; every rank sends (N-1)/N S.

    Before the step of distance d, rank r holds chunks r to r + d - 1. It sends them to rank
    r - d; in the last step only as many as are missing there.

    References
    ----------
    Bruck, Ho, Kipnis, Upfal and Weathersby (1997), "Efficient Algorithms for All-to-All
    Communications in Multiport Message-Passing Systems".
    """
    n_ranks = check_n_ranks(n_ranks)
    steps = []
    distance = 1
    while distance < n_ranks:
        count = min(distance, n_ranks - distance)
        rank, offset = (axis.reshape(-1) for axis in np.indices((n_ranks, count)))
        steps.append(
            Step(
                src=rank,
                dst=(rank - distance) % n_ranks,
                chunk=(rank + offset) % n_ranks,
                op=COPY,
            )
        )
        distance *= 2
    return all_gather_schedule(n_ranks, steps, "bruck")


def bruck_all_to_all(n_ranks: int) -> Schedule:
    """All-to-all in ceil(log2 N) steps, for small messages: chunks travel over other ranks.

    A chunk that must move on by j ranks does so by the binary digits of j: after the step of
    distance d it has moved by j mod 2d. So a rank sends about S/2 in each step, and
    (S/2) log2 N in all for a power of two. Source: Bruck et al. (1997), as above.
    """
    n_ranks = check_n_ranks(n_ranks)
    owner, way = (axis.reshape(-1) for axis in np.indices((n_ranks, n_ranks)))
    chunk = owner * n_ranks + (owner + way) % n_ranks
    steps = []
    distance = 1
    while distance < n_ranks:
        moves = way // distance % 2 == 1
        here = (owner + way % distance)[moves] % n_ranks
        steps.append(Step(src=here, dst=(here + distance) % n_ranks, chunk=chunk[moves], op=COPY))
        distance *= 2
    return all_to_all_schedule(n_ranks, steps, "bruck")
