"""The entry of an algorithm in the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from commlab.checks import check_n_ranks
from commlab.schedule import Schedule


@dataclass(frozen=True)
class Algorithm:
    """A collective algorithm: how to build it, for which N, and what it costs.

    Attributes
    ----------
    builder : callable
        ``builder(n_ranks, **options) -> Schedule``.
    closed_form : callable
        ``closed_form(nbytes, n_ranks, alpha, beta) -> seconds``.
    citation : str
        Where the algorithm and its cost come from.
    exact : bool
        Whether the price of the schedule on a flat topology equals the closed form; if not,
        the closed form is a bound.
    ports : callable
        ``ports(n_ranks) -> int``: messages that a rank sends at once.
    supports : callable
        ``supports(n_ranks) -> bool``.
    requirement : str
        What `supports` asks for, in words, for the sentence that refuses another N.
    """

    builder: Callable[..., Schedule]
    closed_form: Callable[..., object]
    citation: str
    exact: bool = True
    ports: Callable[[int], int] = lambda n_ranks: 1
    supports: Callable[[int], bool] = lambda n_ranks: n_ranks >= 1
    requirement: str = "any number of ranks"

    def build(self, n_ranks: int, **options: int) -> Schedule:
        """Return the schedule for ``n_ranks`` ranks.

        Raises
        ------
        ValueError
            If the algorithm does not support that number.
        """
        n_ranks = check_n_ranks(n_ranks)
        if not self.supports(n_ranks):
            raise ValueError(
                f"{self.builder.__name__} needs {self.requirement}; got {n_ranks} ranks."
            )
        return self.builder(n_ranks, **options)
