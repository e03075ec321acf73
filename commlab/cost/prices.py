"""What a schedule costs on a topology, step by step.

A message of n bytes takes ``alpha + n / beta`` seconds. The model is lock-step: a step is
over when its slowest rank is done.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commlab.checks import check_nbytes, only_one, warn_if_absurd
from commlab.schedule import MessageTable, Schedule
from commlab.topology import Topology
from commlab.units import format_seconds


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
    for index in range(len(schedule.steps)):
        messages = _with_bytes(schedule.messages(index))
        if messages.src.size:
            by_step[index] = _step_seconds(messages, topology, bytes_per_unit)
    warn_if_absurd(by_step.sum(keepdims=True))
    return Price(by_step)


def _with_bytes(messages: MessageTable) -> MessageTable:
    """Leave out messages of empty chunks, as in an uneven all-to-all: nobody sends them."""
    full = messages.units > 0
    return messages if full.all() else MessageTable(*(column[full] for column in messages))


def _step_seconds(messages: MessageTable, topology: Topology, bytes_per_unit: float) -> float:
    crossing = topology.node_of[messages.src] != topology.node_of[messages.dst]
    inside, between = topology.inside, topology.between
    slowest = 0.0
    for ends in (messages.src, messages.dst):
        counts, moving = [], []
        for chosen, link in ((~crossing, inside), (crossing, between)):
            counts.append(np.bincount(ends[chosen], minlength=topology.n_ranks))
            units = _sum_at(ends[chosen], messages.units[chosen], topology.n_ranks)
            moving.append(units * bytes_per_unit / link.beta)
        alphas = (counts[0] > 0) * inside.alpha, (counts[1] > 0) * between.alpha
        rounds = -(-(counts[0] + counts[1]) // topology.ports)
        at_once = np.maximum(alphas[0] + moving[0], alphas[1] + moving[1])
        in_turn = rounds * np.maximum(*alphas) + moving[0] + moving[1]
        seconds = np.where(rounds <= 1, at_once, in_turn)
        slowest = max(slowest, float(seconds.max()))
        if crossing.any():
            nic = topology.nic_of[ends[crossing]]
            units = _sum_at(nic, messages.units[crossing], int(nic.max()) + 1)
            interface = between.alpha + units.max() * bytes_per_unit / between.beta
            slowest = max(slowest, float(interface))
    if topology.shared is not None:
        slowest = max(slowest, _shared_seconds(messages, topology, crossing, bytes_per_unit))
    return slowest


def _shared_seconds(
    messages: MessageTable, topology: Topology, crossing: np.ndarray, bytes_per_unit: float
) -> float:
    """Time of the shared link that is busy longest: one latency, and all bytes over it."""
    assert topology.shared is not None
    message, link = topology.shared.routes(messages.src, messages.dst)
    if not message.size:
        return 0.0
    alpha = np.where(crossing[message], topology.between.alpha, topology.inside.alpha)
    latency = np.zeros(topology.shared.n_links)
    np.maximum.at(latency, link, alpha)
    units = _sum_at(link, messages.units[message], topology.shared.n_links)
    return float((latency + units * bytes_per_unit / topology.shared.beta).max())


def _sum_at(index: np.ndarray, units: np.ndarray, length: int) -> np.ndarray:
    """Sum whole units by index, exactly (bincount's weights are floats)."""
    totals = np.zeros(length, dtype=np.int64)
    np.add.at(totals, index, units)
    return totals
