"""Schedules of equal chunks, by what the ranks hold before and after."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from commlab.schedule import Schedule, Step


def equal_chunks_schedule(
    collective: str,
    n_ranks: int,
    n_chunks: int,
    steps: Sequence[Step],
    name: str,
    *,
    starts_at: int | None = None,
    ends_at: int | None = None,
) -> Schedule:
    """Return a schedule that starts and ends with all chunks: on every rank, or on one.

    Parameters
    ----------
    starts_at, ends_at : int or None
        The one rank that starts or ends with them; None means every rank.
    """
    everything, nothing = tuple(range(n_chunks)), ()
    return Schedule(
        collective,
        n_ranks,
        shares=[Fraction(1, n_chunks)] * n_chunks,
        starts=[everything if starts_at in (None, r) else nothing for r in range(n_ranks)],
        ends=[everything if ends_at in (None, r) else nothing for r in range(n_ranks)],
        steps=steps,
        name=name,
    )


def reduce_scatter_schedule(
    n_ranks: int, steps: Sequence[Step], name: str, owner_shift: int = 0
) -> Schedule:
    """Return a reduce-scatter in N chunks; rank r ends with chunk ``(r + owner_shift) % N``."""
    everything = tuple(range(n_ranks))
    return Schedule(
        "reduce_scatter",
        n_ranks,
        shares=[Fraction(1, n_ranks)] * n_ranks,
        starts=[everything] * n_ranks,
        ends=[[(r + owner_shift) % n_ranks] for r in range(n_ranks)],
        steps=steps,
        name=name,
    )


def all_gather_schedule(n_ranks: int, steps: Sequence[Step], name: str) -> Schedule:
    """Return an all-gather in N chunks; rank r starts with chunk r."""
    everything = tuple(range(n_ranks))
    return Schedule(
        "all_gather",
        n_ranks,
        shares=[Fraction(1, n_ranks)] * n_ranks,
        starts=[[r] for r in range(n_ranks)],
        ends=[everything] * n_ranks,
        steps=steps,
        name=name,
    )
