"""The figures of gradient buckets: what hides behind the backward pass, and what does not.

As in the other figures every function draws on the Figure it is given and returns the
numbers it has drawn: seconds and bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from commlab.cost import alpha_beta_ring_allreduce
from commlab.figures import style
from commlab.overlap import (
    BackwardPass,
    OverlapTimeline,
    ddp_buckets,
    equal_buckets,
    timeline,
    uniform_backward,
)
from commlab.units import MIB, format_bytes, format_seconds

POINTS = 41
LINE = 2.0
# Room for "backward" on the left.
LANES = {"left": 0.17, "right": 0.95, "top": 0.85}
# From one timeline to the next; the lanes of compute and network, a line of text above.
PITCH, COMPUTE_LANE, NETWORK_LANE, LANE = 2.1, 0.45, 1.15, 0.56
# A white line between two bars keeps them countable, if both are this part of the axis.
COUNTABLE = 0.01


def lanes(
    fig: Figure, *, timelines: Mapping[str, OverlapTimeline], message: str = ""
) -> dict[str, object]:
    """Draw backward passes and their all-reduces on one time axis, computed or measured.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
        Figure to draw on.
    timelines : mapping from label to OverlapTimeline
        Drawn one above the other, with two lanes each; grey is the exposed part, in which
        the GPU waits for the network. Up to three have room, with short labels.
    message : str
        The title; without it the exposed seconds, from top to bottom.

    Returns
    -------
    dict
        For each label a dict of ``compute`` (ends of the layers), ``start`` and ``end`` of
        the buckets, ``backward_end``, ``communication`` and ``exposed``, in seconds.

    Raises
    ------
    ValueError
        If there is nothing to draw.
    """
    if not timelines:
        raise ValueError("lanes needs at least one timeline, with a label.")
    longest = max(max(each.backward_end, each.communication_end) for each in timelines.values())
    ax = style.single_axes(fig, **LANES)
    ticks: dict[float, str] = {}
    for row, (label, each) in enumerate(timelines.items()):
        top = PITCH * row
        _draw_timeline(ax, top, label, each, longest)
        ticks[top + COMPUTE_LANE + LANE / 2] = "backward"
        ticks[top + NETWORK_LANE + LANE / 2] = "network"
    ax.set_yticks(list(ticks), list(ticks.values()))
    ax.set_ylim(PITCH * len(timelines) - 0.1, -0.15)
    ax.set_xlim(0, 1.02 * longest)
    style.round_ticks(ax.xaxis, longest, "seconds")
    ax.set_xlabel("time since the backward pass began; grey: the GPU waits")
    if not message:
        exposed = ", ".join(format_seconds(each.exposed) for each in timelines.values())
        message = f"Exposed: {exposed}"
    style.title(ax, message)
    return {label: _numbers(each) for label, each in timelines.items()}


def buckets_side_by_side(
    fig: Figure,
    *,
    bucket_nbytes: int,
    backward_seconds: float,
    nbytes: int,
    n_ranks: int,
    alpha: float,
    beta: float,
    n_gradients: int = 256,
) -> dict[str, object]:
    """Draw equal buckets above those of DDP's rule, which has a first bucket of 1 MiB.

    Gradients of one size appear at a steady rate, and a ring carries them.

    Returns what :func:`lanes` returns, under "equal" and "DDP".
    """
    backward = _uniform(nbytes, backward_seconds, n_gradients)
    ring = partial(alpha_beta_ring_allreduce, n_ranks=n_ranks, alpha=alpha, beta=beta)
    cuts = {
        "equal": equal_buckets(nbytes, bucket_nbytes),
        "DDP": ddp_buckets(backward.sizes, bucket_cap_nbytes=bucket_nbytes),
    }
    timelines = {name: timeline(backward, buckets, ring) for name, buckets in cuts.items()}
    equal, ddp = (format_seconds(each.exposed) for each in timelines.values())
    return lanes(
        fig,
        timelines=timelines,
        message=f"b = {format_bytes(bucket_nbytes)}: {equal} exposed, by DDP's rule {ddp}",
    )


def bucket_size_tradeoff(
    fig: Figure,
    *,
    backward_seconds: float,
    nbytes: float,
    n_ranks: int,
    alpha: float,
    beta: float,
) -> dict[str, object]:
    """Draw total communication, wait for the first bucket and exposed rest against bucket size.

    Returns ``bucket_nbytes``, ``communication``, ``first_wait``, ``exposed`` (seconds) and
    ``best``, the bucket size with the shortest exposed rest.
    """
    n_buckets = np.arange(int(nbytes / MIB), 0, -1)
    bucket_nbytes = nbytes / n_buckets
    bucket_seconds = alpha_beta_ring_allreduce(bucket_nbytes, n_ranks, alpha, beta)
    communication = n_buckets * bucket_seconds
    first_wait = backward_seconds / n_buckets
    # Either the last bucket follows the backward pass, or the network is never idle.
    finish = np.maximum(backward_seconds + bucket_seconds, first_wait + communication)
    exposed = finish - backward_seconds
    best = int(np.argmin(exposed))
    drawn = np.unique(len(n_buckets) - np.geomspace(1, len(n_buckets), POINTS).round().astype(int))

    ax = style.single_axes(fig, left=0.17, right=0.95)
    style.log_axis(ax.xaxis, float(bucket_nbytes[0]), float(bucket_nbytes[-1]), "bytes", 2, 2)
    style.log_axis(ax.yaxis, 1e-5, 0.1, "seconds")
    curves = (
        (communication, style.COMMUNICATION, "network busy, all buckets"),
        (first_wait, style.WAIT, "wait for the first bucket"),
        (exposed, style.ALTERNATIVE, "left after the backward pass"),
    )
    for seconds, colour, label in curves:
        ax.plot(bucket_nbytes[drawn], seconds[drawn], color=colour, linewidth=LINE, label=label)
    x, y = float(bucket_nbytes[best]), float(exposed[best])
    ax.plot([x, x], [ax.get_ylim()[0], y], color=style.INK, linestyle=":", linewidth=1.2)
    ax.plot([x], [y], "o", color=style.INK, markersize=6)
    ax.set_xlabel("bucket b")
    ax.set_ylabel("time")
    style.title(ax, f"Least is left over with {format_bytes(x)} buckets")
    style.legend(ax, loc="upper center", bbox_to_anchor=(0.62, 1.0))
    return {
        "bucket_nbytes": bucket_nbytes,
        "communication": communication,
        "first_wait": first_wait,
        "exposed": exposed,
        "best": x,
    }


@cache
def _uniform(nbytes: int, seconds: float, n_gradients: int) -> BackwardPass:
    return uniform_backward(nbytes, seconds, n_gradients, n_layers=16)


def _draw_timeline(ax: Axes, top: float, label: str, each: OverlapTimeline, longest: float) -> None:
    compute = np.array([(layer.start, layer.end) for layer in each.compute]).T
    network = np.array([(bucket.start, bucket.end) for bucket in each.buckets]).T
    lane_of = {style.COMPUTE: (compute, COMPUTE_LANE), style.COMMUNICATION: (network, NETWORK_LANE)}
    for colour, ((start, end), lane) in lane_of.items():
        low, high = top + lane, top + lane + LANE
        ax.broken_barh(_busy_spans(start, end), (low, LANE), facecolors=colour)
        wide = end - start >= COUNTABLE * longest
        ax.vlines(start[1:][wide[1:] & wide[:-1]], low, high, color=style.PAPER, linewidth=0.8)
    if each.exposed > 0:
        waiting = [(each.backward_end, each.exposed)]
        ax.broken_barh(waiting, (top + COMPUTE_LANE, LANE), facecolors=style.WAIT)
    ax.vlines(
        each.backward_end,
        top + COMPUTE_LANE - 0.04,
        top + NETWORK_LANE + LANE + 0.08,
        color=style.INK,
        linestyle="--",
        linewidth=1.0,
    )
    ax.text(
        0.008 * longest,
        top + COMPUTE_LANE - 0.12,
        f"{label}: {_count(each)}; busy {format_seconds(each.communication)}",
        color=style.INK,
        fontsize=style.FONT_SIZE - 1.5,
    )


def _count(each: OverlapTimeline) -> str:
    sizes = [bucket.nbytes for bucket in each.buckets]
    largest = format_bytes(max(sizes))
    if len(sizes) == 1:
        return f"1 bucket of {largest}"
    return f"{len(sizes)} buckets {'of' if max(sizes) - min(sizes) <= 1 else 'up to'} {largest}"


def _busy_spans(start: np.ndarray, end: np.ndarray) -> list[tuple[float, float]]:
    """Join bars that follow each other without a gap: a thousand become one."""
    first = np.flatnonzero(np.concatenate(([True], start[1:] > end[:-1])))
    last = np.concatenate((first[1:] - 1, [len(start) - 1]))
    return [(float(start[i]), float(end[j] - start[i])) for i, j in zip(first, last, strict=True)]


def _numbers(each: OverlapTimeline) -> dict[str, object]:
    return {
        "n_buckets": len(each.buckets),
        "compute": [layer.end for layer in each.compute],
        "start": [bucket.start for bucket in each.buckets],
        "end": [bucket.end for bucket in each.buckets],
        "backward_end": each.backward_end,
        "communication": each.communication,
        "exposed": each.exposed,
    }
