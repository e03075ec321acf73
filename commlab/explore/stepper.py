"""A slider and a Play button over the steps of any schedule."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from commlab.explore.explorer import Explorer
from commlab.explore.knob import Knob
from commlab.figures.steps import draw_step, step_view, view_size
from commlab.schedule import Schedule


def stepper(
    schedule: Schedule,
    *,
    title: tuple[str, str],
    alt: tuple[str, str],
    buffers: Sequence[np.ndarray] | None = None,
) -> Explorer:
    """Make an explorer that walks through a schedule.

    Parameters
    ----------
    schedule : Schedule
        Of at most 16 ranks.
    title, alt : tuple of str
        Title and description, in English and Chinese.
    buffers : sequence of array, optional
        Starting values by rank: the cells then show values, otherwise how many of the
        contributions they hold.

    Raises
    ------
    ValueError
        If the schedule is too large to draw, or has no steps.
    """
    view = step_view(schedule, buffers)
    n_steps = len(schedule.steps)
    knob = Knob(
        range(n_steps + 1),
        value=0,
        label=("step", "步"),
        format=lambda step: f"{step} / {n_steps}",
    )
    return Explorer(
        draw_step,
        title=title,
        alt=alt,
        figsize=view_size(view),
        knobs={"step": knob},
        fixed={"view": view},
        play=True,
    )
