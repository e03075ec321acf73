"""A comparison with another program: ratios over a grid, and what explains them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """One quantity, as another program and as commlab computes it, over a grid of arguments.

    Attributes
    ----------
    name : str
        What is computed.
    smallest, largest : float
        The extremes over the grid of (theirs / ours).
    rest : float
        The largest part of theirs that `why` leaves unexplained; a rounding error where the
        derivation is right.
    why : str
        What theirs is in terms of ours.
    """

    name: str
    smallest: float
    largest: float
    rest: float
    why: str


def compare(
    name: str,
    theirs: Callable[..., float],
    ours: Callable[..., float],
    why: str,
    grid: dict[str, Iterable[float]],
    explained: Callable[..., float] | None = None,
) -> Comparison:
    """Evaluate both over the product of the grid's axes.

    `explained` computes theirs from ours as `why` says; without it, theirs should equal ours.
    """
    explained = explained or ours
    ratios, rests = [], []
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        their_value = theirs(**point)
        ratios.append(their_value / ours(**point))
        rests.append(abs(explained(**point) / their_value - 1))
    return Comparison(name, min(ratios), max(ratios), max(rests), why)


def print_table(comparisons: Iterable[Comparison]) -> None:
    """Print a Markdown table."""
    print("| quantity | theirs / ours | unexplained | theirs is |")
    print("| --- | --- | --- | --- |")
    for each in comparisons:
        # Two roundings of the same number are equal, whatever their order of operations.
        rest = "none" if each.rest < 1e-12 else f"{each.rest:.1e}"
        span = f"{each.smallest:.3g} to {each.largest:.3g}"
        if each.largest - each.smallest < 1e-9:
            span = f"{each.smallest:.3g}"
        print(f"| {each.name} | {span} | {rest} | {each.why} |", flush=True)
