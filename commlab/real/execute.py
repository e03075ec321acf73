"""Run a schedule for real: every rank is a process and does its own sends and receives.

The fifth reader of a `Schedule`. It uses point-to-point messages only, so that what the bytes
do is what the schedule says, and not what the backend's own collective would do.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from commlab.real.bind import (
    BoundPlan,
    BoundStep,
    SentMessage,
    Workspace,
    bind_plan,
    cut,
    make_workspace,
)
from commlab.real.plan import STEPS_AHEAD, RankPlan, plan_for_rank
from commlab.schedule import REDUCE, Schedule, check_structure
from commlab.simulate import garbage


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
    plan: RankPlan,
    buffer: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    workspace: Workspace | None = None,
) -> tuple[torch.Tensor, list[SentMessage]]:
    """Follow a plan that was worked out before, as a program does that repeats its calls.

    Parameters and results are those of `execute`. On GPUs the plan must have been made with
    the `steps_ahead` of their device. With a `make_workspace` of the same plan no memory is
    allocated; the result then lies in it, until the next call that is given it.
    """
    if len(buffer) != plan.n_input:
        raise ValueError(
            f"rank {plan.rank} starts with {plan.n_input} elements, but its buffer has "
            f"{len(buffer)}: check the buffer, and n_elements if it was given."
        )
    store, scratch = make_workspace(plan, buffer) if workspace is None else workspace
    if plan.n_input < plan.n_store:
        store.fill_(garbage(buffer))
    places = cut(store, plan.inputs)
    for part, place in zip(buffer.split([len(place) for place in places]), places, strict=True):
        place.copy_(part)
    sent = follow_plan(bind_plan(plan, store, scratch), group)
    return store[: plan.n_result], sent


def follow_plan(
    bound: BoundPlan, group: dist.ProcessGroup | None = None, tag: int = 0
) -> list[SentMessage]:
    """Do what a plan says, step by step, with the tensors that `bind_plan` laid out for it.

    Messages of the group with another ``tag`` are left alone.
    """
    start = _start_one_by_one if _takes_single_messages(bound.device) else _start_batch
    members = dist.group.WORLD if group is None else group
    under_way: dict[int, dist.Work] = {}
    sent: list[SentMessage] = []
    for step in bound.steps:
        for packed, parts in step.packs:
            torch.cat(parts, out=packed)
        receives, sends = start(step, members, tag)
        sent += step.messages
        under_way.update(zip(step.posts, receives, strict=True))
        # All reads see the state before the step: nothing is written until they are done.
        for work in sends:
            work.wait()
        for number, arrived in step.completes:
            under_way.pop(number).wait()
            for part, place, op in arrived:
                if op == REDUCE:
                    place.add_(part)
                else:
                    place.copy_(part)
    return sent


def steps_ahead(device: torch.device) -> int:
    """How many steps ahead a receive may be posted: none where a step is one batch (NCCL)."""
    return STEPS_AHEAD if _takes_single_messages(device) else 0


def _takes_single_messages(device: torch.device) -> bool:
    """Whether sends and receives may be started one by one: gloo's may, and live on the CPU."""
    return device.type == "cpu"


def _start_one_by_one(
    step: BoundStep, members: dist.ProcessGroup, tag: int
) -> tuple[list[dist.Work], list[dist.Work]]:
    """Start all receives, then all sends; return the Work of each.

    These are what dist.irecv and dist.isend call, whose checks take as long as a small message.
    """
    return (
        [members.recv(tensors, peer, tag) for tensors, peer in step.receives],
        [members.send(tensors, peer, tag) for tensors, peer in step.sends],
    )


def _start_batch(
    step: BoundStep, members: dist.ProcessGroup, tag: int
) -> tuple[list[dist.Work], list[dist.Work]]:
    """Start a step as one batch, as NCCL wants it."""
    operations = [
        dist.P2POp(dist.irecv, tensor, group=members, tag=tag, group_peer=peer)
        for (tensor,), peer in step.receives
    ] + [
        dist.P2POp(dist.isend, tensor, group=members, tag=tag, group_peer=peer)
        for (tensor,), peer in step.sends
    ]
    if not operations:
        return [], []
    works = dist.batch_isend_irecv(operations)
    if len(works) != len(operations):
        # NCCL answers for the whole batch at once.
        works = works * len(operations)
    return works[: len(step.receives)], works[len(step.receives) :]


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
