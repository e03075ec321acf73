"""The naive all-reduce: everything goes through rank 0."""

from __future__ import annotations

from fractions import Fraction

from commlab.checks import check_n_ranks
from commlab.schedule import COPY, REDUCE, Schedule, Step


def naive_all_reduce(n_ranks: int) -> Schedule:
    """All-reduce through rank 0: it receives every vector, then sends the sum to everybody.

    2(N-1) steps of the whole vector. Rank 0 sends and receives (N-1) S.
    """
    n_ranks = check_n_ranks(n_ranks)
    others = range(1, n_ranks)
    gather = [Step(src=[r], dst=[0], chunk=[0], op=REDUCE) for r in others]
    spread = [Step(src=[0], dst=[r], chunk=[0], op=COPY) for r in others]
    return Schedule(
        "all_reduce",
        n_ranks,
        shares=[Fraction(1)],
        starts=[[0]] * n_ranks,
        ends=[[0]] * n_ranks,
        steps=gather + spread,
        name="naive",
    )
