"""A collective algorithm as data, and the proof that it is right.

A `Schedule` says who sends which chunk to whom in which step, and whether the receiver
overwrites its chunk or adds to it. It knows nothing of sizes in bytes, of links or of the
algorithm's name. `verify` proves that it computes what its collective promises; the other
readers simulate it, price it, draw it and run it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from commlab.checks import check_n_ranks

COPY = 0
REDUCE = 1
OPERATIONS = ("copy", "reduce")


class ScheduleError(ValueError):
    """A schedule is wrong; says in which step, at which rank and chunk.

    Attributes
    ----------
    step, rank, chunk : int or None
        The place of the fault; None where the fault has no such place.
    """

    def __init__(
        self,
        message: str,
        *,
        step: int | None = None,
        rank: int | None = None,
        chunk: int | None = None,
    ) -> None:
        super().__init__(message)
        self.step = step
        self.rank = rank
        self.chunk = chunk


class Transfer(NamedTuple):
    """One row of a step: ``src`` sends ``chunk`` to ``dst``."""

    src: int
    dst: int
    chunk: int
    op: int


@dataclass(frozen=True, eq=False, init=False)
class Step:
    """Transfers that happen at the same time.

    All reads see the state before the step. Rows with the same ``src`` and ``dst`` travel
    as one message, packed in row order.

    Parameters
    ----------
    src, dst, chunk : array_like of int, shape (rows,)
        Sender, receiver and chunk of each transfer.
    op : int or array_like of int, shape (rows,)
        `COPY` (the receiver overwrites its chunk) or `REDUCE` (it adds to it).
    """

    src: np.ndarray
    dst: np.ndarray
    chunk: np.ndarray
    op: np.ndarray

    def __init__(self, src: ArrayLike, dst: ArrayLike, chunk: ArrayLike, op: ArrayLike) -> None:
        given = {"src": src, "dst": dst, "chunk": chunk, "op": op}
        columns = {name: _integer_column(values, name) for name, values in given.items()}
        try:
            broadcast = np.broadcast_arrays(*columns.values())
        except ValueError:
            lengths = ", ".join(f"{name} {array.size}" for name, array in columns.items())
            raise ScheduleError(
                f"the columns of a step must have one length; got {lengths}."
            ) from None
        for name, array in zip(columns, broadcast, strict=True):
            # Compact types keep the schedule of a ring of 1024 ranks below 30 MB.
            stored = np.atleast_1d(array).astype(np.int8 if name == "op" else np.int32)
            if (stored != array).any():
                raise ScheduleError(
                    f"the column {name} of a step holds a number that is far too large."
                )
            stored.flags.writeable = False
            object.__setattr__(self, name, stored)

    def __len__(self) -> int:
        return self.src.size

    @property
    def transfers(self) -> list[Transfer]:
        """The rows as plain tuples, for reading and for small loops."""
        rows = zip(
            self.src.tolist(), self.dst.tolist(), self.chunk.tolist(), self.op.tolist(), strict=True
        )
        return [Transfer(*row) for row in rows]


class MessageTable(NamedTuple):
    """The messages of one step, one entry per (src, dst) pair.

    ``units`` counts shares in units of ``1 / Schedule.unit_denominator`` of S.
    """

    src: np.ndarray
    dst: np.ndarray
    units: np.ndarray


@dataclass(frozen=True, eq=False)
class Schedule:
    """A collective algorithm for a fixed number of ranks.

    Parameters
    ----------
    collective : str
        What it computes: "all_reduce", "broadcast", ... Readers print it, none decides by it.
    n_ranks : int
        N, the number of ranks.
    shares : sequence of Fraction
        ``shares[c]`` is the size of chunk c as a part of S, the full vector of one rank.
    starts, ends : sequence of sequences of int
        The chunks that each rank holds before, and must hold after, in buffer order.
    steps : sequence of Step
    name : str
        The algorithm's name, for titles only.
    counts : sequence of int, optional
        Elements of each chunk, where they are given explicitly; the schedule then fits one
        buffer size only, and its shares become those of the counts.
    """

    collective: str
    n_ranks: int
    shares: Sequence[Fraction]
    starts: Sequence[Sequence[int]]
    ends: Sequence[Sequence[int]]
    steps: Sequence[Step]
    name: str = ""
    counts: Sequence[int] | None = field(default=None)

    def __post_init__(self) -> None:
        n_ranks = check_n_ranks(self.n_ranks)
        shares = tuple(_share(value) for value in self.shares)
        object.__setattr__(self, "n_ranks", n_ranks)
        object.__setattr__(self, "shares", shares)
        for name in ("starts", "ends"):
            object.__setattr__(self, name, _chunk_lists(getattr(self, name), name, n_ranks))
        steps = tuple(self.steps)
        for index, step in enumerate(steps):
            if not isinstance(step, Step):
                raise ScheduleError(
                    f"step {index} is a {type(step).__name__}: write Step(src, dst, chunk, op)."
                )
        object.__setattr__(self, "steps", steps)
        if self.counts is not None:
            counts = _counts(self.counts, len(shares))
            object.__setattr__(self, "counts", counts)
            object.__setattr__(self, "shares", self._shares_of(counts))

    def _shares_of(self, counts: tuple[int, ...]) -> Sequence[Fraction]:
        """Return explicit counts as parts of S, the most that one rank starts or ends with."""
        for lists in (self.starts, self.ends):
            for chunks in lists:
                n_elements = sum(counts[chunk] for chunk in chunks if chunk < len(counts))
                share = sum(self.shares[chunk] for chunk in chunks if chunk < len(counts))
                if share == 1 and n_elements:
                    return tuple(Fraction(count, n_elements) for count in counts)
        return self.shares

    def __repr__(self) -> str:
        return (
            f"Schedule({self.collective}, {self.name or 'unnamed'}: {self.n_ranks} ranks, "
            f"{self.n_chunks} chunks, {len(self.steps)} steps)"
        )

    @property
    def n_chunks(self) -> int:
        """The number of chunks."""
        return len(self.shares)

    @cached_property
    def has_sound_rows(self) -> bool:
        """True; asking raises the ScheduleError of `check_structure` where it is not so."""
        _check_rows(self)
        return True

    @cached_property
    def unit_denominator(self) -> int:
        """The common denominator of all shares."""
        denominator = math.lcm(*(share.denominator for share in self.shares))
        if denominator * max(1, self.n_ranks) * max(1, self.n_chunks) >= 2**62:
            raise ScheduleError(
                "the shares have no common denominator that fits 64-bit integers: "
                "use simpler fractions."
            )
        return denominator

    @cached_property
    def share_units(self) -> np.ndarray:
        """Shares as whole numbers of ``1 / unit_denominator``, shape (n_chunks,), int64."""
        denominator = self.unit_denominator
        units = [share.numerator * (denominator // share.denominator) for share in self.shares]
        return np.array(units, dtype=np.int64)

    def chunk_arrays(self, which: str) -> Iterator[np.ndarray]:
        """Yield ``starts`` or ``ends`` rank by rank as index arrays."""
        converted: dict[int, np.ndarray] = {}
        for chunks in getattr(self, which):
            # Ranks often share one tuple; a thousand conversions of it would take a while.
            if id(chunks) not in converted:
                converted[id(chunks)] = np.array(chunks, dtype=np.int64)
            yield converted[id(chunks)]

    def messages(self, step: int) -> MessageTable:
        """Return the messages of one step: rows with the same (src, dst) are one."""
        step = range(len(self.steps))[step]
        return self.messages_of_steps(step, step + 1)[1]

    def messages_of_steps(self, first: int, stop: int) -> tuple[np.ndarray, MessageTable]:
        """Return the messages of the steps ``first`` … ``stop - 1``, and the step of each."""
        steps = self.steps[first:stop]
        rows_of_step = [step.src.size for step in steps]
        step = np.repeat(np.arange(first, first + len(steps)), rows_of_step)
        src, dst, chunk = (
            np.concatenate([getattr(one, column) for one in steps]).astype(np.int64)
            for column in ("src", "dst", "chunk")
        )
        key = (step * self.n_ranks + src) * self.n_ranks + dst
        keys, message_of_row = np.unique(key, return_inverse=True)
        units = np.zeros(keys.size, dtype=np.int64)
        np.add.at(units, message_of_row, self.share_units[chunk])
        step_and_src, dst = np.divmod(keys, self.n_ranks)
        step, src = np.divmod(step_and_src, self.n_ranks)
        return step, MessageTable(src, dst, units)

    def chunk_counts(self, n_elements: int) -> np.ndarray:
        """Return the elements of each chunk when S has ``n_elements``, shape (n_chunks,).

        Chunk bounds are the cumulative shares of ``n_elements``, rounded down, so that
        chunks of equal shares differ by one element at most.
        """
        if self.counts is not None:
            return np.array(self.counts, dtype=np.int64)
        bounds = [0]
        cumulative = 0
        for units in self.share_units.tolist():
            cumulative += units
            bounds.append(cumulative * n_elements // self.unit_denominator)
        return np.diff(np.array(bounds, dtype=np.int64))


def check_structure(schedule: Schedule) -> None:
    """Refuse a schedule whose rows make no sense, whatever they compute.

    Every reader calls this first; the answer is remembered with the schedule.

    Raises
    ------
    TypeError
        If it is no Schedule at all.
    ScheduleError
        Naming the first step with a rank, chunk or operation that does not exist, a rank
        that sends to itself, or two rows that write the same chunk of the same rank.
    """
    if not isinstance(schedule, Schedule):
        kind = "a function" if callable(schedule) else f"a {type(schedule).__name__}"
        raise TypeError(
            f"a Schedule is needed here, not {kind}: build one, for example ring_all_reduce(4)."
        )
    _ = schedule.has_sound_rows


def _check_rows(schedule: Schedule) -> None:
    n_ranks, n_chunks = schedule.n_ranks, schedule.n_chunks
    for name in ("starts", "ends"):
        for rank, chunks in _distinct(getattr(schedule, name)):
            if len(set(chunks)) != len(chunks):
                raise ScheduleError(f"{name} of rank {rank} names a chunk twice.", rank=rank)
            for chunk in chunks:
                if not 0 <= chunk < n_chunks:
                    raise ScheduleError(
                        f"{name} of rank {rank} names chunk {chunk}, "
                        f"but there are chunks 0 to {n_chunks - 1} only.",
                        rank=rank,
                        chunk=chunk,
                    )
    for index, step in enumerate(schedule.steps):
        for column, limit, what in (
            (step.src, n_ranks, "rank"),
            (step.dst, n_ranks, "rank"),
            (step.chunk, n_chunks, "chunk"),
            (step.op, len(OPERATIONS), "operation"),
        ):
            outside = (column < 0) | (column >= limit)
            if outside.any():
                row = int(np.argmax(outside))
                raise _row_error(
                    step, index, row, f"{what} {int(column[row])} does not exist (0 to {limit - 1})"
                )
        to_itself = step.src == step.dst
        if to_itself.any():
            raise _row_error(step, index, int(np.argmax(to_itself)), "a rank sends to itself")
        target = step.dst.astype(np.int64) * n_chunks + step.chunk
        order = np.argsort(target, kind="stable")
        repeated = np.flatnonzero(np.diff(target[order]) == 0)
        if repeated.size:
            raise _row_error(
                step,
                index,
                int(order[repeated[0] + 1]),
                "two rows write the same chunk of the same rank in one step",
            )


def verify(schedule: Schedule) -> None:
    """Prove that a schedule computes what its starts and ends promise.

    Every chunk of every rank is followed as the set of ranks whose contribution it holds.
    At the end each chunk that `Schedule.ends` asks of a rank must hold the contribution of
    every rank that started with it, exactly once.

    Parameters
    ----------
    schedule : Schedule

    Raises
    ------
    ScheduleError
        Naming the earliest step, rank and chunk at which a contribution was doubled, lost,
        or read from a rank that did not hold the chunk; or because the shares of the fullest
        rank do not add up to S.

    Notes
    -----
    A chunk of share 0 is held to the same rule, although no simulation would notice it.

    The sets are bit sets: N * n_chunks * ceil(N / 64) words of 8 bytes, 128 MB for a ring of
    1024 ranks. A doubled contribution that is overwritten before the end does no harm and is
    accepted, as it is by a simulation.
    """
    check_structure(schedule)
    _check_shares(schedule)
    state = _Contributions(schedule)
    for index in range(len(schedule.steps)):
        state.apply(index)
    state.check_ends()


def _check_shares(schedule: Schedule) -> None:
    """Refuse shares that do not add up to S, the full vector of one rank.

    A schedule that moves half a vector would be right in itself, and priced at half its cost.
    """
    fullest = {
        which: Fraction(
            max(int(schedule.share_units[chunks].sum()) for chunks in schedule.chunk_arrays(which)),
            schedule.unit_denominator,
        )
        for which in ("starts", "ends")
    }
    # An uneven all-to-all may give one rank more than S; but somebody has exactly S.
    if 1 not in fullest.values():
        raise ScheduleError(
            f"the fullest rank starts with {fullest['starts']} of S and ends with "
            f"{fullest['ends']}: shares are parts of the full vector of one rank, so one of "
            "the two must be exactly 1."
        )
    if not any(schedule.ends):
        raise ScheduleError("no rank ends with a chunk: fill in ends.")


def held_contributions(schedule: Schedule) -> Iterator[np.ndarray]:
    """Yield, before the first step and after each, whose contributions are where.

    Yields
    ------
    numpy.ndarray of bool, shape (n_ranks, n_chunks, n_ranks)
        ``held[rank, chunk, contributor]``. Meant for drawing small schedules.
    """
    check_structure(schedule)
    state = _Contributions(schedule)
    yield state.as_booleans()
    for index in range(len(schedule.steps)):
        state.apply(index)
        yield state.as_booleans()


_DOUBLED, _NOT_HELD = 1, 2


class _Contributions:
    """The state of `verify`: a bit set of contributors per rank and chunk.

    A bit set cannot count, so a cell that took a contribution twice, or a value from a rank
    that held none, is marked as spoilt, together with the place where that happened. A later
    copy of a good value heals it.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        n_ranks, n_chunks = schedule.n_ranks, schedule.n_chunks
        words = -(-n_ranks // 64)
        # A cell is rank * n_chunks + chunk; flat indices are what keeps N = 1024 fast.
        self.bits = np.zeros((n_ranks * n_chunks, words), dtype=np.uint64)
        self.held = np.zeros(n_ranks * n_chunks, dtype=bool)
        for rank, chunks in enumerate(schedule.chunk_arrays("starts")):
            word, bit = divmod(rank, 64)
            self.bits[rank * n_chunks + chunks, word] = np.uint64(1 << bit)
            self.held[rank * n_chunks + chunks] = True
        self.fault = np.zeros(n_ranks * n_chunks, dtype=np.int8)
        # Where the fault arose: step * (n_ranks * n_chunks) + cell.
        self.origin = np.zeros(n_ranks * n_chunks, dtype=np.int64)
        self.any_fault = False

    def cells(self, ranks: np.ndarray, chunks: np.ndarray) -> np.ndarray:
        """Return the flat index of each (rank, chunk) pair."""
        return ranks.astype(np.int64) * self.schedule.n_chunks + chunks

    def apply(self, index: int) -> None:
        """Carry out one step on the contributor sets."""
        step = self.schedule.steps[index]
        source, target = self.cells(step.src, step.chunk), self.cells(step.dst, step.chunk)
        merged = self.bits.take(source, axis=0)
        reduces = step.op == REDUCE
        doubled: np.ndarray = np.zeros(len(step), dtype=bool)
        if reduces.any():
            present = self.bits.take(target, axis=0)
            present[~reduces] = 0
            common = merged & present
            if common.any():
                doubled = np.asarray(common.any(axis=1))
            merged |= present
        not_held = ~self.held[source] | (reduces & ~self.held[target])
        if self.any_fault or doubled.any() or not_held.any():
            self._spread_faults(index, source, target, doubled, not_held)
        self.bits[target] = merged
        self.held[target] = True

    def _spread_faults(
        self,
        index: int,
        source: np.ndarray,
        target: np.ndarray,
        doubled: np.ndarray,
        not_held: np.ndarray,
    ) -> None:
        """Mark new faults, and hand on those of the values that were read."""
        self.any_fault = True
        reduces = self.schedule.steps[index].op == REDUCE
        fault = np.select([not_held, doubled], [_NOT_HELD, _DOUBLED], default=0).astype(np.int8)
        origin = np.where(fault > 0, index * self.fault.size + target, np.iinfo(np.int64).max)
        read_faults = (
            (self.fault[source], self.origin[source]),
            (np.where(reduces, self.fault[target], 0), self.origin[target]),
        )
        for read_fault, read_origin in read_faults:
            earlier = (read_fault > 0) & (read_origin < origin)
            fault = np.where(earlier, read_fault, fault)
            origin = np.where(earlier, read_origin, origin)
        self.fault[target] = fault
        self.origin[target] = origin

    def check_ends(self) -> None:
        """Raise a ScheduleError for the earliest fault that reaches an end."""
        wanted = self._wanted()
        spoilt: list[int] = []
        lacking: list[int] = []
        for rank, chunks in enumerate(self.schedule.chunk_arrays("ends")):
            targets = wanted[chunks]
            nobody = ~targets.any(axis=1)
            if nobody.any():
                chunk = int(chunks[np.argmax(nobody)])
                raise ScheduleError(
                    f"rank {rank} must end with chunk {chunk}, but no rank starts with it.",
                    rank=rank,
                    chunk=chunk,
                )
            cells = rank * self.schedule.n_chunks + chunks
            faulty = self.fault[cells] > 0
            wrong = (self.bits[cells] != targets).any(axis=1) & ~faulty
            spoilt += cells[faulty].tolist()
            lacking += cells[wrong].tolist()
        if spoilt:
            raise self._spoilt_error(min(spoilt, key=lambda cell: self.origin[cell]))
        if lacking:
            raise self._loss_error(lacking, wanted)

    def _wanted(self) -> np.ndarray:
        """Return the contributor set that each chunk must reach, shape (n_chunks, words)."""
        wanted = np.zeros((self.schedule.n_chunks, self.bits.shape[1]), dtype=np.uint64)
        for rank, chunks in enumerate(self.schedule.chunk_arrays("starts")):
            word, bit = divmod(rank, 64)
            wanted[chunks, word] |= np.uint64(1 << bit)
        return wanted

    def _place(self, cell: int) -> tuple[int, int]:
        """Return the rank and the chunk of a flat index."""
        return divmod(cell, self.schedule.n_chunks)

    def _spoilt_error(self, end: int) -> ScheduleError:
        index, cell = divmod(int(self.origin[end]), self.fault.size)
        rank, chunk = self._place(cell)
        end_rank, end_chunk = self._place(end)
        if self.fault[end] == _DOUBLED:
            what = f"rank {rank} adds to its chunk {chunk} a contribution that it already holds"
        else:
            what = f"rank {rank} receives or adds to chunk {chunk}, which was never filled"
        return ScheduleError(
            f"step {index}: {what}; so rank {end_rank} ends with a wrong chunk {end_chunk}.",
            step=index,
            rank=rank,
            chunk=chunk,
        )

    def _loss_error(self, lacking: list[int], wanted: np.ndarray) -> ScheduleError:
        rank, chunk = self._place(lacking[0])
        absent = wanted[chunk] & ~self.bits[lacking[0]]
        missing = _members(absent)
        extra = _members(self.bits[lacking[0]] & ~wanted[chunk])
        told = (
            f"without the contributions of ranks {_enumerate(missing)}"
            if missing
            else f"with contributions of ranks {_enumerate(extra)} that do not belong to it"
        )
        ending = f"rank {rank} ends with chunk {chunk} {told}"
        loss = _first_loss(self.schedule, chunk, absent)
        if loss is not None:
            index, loser = loss
            return ScheduleError(
                f"step {index}: rank {loser} overwrites its chunk {chunk} and loses "
                f"contributions; {ending}.",
                step=index,
                rank=loser,
                chunk=chunk,
            )
        last = _last_write(self.schedule, rank, chunk)
        when = f"last written in step {last}" if last is not None else "written in no step"
        return ScheduleError(f"{ending}; it is {when}.", step=last, rank=rank, chunk=chunk)

    def as_booleans(self) -> np.ndarray:
        """Unpack the bit sets into booleans, shape (n_ranks, n_chunks, n_ranks)."""
        n_ranks, n_chunks = self.schedule.n_ranks, self.schedule.n_chunks
        shifts = np.arange(64, dtype=np.uint64)
        flags = (self.bits[..., None] >> shifts) & np.uint64(1)
        return flags.reshape(n_ranks, n_chunks, -1)[..., :n_ranks].astype(bool)


def _first_loss(schedule: Schedule, chunk: int, absent: np.ndarray) -> tuple[int, int] | None:
    """Find the first copy that drops one of the absent contributions: its step and rank."""
    state = _Contributions(schedule)
    for index, step in enumerate(schedule.steps):
        for row in np.flatnonzero((step.op == COPY) & (step.chunk == chunk)):
            incoming = state.bits[state.cells(step.src[row], step.chunk[row])]
            present = state.bits[state.cells(step.dst[row], step.chunk[row])]
            if (present & ~incoming & absent).any():
                return index, int(step.dst[row])
        state.apply(index)
    return None


def _last_write(schedule: Schedule, rank: int, chunk: int) -> int | None:
    for index in reversed(range(len(schedule.steps))):
        step = schedule.steps[index]
        if ((step.dst == rank) & (step.chunk == chunk)).any():
            return index
    return None


def _row_error(step: Step, index: int, row: int, what: str) -> ScheduleError:
    src, dst, chunk, op = step.transfers[row]
    return ScheduleError(
        f"step {index}: {what} (rank {src} to rank {dst}, chunk {chunk}, operation {op}).",
        step=index,
        rank=dst,
        chunk=chunk,
    )


def _members(bits: np.ndarray) -> list[int]:
    return [
        word * 64 + bit
        for word, value in enumerate(bits.tolist())
        for bit in range(64)
        if value >> bit & 1
    ]


def _enumerate(ranks: list[int], at_most: int = 8) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:at_most])
    return shown if len(ranks) <= at_most else f"{shown} and {len(ranks) - at_most} more"


def _distinct(lists: Sequence[Sequence[int]]) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield (rank, chunks) once for each distinct object: 1024 ranks often share one tuple."""
    seen: set[int] = set()
    for rank, chunks in enumerate(lists):
        if id(chunks) not in seen:
            seen.add(id(chunks))
            yield rank, chunks


def _chunk_lists(
    lists: Sequence[Sequence[int]], name: str, n_ranks: int
) -> tuple[tuple[int, ...], ...]:
    # A list of its own: the rows of an array would be temporary objects, without identity.
    rows = list(lists)
    if len(rows) != n_ranks:
        raise ScheduleError(
            f"{name} must list the chunks of each of the {n_ranks} ranks; got {len(rows)} lists."
        )
    converted: dict[int, tuple[int, ...]] = {}
    for rank, chunks in enumerate(rows):
        if id(chunks) not in converted:
            try:
                converted[id(chunks)] = tuple(operator.index(chunk) for chunk in chunks)
            except TypeError:
                raise ScheduleError(
                    f"{name} of rank {rank} must be a list of whole numbers; got {chunks!r}.",
                    rank=rank,
                ) from None
    return tuple(converted[id(chunks)] for chunks in rows)


def _counts(counts: Sequence[int], n_chunks: int) -> tuple[int, ...]:
    try:
        whole = tuple(operator.index(count) for count in counts)
    except TypeError:
        whole = ()
    if len(whole) != n_chunks or min(whole, default=0) < 0:
        raise ScheduleError(
            f"counts must give one whole number of elements, zero or more, for each of the "
            f"{n_chunks} chunks; got {counts!r}."
        )
    return whole


def _integer_column(values: object, name: str) -> np.ndarray:
    array = np.asarray(values)
    if array.size == 0:
        return array.astype(np.int32).reshape(array.shape or (0,))
    if array.ndim > 1 or array.dtype.kind not in "iu":
        raise ScheduleError(
            f"the column {name} of a step must be a list of whole numbers; got {values!r}."
        )
    return array


def _share(value: object) -> Fraction:
    if isinstance(value, float) or not isinstance(value, (int, Fraction)) or value < 0:
        raise ScheduleError(
            f"a share must be a Fraction, zero or more (Fraction(1, 4), not 0.25); got {value!r}."
        )
    return Fraction(value)
