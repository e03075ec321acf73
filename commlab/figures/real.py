"""The figures of §6: orders of additions, and measured all-reduce times beside the α-β model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from matplotlib.figure import Figure

from commlab.algorithms import gloo_ring_all_reduce, ring_all_reduce
from commlab.cost import alpha_beta_ring_allreduce
from commlab.figures import style
from commlab.numerics import rank_order_sum
from commlab.schedule import REDUCE, Schedule
from commlab.units import KIB, MIB

POINTS = 45
# The axes never move, so that a reader sees the line move and not the points.
SIZE_RANGE = (KIB / 1.5, 96 * MIB)
TIME_RANGE = (1e-4, 1.0)

# The vectors whose sums are drawn: FP32, seeded.
N_ELEMENTS = 4096
SEED = 0
MOST_RANKS = 9
BOX = 0.8


def orders_of_addition(fig: Figure, *, n_ranks: int, element: int) -> dict[str, object]:
    """Draw in which order three all-reduces add one element of all ranks, and their sums.

    Parameters
    ----------
    fig : Figure
    n_ranks : int
        2 to 9.
    element : int
        Which element of vectors of 4096, which decides on its chunk.

    Returns
    -------
    dict
        For each of "rank order", "textbook ring" and "gloo's ring" a dict of ``order``, the
        ranks from first to last, ``sum``, in FP32, and ``as_gloo``, whether its bits are
        those of gloo's ring.
    """
    values = random_vectors()[:, element]
    orders = {
        "rank order": list(range(n_ranks)),
        "textbook ring": addition_order(ring_all_reduce(n_ranks), element),
        "gloo's ring": addition_order(gloo_ring_all_reduce(n_ranks, N_ELEMENTS), element),
    }
    sums = {name: rank_order_sum([values[rank] for rank in orders[name]]) for name in orders}
    drawn = {
        name: {
            "order": order,
            "sum": float(sums[name]),
            "as_gloo": bool(sums[name] == sums["gloo's ring"]),
        }
        for name, order in orders.items()
    }

    ax = style.single_axes(fig, left=0.21, right=0.97)
    for row, (name, one) in enumerate(drawn.items()):
        colour = style.COMMUNICATION if one["as_gloo"] else style.ALTERNATIVE
        boxes = [(place - BOX / 2, BOX) for place in range(n_ranks)]
        ax.broken_barh(
            boxes, (row - 0.3, 0.6), facecolors=style.PAPER, edgecolors=colour, linewidth=2
        )
        for place, rank in enumerate(orders[name]):
            ax.text(place, row, rank, color=style.INK, ha="center", va="center")
        number = f"{one['sum']:.9f}".replace("-", "−")
        ax.text(MOST_RANKS - 0.3, row, number, color=colour, va="center")
    ax.set_xlim(-0.7, MOST_RANKS + 3.4)
    ax.set_xticks([0, n_ranks - 1], ["first", "last"])
    ax.set_xlabel("ranks, first to last added; right: the FP32 sum")
    ax.set_yticks(range(len(drawn)), list(drawn))
    ax.set_ylim(len(drawn) - 0.45, -0.55)
    ax.grid(False)
    differing = len({one["sum"] for one in drawn.values()})
    what = "one sum" if differing == 1 else f"{differing} different sums"
    style.title(ax, f"Element {element}: three orders, {what}")
    return drawn


@cache
def random_vectors() -> np.ndarray:
    """Return the vectors of all ranks, FP32, shape (ranks, elements)."""
    rng = np.random.default_rng(SEED)
    return rng.standard_normal((MOST_RANKS, N_ELEMENTS)).astype(np.float32)


def addition_order(schedule: Schedule, element: int) -> list[int]:
    """Return the ranks in the order in which a schedule adds their values of one element.

    Parameters
    ----------
    schedule : Schedule
        A ring all-reduce: what a rank receives is the sum so far, to which it adds its own.
    element : int
        Of vectors of 4096.
    """
    chunk = int(np.searchsorted(np.cumsum(schedule.chunk_counts(N_ELEMENTS)), element, "right"))
    added = [[rank] for rank in range(schedule.n_ranks)]
    for step in schedule.steps:
        # All reads see the state before the step.
        before = [list(ranks) for ranks in added]
        for row in np.flatnonzero(step.chunk == chunk):
            src, dst = step.src[row], step.dst[row]
            added[dst] = before[src] + (before[dst] if step.op[row] == REDUCE else [])
    return added[0]


def measured_and_model(
    fig: Figure,
    *,
    nbytes: Sequence[float],
    low: Sequence[float],
    median: Sequence[float],
    high: Sequence[float],
    n_ranks: int,
    alpha: float,
    beta: float,
) -> dict[str, object]:
    """Draw measured all-reduce times as points, and the ring formula as a line.

    Parameters
    ----------
    fig : Figure
    nbytes : sequence of float
        S, the bytes that each rank holds.
    low, median, high : sequence of float
        Seconds of one all-reduce at each size: the quartiles.
    n_ranks : int
    alpha : float
        Seconds per step of the ring.
    beta : float
        Bytes per second in one direction.

    Returns
    -------
    dict
        ``nbytes``; ``median`` and ``model`` seconds there; ``error``, the model's relative
        error at each size, positive where it is too slow; ``typical_error`` and
        ``worst_error``, the median and the maximum of its absolute value.
    """
    sizes, measured = np.asarray(nbytes, dtype=float), np.asarray(median, dtype=float)
    model = alpha_beta_ring_allreduce(sizes, n_ranks, alpha, beta)
    error = model / measured - 1
    typical, worst = np.median(np.abs(error)), np.max(np.abs(error))

    ax = style.single_axes(fig, left=0.16)
    style.log_axis(ax.xaxis, *SIZE_RANGE, "bytes", base=2, step=4)
    style.log_axis(ax.yaxis, *TIME_RANGE, "seconds")
    ax.set_xlabel("size S")
    ax.set_ylabel("time T")
    curve = np.geomspace(*SIZE_RANGE, POINTS)
    ax.plot(
        curve,
        alpha_beta_ring_allreduce(curve, n_ranks, alpha, beta),
        color=style.ALTERNATIVE,
        label="model 2(N−1)α + 2(N−1)/N · S/β",
    )
    ax.vlines(sizes, low, high, color=style.COMMUNICATION, linewidth=1.5)
    ax.plot(
        sizes,
        measured,
        "o",
        color=style.COMMUNICATION,
        markersize=4.5,
        label=f"measured, gloo, N = {n_ranks}",
    )
    style.legend(ax, loc="upper left")
    style.title(ax, f"The line misses the points by {typical:.0%} (median), {worst:.0%} (worst)")
    return {
        "nbytes": sizes,
        "median": measured,
        "model": model,
        "error": error,
        "typical_error": float(typical),
        "worst_error": float(worst),
    }
