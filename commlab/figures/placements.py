"""Placements of a model on a cluster, side by side: what each one's step consists of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from commlab.budget import TrainingStep
from commlab.figures import style
from commlab.planner import Answer

MOST = 10
"""Placements that are readable below one another."""

ROW_INCHES = 0.36
ABOVE_INCHES = 0.4
BELOW_INCHES = 0.85


def placement_height(n_placements: int) -> float:
    """Inches that a figure of so many placements needs."""
    return ABOVE_INCHES + BELOW_INCHES + ROW_INCHES * min(n_placements, MOST)


def placement_steps(fig: Figure, *, answer: Answer) -> dict[str, Any]:
    """Draw the steps of the fastest placements as bars of what they consist of.

    Parameters
    ----------
    fig : Figure
        Drawn on; :func:`placement_height` says how high it should be.
    answer : Answer
        Of :func:`commlab.planner.make_answer`.

    Returns
    -------
    dict
        ``placements`` by name, and for each of them the seconds of ``compute`` (with the
        forward pass run again), ``communication`` that shows and ``bubble``; ``intervals``
        with the ends of each step, None where links were not measured.
    """
    lines = [line for line in answer.lines if line.outcome.step is not None][:MOST]
    steps = [line.outcome.step for line in lines if line.outcome.step is not None]
    names = [str(line.outcome.placement) for line in lines]
    parts = {
        "compute": [step.compute + step.recompute for step in steps],
        "communication": [step.tensor + step.expert + step.data for step in steps],
        "bubble": [step.bubble for step in steps],
    }
    intervals = [line.interval for line in lines]
    height = fig.get_figheight()
    ax = style.single_axes(
        fig, left=0.24, bottom=BELOW_INCHES / height, top=1 - ABOVE_INCHES / height
    )
    rows = np.arange(len(lines))
    colours = (style.COMPUTE, style.COMMUNICATION, style.WAIT)
    left = np.zeros(len(lines))
    for (name, seconds), colour in zip(parts.items(), colours, strict=True):
        ax.barh(rows, seconds, left=left, height=0.62, color=colour, label=name)
        left = left + np.array(seconds)
    _draw_intervals(ax, rows, left, intervals)
    longest = max([*left, *(ends[1] for ends in intervals if ends)])
    ax.set_xlim(0, 1.05 * longest)
    ax.set_ylim(len(lines) - 0.5, -0.5)
    ax.set_yticks(rows, names)
    ax.grid(False, axis="y")
    style.round_ticks(ax.xaxis, float(longest), "seconds")
    ax.set_xlabel("time of a step")
    style.title(ax, _message(answer, steps[0]))
    style.legend(
        ax,
        loc="upper center",
        bbox_to_anchor=(0.4, -0.45 / (height - ABOVE_INCHES - BELOW_INCHES)),
        ncols=4,
        handlelength=1.2,
        columnspacing=1.2,
    )
    return {"placements": names, **parts, "intervals": intervals}


def _draw_intervals(
    ax: Any,
    rows: np.ndarray,
    ends: np.ndarray,
    intervals: Sequence[tuple[float, float] | None],
) -> None:
    known = [(row, end, span) for row, end, span in zip(rows, ends, intervals, strict=True) if span]
    if not known:
        return
    below = [max(end - span[0], 0.0) for _, end, span in known]
    above = [max(span[1] - end, 0.0) for _, end, span in known]
    ax.errorbar(
        [end for _, end, _ in known],
        [row for row, _, _ in known],
        xerr=(below, above),
        fmt="none",
        ecolor=style.INK,
        elinewidth=1.2,
        capsize=3,
        label="interval of the links",
    )


def _message(answer: Answer, best: TrainingStep) -> str:
    return f"{answer.lines[0].outcome.placement} is fastest: {best.seconds:.4g} s a step"
