"""What one rank does when a schedule runs for real, worked out beforehand as plain numbers.

A rank keeps all its chunks in one array, the *store*, chunks of the result first. A plan says,
step by step, which parts of the store it sends to whom, which receives it posts, and where
what it received belongs. `commlab.real.execute` only follows it; nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from commlab.checks import check_rank
from commlab.schedule import COPY, Schedule, Transfer, check_structure

# How many steps ahead of its use a receive is posted. A sender may only start when its
# receiver has said where to put the data, so a receive posted in time saves a latency.
STEPS_AHEAD = 2


class Span(NamedTuple):
    """The elements ``start`` to ``stop`` of the store, and what is done to them on arrival."""

    start: int
    stop: int
    op: int = COPY


@dataclass(frozen=True)
class Send:
    """One message to ``peer``: these spans of the store, packed one after the other."""

    peer: int
    elements: int
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Receive:
    """One message from ``peer``, and where it goes.

    Attributes
    ----------
    slot : int or None
        The scratch array it arrives in; None if it arrives in its place in the store.
    """

    peer: int
    elements: int
    spans: tuple[Span, ...]
    slot: int | None


@dataclass(frozen=True)
class PlannedStep:
    """One step of one rank.

    Attributes
    ----------
    posts : tuple of int
        Receives to post now, in this order, as positions in `RankPlan.receives`. Some are
        of later steps.
    sends : tuple of Send
        To start after that, and to end before anything is written into the store.
    completes : tuple of int
        Receives to wait for and to write into the store.
    """

    posts: tuple[int, ...]
    sends: tuple[Send, ...]
    completes: tuple[int, ...]


@dataclass(frozen=True)
class RankPlan:
    """Everything that one rank does.

    Attributes
    ----------
    rank, n_ranks : int
    n_store : int
        Elements of the store.
    n_result : int
        The result is the first ``n_result`` elements of the store.
    n_input : int
        Elements that the rank starts with.
    inputs : tuple of Span
        Where they go in the store, in buffer order.
    slots : tuple of int
        Elements of each scratch array.
    receives : tuple of Receive
    steps : tuple of PlannedStep
    """

    rank: int
    n_ranks: int
    n_store: int
    n_result: int
    n_input: int
    inputs: tuple[Span, ...]
    slots: tuple[int, ...]
    receives: tuple[Receive, ...]
    steps: tuple[PlannedStep, ...]

    @property
    def is_in_place(self) -> bool:
        """Whether input, store and result are laid out alike, so that one array can be all."""
        whole = _merged([Span(0, self.n_store)])
        return self.inputs == whole and self.n_result == self.n_store


def plan_for_rank(
    schedule: Schedule, rank: int, counts: Sequence[int], ahead: int = STEPS_AHEAD
) -> RankPlan:
    """Work out what one rank has to do.

    Parameters
    ----------
    schedule : Schedule
    rank : int
    counts : sequence of int
        Elements of each chunk, as `Schedule.chunk_counts` gives them. Chunks without
        elements are not sent, and all ranks see that from the counts.
    ahead : int
        How many steps before its own a receive may be posted.

    Returns
    -------
    RankPlan

    Raises
    ------
    ScheduleError
        If the schedule's rows make no sense.
    ValueError
        If there is no such rank, or the counts do not fit the schedule.
    """
    check_structure(schedule)
    rank = check_rank(rank, schedule.n_ranks, "rank")
    if len(counts) != schedule.n_chunks or min(counts, default=0) < 0:
        raise ValueError(
            f"counts must give the elements, zero or more, of each of the {schedule.n_chunks} "
            f"chunks; got {counts!r}."
        )
    rows = _rows_of(schedule, rank)
    place = _places(schedule, rank, rows, counts)
    sends, arrivals = _messages(rank, rows, place)
    n_steps = len(schedule.steps)
    posts: list[list[int]] = [[] for _ in range(n_steps)]
    completes: list[list[int]] = [[] for _ in range(n_steps)]
    receives = []
    slots = _Slots()
    for number, arrival in enumerate(arrivals):
        posted = max(0, arrival.step - ahead)
        slot = None
        if not _may_arrive_in_place(arrival, posted):
            slot = slots.take(arrival.elements, posted, arrival.step)
        receives.append(Receive(arrival.peer, arrival.elements, arrival.spans, slot))
        posts[posted].append(number)
        completes[arrival.step].append(number)
    starts = [place[chunk] for chunk in schedule.starts[rank]]
    return RankPlan(
        rank=rank,
        n_ranks=schedule.n_ranks,
        n_store=max((span.stop for span in place.values()), default=0),
        n_result=_total(place[chunk] for chunk in schedule.ends[rank]),
        n_input=_total(starts),
        inputs=_merged(starts),
        slots=tuple(slots.elements),
        receives=tuple(receives),
        steps=tuple(
            PlannedStep(tuple(posts[step]), tuple(sends[step]), tuple(completes[step]))
            for step in range(n_steps)
        ),
    )


class _Arrival(NamedTuple):
    """A message to this rank, before it is known when its receive is posted.

    ``last_used`` is the last step, up to its own, that needs the place in the store where it
    belongs; -1 if none does.
    """

    step: int
    peer: int
    elements: int
    spans: tuple[Span, ...]
    last_used: int


def _rows_of(schedule: Schedule, rank: int) -> list[list[Transfer]]:
    """Return the rows of each step in which this rank sends or receives."""
    lengths = [len(step) for step in schedule.steps]
    step_of_row = np.repeat(np.arange(len(lengths)), lengths)
    columns = [
        # The empty array stands for a schedule without steps.
        np.concatenate([np.zeros(0, dtype=int), *(getattr(step, name) for step in schedule.steps)])
        for name in Transfer._fields
    ]
    is_mine = (columns[0] == rank) | (columns[1] == rank)
    rows: list[list[Transfer]] = [[] for _ in lengths]
    mine = (column[is_mine].tolist() for column in (step_of_row, *columns))
    for step, *row in zip(*mine, strict=True):
        rows[step].append(Transfer(*row))
    return rows


def _places(
    schedule: Schedule, rank: int, rows: list[list[Transfer]], counts: Sequence[int]
) -> dict[int, Span]:
    """Lay out the chunks that this rank ever touches: those of its result first."""
    touched = {row.chunk for step in rows for row in step}.union(schedule.starts[rank])
    ends = schedule.ends[rank]
    place, position = {}, 0
    for chunk in [*ends, *sorted(touched.difference(ends))]:
        length = int(counts[chunk])
        place[chunk] = Span(position, position + length)
        position += length
    return place


def _messages(
    rank: int, rows: list[list[Transfer]], place: dict[int, Span]
) -> tuple[list[list[Send]], list[_Arrival]]:
    """Return what this rank sends in each step, and all that it receives, in step order."""
    sends: list[list[Send]] = []
    arrivals: list[_Arrival] = []
    last_used: dict[int, int] = {}
    for index, step in enumerate(rows):
        # Rows with the same partner are one message, packed in row order.
        outgoing: dict[int, list[int]] = {}
        incoming: dict[int, list[tuple[int, int]]] = {}
        for src, dst, chunk, op in step:
            if place[chunk].start == place[chunk].stop:
                continue
            if src == rank:
                outgoing.setdefault(dst, []).append(chunk)
            else:
                incoming.setdefault(src, []).append((chunk, op))
        sends.append([])
        for peer, chunks in outgoing.items():
            spans = [place[chunk] for chunk in chunks]
            sends[index].append(Send(peer, _total(spans), _merged(spans)))
            last_used.update(dict.fromkeys(chunks, index))
        for peer, parts in incoming.items():
            spans = [Span(place[chunk].start, place[chunk].stop, op) for chunk, op in parts]
            used = max(last_used.get(chunk, -1) for chunk, _ in parts)
            arrivals.append(_Arrival(index, peer, _total(spans), _merged(spans), used))
        for parts in incoming.values():
            last_used.update((chunk, index) for chunk, _ in parts)
    return sends, arrivals


def _may_arrive_in_place(arrival: _Arrival, posted: int) -> bool:
    """Whether nobody reads or writes that place from the posting to the arrival.

    What is added, or lies in several places, has to be received into scratch anyway.
    """
    (first, *more) = arrival.spans
    return not more and first.op == COPY and arrival.last_used < posted


class _Slots:
    """Scratch arrays, each used again as soon as its message has been written into the store."""

    def __init__(self) -> None:
        self.elements: list[int] = []
        self.busy_until: list[int] = []

    def take(self, elements: int, first_step: int, last_step: int) -> int:
        """Return a slot that is free from ``first_step`` on, and keep it until ``last_step``."""
        for slot, busy_until in enumerate(self.busy_until):
            if busy_until < first_step:
                self.busy_until[slot] = last_step
                self.elements[slot] = max(self.elements[slot], elements)
                return slot
        self.busy_until.append(last_step)
        self.elements.append(elements)
        return len(self.elements) - 1


def _merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Join spans that lie next to each other and are treated alike; drop empty ones."""
    merged: list[Span] = []
    for span in spans:
        if span.start == span.stop:
            continue
        if merged and merged[-1].stop == span.start and merged[-1].op == span.op:
            merged[-1] = Span(merged[-1].start, span.stop, span.op)
        else:
            merged.append(span)
    return tuple(merged)


def _total(spans: Iterable[Span]) -> int:
    """Elements of all spans together."""
    return sum(span.stop - span.start for span in spans)
