"""The entry of an algorithm in the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from commlab.checks import check_n_ranks
from commlab.schedule import Schedule


def any_number(n_ranks: int, **options: object) -> bool:
    """Whether N is a number of ranks at all: the algorithm asks for nothing else."""
    return n_ranks >= 1


def one_port(n_ranks: int) -> int:
    """A rank sends one message at a time and receives one."""
    return 1


def no_options(nbytes: float, n_ranks: int, alpha: float, beta: float) -> dict[str, int]:
    """There is nothing to choose."""
    return {}


@dataclass(frozen=True)
class Algorithm:
    """A collective algorithm: how to build it, for which N, and what it costs.

    Attributes
    ----------
    builder : callable
        ``builder(n_ranks, **options) -> Schedule``.
    closed_form : callable
        ``closed_form(nbytes, n_ranks, alpha, beta, **options) -> seconds`` on a flat network,
        with the options in `priced_options`.
    citation : str
        Where the algorithm and its cost come from.
    exact : bool
        Whether the price of the schedule, in equal parts and on a flat topology, equals the
        closed form; if not, the closed form is an upper bound.
    ports : callable
        ``ports(n_ranks) -> int``: messages that a rank sends at once.
    supports : callable
        ``supports(n_ranks, **options) -> bool``.
    requirement : str
        What `supports` asks for, in words, for the sentence that refuses another N.
    options : tuple of str
        Names of what `build` takes besides N.
    priced_options : tuple of str
        Those of them that the closed form depends on.
    best_options : callable
        ``best_options(nbytes, n_ranks, alpha, beta) -> dict``: what suits a size best on a
        flat network.
    """

    builder: Callable[..., Schedule]
    closed_form: Callable[..., object]
    citation: str
    exact: bool = True
    ports: Callable[[int], int] = one_port
    supports: Callable[..., bool] = any_number
    requirement: str = "any number of ranks"
    options: tuple[str, ...] = ()
    priced_options: tuple[str, ...] = ()
    best_options: Callable[..., dict[str, int]] = no_options

    def build(self, n_ranks: int, **options: object) -> Schedule:
        """Return the schedule for ``n_ranks`` ranks.

        Raises
        ------
        ValueError
            If the algorithm does not support that number, or takes no such option.
        """
        n_ranks = check_n_ranks(n_ranks)
        unknown = sorted(set(options) - set(self.options))
        if unknown:
            known = ", ".join(self.options) if self.options else "none"
            raise ValueError(
                f"{self.builder.__name__} takes no option {unknown[0]!r}; its options: {known}."
            )
        if not self.supports(n_ranks, **options):
            given = "".join(f", {name}={value}" for name, value in options.items())
            raise ValueError(
                f"{self.builder.__name__} needs {self.requirement}; got {n_ranks} ranks{given}."
            )
        return self.builder(n_ranks, **options)
