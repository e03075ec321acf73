"""Figures of a fitted log: the measured times with the model, and what it misses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from commlab.calibrate.fit import Fit
from commlab.figures import style

POINTS = 200
# Room beyond the smallest and the largest size and time, as a factor.
MARGIN = 1.6
SIZE_TICKS = 6
# Residuals beyond this are drawn at the edge.
LARGEST_MISS = 0.5
SMALLEST_RANGE = 0.1
# The residuals' axis reaches so much further up, for the legend.
LEGEND_ROOM = 1.5
# Inches of one panel of a saved page, and what its margins take of it.
PAGE_WIDTH, PANEL_HEIGHT = 6.4, 3.0
LEFT, RIGHT = 0.14, 0.97


def time_and_model(fig: Figure, *, fit: Fit) -> dict[str, object]:
    """Draw the measured time of each size, the fitted pieces, and the rows left out.

    Parameters
    ----------
    fig : Figure
    fit : Fit
        From `commlab.calibrate.fit_run`.

    Returns
    -------
    dict
        ``nbytes``, ``seconds`` and ``model`` of the points; ``outliers``, the sizes of the rows
        left out; ``breaks``, the sizes at which pieces meet.
    """
    return _draw_times(style.single_axes(fig, left=LEFT, right=RIGHT), fit)


def residuals(fig: Figure, *, fit: Fit) -> dict[str, object]:
    """Draw by how much each row was missed, by the fit and by one that had not seen it.

    Parameters
    ----------
    fig : Figure
    fit : Fit
        From `commlab.calibrate.fit_run`.

    Returns
    -------
    dict
        ``nbytes``; ``error`` of the model, relative and positive where it is too slow;
        ``held_out`` likewise, None with two points; ``beyond``, the sizes whose miss is larger
        than the axis.
    """
    return _draw_residuals(style.single_axes(fig, left=LEFT, right=RIGHT), fit)


def save_fits(path: str | Path, fits: Sequence[Fit]) -> None:
    """Write times and residuals of some fits, one under the other, to a file of any format."""
    n_panels = 2 * len(fits)
    height = n_panels * PANEL_HEIGHT
    fig = Figure(figsize=(PAGE_WIDTH, height), facecolor=style.PAPER)
    for panel in range(n_panels):
        fit = fits[panel // 2]
        draw = _draw_residuals if panel % 2 else _draw_times
        top = 1 - panel / n_panels
        axes = style.single_axes(
            fig,
            left=LEFT,
            right=RIGHT,
            bottom=top - 0.82 / n_panels,
            top=top - 0.14 / n_panels,
        )
        draw(axes, fit)
    fig.savefig(path)


def _draw_times(ax: Axes, fit: Fit) -> dict[str, object]:
    sizes, seconds, used = fit.sizes, fit.seconds, fit.used
    _size_axis(ax, fit)
    style.log_axis(ax.yaxis, seconds.min() / MARGIN, seconds.max() * MARGIN, "seconds")
    ax.set_ylabel("time T")
    curve = np.geomspace(sizes.min(), sizes.max(), POINTS)
    ax.plot(curve, fit.model.seconds(curve), color=style.ALTERNATIVE, label="fitted pieces")
    ax.plot(
        sizes[used],
        seconds[used],
        "o",
        color=style.COMMUNICATION,
        markersize=4.5,
        label=f"measured, {fit.run.op}, N = {fit.run.n_ranks}",
    )
    if not used.all():
        ax.plot(
            sizes[~used],
            seconds[~used],
            "x",
            color=style.INK,
            markersize=6,
            label="left out",
        )
    style.legend(ax, loc="upper left")
    n_pieces = len(fit.model.pieces)
    what = "One line misses" if n_pieces == 1 else f"{n_pieces} pieces miss"
    style.title(ax, f"{what} the points by {fit.median_error:.1%} (median)")
    return {
        "nbytes": sizes[used],
        "seconds": seconds[used],
        "model": fit.predicted[used],
        "outliers": sizes[~used],
        "breaks": fit.model.breaks,
    }


def _draw_residuals(ax: Axes, fit: Fit) -> dict[str, object]:
    sizes = fit.sizes
    error = fit.predicted / fit.seconds - 1
    held_out = None if fit.held_out is None else fit.held_out / fit.seconds - 1
    misses = np.abs(error if held_out is None else held_out)
    limit = float(np.clip(1.2 * misses.max(), SMALLEST_RANGE, LARGEST_MISS))
    _size_axis(ax, fit)
    ax.set_ylim(-limit * 1.12, limit * LEGEND_ROOM)
    ticks = [-limit, -limit / 2, 0.0, limit / 2, limit]
    ax.set_yticks(ticks, [f"{tick:+.0%}".replace("-", "−") if tick else "0" for tick in ticks])
    ax.set_ylabel("model too slow")
    ax.axhline(0, color=style.MUTED, linewidth=1)
    if held_out is not None:
        ax.plot(
            sizes,
            np.clip(held_out, -limit, limit),
            "o",
            color=style.ALTERNATIVE,
            markerfacecolor="none",
            markersize=7,
            label="row held out",
        )
    ax.plot(
        sizes[fit.used],
        np.clip(error[fit.used], -limit, limit),
        "o",
        color=style.COMMUNICATION,
        markersize=4,
        label="row in the fit",
    )
    style.legend(ax, loc="upper center", ncols=2)
    miss = fit.held_out_error()
    if miss is None:
        style.title(ax, "Two points: nothing is left to test the line on")
    else:
        style.title(ax, f"Rows that the fit has not seen are missed by {miss:.1%} (median)")
    return {
        "nbytes": sizes,
        "error": error,
        "held_out": held_out,
        "beyond": sizes[misses > limit],
    }


def _size_axis(ax: Axes, fit: Fit) -> None:
    low, high = fit.sizes.min() / MARGIN, fit.sizes.max() * MARGIN
    step = max(1, round(np.log2(high / low) / SIZE_TICKS))
    style.log_axis(ax.xaxis, low, high, "bytes", base=2, step=step)
    ax.set_xlabel("size S")
    for size in fit.model.breaks:
        ax.axvline(size, color=style.MUTED, linewidth=1, linestyle=":")
