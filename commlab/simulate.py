"""Run a schedule on buffers in memory, and write down every message.

The ranks are a list of arrays. Anything that slices, adds in place and copies will do:
numpy arrays here, torch tensors in `commlab.real`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from commlab.schedule import REDUCE, Schedule, check_structure

# Any array type that slices, adds in place and copies.
Buffer = Any


class Message(NamedTuple):
    """One message: all chunks that ``src`` sends to ``dst`` in one step.

    ``share`` is its size as a part of S, ``elements`` the number that really travelled.
    """

    step: int
    src: int
    dst: int
    share: Fraction
    elements: int


@dataclass(frozen=True)
class Ledger:
    """Every message of a run, exact in shares of S.

    Three quantities that are easily confused are kept apart: the most that one rank sends
    (`max_sent`), the most that one rank receives (`max_received`), and the sum over steps
    of what the busiest rank of that step sends or receives (`critical`), which is what a
    lock-step model charges for.
    """

    n_ranks: int
    n_steps: int
    messages: tuple[Message, ...]

    @cached_property
    def sent(self) -> tuple[Fraction, ...]:
        """What each rank sends, in parts of S."""
        return self._per_rank("src")

    @cached_property
    def received(self) -> tuple[Fraction, ...]:
        """What each rank receives, in parts of S."""
        return self._per_rank("dst")

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
        load: dict[tuple[int, str, int], Fraction] = defaultdict(Fraction)
        for message in self.messages:
            load[message.step, "out", message.src] += message.share
            load[message.step, "in", message.dst] += message.share
        busiest = [Fraction(0)] * self.n_steps
        for (step, _, _), share in load.items():
            busiest[step] = max(busiest[step], share)
        return sum(busiest, Fraction(0))

    @cached_property
    def by_link(self) -> dict[tuple[int, int], Fraction]:
        """What each ordered pair (src, dst) carries over the whole run, in parts of S."""
        links: dict[tuple[int, int], Fraction] = defaultdict(Fraction)
        for message in self.messages:
            links[message.src, message.dst] += message.share
        return dict(links)

    def elements_sent(self) -> tuple[int, ...]:
        """Elements that each rank sent, as they were cut from the real buffers."""
        totals = [0] * self.n_ranks
        for message in self.messages:
            totals[message.src] += message.elements
        return tuple(totals)

    def _per_rank(self, side: str) -> tuple[Fraction, ...]:
        totals = [Fraction(0)] * self.n_ranks
        for message in self.messages:
            totals[getattr(message, side)] += message.share
        return tuple(totals)


@dataclass(frozen=True)
class Result:
    """What a simulation gives.

    Attributes
    ----------
    buffers : list of array
        One per rank: the chunks of `Schedule.ends`, in that order.
    ledger : Ledger
    trace : list or None
        With ``trace=True``: ``trace[s][rank]`` is a dict from chunk to a copy of its values
        after s steps (``trace[0]`` is the start).
    """

    buffers: list[Buffer]
    ledger: Ledger
    trace: list[list[dict[int, Buffer]]] | None = None


def simulate(
    schedule: Schedule,
    buffers: Sequence[Buffer],
    *,
    trace: bool = False,
    n_elements: int | None = None,
) -> Result:
    """Run a schedule on in-memory ranks.

    Parameters
    ----------
    schedule : Schedule
    buffers : sequence of 1-D arrays, one per rank
        What each rank holds at the start: the chunks of ``schedule.starts[rank]`` one after
        the other, so an empty array for a rank that starts with nothing. One dtype for all.
        They are not changed.
    trace : bool
        Keep a copy of every chunk after every step.
    n_elements : int, optional
        The elements of S, where the lengths of the buffers leave a doubt.

    Returns
    -------
    Result

    Raises
    ------
    ValueError
        If the number, lengths or dtypes of the buffers do not fit the schedule.
    ScheduleError
        If the schedule's rows make no sense. That it computes the right thing is not
        checked here: that is what `verify` proves.

    Notes
    -----
    A receiver adds what it received to what it holds, in this order: ``local + received``.
    A chunk that a rank does not hold reads as NaN, or as a garbage integer.
    """
    check_structure(schedule)
    _check_buffers(schedule, buffers)
    counts = _counts_for(schedule, [len(buffer) for buffer in buffers], n_elements)
    ranks = [_RankMemory(schedule, rank, buffers[rank], counts) for rank in range(len(buffers))]
    history = [[memory.snapshot() for memory in ranks]] if trace else None
    for step in schedule.steps:
        _run_step(step.transfers, ranks)
        if history is not None:
            history.append([memory.snapshot() for memory in ranks])
    finals = [memory.gather(schedule.ends[rank]) for rank, memory in enumerate(ranks)]
    return Result(finals, ledger(schedule, counts), history)


def ledger(schedule: Schedule, counts: Sequence[int] | None = None) -> Ledger:
    """Write down the messages of a schedule without running it.

    Parameters
    ----------
    schedule : Schedule
    counts : sequence of int, optional
        Elements of each chunk. Without them the messages' ``elements`` are zero.
    """
    check_structure(schedule)
    elements = np.zeros(schedule.n_chunks, dtype=np.int64)
    if counts is not None:
        elements = np.asarray(counts, dtype=np.int64)
    if elements.shape != (schedule.n_chunks,):
        raise ValueError(
            f"counts must give the elements of each of the {schedule.n_chunks} chunks; "
            f"got {counts!r}."
        )
    messages = []
    for index, step in enumerate(schedule.steps):
        units: dict[tuple[int, int], int] = defaultdict(int)
        length: dict[tuple[int, int], int] = defaultdict(int)
        for src, dst, chunk, _ in step.transfers:
            units[src, dst] += int(schedule.share_units[chunk])
            length[src, dst] += int(elements[chunk])
        for pair, share in units.items():
            fraction = Fraction(share, schedule.unit_denominator)
            messages.append(Message(index, *pair, fraction, length[pair]))
    return Ledger(schedule.n_ranks, len(schedule.steps), tuple(messages))


class _RankMemory:
    """The chunks of one rank, as views into one array."""

    def __init__(
        self, schedule: Schedule, rank: int, buffer: Buffer, counts: Sequence[int]
    ) -> None:
        starts, ends = schedule.starts[rank], schedule.ends[rank]
        received = {int(chunk) for step in schedule.steps for chunk in step.chunk[step.dst == rank]}
        read = {int(chunk) for step in schedule.steps for chunk in step.chunk[step.src == rank]}
        # Chunks of the result come first and in order, so that the result is one slice.
        self.order = [*ends, *sorted((received | read | set(starts)) - set(ends))]
        self.held = set(starts)
        self.store = _empty_like(buffer, sum(counts[chunk] for chunk in self.order))
        self.views: dict[int, Buffer] = {}
        position = 0
        for chunk in self.order:
            self.views[chunk] = self.store[position : position + counts[chunk]]
            position += counts[chunk]
        for chunk in set(self.order) - set(starts):
            self.views[chunk][...] = _garbage(buffer)
        position = 0
        for chunk in starts:
            self.views[chunk][...] = buffer[position : position + counts[chunk]]
            position += counts[chunk]

    def snapshot(self) -> dict[int, Buffer]:
        """Copy the chunks that this rank holds."""
        return {chunk: _copy(self.views[chunk]) for chunk in sorted(self.held)}

    def gather(self, chunks: Sequence[int]) -> Buffer:
        """Return the given chunks, which stand first in the store, as one array."""
        return self.store[: sum(len(self.views[chunk]) for chunk in chunks)]


def _run_step(transfers: list[Any], ranks: list[_RankMemory]) -> None:
    """Carry out one step: all reads see the state before it."""
    written = {(row.dst, row.chunk) for row in transfers}
    payloads = []
    for row in transfers:
        payload = ranks[row.src].views[row.chunk]
        if (row.src, row.chunk) in written:
            payload = _copy(payload)
        payloads.append(payload)
    for row, payload in zip(transfers, payloads, strict=True):
        target = ranks[row.dst].views[row.chunk]
        if row.op == REDUCE:
            target += payload
        else:
            target[...] = payload
        ranks[row.dst].held.add(row.chunk)


def _check_buffers(schedule: Schedule, buffers: Sequence[Buffer]) -> None:
    if len(buffers) != schedule.n_ranks:
        raise ValueError(
            f"the schedule has {schedule.n_ranks} ranks, so give it {schedule.n_ranks} buffers; "
            f"got {len(buffers)}."
        )
    for rank, buffer in enumerate(buffers):
        if not hasattr(buffer, "dtype") or not hasattr(buffer, "ndim"):
            raise ValueError(
                f"the buffer of rank {rank} is a {type(buffer).__name__}: "
                "make it an array first, for example numpy.array(...)."
            )
        if buffer.ndim != 1:
            raise ValueError(
                f"the buffer of rank {rank} has {buffer.ndim} dimensions: "
                "flatten it first, for example with .reshape(-1)."
            )
        if isinstance(buffer, np.ma.MaskedArray):
            raise ValueError(
                f"the buffer of rank {rank} is masked, and a sum has no mask: "
                "fill it first, for example with .filled(0)."
            )
        if getattr(buffer, "requires_grad", False):
            raise ValueError(
                f"the buffer of rank {rank} requires a gradient: pass buffer.detach()."
            )
        kind = buffer.dtype.kind if isinstance(buffer, np.ndarray) else None
        if kind not in (None, *"iufc") or str(buffer.dtype) == "torch.bool":
            raise ValueError(
                f"the buffer of rank {rank} has dtype {buffer.dtype}: collectives add numbers, "
                "so give integers, floats or complex numbers."
            )
    dtypes = [buffer.dtype for buffer in buffers]
    if any(dtype != dtypes[0] for dtype in dtypes):
        told = ", ".join(f"rank {rank} {dtype}" for rank, dtype in enumerate(dtypes))
        raise ValueError(f"all buffers must have one dtype; got {told}.")


def _counts_for(schedule: Schedule, lengths: Sequence[int], n_elements: int | None) -> list[int]:
    """Return the elements of each chunk that fit buffers of these lengths.

    Each chunk that a rank starts with is rounded by less than one element, so the lengths
    leave few sizes of S to try.
    """
    if n_elements is not None:
        candidates = [n_elements]
    else:
        held = [chunk for chunks in schedule.starts for chunk in chunks]
        units = int(schedule.share_units[held].sum())
        scale = schedule.unit_denominator
        total = sum(lengths)
        lowest = max(0, (total - len(held)) * scale // units) if units else 0
        highest = -(-(total + len(held)) * scale // units) if units else 0
        candidates = list(range(lowest, highest + 1))
    fitting = set()
    for candidate in candidates:
        counts = tuple(schedule.chunk_counts(candidate).tolist())
        if [sum(counts[chunk] for chunk in chunks) for chunks in schedule.starts] == [*lengths]:
            fitting.add(counts)
    if not fitting:
        likely = schedule.chunk_counts(candidates[len(candidates) // 2]).tolist()
        wanted = [sum(likely[chunk] for chunk in chunks) for chunks in schedule.starts]
        raise ValueError(
            f"the buffers are ragged: their lengths are {[*lengths]}, but this "
            f"{schedule.collective} needs {wanted} elements on its ranks, or the like."
        )
    if len(fitting) > 1:
        raise ValueError(
            f"buffers of lengths {[*lengths]} can be cut into chunks in more than one way: "
            "pass n_elements, the elements of the full vector S."
        )
    return list(fitting.pop())


def _empty_like(buffer: Buffer, length: int) -> Buffer:
    if hasattr(buffer, "new_empty"):  # torch
        return buffer.new_empty(length)
    return np.empty(length, dtype=buffer.dtype)


def _copy(buffer: Buffer) -> Buffer:
    return buffer.clone() if hasattr(buffer, "clone") else buffer.copy()


def _garbage(buffer: Buffer) -> float | int:
    """A value that shows when somebody reads a chunk that was never filled."""
    if isinstance(buffer, np.ndarray) and buffer.dtype.kind in "iu":
        return int(np.iinfo(buffer.dtype).max) // 3
    try:
        return float("nan") if buffer.dtype.is_floating_point else 37
    except AttributeError:  # a numpy float
        return float("nan")
