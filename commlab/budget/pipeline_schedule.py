"""Pipeline schedules as event simulations: which stage runs what, from when to when.

A stage runs its operations one after the other, in the order that the schedule fixes, each as
soon as its input has arrived. Nothing here knows a closed form; the tests compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from commlab.checks import check_n_ranks, check_rank
from commlab.setting_checks import check_choice

SCHEDULES = ("gpipe", "1f1b", "interleaved")


class Operation(NamedTuple):
    """The forward or backward pass of one micro-batch through one part of the model.

    ``chunk`` counts the parts that one stage holds: always 0 unless interleaved.
    """

    microbatch: int
    chunk: int
    is_backward: bool


@dataclass(frozen=True, eq=False)
class PipelineTimeline:
    """When each operation of a pipelined step starts and ends.

    Attributes
    ----------
    stage, microbatch, chunk : numpy.ndarray of int, shape (n_operations,)
    is_backward : numpy.ndarray of bool, shape (n_operations,)
    start, end : numpy.ndarray, shape (n_operations,)
        Seconds after the start of the step.
    n_stages : int
    """

    stage: np.ndarray
    microbatch: np.ndarray
    chunk: np.ndarray
    is_backward: np.ndarray
    start: np.ndarray
    end: np.ndarray
    n_stages: int

    @property
    def seconds(self) -> float:
        """Seconds until the last operation ends."""
        return float(self.end.max())

    @property
    def bubble_fraction(self) -> float:
        """Part of the step in which stages wait, averaged over stages; 0 if nothing takes time."""
        if self.seconds == 0:
            return 0.0
        busy = float((self.end - self.start).sum())
        return 1 - busy / (self.n_stages * self.seconds)

    def in_flight(self) -> np.ndarray:
        """Count the forward passes whose activations each stage keeps at once, at most.

        Returns
        -------
        numpy.ndarray of int, shape (n_stages,)
            Activations live from the start of a forward pass to the end of its backward
            pass. With several chunks each count is of 1/chunks of the stage's layers.
        """
        peaks = np.zeros(self.n_stages, dtype=int)
        for stage in range(self.n_stages):
            mine = np.flatnonzero(self.stage == stage)
            order = mine[np.argsort(self.start[mine], kind="stable")]
            # A backward pass gives its activations back only when it has ended: the next
            # operation of the stage starts after that.
            change = np.where(self.is_backward[order], -1, 1)
            peaks[stage] = np.cumsum(change).max()
        return peaks


def stage_order(
    schedule: str, n_stages: int, n_microbatches: int, stage: int, n_chunks: int = 1
) -> list[Operation]:
    """Return the operations of one stage in the order in which it runs them.

    Parameters
    ----------
    schedule : {"gpipe", "1f1b", "interleaved"}
        "gpipe" runs all forward passes, then all backward passes. "1f1b" fills the pipeline,
        then alternates one forward and one backward pass. "interleaved" is 1F1B with
        ``n_chunks`` parts of the model on each stage.
    n_stages, n_microbatches : int
    stage : int
    n_chunks : int
        Parts of the model per stage, for "interleaved" only.

    Returns
    -------
    list of Operation

    Raises
    ------
    ValueError
        If a count or the stage is out of range, or as in :func:`simulate_pipeline`.

    Notes
    -----
    Sources: Huang et al. (2019), "GPipe"; Narayanan et al. (2021), "Efficient Large-Scale
    Language Model Training on GPU Clusters Using Megatron-LM", section 2.2.
    """
    check_schedule(schedule, n_stages, n_microbatches, n_chunks)
    stage = check_rank(stage, n_stages, "stage")
    n_items = n_microbatches * n_chunks
    forwards = [_item(k, n_stages, n_chunks, False) for k in range(n_items)]
    backwards = [_item(k, n_stages, n_chunks, True) for k in range(n_items)]
    if schedule == "gpipe":
        return forwards + backwards[::-1]
    if schedule == "1f1b":
        warm_up = n_stages - 1 - stage
    else:
        warm_up = 2 * (n_stages - 1 - stage) + (n_chunks - 1) * n_stages
    warm_up = min(warm_up, n_items)
    alternating = []
    for forward, backward in zip(forwards[warm_up:], backwards, strict=False):
        alternating += [forward, backward]
    return forwards[:warm_up] + alternating + backwards[n_items - warm_up :]


def _item(position: int, n_stages: int, n_chunks: int, is_backward: bool) -> Operation:
    """Return the operation at a position: n_stages micro-batches per chunk, chunk by chunk."""
    if n_chunks == 1:
        return Operation(position, 0, is_backward)
    turn, within = divmod(position, n_stages * n_chunks)
    chunk, lane = divmod(within, n_stages)
    if is_backward:
        chunk = n_chunks - 1 - chunk
    return Operation(turn * n_stages + lane, chunk, is_backward)


def simulate_pipeline(
    n_stages: int,
    n_microbatches: int,
    forward_seconds: float | Sequence[float],
    backward_seconds: float | Sequence[float],
    transfer_seconds: float = 0.0,
    schedule: str = "1f1b",
    n_chunks: int = 1,
) -> PipelineTimeline:
    """Run one pipelined training step, event by event.

    Parameters
    ----------
    n_stages, n_microbatches : int
    forward_seconds, backward_seconds : float or sequence of float
        Seconds of one micro-batch on a stage: one number, or one per stage. With several
        chunks each takes its part of them.
    transfer_seconds : float
        Seconds of one point-to-point transfer between neighbouring stages. Transfers run
        beside the computation: they delay the receiver only.
    schedule : {"gpipe", "1f1b", "interleaved"}
    n_chunks : int
        Parts of the model per stage; at least 2 for "interleaved", else 1.

    Returns
    -------
    PipelineTimeline

    Raises
    ------
    ValueError
        If a count or a time is out of range, the schedule is unknown, or "interleaved" gets
        micro-batches that are no multiple of the stages.
    """
    check_schedule(schedule, n_stages, n_microbatches, n_chunks)
    seconds = {
        False: _per_stage(forward_seconds, n_stages, "forward_seconds") / n_chunks,
        True: _per_stage(backward_seconds, n_stages, "backward_seconds") / n_chunks,
    }
    if np.ndim(transfer_seconds) > 0:
        raise ValueError(
            f"transfer_seconds must be one number, for all transfers; got {transfer_seconds!r}."
        )
    transfer_seconds = float(_per_stage(transfer_seconds, n_stages, "transfer_seconds")[0])
    orders = [
        stage_order(schedule, n_stages, n_microbatches, stage, n_chunks)
        for stage in range(n_stages)
    ]
    done = [0] * n_stages
    free = [0.0] * n_stages
    end: dict[tuple[int, Operation], float] = {}
    rows: list[tuple[int, Operation, float, float]] = []
    total = sum(len(order) for order in orders)
    while len(rows) < total:
        before = len(rows)
        for stage, order in enumerate(orders):
            while done[stage] < len(order):
                operation = order[done[stage]]
                ready = _input_ready(stage, operation, end, n_stages, n_chunks, transfer_seconds)
                if ready is None:
                    break
                start = max(free[stage], ready)
                free[stage] = start + seconds[operation.is_backward][stage]
                end[stage, operation] = free[stage]
                rows.append((stage, operation, start, free[stage]))
                done[stage] += 1
        if len(rows) == before:
            raise AssertionError("unreachable: every order of a schedule can run to its end")
    return PipelineTimeline(
        stage=np.array([stage for stage, _, _, _ in rows]),
        microbatch=np.array([operation.microbatch for _, operation, _, _ in rows]),
        chunk=np.array([operation.chunk for _, operation, _, _ in rows]),
        is_backward=np.array([operation.is_backward for _, operation, _, _ in rows]),
        start=np.array([start for _, _, start, _ in rows]),
        end=np.array([finish for _, _, _, finish in rows]),
        n_stages=n_stages,
    )


def check_schedule(schedule: str, n_stages: int, n_microbatches: int, n_chunks: int) -> None:
    """Refuse an unknown schedule, counts below 1, and counts that do not fit the schedule."""
    check_choice(schedule, SCHEDULES, "schedule")
    check_n_ranks(n_stages, "n_stages")
    check_n_ranks(n_microbatches, "n_microbatches")
    n_chunks = check_n_ranks(n_chunks, "n_chunks")
    if (schedule == "interleaved") != (n_chunks > 1):
        raise ValueError(
            f"schedule is {schedule!r} with n_chunks={n_chunks}: 'interleaved' needs 2 or more "
            "parts of the model per stage, the others 1."
        )
    if n_chunks > 1 and n_microbatches % n_stages:
        raise ValueError(
            f"'interleaved' needs micro-batches in groups of {n_stages}, one per stage; got "
            f"{n_microbatches}: choose a multiple."
        )


def _per_stage(seconds: float | Sequence[float], n_stages: int, what: str) -> np.ndarray:
    try:
        values = np.asarray(seconds, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} must be seconds, zero or more; got {seconds!r}.") from error
    if values.ndim > 1 or (values.ndim == 1 and values.size != n_stages):
        raise ValueError(f"{what} must be one number, or one for each of the {n_stages} stages.")
    if not np.all(np.isfinite(values)) or np.any(values < 0):
        raise ValueError(f"{what} must be seconds, zero or more; got {seconds!r}.")
    return np.broadcast_to(values, n_stages)


def _input_ready(
    stage: int,
    operation: Operation,
    end: dict[tuple[int, Operation], float],
    n_stages: int,
    n_chunks: int,
    transfer_seconds: float,
) -> float | None:
    """Return when an operation's input is there; None if it is not computed yet."""
    microbatch, chunk, is_backward = operation
    part = chunk * n_stages + stage
    last = n_chunks * n_stages - 1
    if is_backward and part == last:
        return end.get((stage, Operation(microbatch, chunk, False)))
    if not is_backward and part == 0:
        return 0.0
    chunk, neighbour = divmod(part + 1 if is_backward else part - 1, n_stages)
    finished = end.get((neighbour, Operation(microbatch, chunk, is_backward)))
    if finished is None:
        return None
    return finished + (transfer_seconds if neighbour != stage else 0.0)
