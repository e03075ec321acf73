"""Run a schedule for real: every rank is a process and does its own sends and receives.

The fifth reader of a `Schedule`. It uses point-to-point messages only, so that what the bytes
do is what the schedule says, and not what the backend's own collective would do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

from commlab.real.plan import STEPS_AHEAD, RankPlan, Receive, Send, plan_for_rank
from commlab.schedule import REDUCE, Schedule, check_structure
from commlab.simulate import garbage


class SentMessage(NamedTuple):
    """One message that this rank really sent: in which step, to whom, how many elements."""

    step: int
    dst: int
    elements: int


def execute(
    schedule: Schedule,
    buffer: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    *,
    n_elements: int | None = None,
    device: torch.device | str | None = None,
) -> tuple[torch.Tensor, list[SentMessage]]:
    """Take this rank's part in a schedule. Every rank of the group calls it.

    Parameters
    ----------
    schedule : Schedule
        The same on every rank, for as many ranks as the group has.
    buffer : torch.Tensor, 1-D
        What this rank holds at the start: the chunks of ``schedule.starts[rank]`` one after
        the other. It is not changed. One dtype on all ranks.
    group : ProcessGroup, optional
        By default all processes. Rank r of the schedule is rank r *of the group*.
    n_elements : int, optional
        The elements of S. Needed where a rank does not start with all of S, because one rank
        cannot see how long the others' buffers are.
    device : torch.device or str, optional
        Where the data lies while it is worked on; by default where ``buffer`` lies.

    Returns
    -------
    result : torch.Tensor, 1-D
        The chunks of ``schedule.ends[rank]``, in that order.
    sent : list of SentMessage
        What this rank sent, noted where it was sent. Chunks without elements are not sent.

    Raises
    ------
    ValueError
        If the group or the buffer does not fit the schedule.
    ScheduleError
        If the schedule's rows make no sense. That it computes the right thing is not checked
        here: that is what `verify` proves.
    RuntimeError
        From the group, if a peer is gone or its timeout is over.

    Notes
    -----
    The additions are those of `simulate`, in the same order (``local + received``), so the
    result has the same bits.

    Not run on GPUs here. With NCCL each step is one batch of sends and receives and nothing
    is posted ahead, since NCCL carries out one batch after the other. NCCL also wants all
    ranks in the first call of a group: make a ``dist.barrier(group)`` before this.
    """
    check_structure(schedule)
    rank = _rank_in(group, schedule)
    _check_buffer(buffer)
    counts = _chunk_counts(schedule, len(buffer), n_elements)
    if device is not None:
        buffer = buffer.to(device)
    plan = plan_for_rank(schedule, rank, counts, ahead=steps_ahead(buffer.device))
    return execute_plan(plan, buffer, group)


def execute_plan(
    plan: RankPlan, buffer: torch.Tensor, group: dist.ProcessGroup | None = None
) -> tuple[torch.Tensor, list[SentMessage]]:
    """Follow a plan that was worked out before, as a program does that repeats its calls.

    Parameters and results are those of `execute`. On GPUs the plan must have been made with
    the `steps_ahead` of their device.
    """
    if len(buffer) != plan.n_input:
        raise ValueError(
            f"rank {plan.rank} starts with {plan.n_input} elements, but its buffer has "
            f"{len(buffer)}: check the buffer, and n_elements if it was given."
        )
    store = buffer.new_full((plan.n_store,), garbage(buffer))
    _unpack(buffer, store, plan.inputs)
    scratch = [buffer.new_empty(elements) for elements in plan.slots]
    under_way: dict[int, dist.Work] = {}
    sent: list[SentMessage] = []
    for index, step in enumerate(plan.steps):
        receives = [_target(plan.receives[number], store, scratch) for number in step.posts]
        sends = [_payload(send, store) for send in step.sends]
        works = _start(receives, sends, group)
        sent += [SentMessage(index, send.peer, send.tensor.numel()) for send in sends]
        under_way.update(zip(step.posts, works[: len(receives)], strict=True))
        # All reads see the state before the step: nothing is written until they are done.
        for work in works[len(receives) :]:
            work.wait()
        for number in step.completes:
            under_way.pop(number).wait()
            receive = plan.receives[number]
            if receive.slot is not None:
                _unpack(scratch[receive.slot], store, receive.spans)
    return store[: plan.n_result], sent


def steps_ahead(device: torch.device) -> int:
    """How many steps ahead a receive may be posted: none where a step is one batch (NCCL)."""
    return STEPS_AHEAD if _takes_single_messages(device) else 0


def _takes_single_messages(device: torch.device) -> bool:
    """Whether sends and receives may be started one by one: gloo's may, and live on the CPU."""
    return device.type == "cpu"


class _Parcel(NamedTuple):
    """A tensor on its way to or from a peer."""

    peer: int
    tensor: torch.Tensor


def _target(receive: Receive, store: torch.Tensor, scratch: Sequence[torch.Tensor]) -> _Parcel:
    if receive.slot is not None:
        return _Parcel(receive.peer, scratch[receive.slot][: receive.elements])
    (span,) = receive.spans
    return _Parcel(receive.peer, store[span.start : span.stop])


def _payload(send: Send, store: torch.Tensor) -> _Parcel:
    parts = [store[span.start : span.stop] for span in send.spans]
    return _Parcel(send.peer, parts[0] if len(parts) == 1 else torch.cat(parts))


def _start(
    receives: list[_Parcel], sends: list[_Parcel], group: dist.ProcessGroup | None
) -> list[dist.Work]:
    """Start all receives, then all sends; return one Work for each, in that order."""
    parcels = [*receives, *sends]
    if not parcels:
        return []
    if _takes_single_messages(parcels[0].tensor.device):
        return [dist.irecv(tensor, group=group, group_src=peer) for peer, tensor in receives] + [
            dist.isend(tensor, group=group, group_dst=peer) for peer, tensor in sends
        ]
    operations = [
        dist.P2POp(dist.irecv, tensor, group=group, group_peer=peer) for peer, tensor in receives
    ] + [dist.P2POp(dist.isend, tensor, group=group, group_peer=peer) for peer, tensor in sends]
    works = dist.batch_isend_irecv(operations)
    # NCCL answers for the whole batch at once.
    return works if len(works) == len(parcels) else works * len(parcels)


def _unpack(packed: torch.Tensor, store: torch.Tensor, spans: Sequence) -> None:
    """Write the parts of ``packed``, one after the other, to their spans in the store."""
    position = 0
    for start, stop, op in spans:
        part = packed[position : position + stop - start]
        if op == REDUCE:
            store[start:stop] += part
        else:
            store[start:stop] = part
        position += stop - start


def _rank_in(group: dist.ProcessGroup | None, schedule: Schedule) -> int:
    if not dist.is_initialized():
        raise ValueError(
            "this process is in no group: call torch.distributed.init_process_group first, or "
            "let commlab.real.run_schedule start the processes."
        )
    rank = dist.get_rank(group)
    if rank < 0:
        raise ValueError("this process is not in the given group: let only its members call.")
    size = dist.get_world_size(group)
    if size != schedule.n_ranks:
        raise ValueError(
            f"the schedule has {schedule.n_ranks} ranks, but the group has {size}: build it "
            "for as many ranks, or make a group of as many processes."
        )
    return rank


def _check_buffer(buffer: torch.Tensor) -> None:
    if not isinstance(buffer, torch.Tensor):
        raise ValueError(
            f"the buffer is a {type(buffer).__name__}: make it a tensor first, for example with "
            "torch.as_tensor(...)."
        )
    if buffer.ndim != 1:
        raise ValueError(
            f"the buffer has {buffer.ndim} dimensions: flatten it first, with .reshape(-1)."
        )
    if buffer.requires_grad:
        raise ValueError("the buffer requires a gradient: pass buffer.detach().")
    if buffer.dtype == torch.bool:
        raise ValueError("the buffer has dtype torch.bool: collectives add numbers.")


def _chunk_counts(schedule: Schedule, length: int, n_elements: int | None) -> list[int]:
    """Return the elements of each chunk, the same on every rank."""
    if n_elements is None:
        if schedule.counts is None and not _all_start_with_everything(schedule):
            raise ValueError(
                f"in this {schedule.collective} a rank cannot tell from its own buffer how long "
                "the others' are: pass n_elements, the elements of the full vector S."
            )
        n_elements = length
    if not isinstance(n_elements, int) or n_elements < 0:
        raise ValueError(f"n_elements must be a whole number, zero or more; got {n_elements!r}.")
    return schedule.chunk_counts(n_elements).tolist()


def _all_start_with_everything(schedule: Schedule) -> bool:
    full = schedule.unit_denominator
    return all(
        schedule.share_units[chunks].sum() == full for chunks in schedule.chunk_arrays("starts")
    )
