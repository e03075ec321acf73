"""The best bucket size: by search over exact timelines, and as a formula where there is one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from commlab.overlap.buckets import FIRST_BUCKET, ddp_buckets, equal_buckets
from commlab.overlap.gradients import BackwardPass, check_backward
from commlab.overlap.timelines import (
    AllReduceTime,
    OverlapTimeline,
    bucket_seconds,
    check_all_reduce_time,
    timeline,
)
from commlab.setting_checks import check_choice, check_list, check_positive
from commlab.tables import Table, table
from commlab.units import MIB, format_bytes, format_seconds

RULES = ("ddp", "equal")
SIZES_PER_OCTAVE = 4
LARGEST_FIRST_BUCKET = 64 * MIB


@dataclass(frozen=True)
class Trial:
    """One bucket size that was tried, and what its timeline says, in bytes and seconds."""

    bucket_nbytes: int
    first_bucket_nbytes: int
    n_buckets: int
    communication: float
    exposed: float
    step_seconds: float


@dataclass(frozen=True)
class BestBucket:
    """The result of a search: the best of the tried bucket sizes, and the whole curve."""

    name: str
    best: Trial
    tried: tuple[Trial, ...]
    timeline: OverlapTimeline

    @property
    def curve(self) -> tuple[Trial, ...]:
        """For each bucket size the best of the first buckets tried with it."""
        by_size: dict[int, Trial] = {}
        for trial in self.tried:
            known = by_size.get(trial.bucket_nbytes)
            if known is None or _rank(trial) < _rank(known):
                by_size[trial.bucket_nbytes] = trial
        return tuple(by_size.values())

    def __str__(self) -> str:
        first = format_bytes(self.best.first_bucket_nbytes)
        size = format_bytes(self.best.bucket_nbytes)
        return f"{self.name}: best of {len(self.tried)} is {size}, first {first}\n{self.timeline}"

    def table(self) -> Table:
        """The trade-off curve, one row for each bucket size."""
        headers = ("bucket b", "first bucket", "buckets", "network busy", "exposed", "step")
        rows = [
            (
                format_bytes(trial.bucket_nbytes),
                format_bytes(trial.first_bucket_nbytes),
                trial.n_buckets,
                *map(format_seconds, (trial.communication, trial.exposed, trial.step_seconds)),
            )
            for trial in self.curve
        ]
        return table(headers, rows)


def best_bucket(
    backward: BackwardPass,
    all_reduce_time: AllReduceTime,
    *,
    rule: str = "ddp",
    sizes: Sequence[int] | None = None,
    first_sizes: Sequence[int] | None = None,
    slowdown: float = 1.0,
) -> BestBucket:
    """Find the bucket size with the shortest step, by trying.

    Parameters
    ----------
    backward : BackwardPass
        The model and the compute rate.
    all_reduce_time : callable
        Bytes to seconds, as in :func:`commlab.overlap.timeline`: N, α and β.
    rule : {"ddp", "equal"}
        How sizes become buckets: :func:`commlab.overlap.ddp_buckets`, with gradients left
        whole, or :func:`commlab.overlap.equal_buckets`.
    sizes : sequence of int, optional
        Bucket sizes to try, in bytes. Without it, four an octave from 1 MiB to all
        gradients in one bucket.
    first_sizes : sequence of int, optional
        DDP only: limits of the first bucket to try with each size, in bytes; those above the
        size are left out, the size itself is always tried. Without it 1, 4, 16 and 64 MiB.
    slowdown : float
        As in :func:`commlab.overlap.timeline`.

    Returns
    -------
    BestBucket
        Among equals the one with the fewest buckets.

    Raises
    ------
    TypeError
        If ``backward`` is no backward pass, or ``all_reduce_time`` cannot be called.
    ValueError
        If the rule is unknown, if no size is given, or as in the functions named above.
    """
    check_backward(backward)
    check_all_reduce_time(all_reduce_time)
    check_choice(rule, RULES, "rule")
    if rule == "equal" and first_sizes is not None:
        raise ValueError("equal buckets have no first size of their own: leave out first_sizes.")
    if sizes is None:
        sizes = _octaves(backward.nbytes)
    sizes = check_list(sizes, "sizes")
    if len(sizes) == 0:
        raise ValueError("sizes is empty: give at least one bucket size in bytes.")
    if first_sizes is None:
        first_sizes = [FIRST_BUCKET * 4**k for k in range(4)]
    first_sizes = check_list(first_sizes, "first_sizes")

    tried = []
    for size in sizes:
        firsts = [first for first in first_sizes if first < size] if rule == "ddp" else []
        for first in (*firsts, size):
            result = timeline(
                backward, _cut(backward, rule, size, first), all_reduce_time, slowdown=slowdown
            )
            trial = Trial(
                bucket_nbytes=size,
                first_bucket_nbytes=first,
                n_buckets=len(result.buckets),
                communication=result.communication,
                exposed=result.exposed,
                step_seconds=result.step_seconds,
            )
            tried.append(trial)
    best = min(tried, key=_rank)
    buckets = _cut(backward, rule, best.bucket_nbytes, best.first_bucket_nbytes)
    return BestBucket(
        name="DDP's rule" if rule == "ddp" else "equal buckets",
        best=best,
        tried=tuple(tried),
        timeline=timeline(backward, buckets, all_reduce_time, slowdown=slowdown),
    )


def _cut(backward: BackwardPass, rule: str, size: int, first: int) -> list[int]:
    if rule == "equal":
        return equal_buckets(backward.nbytes, size)
    return ddp_buckets(backward.sizes, first_bucket_nbytes=first, bucket_cap_nbytes=size)


def _rank(trial: Trial) -> tuple[float, int]:
    return trial.step_seconds, trial.n_buckets


def _octaves(total: int) -> list[int]:
    """Sizes from 1 MiB up, the last of which holds everything."""
    lowest = min(MIB, total)
    n_steps = math.floor(SIZES_PER_OCTAVE * math.log2(total / lowest))
    sizes = [round(lowest * 2 ** (k / SIZES_PER_OCTAVE)) for k in range(n_steps + 1)]
    return [*(size for size in sizes if size < total), total]


def uniform_best_bucket(
    nbytes: float, backward_seconds: float, all_reduce_time: AllReduceTime
) -> float:
    """The best bucket size if gradients appear evenly and can be cut anywhere.

    With ``A + c b`` seconds for a bucket of b bytes, S bytes in all and a backward pass of T:
    ``min(S sqrt(A / T), S A / (T - c S), S)``, the second only where T is above c S.

    Parameters
    ----------
    nbytes : float
        S, the bytes of all gradients.
    backward_seconds : float
        T, the duration of the backward pass.
    all_reduce_time : callable
        Bytes to seconds, a straight line such as the ring's closed form.

    Returns
    -------
    float
        Bytes.

    Raises
    ------
    TypeError
        If ``all_reduce_time`` cannot be called.
    ValueError
        If bytes or seconds are not above zero, or ``all_reduce_time`` gives no time.

    Notes
    -----
    For b below ``S A / (T - c S)`` the network can't keep up, and all ends at
    ``T b / S + S A / b + c S``, which is least at ``S sqrt(A / T)``. Above it only the last
    bucket is exposed, ``T + A + c b``, and smaller is better. The number of buckets S / b is
    not rounded.
    """
    nbytes = check_positive(nbytes, "nbytes")
    backward_seconds = check_positive(backward_seconds, "backward_seconds")
    check_all_reduce_time(all_reduce_time)
    latency, whole = bucket_seconds([0, nbytes], all_reduce_time)
    bandwidth_seconds = whole - latency
    sizes = [nbytes, nbytes * float(np.sqrt(latency / backward_seconds))]
    if backward_seconds > bandwidth_seconds:
        sizes.append(nbytes * latency / (backward_seconds - bandwidth_seconds))
    return float(min(sizes))
