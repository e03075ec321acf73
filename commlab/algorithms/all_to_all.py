"""All-to-all: every rank has a chunk for every other. Chunk ``from * N + to``."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from commlab.checks import check_n_ranks
from commlab.schedule import COPY, Schedule, Step


def pairwise_all_to_all(n_ranks: int) -> Schedule:
    """All-to-all in N-1 steps: in step s, rank r sends to ``r + s`` and receives from ``r - s``."""
    n_ranks = check_n_ranks(n_ranks)
    r = np.arange(n_ranks)
    steps = [
        Step(src=r, dst=(r + s) % n_ranks, chunk=r * n_ranks + (r + s) % n_ranks, op=COPY)
        for s in range(1, n_ranks)
    ]
    return _all_to_all(n_ranks, steps, "pairwise")


def direct_all_to_all(n_ranks: int) -> Schedule:
    """All-to-all in one step: every rank sends N-1 messages at once and needs N-1 ports."""
    n_ranks = check_n_ranks(n_ranks)
    sender, receiver = np.nonzero(~np.eye(n_ranks, dtype=bool))
    steps = [Step(src=sender, dst=receiver, chunk=sender * n_ranks + receiver, op=COPY)]
    return _all_to_all(n_ranks, steps if n_ranks > 1 else [], "direct")


def _all_to_all(n_ranks: int, steps: list[Step], name: str) -> Schedule:
    chunks = np.arange(n_ranks * n_ranks).reshape(n_ranks, n_ranks)
    return Schedule(
        "all_to_all",
        n_ranks,
        shares=[Fraction(1, n_ranks)] * n_ranks**2,
        starts=chunks.tolist(),
        ends=chunks.T.tolist(),
        steps=steps,
        name=name,
    )
