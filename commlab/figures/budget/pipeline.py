"""Lanes of a pipelined step: which stage computes what, when it waits, and what it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from commlab.budget import PipelineTimeline, simulate_pipeline
from commlab.figures import style
from commlab.figures.budget.panels import SMALL, boxes

# A backward pass takes twice as long as a forward pass.
FORWARD_SECONDS, BACKWARD_SECONDS = 1.0, 2.0
LANE = 0.86
GAP = 0.7
NAMES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "interleaved"}
N_CHUNKS = 2
"""Parts of the model per stage of the interleaved schedule."""


def pipeline_lanes(
    fig: Figure,
    *,
    n_stages: int = 4,
    n_microbatches: int = 8,
    schedules: Sequence[str] = ("gpipe", "1f1b"),
    numbered: bool = False,
) -> dict[str, Any]:
    """Draw one pipelined step under several schedules, one lane per stage.

    Parameters
    ----------
    fig : Figure
        Drawn on.
    n_stages, n_microbatches : int
    schedules : sequence of {"gpipe", "1f1b", "interleaved"}
        Drawn one below the other, on one time axis; "interleaved" has two parts of the
        model on each stage.
    numbered : bool
        Whether each box carries the number of its micro-batch.

    Returns
    -------
    dict
        For each schedule its ``seconds`` (in forward passes), ``bubble`` and ``in_flight``,
        the micro-batches that each stage keeps at most.

    Raises
    ------
    ValueError
        If counts do not fit a schedule.
    """
    timelines = {
        schedule: simulate_pipeline(
            n_stages,
            n_microbatches,
            FORWARD_SECONDS,
            BACKWARD_SECONDS,
            schedule=schedule,
            n_chunks=_chunks(schedule),
        )
        for schedule in schedules
    }
    longest = max(each.seconds for each in timelines.values())
    ax = style.single_axes(fig, left=0.16, right=0.9, bottom=0.24)
    ax.grid(False)
    ticks: dict[float, str] = {}
    for block, (schedule, timeline) in enumerate(timelines.items()):
        top = block * (n_stages + GAP)
        _draw_lanes(ax, top, timeline, _chunks(schedule))
        if numbered:
            _write_numbers(ax, top, timeline)
        ticks[top + n_stages / 2] = NAMES[schedule]
    bottom = len(timelines) * (n_stages + GAP) - GAP
    ax.set_ylim(bottom + 0.15, -0.15)
    ax.set_xlim(0, longest)
    ax.set_yticks(list(ticks), list(ticks.values()))
    ax.text(1.02, 1.0, "kept", transform=ax.transAxes, va="bottom", color=style.INK, fontsize=SMALL)
    style.round_ticks(ax.xaxis, longest, "count")
    ax.set_xlabel("time, in forward passes of a micro-batch")
    looks = {"forward": style.ALTERNATIVE, "backward": style.COMPUTE, "waits": style.WAIT}
    handles = [Patch(color=colour, label=name) for name, colour in looks.items()]
    style.legend(ax, handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3)
    shares = ", ".join(
        f"{NAMES[name]} {each.bubble_fraction:.1%}" for name, each in timelines.items()
    )
    style.title(ax, f"Waiting: {shares}")
    return {
        name: {
            "seconds": each.seconds,
            "bubble": each.bubble_fraction,
            "in_flight": _kept(each, _chunks(name)),
        }
        for name, each in timelines.items()
    }


def _chunks(schedule: str) -> int:
    return N_CHUNKS if schedule == "interleaved" else 1


def _kept(timeline: PipelineTimeline, n_chunks: int) -> list[float]:
    return [float(count) / n_chunks for count in timeline.in_flight()]


def _draw_lanes(ax: Axes, top: float, timeline: PipelineTimeline, n_chunks: int) -> None:
    lanes = top + np.arange(timeline.n_stages)
    boxes(ax, 0.0, lanes, timeline.seconds, LANE, style.WAIT)
    width = timeline.end - timeline.start
    for is_backward, colour in ((False, style.ALTERNATIVE), (True, style.COMPUTE)):
        mine = timeline.is_backward == is_backward
        bottom = top + timeline.stage[mine]
        boxes(ax, timeline.start[mine], bottom, width[mine], LANE, colour)
    for lane, count in zip(lanes, _kept(timeline, n_chunks), strict=True):
        ax.annotate(
            f"{count:g}",
            (1.0, lane + LANE / 2),
            xycoords=("axes fraction", "data"),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=style.INK,
            fontsize=SMALL,
        )


def _write_numbers(ax: Axes, top: float, timeline: PipelineTimeline) -> None:
    middle = (timeline.start + timeline.end) / 2
    for x, stage, microbatch in zip(middle, timeline.stage, timeline.microbatch, strict=True):
        ax.text(
            x,
            top + stage + LANE / 2,
            str(microbatch),
            ha="center",
            va="center",
            color=style.PAPER,
            fontsize=style.FONT_SIZE - 3,
        )
