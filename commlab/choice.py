"""Which algorithm is fastest for a collective, a size and a topology."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from commlab.algorithms import REGISTRY
from commlab.checks import check_nbytes, only_one
from commlab.cost import COLLECTIVES, lower_bound, price
from commlab.schedule import Schedule
from commlab.tables import Table, table
from commlab.topology import Topology
from commlab.units import format_bytes, format_seconds


@dataclass(frozen=True)
class Candidate:
    """One algorithm with the options that were tried, and its price in seconds."""

    algorithm: str
    options: dict[str, int]
    schedule: Schedule = field(repr=False)
    seconds: float

    def __str__(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.algorithm}({options})" if options else self.algorithm


@dataclass(frozen=True)
class Choice:
    """The algorithms that can run, fastest first.

    Attributes
    ----------
    collective : str
    nbytes : float
    candidates : tuple of Candidate
        Sorted by price.
    left_out : dict from str to str
        Algorithms that cannot run here, with the reason.
    bound : float
        Seconds below which no algorithm can come on a flat network of the fastest link.
    """

    collective: str
    nbytes: float
    candidates: tuple[Candidate, ...]
    left_out: dict[str, str]
    bound: float

    @property
    def best(self) -> Candidate:
        """The fastest candidate."""
        return self.candidates[0]

    def table(self) -> Table:
        """All candidates, as a table for a page."""
        rows = [
            (str(candidate), len(candidate.schedule.steps), format_seconds(candidate.seconds))
            for candidate in self.candidates
        ]
        return table(("algorithm · 算法", "steps · 步数", "price · 耗时"), rows)

    def __str__(self) -> str:
        lines = [
            f"{self.collective} of {format_bytes(self.nbytes)} on "
            f"{self.best.schedule.n_ranks} ranks: {self.best}, {format_seconds(self.best.seconds)}"
        ]
        for candidate in self.candidates[1:]:
            times = candidate.seconds / self.best.seconds if self.best.seconds else 1.0
            lines.append(
                f"  {candidate}: {format_seconds(candidate.seconds)}, {times:.2f} times as long"
            )
        lines += [f"  {name}: cannot run, {why}" for name, why in self.left_out.items()]
        return "\n".join(lines)


def best_algorithm(
    collective: str,
    nbytes: float,
    topology: Topology,
    algorithms: tuple[str, ...] | None = None,
) -> Choice:
    """Price every algorithm of a collective on a topology and sort them.

    Parameters
    ----------
    collective : str
        One of the six: "all_reduce", "broadcast", ...
    nbytes : float
        S, in bytes.
    topology : Topology
        An algorithm that needs more ports than it has is left out, not slowed down.
    algorithms : tuple of str, optional
        Names to choose from; all of the registry by default.

    Returns
    -------
    Choice

    Notes
    -----
    Pipelined algorithms run with the k that is best on a flat network of the topology's
    slowest link; two-level algorithms with its nodes, if they are equal and the ranks are
    numbered node by node. In-network reduction is not in the registry: compare with
    `commlab.cost.in_network_allreduce_time`.

    Raises
    ------
    ValueError
        If the collective or an algorithm does not exist, or none can run.
    """
    if collective not in COLLECTIVES:
        raise ValueError(
            f"{collective!r} is no collective of this book; "
            f"choose one of: {', '.join(COLLECTIVES)}."
        )
    size = only_one(check_nbytes(nbytes), "nbytes")
    names = [name for kind, name in REGISTRY if kind == collective]
    unknown = sorted(set(algorithms or ()) - set(names))
    if unknown:
        raise ValueError(
            f"{collective} has no algorithm {unknown[0]!r}; "
            f"choose from: {', '.join(sorted(names))}."
        )
    candidates, left_out = [], {}
    for name in algorithms or names:
        reason = _why_not(collective, name, topology)
        if reason:
            left_out[name] = reason
            continue
        options = _options(collective, name, size, topology)
        schedule = _built(collective, name, topology.n_ranks, tuple(sorted(options.items())))
        seconds = price(schedule, topology, size).total
        candidates.append(Candidate(name, options, schedule, seconds))
    if not candidates:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise ValueError(f"no algorithm for {collective} can run here: {reasons}.")
    candidates.sort(key=lambda candidate: candidate.seconds)
    fastest = max(topology.inside.beta, topology.between.beta)
    least_alpha = min(topology.inside.alpha, topology.between.alpha)
    bound = lower_bound(collective, size, topology.n_ranks, least_alpha, fastest, topology.ports)
    return Choice(collective, size, tuple(candidates), left_out, float(bound))


@lru_cache(maxsize=256)
def _built(
    collective: str, name: str, n_ranks: int, options: tuple[tuple[str, int], ...]
) -> Schedule:
    return REGISTRY[collective, name].build(n_ranks, **dict(options))


def _why_not(collective: str, name: str, topology: Topology) -> str:
    """Say why an algorithm cannot run, or return an empty string."""
    entry = REGISTRY[collective, name]
    shape = _two_level_shape(collective, name, topology)
    if not entry.supports(topology.n_ranks, **shape):
        return f"needs {entry.requirement}"
    ports = entry.ports(topology.n_ranks)
    if ports > topology.ports:
        return f"needs {ports} ports per rank, the topology has {topology.ports}"
    return ""


def _options(collective: str, name: str, nbytes: float, topology: Topology) -> dict[str, int]:
    entry = REGISTRY[collective, name]
    alpha = max(topology.inside.alpha, topology.between.alpha)
    beta = min(topology.inside.beta, topology.between.beta)
    options = dict(entry.best_options(nbytes, topology.n_ranks, alpha, beta))
    options.update(_two_level_shape(collective, name, topology))
    return options


def _two_level_shape(collective: str, name: str, topology: Topology) -> dict[str, int]:
    """What a two-level algorithm is built with: the topology's nodes, if they are equal."""
    accepted = REGISTRY[collective, name].options
    if "gpus_per_node" not in accepted:
        return {}
    g = max(1, int(np.bincount(topology.node_of)[0]))
    in_order = np.array_equal(topology.node_of, np.arange(topology.n_ranks) // g)
    if not 1 < g < topology.n_ranks or not in_order:
        return {}
    shape = {"gpus_per_node": g}
    rails = len(set(topology.nic_of[:g].tolist()))
    if "rails" in accepted and g % rails == 0:
        shape["rails"] = rails
    return shape
