"""What no algorithm can beat, and how far a schedule stays above it.

The bounds hold in the alpha-beta model for ranks that compute sums themselves. A switch that
adds on the way (in-network reduction) is outside of them and can be faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from commlab.checks import check_alpha, check_n_ranks, only_one
from commlab.cost.arguments import Scalars, arguments, as_seconds
from commlab.ledger import ledger
from commlab.schedule import Schedule, verify

COLLECTIVES = (
    "broadcast",
    "reduce",
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "all_to_all",
)


def least_steps(n_ranks: int, ports: int = 1) -> int:
    """Return the fewest steps of any of the six collectives.

    ``ceil(log(N) / log(p+1))`` for p ports: in one step the ranks that can know of a
    contribution become at most p + 1 times as many.
    """
    n_ranks, ports = check_n_ranks(n_ranks), check_n_ranks(ports, "ports")
    steps, reached = 0, 1
    while reached < n_ranks:
        reached *= ports + 1
        steps += 1
    return steps


def least_share(collective: str, n_ranks: int) -> Fraction:
    """Return the least that the busiest rank sends or receives, as a part of S.

    All-reduce ``2(N-1)/N``; reduce-scatter, all-gather and all-to-all ``(N-1)/N``; broadcast
    and reduce 1. S is the whole array, as for nccl-tests; parts are equal.

    Parameters
    ----------
    collective : str
        One of `COLLECTIVES`.
    n_ranks : int

    References
    ----------
    Chan, Heimlich, Purkayastha and van de Geijn (2007), "Collective communication: theory,
    practice, and experience"; all-reduce: Patarasuk and Yuan (2009).
    """
    n = check_n_ranks(n_ranks)
    check_collective(collective)
    if n == 1:
        return Fraction(0)
    if collective == "all_reduce":
        return Fraction(2 * (n - 1), n)
    if collective in ("broadcast", "reduce"):
        return Fraction(1)
    return Fraction(n - 1, n)


def latency_lower_bound(n_ranks: int, alpha: float, ports: int = 1) -> float:
    """Return the least time of messages without bytes: ``least_steps * alpha``, in seconds."""
    return least_steps(n_ranks, ports) * only_one(check_alpha(alpha), "alpha")


def bandwidth_lower_bound(collective: str, nbytes: Scalars, n_ranks: int, beta: Scalars) -> Scalars:
    """Return the least time of the bytes: ``least_share * S / beta``, in seconds.

    Broadcasts over `nbytes` and `beta`.
    """
    share = float(least_share(collective, n_ranks))
    size, _, _, bandwidth = arguments(nbytes, n_ranks, 0.0, beta)
    return as_seconds(share * size / bandwidth)


def lower_bound(
    collective: str, nbytes: Scalars, n_ranks: int, alpha: float, beta: Scalars, ports: int = 1
) -> Scalars:
    """Return the larger of both bounds: no algorithm takes less time, in seconds.

    Notes
    -----
    No algorithm need reach it: what saves steps often costs bytes. Their sum is not a bound.
    """
    latency = latency_lower_bound(n_ranks, alpha, ports)
    bytes_time = bandwidth_lower_bound(collective, nbytes, n_ranks, beta)
    return as_seconds(np.maximum(latency, bytes_time))


@dataclass(frozen=True)
class Distance:
    """How far a schedule stays above the lower bounds.

    Attributes
    ----------
    steps, least_steps : int
        Steps of the schedule, and the fewest that its collective needs.
    share, least_share : Fraction
        Sum over steps of what the busiest rank sends or receives, and the least possible,
        in parts of S.
    """

    steps: int
    least_steps: int
    share: Fraction
    least_share: Fraction

    @property
    def latency_factor(self) -> float:
        """Steps over fewest steps; 1 where there is nothing to do."""
        return self.steps / self.least_steps if self.least_steps else 1.0

    @property
    def bandwidth_factor(self) -> float:
        """Bytes on the critical path over the least bytes; 1 where there is nothing to do."""
        return float(self.share / self.least_share) if self.least_share else 1.0

    def __str__(self) -> str:
        return (
            f"{self.steps} steps ({self.latency_factor:.2f} times the fewest, "
            f"{self.least_steps}), {float(self.share):.3f} S on the critical path "
            f"({self.bandwidth_factor:.2f} times the least, {float(self.least_share):.3f} S)"
        )


def distance_from_bounds(schedule: Schedule, ports: int = 1) -> Distance:
    """Measure a schedule against the lower bounds of its collective.

    Parameters
    ----------
    schedule : Schedule
        Verified first. Its ``collective`` must be one of `COLLECTIVES`, in equal parts.
    ports : int
        Messages that a rank may send at once; more of them lower the fewest steps.

    Returns
    -------
    Distance

    Raises
    ------
    ScheduleError
        If the schedule is wrong: one that leaves work out would beat every bound.
    ValueError
        If its parts are unequal.
    """
    verify(schedule)
    check_collective(schedule.collective)
    in_parts = schedule.collective in ("reduce_scatter", "all_gather", "all_to_all")
    if in_parts and len(set(schedule.shares)) > 1:
        raise ValueError(
            f"the bounds of {schedule.collective} hold for equal parts, and this schedule has "
            "unequal ones."
        )
    book = ledger(schedule)
    return Distance(
        steps=len(schedule.steps),
        least_steps=least_steps(schedule.n_ranks, ports),
        share=book.critical,
        least_share=least_share(schedule.collective, schedule.n_ranks),
    )


def check_collective(collective: str) -> None:
    """Say which collectives there are, if this is none."""
    if collective not in COLLECTIVES:
        known = ", ".join(COLLECTIVES)
        raise ValueError(f"{collective!r} is no collective of this book; choose one of: {known}.")
