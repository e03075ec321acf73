"""Who sends how much to whom: every message of a schedule, and what the messages add up to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from commlab.schedule import Schedule, check_structure


class Message(NamedTuple):
    """One message: all chunks that ``src`` sends to ``dst`` in one step.

    ``share`` is its size as a part of S, ``elements`` the number that really travelled.
    """

    step: int
    src: int
    dst: int
    share: Fraction
    elements: int


@dataclass(frozen=True, eq=False, repr=False)
class Ledger:
    """Every message of a run, exact in shares of S.

    Three quantities that are easily confused are kept apart: the most that one rank sends
    (`max_sent`), the most that one rank receives (`max_received`), and the sum over steps
    of what the busiest rank of that step sends or receives (`critical`), which is what a
    lock-step model charges for.

    Attributes
    ----------
    step, src, dst : numpy.ndarray of int, shape (n_messages,)
        The columns of `messages`, ordered by step, then by sender, then by receiver.
    units : numpy.ndarray of int, shape (n_messages,)
        Shares as whole numbers of ``1 / unit_denominator``: two million messages of a ring of
        1024 ranks are added up in a second, as Fractions they would take half a minute.
    elements : numpy.ndarray of int, shape (n_messages,)
        What really travelled.
    """

    n_ranks: int
    n_steps: int
    unit_denominator: int
    step: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    units: np.ndarray
    elements: np.ndarray

    def __repr__(self) -> str:
        return f"Ledger({self.n_ranks} ranks, {self.n_steps} steps, {self.step.size} messages)"

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """The messages one by one, for reading and for small loops."""
        columns = (self.step.tolist(), self.src.tolist(), self.dst.tolist())
        shares, elements = self._fractions(self.units), self.elements.tolist()
        return tuple(Message(*row) for row in zip(*columns, shares, elements, strict=True))

    @cached_property
    def sent(self) -> tuple[Fraction, ...]:
        """What each rank sends, in parts of S."""
        return self._fractions(_sums(self.units, self.src, self.n_ranks))

    @cached_property
    def received(self) -> tuple[Fraction, ...]:
        """What each rank receives, in parts of S."""
        return self._fractions(_sums(self.units, self.dst, self.n_ranks))

    @property
    def max_sent(self) -> Fraction:
        """The most that one rank sends, in parts of S."""
        return max(self.sent)

    @property
    def max_received(self) -> Fraction:
        """The most that one rank receives, in parts of S."""
        return max(self.received)

    @cached_property
    def critical(self) -> Fraction:
        """Sum over steps of the largest amount that one rank sends or receives in it."""
        length = self.n_steps * self.n_ranks
        outgoing, incoming = (
            _sums(self.units, self.step * self.n_ranks + rank, length)
            for rank in (self.src, self.dst)
        )
        load = np.maximum(outgoing, incoming).reshape(self.n_steps, self.n_ranks)
        busiest = load.max(axis=1)
        return Fraction(sum(busiest.tolist()), self.unit_denominator)

    @cached_property
    def by_link(self) -> dict[tuple[int, int], Fraction]:
        """What each ordered pair (src, dst) carries over the whole run, in parts of S."""
        links, link_of_message = np.unique(self.src * self.n_ranks + self.dst, return_inverse=True)
        pairs = [divmod(link, self.n_ranks) for link in links.tolist()]
        shares = self._fractions(_sums(self.units, link_of_message, links.size))
        return dict(zip(pairs, shares, strict=True))

    def elements_sent(self) -> tuple[int, ...]:
        """Elements that each rank sent, as they were cut from the real buffers."""
        return tuple(_sums(self.elements, self.src, self.n_ranks).tolist())

    def _fractions(self, units: np.ndarray) -> tuple[Fraction, ...]:
        """Return whole units as parts of S; equal amounts are one object."""
        amounts = units.tolist()
        share_of = {amount: Fraction(amount, self.unit_denominator) for amount in set(amounts)}
        return tuple(share_of[amount] for amount in amounts)


def ledger(schedule: Schedule, counts: Sequence[int] | None = None) -> Ledger:
    """Write down the messages of a schedule without running it.

    Parameters
    ----------
    schedule : Schedule
    counts : sequence of int, optional
        Elements of each chunk; those of the schedule where it states any. Without either
        the messages' ``elements`` are zero.
    """
    check_structure(schedule)
    counts = schedule.counts if counts is None else counts
    elements = np.zeros(schedule.n_chunks, dtype=np.int64) if counts is None else np.array(counts)
    whole = elements.dtype.kind in "iu" and (elements >= 0).all()
    if elements.shape != (schedule.n_chunks,) or not whole:
        raise ValueError(
            f"counts must give one whole number of elements, zero or more, for each of the "
            f"{schedule.n_chunks} chunks; got {counts!r}."
        )
    step_of_row, src, dst, chunk = all_rows(schedule)
    # Rows of one step with the same sender and receiver are one message.
    n_ranks = schedule.n_ranks
    rows = (step_of_row * n_ranks + src) * n_ranks + dst
    keys, message_of_row = np.unique(rows, return_inverse=True)
    step_and_src, receiver = np.divmod(keys, n_ranks)
    step, sender = np.divmod(step_and_src, n_ranks)
    return Ledger(
        n_ranks,
        len(schedule.steps),
        schedule.unit_denominator,
        step,
        sender,
        receiver,
        _sums(schedule.share_units[chunk], message_of_row, keys.size),
        _sums(elements[chunk], message_of_row, keys.size),
    )


def all_rows(schedule: Schedule) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return step, src, dst and chunk of the rows of all steps, one after the other, as int64."""
    lengths = [len(step) for step in schedule.steps]
    step_of_row = np.repeat(np.arange(len(lengths)), lengths)
    columns = [
        # The empty array stands for a schedule without steps.
        np.concatenate(
            [np.zeros(0, dtype=np.int64), *(getattr(step, name) for step in schedule.steps)]
        )
        for name in ("src", "dst", "chunk")
    ]
    return step_of_row, columns[0], columns[1], columns[2]


def _sums(amounts: np.ndarray, index: np.ndarray, length: int) -> np.ndarray:
    """Add up whole amounts by index, exactly: as Python's integers where 64 bits may not do."""
    if amounts.size and int(amounts.max()) * amounts.size >= 2**62:
        amounts = amounts.astype(object)
    totals = np.zeros(length, dtype=amounts.dtype)
    np.add.at(totals, index, amounts)
    return totals
