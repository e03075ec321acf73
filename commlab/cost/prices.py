"""What a schedule costs on a topology, step by step.

A message of n bytes takes ``alpha + n / beta`` seconds. The model is lock-step: a step is
over when its slowest rank is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from commlab.checks import check_nbytes, only_one, warn_if_absurd
from commlab.schedule import MessageTable, Schedule
from commlab.topology import Topology
from commlab.units import format_seconds

# Steps are priced together, which is much quicker, in batches of about this many rows (or
# ranks, where a step has fewer rows), so that a thousand ranks need little memory.
ROWS_PER_BATCH = 2**15


@dataclass(frozen=True, eq=False)
class Price:
    """What a schedule costs on a topology, in seconds.

    Attributes
    ----------
    by_step : numpy.ndarray, shape (n_steps,)
    """

    by_step: np.ndarray

    @property
    def total(self) -> float:
        """The sum over all steps, in seconds."""
        return float(self.by_step.sum())

    def __float__(self) -> float:
        return self.total

    def __repr__(self) -> str:
        return f"Price({format_seconds(self.total)} in {self.by_step.size} steps)"


def price(schedule: Schedule, topology: Topology, nbytes: float) -> Price:
    """Price a schedule, step by step.

    Parameters
    ----------
    schedule : Schedule
    topology : Topology
        For the same number of ranks.
    nbytes : float
        S, the bytes of the full vector of one rank. All-gather and reduce-scatter count the
        whole array, as nccl-tests does. Of an uneven all-to-all it is what the fullest rank
        starts or ends with, its own part included.

    Returns
    -------
    Price

    Notes
    -----
    A step takes as long as its slowest rank, direction or shared network interface. A rank
    that sends k messages of n bytes in all needs ``ceil(k / ports) * alpha + n / beta``.
    If its messages of a step leave over both kinds of link, they overlap where the ports
    take all of them at once; otherwise each round of messages pays the larger alpha, and the
    bytes follow each other. The transfers of a step that go through one network interface
    share its bandwidth, and so do those that go over one of the topology's shared links.
    """
    if not isinstance(topology, Topology):
        raise TypeError(
            f"price(schedule, topology, nbytes) needs a Topology, not a "
            f"{type(topology).__name__}: make one, for example with flat_topology."
        )
    topology.check_size(schedule)
    size = only_one(check_nbytes(nbytes), "nbytes")
    by_step = np.zeros(len(schedule.steps))
    bytes_per_unit = size / schedule.unit_denominator
    for first, stop in _batches(schedule):
        step, messages = _with_bytes(*schedule.messages_of_steps(first, stop))
        steps = _Steps(step - first, stop - first, messages)
        by_step[first:stop] = _seconds_by_step(steps, topology, bytes_per_unit)
    warn_if_absurd(by_step.sum(keepdims=True))
    return Price(by_step)


@dataclass(frozen=True)
class _Steps:
    """The messages of some consecutive steps, which are priced all at once.

    Attributes
    ----------
    step : numpy.ndarray of int, shape (messages,)
        The step of each message, counted from 0.
    n_steps : int
    messages : MessageTable
    """

    step: np.ndarray
    n_steps: int
    messages: MessageTable

    def of(self, index: np.ndarray, length: int, chosen: np.ndarray) -> np.ndarray:
        """Give each chosen message a place in a table of shape (n_steps, length)."""
        return self.step[chosen] * length + index

    def count(self, index: np.ndarray, length: int, chosen: np.ndarray) -> np.ndarray:
        """Count the chosen messages by step and index, shape (n_steps, length)."""
        counts = np.bincount(self.of(index, length, chosen), minlength=self.n_steps * length)
        return counts.reshape(self.n_steps, length)

    def units(self, index: np.ndarray, length: int, chosen: np.ndarray) -> np.ndarray:
        """Sum their whole units likewise, exactly (bincount's weights are floats)."""
        totals = np.zeros(self.n_steps * length, dtype=np.int64)
        np.add.at(totals, self.of(index, length, chosen), self.messages.units[chosen])
        return totals.reshape(self.n_steps, length)


def _batches(schedule: Schedule) -> Iterator[tuple[int, int]]:
    """Cut the steps into runs that fit into little memory: (first, stop) of each."""
    first, rows = 0, 0
    for index, step in enumerate(schedule.steps):
        size = max(step.src.size, schedule.n_ranks)
        if index > first and rows + size > ROWS_PER_BATCH:
            yield first, index
            first, rows = index, 0
        rows += size
    if schedule.steps:
        yield first, len(schedule.steps)


def _with_bytes(step: np.ndarray, messages: MessageTable) -> tuple[np.ndarray, MessageTable]:
    """Leave out messages of empty chunks, as in an uneven all-to-all: nobody sends them."""
    full = messages.units > 0
    return step[full], MessageTable(*(column[full] for column in messages))


def _seconds_by_step(steps: _Steps, topology: Topology, bytes_per_unit: float) -> np.ndarray:
    """Price each step; one without messages takes no time. Returns shape (n_steps,)."""
    src, dst, _ = steps.messages
    crossing = topology.node_of[src] != topology.node_of[dst]
    inside, between = topology.inside, topology.between
    slowest = np.zeros(steps.n_steps)
    n_ranks, n_interfaces = topology.n_ranks, int(topology.nic_of.max()) + 1
    for ends in (src, dst):
        counts, moving = [], []
        for chosen, link in ((~crossing, inside), (crossing, between)):
            counts.append(steps.count(ends[chosen], n_ranks, chosen))
            units = steps.units(ends[chosen], n_ranks, chosen)
            moving.append(units * bytes_per_unit / link.beta)
        alphas = (counts[0] > 0) * inside.alpha, (counts[1] > 0) * between.alpha
        rounds = -(-(counts[0] + counts[1]) // topology.ports)
        at_once = np.maximum(alphas[0] + moving[0], alphas[1] + moving[1])
        in_turn = rounds * np.maximum(*alphas) + moving[0] + moving[1]
        seconds = np.where(rounds <= 1, at_once, in_turn)
        slowest = np.maximum(slowest, seconds.max(axis=1))
        if crossing.any():
            units = steps.units(topology.nic_of[ends[crossing]], n_interfaces, crossing)
            fullest = units.max(axis=1)
            interface = between.alpha + fullest * bytes_per_unit / between.beta
            slowest = np.maximum(slowest, np.where(fullest > 0, interface, 0.0))
    if topology.shared is not None:
        slowest = np.maximum(slowest, _shared_seconds(steps, topology, crossing, bytes_per_unit))
    return slowest


def _shared_seconds(
    steps: _Steps, topology: Topology, crossing: np.ndarray, bytes_per_unit: float
) -> np.ndarray:
    """Time of the shared link that is busy longest: one latency, and all bytes over it."""
    assert topology.shared is not None
    n_links = topology.shared.n_links
    message, link = topology.shared.routes(steps.messages.src, steps.messages.dst)
    alpha = np.where(crossing[message], topology.between.alpha, topology.inside.alpha)
    latency = np.zeros(steps.n_steps * n_links)
    np.maximum.at(latency, steps.of(link, n_links, message), alpha)
    units = steps.units(link, n_links, message)
    seconds = latency.reshape(units.shape) + units * bytes_per_unit / topology.shared.beta
    return seconds.max(axis=1)
