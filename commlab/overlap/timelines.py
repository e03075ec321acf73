"""When the backward pass computes, when buckets are sent, and what is left after it."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from commlab.overlap.gradients import BackwardPass, check_backward
from commlab.setting_checks import check_list, described
from commlab.tables import Table, table
from commlab.units import format_bytes, format_seconds

AllReduceTime = Callable[[float], float]
"""Bytes of one all-reduce to its seconds, for example a closed form with N, α and β fixed."""


def bucket_timeline(
    n_buckets: int, backward_seconds: float, bucket_seconds: float
) -> tuple[np.ndarray, np.ndarray]:
    """When each bucket's all-reduce starts and ends, if gradients appear evenly.

    A bucket starts when its gradients are there *and* the network is free.

    Parameters
    ----------
    n_buckets : int
        Equal buckets, in the order in which the backward pass fills them.
    backward_seconds : float
        Duration of the backward pass; bucket i is full at (i + 1) / n_buckets of it.
    bucket_seconds : float
        Time of one bucket's all-reduce.

    Returns
    -------
    start, end : numpy.ndarray
        Seconds after the start of the backward pass, shape (n_buckets,).
    """
    start, end = np.empty(n_buckets), np.empty(n_buckets)
    network_free = 0.0
    for i in range(n_buckets):
        gradients_ready = backward_seconds * (i + 1) / n_buckets
        start[i] = max(gradients_ready, network_free)
        network_free = end[i] = start[i] + bucket_seconds
    return start, end


def gradients_needed(sizes: Sequence[int], buckets: Sequence[int]) -> np.ndarray:
    """The gradient that each bucket waits for: the last one that it holds bytes of.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of each gradient, in the order in which they become ready.
    buckets : sequence of int
        Bytes of each bucket, in the order in which they are sent.

    Returns
    -------
    numpy.ndarray of int, shape (n_buckets,)

    Raises
    ------
    ValueError
        If a bucket is empty, or if the buckets do not hold all gradients.
    """
    sizes, buckets = check_list(sizes, "sizes"), check_list(buckets, "buckets")
    if any(not isinstance(nbytes, numbers.Integral) for nbytes in (*sizes, *buckets)):
        raise ValueError(f"sizes and buckets are whole bytes; got {sizes!r} and {buckets!r}.")
    if len(buckets) == 0 or min(buckets) < 1 or sum(buckets) != sum(sizes):
        raise ValueError(
            f"the buckets hold {sum(buckets)} bytes, the gradients {sum(sizes)}: buckets of at "
            "least one byte must hold all gradients, no more and no less."
        )
    return np.searchsorted(np.cumsum(sizes), np.cumsum(buckets))


def send_in_order(
    needed: np.ndarray, seconds: np.ndarray, slowdown: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Send buckets one at a time, while the computation goes on.

    Parameters
    ----------
    needed : numpy.ndarray, shape (n_buckets,)
        Seconds of undisturbed compute after which a bucket's gradients are there.
    seconds : numpy.ndarray, shape (n_buckets,)
        Time of each bucket's all-reduce.
    slowdown : float
        How many times as long computing takes while an all-reduce runs.

    Returns
    -------
    start, end : numpy.ndarray, shape (n_buckets,)
        Seconds after the start of the backward pass.
    """
    start, end = np.empty(len(needed)), np.empty(len(needed))
    network_free = computed = 0.0
    for i in range(len(needed)):
        missing = max(needed[i] - computed, 0.0)  # computed at full speed: the network idles
        start[i] = network_free + missing
        computed += missing
        computed += seconds[i] / slowdown
        network_free = end[i] = start[i] + seconds[i]
    return start, end


@dataclass(frozen=True)
class Interval:
    """A layer's part of the backward pass; seconds after the start of the backward pass."""

    name: str
    start: float
    end: float


@dataclass(frozen=True)
class BucketInterval:
    """A bucket's all-reduce; seconds after the start of the backward pass."""

    nbytes: int
    ready: float
    start: float
    end: float


@dataclass(frozen=True)
class OverlapTimeline:
    """A backward pass and the all-reduces of its gradients, computed or measured.

    Parameters
    ----------
    name : str
        Printed with results.
    compute : tuple of Interval
        The layers of the backward pass, in order.
    buckets : tuple of BucketInterval
        The all-reduces, in the order in which they started.
    forward_seconds : float
        The forward pass before it.
    assumptions : tuple of str

    Raises
    ------
    ValueError
        If one of the two lists is empty, if an interval ends before it starts, or if a bucket
        starts before it is ready.
    """

    name: str
    compute: tuple[Interval, ...]
    buckets: tuple[BucketInterval, ...]
    forward_seconds: float = 0.0
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.compute or not self.buckets:
            raise ValueError(f"{self.name}: a timeline needs a layer and a bucket at least.")
        for layer in self.compute:
            if not 0 <= layer.start <= layer.end < math.inf:
                raise ValueError(
                    f"{self.name}: {layer} must not end before it starts, or before 0."
                )
        for bucket in self.buckets:
            if not 0 <= bucket.ready <= bucket.start <= bucket.end < math.inf:
                raise ValueError(f"{self.name}: {bucket} must be ready, then start, then end.")

    @property
    def backward_end(self) -> float:
        """Seconds at which the last gradient is there."""
        return max(layer.end for layer in self.compute)

    @property
    def communication_end(self) -> float:
        """Seconds at which the last all-reduce is over."""
        return max(bucket.end for bucket in self.buckets)

    @property
    def communication(self) -> float:
        """Seconds of all all-reduces together."""
        return sum(bucket.end - bucket.start for bucket in self.buckets)

    @property
    def exposed(self) -> float:
        """Seconds from the end of the backward pass to the end of communication."""
        return max(self.communication_end - self.backward_end, 0.0)

    @property
    def step_seconds(self) -> float:
        """Forward, backward and exposed communication; the optimizer comes on top."""
        return self.forward_seconds + self.backward_end + self.exposed

    def _lines(self) -> list[tuple[str, str]]:
        sizes = [bucket.nbytes for bucket in self.buckets]
        smallest, largest = format_bytes(min(sizes)), format_bytes(max(sizes))
        spread = smallest if smallest == largest else f"{smallest} to {largest}"
        hidden = 1 - self.exposed / self.communication if self.communication else 1.0
        return [
            ("buckets", f"{len(sizes)} ({spread})"),
            ("first bucket ready", format_seconds(self.buckets[0].ready)),
            ("backward ends", format_seconds(self.backward_end)),
            ("network busy", format_seconds(self.communication)),
            ("communication ends", format_seconds(self.communication_end)),
            ("exposed", f"{format_seconds(self.exposed)} ({hidden:.1%} is hidden)"),
            ("step without optimizer", format_seconds(self.step_seconds)),
        ]

    def __str__(self) -> str:
        lines = [f"  {name:<22}  {text}" for name, text in self._lines()]
        notes = [f"  assuming: {note}" for note in self.assumptions]
        return "\n".join([self.name, *lines, *notes])

    def table(self) -> Table:
        """The figures of ``print`` as a table, one a row."""
        return table((self.name, "value"), self._lines())

    def bucket_table(self) -> Table:
        """One row for each bucket: size, ready, start, end."""
        rows = [
            (
                number,
                format_bytes(bucket.nbytes),
                *map(format_seconds, (bucket.ready, bucket.start, bucket.end)),
            )
            for number, bucket in enumerate(self.buckets)
        ]
        return table(("bucket", "size", "ready", "start", "end"), rows)


def timeline(
    backward: BackwardPass,
    buckets: Sequence[int],
    all_reduce_time: AllReduceTime,
    *,
    slowdown: float = 1.0,
) -> OverlapTimeline:
    """Put the all-reduces of buckets beside the backward pass that fills them.

    All-reduces run one at a time and in order, as in one stream of NCCL; each starts when
    the last gradient of its bucket is ready and the one before it is over.

    Parameters
    ----------
    backward : BackwardPass
    buckets : sequence of int
        Bytes of each bucket in the order in which they are sent, for example of
        :func:`commlab.overlap.ddp_buckets`. They hold the gradients in order of readiness.
    all_reduce_time : callable
        Bytes to seconds: a closed form of :mod:`commlab.cost` with all else fixed, say
        ``lambda nbytes: alpha_beta_ring_allreduce(nbytes, 8, alpha, beta)``.
    slowdown : float
        How many times as long computing takes while an all-reduce runs, since both use the
        GPU; 1 for not at all. To be measured: it differs from machine to machine.

    Returns
    -------
    OverlapTimeline

    Raises
    ------
    TypeError
        If ``backward`` is no backward pass, or ``all_reduce_time`` cannot be called.
    ValueError
        If the buckets do not hold all gradients, if a time is negative or not finite, or if
        ``slowdown`` is below 1.
    """
    check_backward(backward)
    check_all_reduce_time(all_reduce_time)
    number = isinstance(slowdown, numbers.Real) and not isinstance(slowdown, bool)
    if not number or not 1 <= slowdown < math.inf:
        raise ValueError(
            f"slowdown must be a number, 1 or more; got {slowdown!r}. Computing that takes a "
            "tenth longer is 1.1."
        )
    slowdown = float(slowdown)
    needed = backward.ready[gradients_needed(backward.sizes, buckets)]
    seconds = bucket_seconds(buckets, all_reduce_time)
    start, end = send_in_order(needed, seconds, slowdown)

    # What has been computed, against the clock: straight lines between starts and ends.
    lost = (1 - 1 / slowdown) * np.cumsum(seconds)
    lost_before = np.concatenate(([0.0], lost[:-1]))
    clock = np.column_stack([start, end]).ravel()
    computed = np.column_stack([start - lost_before, end - lost]).ravel()

    def on_the_clock(compute_seconds: np.ndarray) -> np.ndarray:
        return np.interp(compute_seconds, [0.0, *computed], [0.0, *clock])

    # The minimum takes away what rounding may put behind the start.
    ready = np.minimum(on_the_clock(needed), start)
    clock_ready = on_the_clock(backward.ready)
    contention = "communication does not slow computing"
    if slowdown > 1:
        longer = format_seconds(float(clock_ready[-1]) - backward.seconds)
        contention = (
            f"computing takes {slowdown:g} times as long during an all-reduce: the backward pass "
            f"takes {longer} longer for that"
        )
    return OverlapTimeline(
        name=f"{backward.name}: {len(buckets)} bucket{'s' if len(buckets) > 1 else ''}",
        compute=_layers(backward, clock_ready),
        buckets=tuple(
            BucketInterval(int(nbytes), *map(float, times))
            for nbytes, *times in zip(buckets, ready, start, end, strict=True)
        ),
        forward_seconds=backward.forward_seconds,
        assumptions=(
            *backward.assumptions,
            "all-reduces one at a time, in order",
            contention,
        ),
    )


def check_all_reduce_time(all_reduce_time: AllReduceTime) -> AllReduceTime:
    """Return the function of the bytes, or say that something else was passed."""
    if not callable(all_reduce_time):
        raise TypeError(
            "all_reduce_time must be a function of the bytes, for example lambda nbytes: 5e-6 + "
            f"nbytes / 50e9; got {described(all_reduce_time)}."
        )
    return all_reduce_time


def bucket_seconds(buckets: Sequence[float], all_reduce_time: AllReduceTime) -> np.ndarray:
    """Time each bucket's all-reduce; equal sizes are asked for once."""
    by_size = {nbytes: float(all_reduce_time(nbytes)) for nbytes in set(buckets)}
    for nbytes, seconds in by_size.items():
        if not 0 <= seconds < math.inf:
            raise ValueError(
                f"all_reduce_time({nbytes}) gave {seconds!r}: a time is zero or more seconds."
            )
    return np.array([by_size[nbytes] for nbytes in buckets])


def _layers(backward: BackwardPass, ready: np.ndarray) -> tuple[Interval, ...]:
    """Join the gradients of a layer into one interval."""
    layers, begin = [], 0.0
    by_layer = groupby(zip(backward.gradients, ready, strict=True), key=lambda pair: pair[0].layer)
    for layer, members in by_layer:
        *_, (_, end) = members
        layers.append(Interval(layer, begin, float(end)))
        begin = float(end)
    return tuple(layers)
