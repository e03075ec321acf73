"""Run a schedule on buffers in memory.

The ranks are a list of arrays. Anything that slices, adds in place and copies will do:
numpy arrays here, torch tensors in `commlab.real`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from commlab.ledger import Ledger, all_rows, ledger
from commlab.schedule import REDUCE, Schedule, check_structure

# Any array type that slices, adds in place and copies.
Buffer = Any


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
    check_buffers(schedule, buffers)
    counts = counts_for(schedule, [len(buffer) for buffer in buffers], n_elements)
    chunks = zip(schedule.starts, schedule.ends, _touched_chunks(schedule), strict=True)
    ranks = [
        _RankMemory(*chunks_of_rank, buffer, counts)
        for chunks_of_rank, buffer in zip(chunks, buffers, strict=True)
    ]
    history = [[memory.snapshot() for memory in ranks]] if trace else None
    for step in schedule.steps:
        _run_step(step.transfers, ranks)
        if history is not None:
            history.append([memory.snapshot() for memory in ranks])
    finals = [memory.gather(schedule.ends[rank]) for rank, memory in enumerate(ranks)]
    return Result(finals, ledger(schedule, counts), history)


class _RankMemory:
    """The chunks of one rank, as views into one array."""

    def __init__(
        self,
        starts: Sequence[int],
        ends: Sequence[int],
        touched: Sequence[int],
        buffer: Buffer,
        counts: Sequence[int],
    ) -> None:
        # Chunks of the result come first and in order, so that the result is one slice.
        self.order = [*ends, *sorted({*starts, *touched} - set(ends))]
        self.held = set(starts)
        self.store = _empty_like(buffer, sum(counts[chunk] for chunk in self.order))
        self.views: dict[int, Buffer] = {}
        position = 0
        for chunk in self.order:
            self.views[chunk] = self.store[position : position + counts[chunk]]
            position += counts[chunk]
        for chunk in set(self.order) - set(starts):
            self.views[chunk][...] = garbage(buffer)
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


def _touched_chunks(schedule: Schedule) -> list[list[int]]:
    """Return the chunks that each rank reads or writes in some step."""
    n_ranks, n_chunks = schedule.n_ranks, schedule.n_chunks
    _, src, dst, chunk = all_rows(schedule)
    cells = np.unique(np.concatenate([src * n_chunks + chunk, dst * n_chunks + chunk]))
    bounds = np.searchsorted(cells, np.arange(1, n_ranks) * n_chunks)
    return [(cells_of_rank % n_chunks).tolist() for cells_of_rank in np.split(cells, bounds)]


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


def check_buffers(schedule: Schedule, buffers: Sequence[Buffer]) -> None:
    """Refuse buffers that no rank of this schedule could start with."""
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


def counts_for(schedule: Schedule, lengths: Sequence[int], n_elements: int | None) -> list[int]:
    """Return the elements of each chunk that fit buffers of these lengths."""
    held = np.concatenate([*schedule.chunk_arrays("starts")])
    bounds_of_ranks = np.cumsum([0, *(len(chunks) for chunks in schedule.starts)])

    def lengths_for(counts: np.ndarray) -> list[int]:
        bounds = np.cumsum(np.concatenate([[0], counts[held]]))
        return np.diff(bounds[bounds_of_ranks]).tolist()

    sizes = _sizes_to_try(schedule, lengths) if n_elements is None else [n_elements]
    fitting = set()
    for size in sizes:
        counts = schedule.chunk_counts(size)
        if lengths_for(counts) == [*lengths]:
            fitting.add(tuple(counts.tolist()))
    if not fitting:
        if n_elements is None:
            units = int(schedule.share_units[held].sum())
            n_elements = sum(lengths) * schedule.unit_denominator // max(1, units)
        wanted = lengths_for(schedule.chunk_counts(n_elements))
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


def _sizes_to_try(schedule: Schedule, lengths: Sequence[int]) -> range:
    """Return the sizes of S that buffers of these lengths leave possible.

    Chunk bounds are rounded down, so a run of neighbouring chunks differs from its share
    of S by less than one element: each rank leaves few sizes, all ranks together fewer.
    """
    if schedule.counts is not None:
        return range(1)  # the counts are what they are, at any size
    lowest, highest = 0, None
    for chunks, length in zip(schedule.chunk_arrays("starts"), lengths, strict=True):
        units = int(schedule.share_units[chunks].sum())
        if units == 0:
            continue
        n_runs = 1 + int(np.count_nonzero(np.diff(chunks) != 1))
        scale = schedule.unit_denominator
        lowest = max(lowest, (length - n_runs) * scale // units + 1)
        below = -(-(length + n_runs) * scale // units) - 1
        highest = below if highest is None else min(highest, below)
    return range(1) if highest is None else range(lowest, highest + 1)


def _empty_like(buffer: Buffer, length: int) -> Buffer:
    if hasattr(buffer, "new_empty"):  # torch
        return buffer.new_empty(length)
    return np.empty(length, dtype=buffer.dtype)


def _copy(buffer: Buffer) -> Buffer:
    return buffer.clone() if hasattr(buffer, "clone") else buffer.copy()


def garbage(buffer: Buffer) -> float | int:
    """A value that shows when somebody reads a chunk that was never filled."""
    if isinstance(buffer, np.ndarray) and buffer.dtype.kind in "iu":
        return int(np.iinfo(buffer.dtype).max) // 3
    try:
        return float("nan") if buffer.dtype.is_floating_point else 37
    except AttributeError:  # a numpy float
        return float("nan")
