"""Figures of §5: what uneven shards do to data parallelism."""

from __future__ import annotations

from functools import cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator
from numpy.typing import NDArray

from commlab.figures import style
from commlab.training import (
    even_counts,
    make_batches,
    train_gradient_accumulation,
    train_single,
)

N_STEPS = 50
BATCH_SIZE = 256
N_RANKS = 4
SEED = 0
# Differences of exactly zero have no place on a log axis: they are drawn at its foot.
FLOOR = 1e-18
CEILING = 3.0
# Weights of this model stay near 1, whose spacing in FP64 is 2.2e-16.
ROUNDING_BOUND = 1e-15


def draw_uneven_shards(
    fig: Figure, extra: int = 36, sorted_share: float = 0.0
) -> dict[str, object]:
    """Draw how far two ways of combining gradients end up from one big batch.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
        Figure to draw on.
    extra : int
        Samples of each batch of 256 that rank 0 has beyond its fair share of 64.
    sorted_share : float
        Part of each batch, from 0 to 1, that lies in order of its labels.

    Returns
    -------
    dict
        The shards, both curves and their last points. The curves are rounded to 12
        decimals: what is left of rounding itself differs from machine to machine.
    """
    counts = uneven_counts(extra)
    plain, weighted = _distances(tuple(counts), sorted_share)
    if extra == 0:
        message = "Even shards: both ways give the big batch, up to rounding"
    else:
        message = f"{counts[0]} against {counts[-1]} samples: only weighting stays exact"

    # Placed by hand: two plot areas that share one title.
    shards = fig.add_axes((0.07, 0.16, 0.23, 0.68))
    _draw_shards(shards, counts)
    curves = fig.add_axes((0.44, 0.16, 0.53, 0.68))
    _draw_curves(curves, plain, weighted)
    fig.suptitle(
        message, x=0.03, y=0.96, ha="left", color=style.INK, fontsize=style.FONT_SIZE + 0.5
    )
    return {
        "samples per rank": counts,
        "mean of means, per step": np.round(plain, 12),
        "weighted, per step": np.round(weighted, 12),
        "mean of means, last step": f"{plain[-1]:.1e}" if extra else _bound(plain),
        "weighted, whole run": _bound(weighted),
    }


def uneven_counts(extra: int) -> list[int]:
    """Shards of a batch: rank 0 has ``extra`` samples too many, the others share the rest."""
    first = BATCH_SIZE // N_RANKS + extra
    return [first, *even_counts(BATCH_SIZE - first, N_RANKS - 1)]


@cache
def _distances(
    counts: tuple[int, ...], sorted_share: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Largest weight difference from the big batch after each step, for both ways.

    The ranks take turns, as in gradient accumulation: the same sums as with an all-reduce,
    in a tenth of the time.
    """
    batches = make_batches(N_STEPS, BATCH_SIZE, seed=SEED, sorted_share=sorted_share)
    reference = train_single(batches)
    plain = train_gradient_accumulation(batches, counts, combination="mean_of_means")
    weighted = train_gradient_accumulation(batches, counts, combination="weighted")
    return (
        np.max(np.abs(plain - reference), axis=(1, 2)),
        np.max(np.abs(weighted - reference), axis=(1, 2)),
    )


def _bound(differences: NDArray[np.float64]) -> str:
    """Rounding depends on the machine's BLAS, so only a bound is stated."""
    largest = float(differences.max())
    return f"below {ROUNDING_BOUND:.0e}" if largest < ROUNDING_BOUND else f"{largest:.1e}"


def _draw_shards(ax: Axes, counts: list[int]) -> None:
    style.dress(ax)
    ranks = range(len(counts))
    ax.bar(ranks, counts, width=0.7, color=style.COMPUTE)
    for rank, count in zip(ranks, counts, strict=True):
        ax.text(
            rank, count + 4, str(count), ha="center", color=style.INK, fontsize=style.FONT_SIZE - 2
        )
    ax.set_xlim(-0.6, len(counts) - 0.4)
    ax.set_ylim(0, BATCH_SIZE)
    ax.xaxis.set_major_locator(FixedLocator(list(ranks)))
    # The bars carry their numbers.
    ax.yaxis.set_major_locator(FixedLocator([]))
    ax.set_xlabel("rank", color=style.INK, fontsize=style.FONT_SIZE)
    ax.set_ylabel("samples per step", color=style.INK, fontsize=style.FONT_SIZE)


def _draw_curves(ax: Axes, plain: NDArray[np.float64], weighted: NDArray[np.float64]) -> None:
    style.dress(ax)
    steps = np.arange(1, N_STEPS + 1)
    style.log_axis(ax.yaxis, FLOOR, CEILING, "count", step=6)
    ax.plot(
        steps,
        np.maximum(plain, FLOOR),
        color=style.COMMUNICATION,
        linewidth=2,
        label="mean of means",
    )
    ax.plot(
        steps,
        np.maximum(weighted, FLOOR),
        color=style.ALTERNATIVE,
        linewidth=2,
        linestyle="--",
        label="weighted by samples",
    )
    ax.set_xlim(0, N_STEPS)
    ax.xaxis.set_major_locator(FixedLocator([0, N_STEPS // 2, N_STEPS]))
    ax.set_xlabel("training step", color=style.INK, fontsize=style.FONT_SIZE)
    ax.set_ylabel("largest weight difference", color=style.INK, fontsize=style.FONT_SIZE)
    style.legend(ax, loc="center right")
