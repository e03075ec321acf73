"""The memory in which a rank follows a plan, and the plan with tensors in place of positions.

Between `commlab.real.plan`, which knows numbers only, and `commlab.real.execute`, which sends:
whatever can be done once for many calls is done here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

import torch

from commlab.real.plan import RankPlan, Receive, Span


class SentMessage(NamedTuple):
    """One message that this rank really sent: in which step, to whom, how many elements."""

    step: int
    dst: int
    elements: int


class Workspace(NamedTuple):
    """The memory in which a rank follows a plan: its store and its scratch arrays."""

    store: torch.Tensor
    scratch: list[torch.Tensor]


def make_workspace(plan: RankPlan, like: torch.Tensor) -> Workspace:
    """Allocate what a plan needs, of the dtype and on the device of ``like``."""
    return Workspace(like.new_empty(plan.n_store), make_scratch(plan, like))


def make_scratch(plan: RankPlan, like: torch.Tensor) -> list[torch.Tensor]:
    """Allocate the arrays in which a plan receives what does not go to its place at once."""
    return [like.new_empty(elements) for elements in plan.slots]


class _Parcel(NamedTuple):
    """A tensor on its way to or from a peer, in a list of its own, as the group takes it."""

    tensors: list[torch.Tensor]
    peer: int


class _Pack(NamedTuple):
    """Parts of the store that leave as one message, and the array they are put together in."""

    packed: torch.Tensor
    parts: list[torch.Tensor]


class _Arrived(NamedTuple):
    """A part of what was received, its place in the store, and what is done to the place."""

    part: torch.Tensor
    place: torch.Tensor
    op: int


class BoundStep(NamedTuple):
    """A `PlannedStep` with tensors in place of positions.

    ``posts`` numbers the ``receives``, ``messages`` describes the ``sends``. ``completes``
    pairs the number of a receive with what is to be done when it is there.
    """

    posts: tuple[int, ...]
    receives: list[_Parcel]
    packs: list[_Pack]
    sends: list[_Parcel]
    messages: list[SentMessage]
    completes: list[tuple[int, list[_Arrived]]]


class BoundPlan(NamedTuple):
    """All steps of a plan with their tensors, and the device they lie on."""

    steps: tuple[BoundStep, ...]
    device: torch.device


def bind_plan(plan: RankPlan, store: torch.Tensor, scratch: Sequence[torch.Tensor]) -> BoundPlan:
    """Lay out the tensors of all steps: views of the store and of the scratch arrays.

    Who repeats a call on the same memory does this once: it takes as long as several small
    messages.
    """
    steps = []
    packing = _packing_arrays(plan, store)
    for index, step in enumerate(plan.steps):
        packs: list[_Pack] = []
        sends: list[_Parcel] = []
        for send in step.sends:
            parts = cut(store, send.spans)
            tensor = parts[0]
            if len(parts) > 1:
                tensor = packing[len(packs)][: send.elements]
                packs.append(_Pack(tensor, parts))
            sends.append(_Parcel([tensor], send.peer))
        steps.append(
            BoundStep(
                step.posts,
                [_target(plan.receives[number], store, scratch) for number in step.posts],
                packs,
                sends,
                [SentMessage(index, peer, tensor.numel()) for (tensor,), peer in sends],
                [
                    (number, _arrived(plan.receives[number], store, scratch))
                    for number in step.completes
                ],
            )
        )
    return BoundPlan(tuple(steps), store.device)


def _packing_arrays(plan: RankPlan, store: torch.Tensor) -> list[torch.Tensor]:
    """Allocate what the packed messages of a step need; the next step uses it again."""
    elements: list[int] = []
    for step in plan.steps:
        packed = [send.elements for send in step.sends if len(send.spans) > 1]
        elements = [max(pair) for pair in zip_longest(elements, packed, fillvalue=0)]
    return [store.new_empty(length) for length in elements]


def cut(store: torch.Tensor, spans: Sequence[Span]) -> list[torch.Tensor]:
    """Return the spans of a store as views."""
    return [store[span.start : span.stop] for span in spans]


def _target(receive: Receive, store: torch.Tensor, scratch: Sequence[torch.Tensor]) -> _Parcel:
    if receive.slot is not None:
        return _Parcel([scratch[receive.slot][: receive.elements]], receive.peer)
    return _Parcel(cut(store, receive.spans), receive.peer)


def _arrived(
    receive: Receive, store: torch.Tensor, scratch: Sequence[torch.Tensor]
) -> list[_Arrived]:
    """Return what is left to do when a message is there: nothing if it arrived in its place."""
    if receive.slot is None:
        return []
    places = cut(store, receive.spans)
    parts = scratch[receive.slot][: receive.elements].split([len(place) for place in places])
    return [
        _Arrived(part, place, span.op)
        for part, place, span in zip(parts, places, receive.spans, strict=True)
    ]
