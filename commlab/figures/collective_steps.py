"""Figure of §2: pick a collective, step through it, and watch what each rank has moved."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from commlab.algorithms import REGISTRY
from commlab.figures import style
from commlab.figures.collectives import PATTERNS
from commlab.figures.steps import StepView, draw_state, step_view
from commlab.schedule import Schedule

N_RANKS = 4
MOST_STEPS = 6
"""Steps of the longest pattern on four ranks; shorter ones are done before."""
MOST_MOVED = 3.0
"""The most that a rank moves, in S: the root of the naive all-reduce."""


def draw_collective(
    fig: Figure, pattern: str = "all-reduce, ring", step: int = 0
) -> dict[str, Any]:
    """Draw four ranks after a step, and what each has sent and received so far.

    Parameters
    ----------
    fig : Figure
        Drawn on.
    pattern : str
        A key of `PATTERNS`.
    step : int
        0 for the start; after its last step a pattern stays as it is.

    Returns
    -------
    dict
        ``held`` (contributions by rank and chunk), ``steps`` (of the whole pattern),
        ``sent`` and ``received`` (parts of S by rank, up to this step).
    """
    schedule, view = _followed(pattern)
    n_steps = len(schedule.steps)
    done = min(step, n_steps)
    sent, received = _moved(schedule, done)

    cells = fig.add_axes((0.11, 0.2, 0.56, 0.58))
    style.dress(cells)
    draw_state(cells, view, done, with_moves=step <= n_steps)
    if len(view.columns) > N_RANKS:
        # The chunks of an all-to-all: those that each rank brings stand side by side.
        places = [N_RANKS * rank + (N_RANKS - 1) / 2 for rank in range(N_RANKS)]
        cells.set_xticks(places, [f"from {rank}" for rank in range(N_RANKS)])
    cells.set_xlabel("chunks, with their values", color=style.INK, fontsize=style.FONT_SIZE - 1.5)
    bars = fig.add_axes((0.72, 0.2, 0.25, 0.58))
    _draw_bars(bars, sent, received)
    state = view.facts[done] if step <= n_steps else f"done since step {n_steps}"
    fig.suptitle(
        f"{pattern}: step {step} of {n_steps}" if step <= n_steps else f"{pattern}: step {step}",
        x=0.03, y=0.97, ha="left", color=style.INK, fontsize=style.FONT_SIZE + 0.5,
    )  # fmt: skip
    fig.text(0.03, 0.86, state, color=style.MUTED, fontsize=style.FONT_SIZE - 0.5)
    return {
        "held": view.held[done],
        "steps": n_steps,
        "done": done == n_steps,
        "sent": sent,
        "received": received,
    }


@cache
def _followed(pattern: str) -> tuple[Schedule, StepView]:
    """The schedule of a pattern on four ranks, with the values 10r + 1 to 10r + 4."""
    schedule = REGISTRY[PATTERNS[pattern]].build(N_RANKS)
    values = []
    for rank, chunks in enumerate(schedule.starts):
        # A rank of an all-gather starts with one of its numbers, all but the root of a
        # broadcast with none.
        n_numbers = round(N_RANKS * sum(schedule.shares[chunk] for chunk in chunks))
        values.append(10 * rank + 1 + np.arange(n_numbers))
    return schedule, step_view(schedule, values)


def _moved(schedule: Schedule, n_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """What each rank has sent and received in the first steps, in parts of S."""
    sent, received = np.zeros(N_RANKS), np.zeros(N_RANKS)
    for step in range(n_steps):
        messages = schedule.messages(step)
        shares = messages.units / schedule.unit_denominator
        np.add.at(sent, messages.src, shares)
        np.add.at(received, messages.dst, shares)
    return sent, received


def _draw_bars(ax: Axes, sent: np.ndarray, received: np.ndarray) -> None:
    style.dress(ax)
    ranks = np.arange(N_RANKS)
    for offset, amount, colour, label in (
        (-0.19, sent, style.COMMUNICATION, "sent"),
        (+0.19, received, style.ALTERNATIVE, "received"),
    ):
        ax.barh(ranks + offset, amount, height=0.34, color=colour, label=label)
    ax.set_xlim(0, MOST_MOVED)
    ax.set_ylim(N_RANKS - 0.5, -0.5)
    ax.xaxis.set_major_locator(FixedLocator([0, 1, 2, 3]))
    ax.yaxis.set_major_locator(FixedLocator([]))
    ax.set_xlabel("so far [S]", color=style.INK, fontsize=style.FONT_SIZE - 1.5)
    style.legend(
        ax, loc="lower left", bbox_to_anchor=(-0.12, 0.98), ncols=2, borderpad=0, columnspacing=1,
        handlelength=1,
    )  # fmt: skip
