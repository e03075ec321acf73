"""Which algorithm is fastest for a collective, a size and a topology."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from commlab.algorithms import REGISTRY, find_algorithm, usual_gpus_per_node
from commlab.checks import check_nbytes, only_one
from commlab.cost import lower_bound, price
from commlab.cost.bounds import check_collective
from commlab.schedule import Schedule, verify
from commlab.tables import Table, table
from commlab.topology import Topology
from commlab.units import format_bytes, format_seconds


@dataclass(frozen=True)
class Candidate:
    """One algorithm with the options it was built with, and its price in seconds."""

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
        Seconds below which no schedule can come, whatever the network looks like: the lower
        bound for ranks that use all their links at once.
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
    algorithms: Sequence[str] | None = None,
    schedules: Sequence[Schedule] = (),
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
    algorithms : sequence of str, optional
        Names to choose from; all of the registry by default.
    schedules : sequence of Schedule
        Your own ones, to stand beside the others. They are verified first.

    Returns
    -------
    Choice

    Notes
    -----
    Pipelined algorithms run with the best k of these: what suits a flat network of the
    topology's slowest link, and that halved, and halved again down to 1. Two-level algorithms
    run with the topology's own nodes and rails; on one node, where there is no slower link,
    with `usual_gpus_per_node`. In-network reduction is not in the registry: compare with
    `commlab.cost.in_network_allreduce_time`.

    Raises
    ------
    ValueError
        If the collective or an algorithm does not exist, or nothing can run.
    ScheduleError
        If one of your schedules is wrong.
    """
    if not isinstance(topology, Topology):
        raise TypeError(
            f"best_algorithm needs a Topology, not a {type(topology).__name__}: make one, for "
            "example with flat_topology."
        )
    check_collective(collective)
    size = only_one(check_nbytes(nbytes), "nbytes")
    candidates, left_out = [], {}
    for name in _names(collective, algorithms):
        shape, reason = _shape(collective, name, topology)
        reason = reason or _why_not(collective, name, topology, shape)
        if reason:
            left_out[name] = reason
        else:
            candidates.append(_cheapest(collective, name, size, topology, shape))
    candidates += [_own(collective, schedule, size, topology) for schedule in schedules]
    if not candidates:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise ValueError(f"no algorithm for {collective} can run here: {reasons}.")
    candidates.sort(key=lambda candidate: candidate.seconds)
    bound = _bound(collective, size, topology)
    return Choice(collective, size, tuple(candidates), left_out, bound)


def _names(collective: str, algorithms: Sequence[str] | None) -> list[str]:
    if algorithms is None:
        return [name for kind, name in REGISTRY if kind == collective]
    if isinstance(algorithms, str):
        raise ValueError(f"algorithms must be a list of names; write [{algorithms!r}].")
    for name in algorithms:
        find_algorithm(collective, name)
    return list(dict.fromkeys(algorithms))


def _bound(collective: str, nbytes: float, topology: Topology) -> float:
    """Bound by what a rank could reach if all of its links worked at once."""
    inside, between = topology.inside, topology.between
    n_nodes = len(set(topology.node_of.tolist()))
    has_inside, has_between = n_nodes < topology.n_ranks, n_nodes > 1
    links = [inside] * has_inside + [between] * has_between or [inside]
    # With one port a rank's messages of a step follow each other, over either kind of link.
    rates = [link.beta for link in links]
    rate = sum(rates) if topology.ports > 1 else max(rates)
    alpha = min(link.alpha for link in links)
    return float(lower_bound(collective, nbytes, topology.n_ranks, alpha, rate, topology.ports))


@lru_cache(maxsize=512)
def _built(
    collective: str, name: str, n_ranks: int, options: tuple[tuple[str, int], ...]
) -> Schedule:
    return REGISTRY[collective, name].build(n_ranks, **dict(options))


def _cheapest(
    collective: str, name: str, nbytes: float, topology: Topology, shape: dict[str, int]
) -> Candidate:
    """Build and price an algorithm with every k worth trying; return the cheapest."""
    tried = []
    for tuned in _tunings(collective, name, nbytes, topology):
        options = shape | tuned
        schedule = _built(collective, name, topology.n_ranks, tuple(sorted(options.items())))
        seconds = price(schedule, topology, nbytes).total
        tried.append(Candidate(name, options, schedule, seconds))
    return min(tried, key=lambda candidate: candidate.seconds)


def _tunings(collective: str, name: str, nbytes: float, topology: Topology) -> list[dict[str, int]]:
    alpha = max(topology.inside.alpha, topology.between.alpha)
    beta = min(topology.inside.beta, topology.between.beta)
    best = REGISTRY[collective, name].best_options(nbytes, topology.n_ranks, alpha, beta)
    if "pipeline_chunks" not in best:
        return [best]
    halvings = [best["pipeline_chunks"]]
    while halvings[-1] > 1:
        halvings.append(halvings[-1] // 2)
    return [best | {"pipeline_chunks": k} for k in halvings]


def _own(collective: str, schedule: Schedule, nbytes: float, topology: Topology) -> Candidate:
    """Price a reader's schedule, after the checks that the registry's have passed."""
    verify(schedule)
    if schedule.collective != collective:
        raise ValueError(
            f"the schedule {schedule.name or 'without a name'} is for {schedule.collective}, "
            f"not for {collective}."
        )
    topology.check(schedule)
    seconds = price(schedule, topology, nbytes).total
    return Candidate(schedule.name or "your schedule", {}, schedule, seconds)


def _why_not(collective: str, name: str, topology: Topology, shape: dict[str, int]) -> str:
    """Say why an algorithm cannot run, or return an empty string."""
    entry = REGISTRY[collective, name]
    if not entry.supports(topology.n_ranks, **shape):
        return f"needs {entry.requirement}"
    ports = entry.ports(topology.n_ranks)
    if ports > topology.ports:
        return (
            f"needs {ports} ports per rank and the topology has {topology.ports}: "
            f"pass ports={ports} if a rank can send that many messages at once"
        )
    return ""


def _shape(collective: str, name: str, topology: Topology) -> tuple[dict[str, int], str]:
    """Return the nodes that a two-level algorithm is built with, or why there are none."""
    accepted = REGISTRY[collective, name].options
    if "gpus_per_node" not in accepted:
        return {}, ""
    if len(set(topology.node_of.tolist())) == 1:
        g = usual_gpus_per_node(topology.n_ranks)
        return ({"gpus_per_node": g}, "") if g > 1 else ({}, "")
    g = int(np.count_nonzero(topology.node_of == topology.node_of[0]))
    first_of_node = topology.node_of[::g]
    in_order = np.array_equal(topology.node_of, np.repeat(first_of_node, g)[: topology.n_ranks])
    if (
        topology.n_ranks % g
        or not in_order
        or len(set(first_of_node.tolist())) * g != (topology.n_ranks)
    ):
        return {}, "needs nodes of equal size, with their ranks numbered one after the other"
    if g == 1:
        return {}, "needs nodes of two GPUs or more"
    if "rails" not in accepted:
        return {"gpus_per_node": g}, ""
    rails = len(set(topology.nic_of[:g].tolist()))
    if g % rails:
        return {}, f"needs rails that serve equally many GPUs, not {rails} for {g}"
    return {"gpus_per_node": g, "rails": rails}, ""
