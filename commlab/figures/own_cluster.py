"""Figures of "Measure your own cluster": what a sweep tells, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from commlab.calibrate.fit import Fit, fit_run
from commlab.calibrate.fit_parameters import Parameter
from commlab.calibrate.records import Run
from commlab.cost import (
    alpha_beta_ring_allreduce,
    alpha_beta_tree_allreduce,
    ring_tree_crossover,
)
from commlab.figures import style
from commlab.hardware import ALPHA, NVLINK
from commlab.planner.published import PublishedBusbw
from commlab.units import GIB, KIB, format_bytes, format_rate, format_seconds

POINTS = 41
LINE = 2.0
# Room for "100 ms" and the axis label on the left, for half of "64 GiB" on the right.
CURVES = {"left": 0.17, "right": 0.95}
MARGIN = 1.6
BELOW = 4.0
ROW_INCHES = 0.34
ABOVE_INCHES, BELOW_INCHES = 0.4, 0.55


def sweep_from(fig: Figure, *, run: Run, smallest: int) -> dict[str, object]:
    """Draw the fit to a run that had begun at a larger size, over all that was measured.

    Parameters
    ----------
    fig : Figure
    run : Run
        From `commlab.calibrate.read_log`.
    smallest : int
        Bytes; smaller rows are not shown to the fit. At least two sizes must be left.

    Returns
    -------
    dict
        ``nbytes``, ``seconds`` and ``used`` of each row; ``curve_nbytes`` and ``model``;
        ``alpha`` in seconds per call and ``beta`` in bytes/s, None where the rows don't
        determine them.
    """
    rows = sorted((row for row in run.rows if row.nbytes > 0), key=lambda row: row.nbytes)
    nbytes = np.array([row.nbytes for row in rows], dtype=float)
    seconds = np.array([row.seconds for row in rows])
    seen = nbytes >= smallest
    fit = fit_run(replace(run, rows=tuple(row for row in rows if row.nbytes >= smallest)))
    used = np.isin(nbytes, fit.sizes[fit.used])
    curve_nbytes = np.geomspace(nbytes[0], nbytes[-1], POINTS)
    model = fit.model.seconds(curve_nbytes)

    ax = style.single_axes(fig, **CURVES)
    style.log_axis(ax.xaxis, nbytes[0] / MARGIN, nbytes[-1] * MARGIN, "bytes", base=2, step=4)
    # By what was measured: without α the model falls far below it.
    style.log_axis(ax.yaxis, seconds.min() / BELOW, seconds.max() * MARGIN, "seconds")
    for marked, colour, fill, label in (
        (used, style.COMMUNICATION, style.COMMUNICATION, "in the fit"),
        (seen & ~used, style.INK, "none", "left out by the fit"),
        (~seen, style.WAIT, "none", "not in the sweep"),
    ):
        if marked.any():
            ax.plot(
                nbytes[marked],
                seconds[marked],
                "o",
                color=colour,
                markerfacecolor=fill,
                markersize=5,
                label=label,
            )
    ax.plot(curve_nbytes, model, color=style.ALTERNATIVE, linewidth=LINE, label="model")
    ax.set_xlabel("size S")
    ax.set_ylabel("time T of a call")
    alpha = _text(fit.alpha, format_seconds)
    beta = _text(fit.beta, format_rate)
    style.title(ax, f"From {format_bytes(smallest)} on: α {alpha}, β {beta}")
    style.legend(ax, loc="upper left")
    return {
        "nbytes": nbytes,
        "seconds": seconds,
        "used": used.tolist(),
        "curve_nbytes": curve_nbytes,
        "model": model,
        "alpha": None if fit.alpha is None else fit.alpha.value,
        "beta": None if fit.beta is None else fit.beta.value,
    }


def _text(parameter: Parameter | None, write: Callable[[float], str]) -> str:
    return "not determined" if parameter is None else write(parameter.value)


def ring_and_tree_of_yours(
    fig: Figure, *, n_ranks: int, alpha: float, beta: float
) -> dict[str, object]:
    """Draw ring and binomial tree with some α and β, over those with the book's constants.

    Parameters
    ----------
    fig : Figure
    n_ranks : int
    alpha : float
        Seconds per message.
    beta : float
        Bytes/s, one direction.

    Returns
    -------
    dict
        ``nbytes``; ``ring`` and ``tree``, in seconds; ``book_ring`` and ``book_tree`` with the
        book's constants; ``crossover`` and ``book_crossover`` in bytes, 0 if there is none.
    """
    low, high = KIB, 4 * GIB
    nbytes = np.geomspace(low, high, POINTS)
    ring = alpha_beta_ring_allreduce(nbytes, n_ranks, alpha, beta)
    tree = alpha_beta_tree_allreduce(nbytes, n_ranks, alpha, beta)
    book_ring = alpha_beta_ring_allreduce(nbytes, n_ranks, ALPHA, NVLINK)
    book_tree = alpha_beta_tree_allreduce(nbytes, n_ranks, ALPHA, NVLINK)
    crossover = ring_tree_crossover(n_ranks, alpha, beta)
    book_crossover = ring_tree_crossover(n_ranks, ALPHA, NVLINK)

    ax = style.single_axes(fig, **CURVES)
    style.log_axis(ax.xaxis, low, high, "bytes", base=2, step=4)
    style.log_axis(ax.yaxis, 1e-6, 10.0, "seconds")
    for curve, line, label in ((book_ring, "-", "ring, book"), (book_tree, "--", "tree, book")):
        ax.plot(nbytes, curve, color=style.WAIT, linestyle=line, linewidth=1.4, label=label)
    ax.plot(nbytes, ring, color=style.COMMUNICATION, linewidth=LINE, label="ring, yours")
    ax.plot(nbytes, tree, color=style.ALTERNATIVE, linewidth=LINE, label="tree, yours")
    if crossover > 0:
        for size, values, colour in (
            (book_crossover, (ALPHA, NVLINK), style.WAIT),
            (crossover, (alpha, beta), style.INK),
        ):
            at = alpha_beta_ring_allreduce(size, n_ranks, *values)
            ax.plot([size], [at], "o", color=colour, markersize=7)
        yours, book = format_bytes(crossover), format_bytes(book_crossover)
        message = f"{n_ranks} ranks: the tree wins below {yours} (book: {book})"
    else:
        message = f"{n_ranks} ranks: the ring is never slower, with any α and β"
    ax.set_xlabel("size S")
    ax.set_ylabel("all-reduce time T")
    style.title(ax, message)
    style.legend(ax, loc="upper left")
    return {
        "nbytes": nbytes,
        "ring": ring,
        "tree": tree,
        "book_ring": book_ring,
        "book_tree": book_tree,
        "crossover": crossover,
        "book_crossover": book_crossover,
    }


def gallery_height(n_rows: int) -> float:
    """Inches that `published_and_model` needs for so many rows."""
    return ABOVE_INCHES + BELOW_INCHES + ROW_INCHES * n_rows


def published_and_model(fig: Figure, *, rows: Sequence[PublishedBusbw]) -> dict[str, object]:
    """Draw the bus bandwidth that others have measured beside the model's.

    Parameters
    ----------
    fig : Figure
        `gallery_height` says how high it should be.
    rows : sequence of PublishedBusbw

    Returns
    -------
    dict
        ``names``; ``measured`` and ``predicted``, in bytes/s; ``share``, the one over the other.
    """
    names = [f"{row.what}, {row.op}" for row in rows]
    measured = np.array([row.measured for row in rows])
    predicted = np.array([row.predicted for row in rows])
    share = measured / predicted
    height = fig.get_figheight()
    ax = style.single_axes(
        fig, left=0.4, bottom=BELOW_INCHES / height, top=1 - ABOVE_INCHES / height
    )
    places = np.arange(len(rows))
    ax.barh(places, predicted, height=0.62, facecolor=style.GRID, label="model at line rate")
    ax.barh(places, measured, height=0.34, color=style.COMMUNICATION, label="measured")
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(0, 1.05 * predicted.max())
    ax.set_yticks(places, names)
    ax.grid(False, axis="y")
    style.round_ticks(ax.xaxis, float(predicted.max()), "rate")
    ax.set_xlabel("bus bandwidth at the largest size")
    style.title(ax, f"Measured: {share.min():.0%} to {share.max():.0%} of the model")
    style.legend(ax, loc="center right", bbox_to_anchor=(1.0, 0.22))
    return {"names": names, "measured": measured, "predicted": predicted, "share": share}


def busbw_of_runs(fig: Figure, *, fits: Mapping[str, Fit]) -> dict[str, object]:
    """Draw the bus bandwidth of some runs against the size: points measured, lines fitted.

    Parameters
    ----------
    fig : Figure
    fits : mapping from name to Fit
        One to three of them.

    Returns
    -------
    dict
        By name: ``nbytes``; ``measured`` and ``model``, in bytes/s.
    """
    ax = style.single_axes(fig, left=0.19, right=0.95)
    smallest = min(fit.sizes[0] for fit in fits.values())
    largest = max(fit.sizes[-1] for fit in fits.values())
    highest = max(fit.busbw.max() for fit in fits.values())
    style.log_axis(ax.xaxis, smallest / MARGIN, largest * MARGIN, "bytes", base=2, step=4)
    ax.set_ylim(0, 1.1 * highest)
    style.round_ticks(ax.yaxis, float(highest), "rate")
    colours = (style.COMPUTE, style.COMMUNICATION, style.ALTERNATIVE)
    drawn: dict[str, object] = {}
    for (name, fit), colour in zip(fits.items(), colours[: len(fits)], strict=True):
        model = fit.factor * fit.sizes / fit.predicted
        ax.plot(fit.sizes, model, color=colour, linewidth=1.4)
        ax.plot(fit.sizes, fit.busbw, "o", color=colour, markersize=4.5, label=name)
        drawn[name] = {"nbytes": fit.sizes, "measured": fit.busbw, "model": model}
    ax.set_xlabel("size S")
    ax.set_ylabel("bus bandwidth")
    style.title(ax, "Healthy links keep their rate as the size grows")
    style.legend(ax, loc="upper left")
    return drawn
