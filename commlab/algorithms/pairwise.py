"""Pairwise reduce-scatter: every contribution goes straight to the rank that needs it."""

from __future__ import annotations

import numpy as np

from commlab.algorithms.equal_chunks import reduce_scatter_schedule
from commlab.checks import check_n_ranks
from commlab.schedule import REDUCE, Schedule, Step


def pairwise_reduce_scatter(n_ranks: int) -> Schedule:
    """Reduce-scatter in N-1 steps: in step s, rank r sends chunk ``r + s`` to rank ``r + s``.

    As many steps and bytes as a ring, for any order of additions; but every step has another
    partner. Source: Thakur, Rabenseifner and Gropp (2005).
    """
    n_ranks = check_n_ranks(n_ranks)
    r = np.arange(n_ranks)
    steps = [
        Step(src=r, dst=(r + s) % n_ranks, chunk=(r + s) % n_ranks, op=REDUCE)
        for s in range(1, n_ranks)
    ]
    return reduce_scatter_schedule(n_ranks, steps, "pairwise")
