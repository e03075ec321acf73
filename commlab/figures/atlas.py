"""The figures of the atlas: distance from the lower bounds, prices on machines, busbw.

As in the other figures every function draws on the Figure it is given and returns the
numbers it has drawn: seconds, bytes per second, and factors without a unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from string import ascii_lowercase

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from commlab.algorithms import REGISTRY
from commlab.algorithms.pipelined import PIPELINE_CHUNKS
from commlab.atlas import SAME_PRICE, algorithm_names
from commlab.cost import (
    alpha_beta_ring_allreduce,
    distance_from_bounds,
    in_network_allreduce_time,
    least_share,
)
from commlab.figures import style
from commlab.units import GIB, KIB, format_bytes, format_rate

POINTS = 41
LINE = 2.0
# The map keeps its right part free for the list of names.
MAP_SIZE = (7.0, 3.9)
MAP = {"left": 0.11, "right": 0.58}
NAMES_AT = 0.61
# Points nearer than this, in logarithms, have no room for two labels on one side.
CROWDED = 0.25
# Curves that a reader follows: the rings in one colour. All others are grey.
HIGHLIGHTED = {
    "ring": (style.COMMUNICATION, "-"),
    "bidirectional_ring": (style.COMMUNICATION, "--"),
    "multi_rail_ring": (style.COMMUNICATION, ":"),
    "halving_doubling": (style.ALTERNATIVE, "-"),
    "hierarchical": (style.THIRD, "-"),
}


def distance_map(
    fig: Figure,
    *,
    collective: str,
    n_ranks: int,
    pipeline_chunks: int = PIPELINE_CHUNKS,
    farthest: tuple[float, float] | None = None,
) -> dict[str, object]:
    """Draw every algorithm of a collective as a point: how far it is from both bounds.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
        Of `MAP_SIZE`.
    collective : str
    n_ranks : int
        Algorithms that do not support it are left out.
    pipeline_chunks : int
        k of the pipelined algorithms.
    farthest : tuple of float, optional
        Ends of both axes, where positions of a slider are compared; else they fit the data.

    Returns
    -------
    dict
        ``steps`` and ``bytes``, each by algorithm: steps over the fewest for its own ports,
        bytes on the critical path over the least; ``unbeaten``, the names that no other
        beats with as few ports.
    """
    places = {
        name: _place(collective, name, n_ranks, pipeline_chunks)
        for name in algorithm_names(collective)
        if REGISTRY[collective, name].supports(n_ranks)
    }
    unbeaten = [
        name
        for name, place in places.items()
        if not any(place.is_beaten_by(other) for other in places.values())
    ]
    if farthest is None:
        most = np.max([place.factors for place in places.values()], axis=0)
        farthest = max(8.0, 2 * float(most[0])), max(8.0, 2 * float(most[1]))
    ax = style.single_axes(fig, **MAP)
    _factor_axes(ax, farthest)
    _draw_front(ax, [places[name] for name in unbeaten])
    _draw_points(ax, places, unbeaten)
    _list_names(fig, places, unbeaten)
    ax.set_xlabel("steps, times the fewest")
    ax.set_ylabel("bytes, times the least")
    style.title(ax, f"{collective}, N = {n_ranks}: {len(unbeaten)} of {len(places)} beaten by none")
    return {
        "steps": {name: place.factors[0] for name, place in places.items()},
        "bytes": {name: place.factors[1] for name, place in places.items()},
        "unbeaten": unbeaten,
    }


def price_race(
    fig: Figure,
    *,
    curves: Mapping[str, Mapping[str, np.ndarray]],
    sizes: Sequence[float],
    machine: str,
) -> dict[str, object]:
    """Draw all algorithms on one machine against the size, as multiples of the fastest.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
    curves : mapping
        Seconds by machine and algorithm, from `commlab.atlas.price_curves`.
    sizes : sequence of float
        S, in bytes.
    machine : str
        A key of `curves`.

    Returns
    -------
    dict
        ``times``, multiples by algorithm, and ``winners``, the fastest at each size.
    """
    seconds = curves[machine]
    best = np.min(list(seconds.values()), axis=0)
    times = {name: values / best for name, values in seconds.items()}
    order = list(seconds)
    # The first of those that cost the same, whatever rounding says.
    fastest = np.argmax(np.stack([times[name] for name in order]) <= 1 + SAME_PRICE, axis=0)
    winners = [order[index] for index in fastest]

    ax = style.single_axes(fig, right=0.95)
    style.log_axis(ax.xaxis, sizes[0], sizes[-1], "bytes", base=2, step=4)
    style.log_axis(ax.yaxis, 0.9, 500, "count")
    for name, values in times.items():
        if name not in HIGHLIGHTED:
            ax.plot(sizes, values, color=style.WAIT, linewidth=1.0)
    for name, (colour, dashes) in HIGHLIGHTED.items():
        if name in times:
            ax.plot(sizes, times[name], dashes, color=colour, linewidth=LINE, label=name)
    ax.plot([], [], color=style.WAIT, linewidth=1.0, label="others")
    ax.set_xlabel("message S")
    ax.set_ylabel("times the fastest")
    style.title(ax, f"{machine}: {winners[-1]} is fastest at {format_bytes(sizes[-1])}")
    style.legend(ax, loc="upper left", ncol=2, borderaxespad=0.1)
    return {"times": times, "winners": winners}


def in_network_bandwidth(
    fig: Figure, *, n_ranks: int, alpha: float, beta: float
) -> dict[str, object]:
    """Draw busbw of a ring and of a switch that adds, against the size.

    Returns ``nbytes``, ``ring``, ``switch`` (busbw in bytes per second) and ``limit``, what
    busbw of the switch tends to.
    """
    nbytes = np.geomspace(64 * KIB, 64 * GIB, POINTS)
    factor = float(least_share("all_reduce", n_ranks))
    ring = factor * nbytes / alpha_beta_ring_allreduce(nbytes, n_ranks, alpha, beta)
    switch = factor * nbytes / in_network_allreduce_time(nbytes, n_ranks, alpha, beta)
    limit = factor * beta * n_ranks / (n_ranks + 1)

    ax = style.single_axes(fig, left=0.19, right=0.95)
    style.log_axis(ax.xaxis, 64 * KIB, 64 * GIB, "bytes", base=2, step=4)
    ax.set_ylim(0, 2.4 * beta)
    style.round_ticks(ax.yaxis, 2.4 * beta, "rate")
    ax.axhline(beta, color=style.WAIT, linestyle="--", label="link β")
    ax.plot(nbytes, switch, color=style.ALTERNATIVE, linewidth=LINE, label="switch adds")
    ax.plot(nbytes, ring, color=style.COMMUNICATION, linewidth=LINE, label="ring")
    ax.set_xlabel("message S")
    ax.set_ylabel("busbw")
    relation = "above" if limit > beta * (1 + 1e-9) else "not above"
    style.title(ax, f"N = {n_ranks}: busbw tends to {format_rate(limit)}, {relation} the link")
    style.legend(ax, loc="upper left", ncol=3)
    return {"nbytes": nbytes, "ring": ring, "switch": switch, "limit": limit}


@dataclass(frozen=True)
class _Place:
    """Where an algorithm stands: how much it needs, and how much more than necessary."""

    steps: int
    share: Fraction
    ports: int
    factors: tuple[float, float]

    def is_beaten_by(self, other: _Place) -> bool:
        """Whether another needs no more steps, bytes and ports, and less of one of them."""
        mine, others = ((each.steps, each.share, each.ports) for each in (self, other))
        return mine != others and all(o <= m for m, o in zip(mine, others, strict=True))


@lru_cache(maxsize=4096)
def _place(collective: str, name: str, n_ranks: int, pipeline_chunks: int) -> _Place:
    entry = REGISTRY[collective, name]
    options = {"pipeline_chunks": pipeline_chunks} if "pipeline_chunks" in entry.options else {}
    ports = entry.ports(n_ranks)
    distance = distance_from_bounds(entry.build(n_ranks, **options), ports)
    factors = distance.latency_factor, distance.bandwidth_factor
    return _Place(distance.steps, distance.share, ports, factors)


def _factor_axes(ax: Axes, farthest: tuple[float, float]) -> None:
    for axis, high in zip((ax.xaxis, ax.yaxis), farthest, strict=True):
        style.log_axis(axis, 0.75, high, "count", base=2, step=1 if high <= 64 else 2)
    # Nothing lies below 1 on either axis.
    ax.axvline(1, color=style.INK, linewidth=1.2)
    ax.axhline(1, color=style.INK, linewidth=1.2)


def _draw_front(ax: Axes, places: list[_Place]) -> None:
    """A staircase through the one-port algorithms that none beats: steps against bytes."""
    points = sorted({place.factors for place in places if place.ports == 1})
    if points:
        steps, moved = np.array(points).T
        ax.plot(
            steps, moved, color=style.COMMUNICATION, linestyle=":", linewidth=1.4,
            drawstyle="steps-post",
        )  # fmt: skip


def _draw_points(ax: Axes, places: Mapping[str, _Place], unbeaten: Sequence[str]) -> None:
    for colour, in_front in ((style.WAIT, False), (style.COMMUNICATION, True)):
        points = [each.factors for name, each in places.items() if (name in unbeaten) == in_front]
        if points:
            ax.plot(*np.array(points).T, "o", color=colour, markersize=7)
    at: dict[tuple[float, float], list[str]] = {}
    for letter, place in zip(ascii_lowercase, places.values(), strict=False):
        at.setdefault(place.factors, []).append(letter)
    placed: list[tuple[float, float]] = []
    for point in sorted(at):
        # A second label in the same corner goes to the other side of its point.
        crowded = any(max(abs(np.log(np.divide(point, other)))) < CROWDED for other in placed)
        placed.append(point)
        ax.annotate(
            " ".join(at[point]), point, (3, -15) if crowded else (4, 5),
            textcoords="offset points", color=style.INK, fontsize=style.FONT_SIZE - 1,
        )  # fmt: skip


def _list_names(fig: Figure, places: Mapping[str, _Place], unbeaten: Sequence[str]) -> None:
    for row, (letter, name) in enumerate(zip(ascii_lowercase, places, strict=False)):
        ports = places[name].ports
        needs = f" ({ports} ports)" if ports > 1 else ""
        fig.text(
            NAMES_AT, 0.83 - 0.062 * row, f"{letter}  {name}{needs}",
            color=style.INK, fontsize=style.FONT_SIZE - 1,
            fontweight="bold" if name in unbeaten else "normal",
        )  # fmt: skip
