"""The figures of §6: measured all-reduce times beside the α-β model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from commlab.cost import alpha_beta_ring_allreduce
from commlab.figures import style
from commlab.units import KIB, MIB

POINTS = 45
# The axes never move, so that a reader sees the line move and not the points.
SIZE_RANGE = (KIB / 1.5, 96 * MIB)
TIME_RANGE = (1e-4, 1.0)


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
