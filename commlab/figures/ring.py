"""Figures of section 3: the ring all-reduce."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from commlab import cost
from commlab.algorithms import naive_all_reduce, ring_all_reduce
from commlab.figures import style
from commlab.ledger import ledger
from commlab.schedule import Schedule, held_contributions
from commlab.units import format_bytes, format_seconds

RANKS = (2, 3, 4, 6, 8, 16, 32, 64, 128, 256, 512, 1024)
# The ledger of a schedule is counted up to here; beyond, the formula draws the curve.
COUNTED_RANKS = (2, 3, 4, 6, 8, 16, 32)


def draw_bytes_per_rank(fig: Figure, n_ranks: int) -> dict[str, Any]:
    """Draw what the busiest rank sends against N, in units of S.

    Points are counted in the ledgers of real schedules, curves are the formulas.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
    n_ranks : int
        The number of ranks that is marked and read out.

    Returns
    -------
    dict
        The curves, the counted points, and ``ring_at`` and ``naive_at`` for ``n_ranks``.
    """
    ranks = np.array(RANKS)
    ring = 2 * (ranks - 1) / ranks
    naive = ranks - 1.0
    counted = {"ring": _most_sent(ring_all_reduce), "naive": _most_sent(naive_all_reduce)}
    ring_at, naive_at = 2 * (n_ranks - 1) / n_ranks, float(n_ranks - 1)

    ax = style.single_axes(fig, top=0.8)
    style.log_axis(ax.xaxis, 1.8, 1200, "count", base=2)
    style.log_axis(ax.yaxis, 0.8, 1500, "count")
    ax.axhline(2, color=style.MUTED, linewidth=1.2, linestyle="--")
    ax.text(1150, 2.15, "ceiling 2 S", color=style.MUTED, ha="right", va="bottom")
    ax.plot(ranks, naive, color=style.WAIT, linewidth=2, label="naive: rank 0")
    ax.plot(ranks, ring, color=style.COMMUNICATION, linewidth=2, label="ring: every rank")
    for name, colour in (("naive", style.WAIT), ("ring", style.COMMUNICATION)):
        ax.plot(COUNTED_RANKS, counted[name], "o", color=colour, markersize=4)
    ax.axvline(n_ranks, color=style.INK, linewidth=0.8)
    for height, colour in ((ring_at, style.COMMUNICATION), (naive_at, style.WAIT)):
        ax.plot([n_ranks], [height], "o", color=colour, markersize=9)
    ax.set_xlabel("ranks N (dots: counted in a simulated run)")
    ax.set_ylabel("sent by the busiest rank, in S")
    style.title(
        ax,
        f"N = {n_ranks}: in a ring each rank sends {ring_at:.4g} S,\n"
        f"the naive rank 0 sends {naive_at:.4g} S",
    )
    style.legend(ax, loc="upper left")
    return {
        "ranks": ranks,
        "ring": ring,
        "naive": naive,
        "counted_ranks": list(COUNTED_RANKS),
        "counted": counted,
        "ring_at": ring_at,
        "naive_at": naive_at,
    }


@functools.cache
def _most_sent(build: Callable[[int], Schedule]) -> tuple[float, ...]:
    """Count what the busiest rank sends, in S, for each of `COUNTED_RANKS`."""
    return tuple(float(ledger(build(n)).max_sent) for n in COUNTED_RANKS)


def draw_time_against_ranks(fig: Figure, nbytes: int, alpha: float, beta: float) -> dict[str, Any]:
    """Draw the time of ring and naive all-reduce against N, for one message size.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
    nbytes : int
        S in bytes.
    alpha : float
        Seconds per message.
    beta : float
        Bytes per second, one direction.

    Returns
    -------
    dict
        Times in seconds: ``ring``, ``naive``, the ring's ``latency`` part, ``ceiling``
        = 2 S/beta, and ``ring_latency_share`` at 1024 ranks.
    """
    ranks = np.array(RANKS)
    ring = cost.alpha_beta_ring_allreduce(nbytes, ranks, alpha, beta)
    naive = cost.alpha_beta_naive_allreduce(nbytes, ranks, alpha, beta)
    latency = cost.alpha_beta_ring_allreduce(0, ranks, alpha, beta)
    ceiling = 2 * nbytes / beta
    share = latency[-1] / ring[-1]

    ax = style.single_axes(fig, left=0.16, top=0.8)
    style.log_axis(ax.xaxis, 1.8, 1200, "count", base=2)
    low = 10 ** np.floor(np.log10(min(ring.min(), ceiling) * 0.7))
    high = 10 ** np.ceil(np.log10(naive.max() * 1.3))
    step = 1 if high / low < 1e6 else 2
    style.log_axis(ax.yaxis, low, high, "seconds", step=step)
    ax.fill_between(ranks, low, np.maximum(latency, low), color=style.WAIT, alpha=0.3, linewidth=0)
    ax.axhline(ceiling, color=style.MUTED, linewidth=1.2, linestyle="--", label="2 S/β")
    ax.plot(ranks, naive, color=style.WAIT, linewidth=2, label="naive")
    ax.plot(ranks, ring, color=style.COMMUNICATION, linewidth=2.4, label="ring")
    ax.set_xlabel("ranks N (shaded: the ring's latency part)")
    ax.set_ylabel("all-reduce time")
    style.title(
        ax,
        f"S = {format_bytes(nbytes)}, α = {format_seconds(alpha)}: latency is "
        f"{share:.0%} of\nthe ring's {format_seconds(ring[-1])} at N = 1024",
    )
    style.legend(ax, loc="upper left")
    return {
        "ranks": ranks,
        "ring": ring,
        "naive": naive,
        "latency": latency,
        "ceiling": ceiling,
        "ring_latency_share": share,
    }


def draw_chunks_of_rank_zero(fig: Figure, n_ranks: int) -> dict[str, Any]:
    """Draw how the chunks of rank 0 fill up, step by step, in a ring all-reduce.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
    n_ranks : int
        N, at least 2.

    Returns
    -------
    dict
        ``held``: contributions in each chunk of rank 0, shape (2(N-1) + 1, N).
    """
    schedule = ring_all_reduce(n_ranks)
    held = np.stack([state[0].sum(axis=1) for state in held_contributions(schedule)])
    n_steps = len(schedule.steps)

    ax = style.single_axes(fig, left=0.12, top=0.8)
    ax.grid(False)
    share = held / n_ranks
    # Complete chunks get a tone of their own: the step from N-1 to N matters most.
    tone = np.where(share == 1, 1.0, 0.75 * share)
    ax.pcolormesh(
        np.arange(n_ranks + 1) - 0.5,
        np.arange(n_steps + 2) - 0.5,
        tone,
        cmap=_ramp(style.COMPUTE),
        vmin=0,
        vmax=1,
        edgecolors=style.GRID,
        linewidth=0.4,
    )
    ax.axhline(n_ranks - 0.5, color=style.COMMUNICATION, linewidth=2)
    ax.set_xlim(-0.5, n_ranks - 0.5)
    ax.set_ylim(n_steps + 0.5, -0.5)
    ax.set_xticks(range(0, n_ranks, max(1, n_ranks // 8)))
    ax.set_yticks(range(0, n_steps + 1, max(1, n_steps // 6)))
    ax.set_xlabel("chunk (darker: more contributions; darkest: complete)")
    ax.set_ylabel("steps done")
    style.title(
        ax,
        f"N = {n_ranks}: rank 0 completes one chunk after {n_ranks - 1} steps,\n"
        f"all {n_ranks} after {n_steps}",
    )
    return {"n_ranks": n_ranks, "n_steps": n_steps, "held": held}


def draw_differing_shares(fig: Figure, shares: Mapping[str, float], what: str) -> dict[str, Any]:
    """Draw shares of elements whose bits differ from a reference, as bars.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
    shares : mapping of str to float
        By name, from 0 to 1.
    what : str
        The title's message.
    """
    names = list(shares)
    values = [100 * shares[name] for name in names]
    ax = style.single_axes(fig, left=0.3)
    ax.grid(False, axis="y")
    places = range(len(names))
    ax.barh(places, values, color=style.COMMUNICATION, height=0.6)
    for place, value in zip(places, values, strict=True):
        ax.text(value + 1.5, place, f"{value:.1f} %", va="center", color=style.INK)
    ax.set_yticks(places, names)
    ax.invert_yaxis()
    ax.set_xlim(0, 100)
    ax.set_xlabel("elements whose bits differ, %")
    style.title(ax, what)
    return {"shares": dict(shares)}


def _ramp(colour: str) -> LinearSegmentedColormap:
    """A colour map from the paper to one colour."""
    return LinearSegmentedColormap.from_list("ramp", [style.PAPER, colour])
