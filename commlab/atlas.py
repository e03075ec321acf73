"""What the atlas says about each algorithm of the registry: facts and tables, none typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from commlab.algorithms import REGISTRY, find_algorithm
from commlab.choice import Choice, best_algorithm
from commlab.cost import COLLECTIVES, Distance, distance_from_bounds, price
from commlab.cost.bounds import check_collective
from commlab.ledger import ledger
from commlab.schedule import Schedule
from commlab.tables import Table, table
from commlab.topology import Topology, flat_topology
from commlab.units import GIB, KIB, MIB, format_bytes, format_seconds

# The sizes that the atlas prices every algorithm at.
SIZES = (KIB, MIB, GIB)
# Up to this N a page lists which N an algorithm supports.
LARGEST_LISTED = 16
# Prices that differ by less than this part are equal: the rest is rounding.
SAME_PRICE = 1e-9


@dataclass(frozen=True)
class SizedPrice:
    """The price of an algorithm at one size, and what was chosen to suit that size."""

    nbytes: float
    seconds: float
    chosen: dict[str, int]

    def __str__(self) -> str:
        return format_seconds(self.seconds) + _in_brackets(self.chosen)


@dataclass(frozen=True)
class AlgorithmFacts:
    """What is known of one algorithm on N ranks.

    Attributes
    ----------
    collective, name : str
        Its key in the registry.
    schedule : Schedule
        Built for N ranks with `options`; steps and bytes are counted in it.
    options : dict
        What the schedule was built with.
    ports : int
        Messages that a rank sends at once.
    distance : Distance
        From the lower bounds for so many ports.
    max_sent, max_received : Fraction
        The most that one rank sends, and receives, in parts of S.
    prices : tuple of SizedPrice
        On a flat network.
    """

    collective: str
    name: str
    schedule: Schedule
    options: dict[str, int]
    ports: int
    distance: Distance
    max_sent: Fraction
    max_received: Fraction
    prices: tuple[SizedPrice, ...]

    @property
    def form(self) -> str:
        """Whether the closed form equals the price or bounds it, in both languages."""
        exact = REGISTRY[self.collective, self.name].exact
        return "exact · 相等" if exact else "upper bound · 上界"

    def table(self) -> Table:
        """All facts, one a line, as a table for a page."""
        entry = REGISTRY[self.collective, self.name]
        distance = self.distance
        supported = supported_ranks(self.collective, self.name)
        sizes = ", ".join(format_bytes(each.nbytes) for each in self.prices)
        rows = [
            ("supports · 支持的 N", f"{entry.requirement}: {supported}"),
            (
                "steps · 步数",
                f"{distance.steps} = {distance.latency_factor:.2f} × "
                f"fewest · 最少 {distance.least_steps}",
            ),
            (
                "bytes on the critical path · 关键路径上的字节",
                f"{distance.share} S = {distance.bandwidth_factor:.2f} × "
                f"least · 最少 {distance.least_share} S",
            ),
            (
                "most sent, received · 最多发、最多收",
                f"{self.max_sent} S, {self.max_received} S",
            ),
            ("ports · 端口", self.ports),
            (f"price at {sizes} · 耗时", ", ".join(map(str, self.prices))),
            ("closed form against price · 闭式与计价", self.form),
            ("source · 出处", entry.citation),
        ]
        n_ranks = self.schedule.n_ranks
        heading = f"{self.collective}, {self.name}{_in_brackets(self.options)}"
        return table((heading, f"N = {n_ranks}"), rows, align="ll")


def algorithm_facts(
    collective: str,
    name: str,
    n_ranks: int,
    alpha: float,
    beta: float,
    **options: int,
) -> AlgorithmFacts:
    """Collect the facts of one algorithm.

    Parameters
    ----------
    collective, name : str
        A key of the registry.
    n_ranks : int
    alpha : float
        Seconds per message of the flat network that prices are for.
    beta : float
        Its bytes per second, one direction.
    **options
        What the schedule is built with, for example ``pipeline_chunks=2``. Prices take the
        options that suit each of `SIZES` best instead.

    Raises
    ------
    ValueError
        If the algorithm does not exist, does not support N or takes no such option.
    """
    entry = find_algorithm(collective, name)
    schedule = entry.build(n_ranks, **options)
    ports = entry.ports(n_ranks)
    book = ledger(schedule)
    topology = flat_topology(n_ranks, alpha, beta, ports)
    prices = []
    for nbytes in SIZES:
        chosen = entry.best_options(nbytes, n_ranks, alpha, beta)
        tuned = entry.build(n_ranks, **{**options, **chosen})
        prices.append(SizedPrice(nbytes, price(tuned, topology, nbytes).total, chosen))
    return AlgorithmFacts(
        collective=collective,
        name=name,
        schedule=schedule,
        options=dict(options),
        ports=ports,
        distance=distance_from_bounds(schedule, ports),
        max_sent=book.max_sent,
        max_received=book.max_received,
        prices=tuple(prices),
    )


def algorithm_names(collective: str) -> list[str]:
    """Return the algorithms of a collective, in the order of the registry."""
    check_collective(collective)
    return [name for kind, name in REGISTRY if kind == collective]


def supported_ranks(collective: str, name: str, largest: int = LARGEST_LISTED) -> str:
    """Write down which N from 2 on an algorithm supports, e.g. ``'2, 4, 8, 16'`` or ``'2–16'``."""
    supports = find_algorithm(collective, name).supports
    runs: list[list[int]] = []
    for n_ranks in (n for n in range(2, largest + 1) if supports(n)):
        if runs and runs[-1][-1] == n_ranks - 1:
            runs[-1].append(n_ranks)
        else:
            runs.append([n_ranks])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def overview(collective: str, n_ranks: int, alpha: float, beta: float, **options: int) -> Table:
    """Tabulate all algorithms of a collective for N ranks on a flat network.

    Parameters
    ----------
    collective : str
    n_ranks : int
    alpha, beta : float
        Seconds per message, and bytes per second in one direction.
    **options
        Given to those algorithms that take them, for the columns of steps and bytes. Prices
        are those of the best options for each size.

    Returns
    -------
    Table
        Its column "form" says whether the price equals the closed form (=) or is at most so
        much (≤).
    """
    rows = []
    for name in algorithm_names(collective):
        entry = REGISTRY[collective, name]
        taken = {key: value for key, value in options.items() if key in entry.options}
        if not entry.supports(n_ranks, **taken):
            continue
        facts = algorithm_facts(collective, name, n_ranks, alpha, beta, **taken)
        rows.append(
            (
                name + _in_brackets(taken),
                facts.distance.steps,
                facts.distance.share,
                *(format_seconds(each.seconds) for each in facts.prices),
                "=" if entry.exact else "≤",
                f"{facts.max_sent}, {facts.max_received}",
                facts.ports,
                supported_ranks(collective, name),
            )
        )
    headings = (
        f"{collective}, N = {n_ranks}",
        "steps · 步",
        "path [S] · 路径",
        *map(format_bytes, SIZES),
        "form · 式",
        "most [S] · 最多",
        "ports · 端口",
        "N",
    )
    return table(headings, rows, align="l" + "r" * 8 + "l")


def choices(topology: Topology, sizes: Sequence[float]) -> Table:
    """Tabulate which algorithm is fastest on a topology, by collective and size.

    Parameters
    ----------
    topology : Topology
    sizes : sequence of float
        S, in bytes.
    """
    rows = []
    for collective in COLLECTIVES:
        picked = [best_algorithm(collective, nbytes, topology) for nbytes in sizes]
        rows.append(
            (collective, *(f"{fastest(each)}, {_best_time(each)}" for each in picked)),
        )
    return table(("fastest · 最快", *map(format_bytes, sizes)), rows, align="l" * (len(sizes) + 1))


def fastest(choice: Choice) -> str:
    """Name the algorithm that a choice prefers, and those that cost the same."""
    limit = choice.best.seconds * (1 + SAME_PRICE)
    equal = [each.algorithm for each in choice.candidates if each.seconds <= limit]
    return " = ".join(equal)


def price_curves(
    collective: str, topology: Topology, sizes: Sequence[float]
) -> dict[str, np.ndarray]:
    """Price every algorithm that can run on a topology at several sizes.

    Returns
    -------
    dict from str to numpy.ndarray, shape (sizes,)
        Seconds by algorithm, each with the options that suit the size and the topology.
    """
    seconds: dict[str, list[float]] = {}
    for nbytes in sizes:
        for candidate in best_algorithm(collective, nbytes, topology).candidates:
            seconds.setdefault(candidate.algorithm, []).append(candidate.seconds)
    in_order = (name for name in algorithm_names(collective) if name in seconds)
    return {name: np.array(seconds[name]) for name in in_order}


def _best_time(choice: Choice) -> str:
    return format_seconds(choice.best.seconds)


# How the options that a page shows are abbreviated: the book's symbols.
_SYMBOLS = {"pipeline_chunks": "k", "gpus_per_node": "g", "rails": "R"}


def _in_brackets(options: Mapping[str, int]) -> str:
    texts = [f"{_SYMBOLS.get(name, name)} = {value}" for name, value in options.items()]
    return f" ({', '.join(texts)})" if texts else ""
