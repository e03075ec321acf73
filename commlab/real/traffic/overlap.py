"""DDP's buckets and their timeline, measured, as the types of `commlab.overlap`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from commlab.budget import FP32_BYTES
from commlab.overlap import (
    BackwardPass,
    BucketInterval,
    Gradient,
    Interval,
    OverlapTimeline,
    ddp_buckets,
    timeline,
)
from commlab.real.launch import run
from commlab.real.measure import about_this_machine
from commlab.tables import Table, table
from commlab.units import MIB, format_bytes


@dataclass(frozen=True)
class SeenBuckets:
    """The buckets that DDP handed to its communication hook, and those of the rule.

    Attributes
    ----------
    first, later : tuple of int
        Bytes of the buckets of the first iteration and of the last one, in order.
    rule_first, rule_later : tuple of int
        The same by :func:`commlab.overlap.ddp_buckets`.
    members : tuple of tuple of int
        The parameters in each bucket of the last iteration, by their number at registration.
    """

    first: tuple[int, ...]
    later: tuple[int, ...]
    rule_first: tuple[int, ...]
    rule_later: tuple[int, ...]
    members: tuple[tuple[int, ...], ...]

    def table(self) -> Table:
        """Return one row per iteration."""
        rows = [
            ("first · 第一次", _sizes(self.first), _sizes(self.rule_first)),
            ("later · 之后", _sizes(self.later), _sizes(self.rule_later)),
        ]
        return table(("iteration · 迭代", "DDP", "rule · 规则"), rows)

    def __str__(self) -> str:
        return self.table().markdown


def see_ddp_buckets(
    elements: Sequence[int],
    *,
    used_in_order: Sequence[int] | None = None,
    bucket_cap_nbytes: int | None = None,
    find_unused_parameters: bool = False,
    ranks: int = 2,
    timeout: float = 60.0,
) -> SeenBuckets:
    """Let DDP make its buckets, look at them, and hold them against the rule.

    Parameters
    ----------
    elements : sequence of int
        Length of each FP32 parameter, in the order in which they are registered.
    used_in_order : sequence of int, optional
        The order in which the forward pass uses them, by number; that of registration unless
        given. Gradients come in reverse.
    bucket_cap_nbytes : int, optional
        Limit of all buckets; unless given DDP's own limits, with its small first bucket.
    find_unused_parameters : bool
    ranks : int
    timeout : float

    Returns
    -------
    SeenBuckets
        Of rank 0; all ranks must have the same, or ``RuntimeError`` is raised.
    """
    elements = list(elements)
    order = list(range(len(elements))) if used_in_order is None else list(used_in_order)
    if sorted(order) != list(range(len(elements))):
        raise ValueError(
            f"used_in_order must name each of the {len(elements)} parameters once; got {order}."
        )
    by_rank = run(
        "commlab.real.traffic.hooks:see_buckets",
        ranks=ranks,
        timeout=timeout,
        elements=elements,
        used_in_order=order,
        n_iterations=3,
        find_unused_parameters=find_unused_parameters,
        bucket_cap_mb=None if bucket_cap_nbytes is None else bucket_cap_nbytes / MIB,
    )
    if any(seen != by_rank[0] for seen in by_rank):
        raise RuntimeError("the ranks have different buckets, which DDP should prevent.")
    return _seen_buckets(by_rank[0], elements, order, bucket_cap_nbytes, find_unused_parameters)


def _seen_buckets(
    iterations: list[list[list[int]]],
    elements: list[int],
    order: list[int],
    cap: int | None,
    find_unused_parameters: bool,
) -> SeenBuckets:
    limits = {} if cap is None else {"first_bucket_nbytes": cap, "bucket_cap_nbytes": cap}
    # Buckets that are never built anew stay as the order of registration has made them.
    by_use = range(len(elements)) if find_unused_parameters else order
    gradient_nbytes = [FP32_BYTES * elements[number] for number in reversed(by_use)]
    rule_first, rule_later = (
        ddp_buckets(
            gradient_nbytes,
            first_iteration=first,
            find_unused_parameters=find_unused_parameters,
            **limits,
        )
        for first in (True, False)
    )
    seen_first, seen_later = (
        tuple(FP32_BYTES * sum(elements[number] for number in bucket) for bucket in iterations[k])
        for k in (0, -1)
    )
    return SeenBuckets(
        first=seen_first,
        later=seen_later,
        rule_first=tuple(rule_first),
        rule_later=tuple(rule_later),
        members=tuple(tuple(bucket) for bucket in iterations[-1]),
    )


def _sizes(buckets: Sequence[int]) -> str:
    return ", ".join(format_bytes(nbytes) for nbytes in buckets)


@dataclass(frozen=True)
class MeasuredOverlap:
    """A step of DDP by the clock, and the model's account of the same step.

    Attributes
    ----------
    measured : OverlapTimeline
        Rank 0, the step of median length.
    model : OverlapTimeline
        The layers as they ran without DDP, the buckets that DDP sent, and all-reduces as long
        as they take when nothing else runs.
    machine : str
    """

    measured: OverlapTimeline
    model: OverlapTimeline
    machine: str

    @property
    def timelines(self) -> dict[str, OverlapTimeline]:
        """Both by name, for :func:`commlab.figures.overlap.lanes`."""
        return {"measured": self.measured, "model": self.model}

    def __str__(self) -> str:
        return f"{self.measured}\n{self.model}\n{self.machine}"


def measure_overlap(
    ranks: int = 4,
    *,
    bucket_caps_nbytes: Sequence[int] = (4 * MIB, 32 * MIB),
    n_layers: int = 8,
    hidden: int = 1024,
    rows: int = 8,
    pause: float = 0.02,
    n_steps: int = 3,
    timeout: float = 60.0,
) -> list[MeasuredOverlap]:
    """Time gradients and buckets of training steps through a communication hook of DDP.

    Parameters
    ----------
    ranks : int
    bucket_caps_nbytes : sequence of int
        Limits of a bucket, each of which is tried.
    n_layers, hidden : int
        Square FP32 matrices, ``4 · hidden²`` bytes each.
    rows : int
        Samples of each rank.
    pause : float
        Seconds that the backward pass of a layer takes beside its arithmetic, without using a
        processor. Where a GPU computes, the processor is free to send; here the pause frees it.
    n_steps : int
        Timed steps, of which the one of median length is shown.
    timeout : float

    Returns
    -------
    list of MeasuredOverlap
        One for each limit. Times are seconds, and differ from run to run.

    Raises
    ------
    RankError
        If a rank fails or the time is up.
    RuntimeError
        If the gradients are not the mean of all ranks'.
    """
    answer = run(
        "commlab.real.traffic.hooks:timed_steps",
        ranks=ranks,
        timeout=timeout,
        n_layers=n_layers,
        hidden=hidden,
        rows=rows,
        pause=pause,
        bucket_caps_mb=[nbytes / MIB for nbytes in bucket_caps_nbytes],
        n_steps=n_steps,
    )[0]
    if not answer["averaged"]:
        raise RuntimeError("DDP's gradients are not the mean of all ranks' gradients.")
    names = [f"layer {layer}" for layer in reversed(range(n_layers))]
    backward = _backward_alone(answer, names)
    all_reduce = dict(answer["all_reduce"])
    found = []
    for steps in answer["with_ddp"]:
        step = _middle(steps)
        measured = OverlapTimeline(
            name=f"DDP on {ranks} ranks, measured",
            compute=_intervals(names, step["ready"]),
            buckets=tuple(BucketInterval(**bucket) for bucket in step["buckets"]),
            forward_seconds=step["forward"],
            assumptions=(f"a layer's backward pass rests for {pause:g} s",),
        )
        sizes = [bucket.nbytes for bucket in measured.buckets]
        model = timeline(backward, sizes, lambda nbytes: all_reduce[nbytes])
        found.append(MeasuredOverlap(measured, model, about_this_machine()))
    return found


def _backward_alone(answer: dict[str, Any], names: Sequence[str]) -> BackwardPass:
    alone = _middle(answer["alone"])
    nbytes = answer["gradient_nbytes"]
    return BackwardPass(
        name="model",
        gradients=tuple(
            Gradient(f"{name}, weight", name, nbytes, ready)
            for name, ready in zip(names, alone["ready"], strict=True)
        ),
        forward_seconds=alone["forward"],
        assumptions=("layers and all-reduces timed apart from each other",),
    )


def _middle(steps: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the step of median length."""

    def end(step: dict[str, Any]) -> float:
        return max([step["ready"][-1], *(bucket["end"] for bucket in step.get("buckets", []))])

    return sorted(steps, key=end)[len(steps) // 2]


def _intervals(names: Sequence[str], ready: Sequence[float]) -> tuple[Interval, ...]:
    starts = [0.0, *ready[:-1]]
    return tuple(Interval(*layer) for layer in zip(names, starts, ready, strict=True))
