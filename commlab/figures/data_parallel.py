"""Figures of §5: what uneven shards do, and what accumulation does to time and traffic."""

from __future__ import annotations

from functools import cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator
from numpy.typing import NDArray

from commlab.algorithms import REGISTRY
from commlab.budget import BF16_BYTES, H100_CLUSTER, compute_time
from commlab.cost import alpha_beta_ring_allreduce
from commlab.figures import style
from commlab.hardware import ALPHA, INFINIBAND
from commlab.ledger import ledger
from commlab.models import LLAMA3_8B
from commlab.training import (
    make_batches,
    train_gradient_accumulation,
    train_single,
)
from commlab.units import KIB, format_bytes

N_STEPS = 50
BATCH_SIZE = 256
N_RANKS = 4
SEED = 0
# Differences of exactly zero have no place on a log axis: they are drawn at its foot.
FLOOR = 1e-18
CEILING = 3.0
# Weights of this model stay near 1, whose spacing in FP64 is 2.2e-16.
ROUNDING_BOUND = 1e-15

# Accumulation: an 8B model on ranks that each have one slow link.
MODEL = LLAMA3_8B
N_LINKED_RANKS = 8
GRADIENT_BYTES = BF16_BYTES * MODEL.parameters
LONGEST_STEP_SECONDS = 20.0
NARROWEST_WITH_GAP = 0.12
MOST_TOKENS = 96 * KIB


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
    """Shards of a batch: rank 0 has ``extra`` samples too many, rank 3 goes short of most.

    With 36 they are the page's [100, 60, 60, 36].
    """
    fair = BATCH_SIZE // N_RANKS
    middle = fair - round(extra / 9)
    return [fair + extra, middle, middle, BATCH_SIZE - (fair + extra) - 2 * middle]


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


def all_reduce_cost() -> tuple[float, float]:
    """Bytes that a rank sends and seconds that pass in one all-reduce of the 8B gradients."""
    busiest = max(ledger(REGISTRY["all_reduce", "ring"].build(N_LINKED_RANKS)).sent)
    seconds = alpha_beta_ring_allreduce(GRADIENT_BYTES, N_LINKED_RANKS, ALPHA, INFINIBAND)
    return float(busiest * GRADIENT_BYTES), float(seconds)


def draw_accumulation(
    fig: Figure, micro_batches: int = 8, tokens: int = 32 * KIB
) -> dict[str, object]:
    """Draw one step of an accumulating rank, with an all-reduce after each micro-batch or one.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
        Figure to draw on.
    micro_batches : int
        Pieces that the rank cuts its batch into.
    tokens : int
        Tokens per rank and step, all micro-batches together.

    Returns
    -------
    dict
        Seconds and bytes sent per rank and step for both ways, and the tokens whose
        activations are held at once.
    """
    compute = compute_time(MODEL.parameters, tokens, H100_CLUSTER)
    sent, all_reduce = all_reduce_cost()
    each = _spans(micro_batches, compute / micro_batches, all_reduce, every=1)
    once = _spans(micro_batches, compute / micro_batches, all_reduce, every=micro_batches)
    tokens_held = tokens / micro_batches

    # Placed by hand: two plot areas that share one title.
    lanes = fig.add_axes((0.18, 0.5, 0.76, 0.36))
    _draw_lanes(lanes, each, once)
    memory = fig.add_axes((0.18, 0.16, 0.76, 0.1))
    _draw_memory(memory, tokens_held)
    if micro_batches == 1:
        message = f"One micro-batch: either way one all-reduce, {format_bytes(sent)}"
    else:
        several, single = format_bytes(micro_batches * sent), format_bytes(sent)
        message = f"{micro_batches} micro-batches: no_sync sends {single}, not {several}"
    fig.suptitle(
        message, x=0.03, y=0.96, ha="left", color=style.INK, fontsize=style.FONT_SIZE + 0.5
    )
    return {
        "seconds, all-reduce after each": compute + micro_batches * all_reduce,
        "seconds, no_sync": compute + all_reduce,
        "bytes sent, all-reduce after each": micro_batches * sent,
        "bytes sent, no_sync": sent,
        "tokens held at once": tokens_held,
    }


def _spans(
    micro_batches: int, compute: float, all_reduce: float, every: int
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """(start, length) of the computations and all-reduces that a rank does in turn."""
    computing, communicating = [], []
    now = 0.0
    for done in range(1, micro_batches + 1):
        computing.append((now, compute))
        now += compute
        if done % every == 0:
            communicating.append((now, all_reduce))
            now += all_reduce
    return computing, communicating


def _draw_lanes(ax: Axes, each: tuple[list, list], once: tuple[list, list]) -> None:
    style.dress(ax)
    ax.grid(False, axis="y")
    for row, (computing, communicating) in enumerate((once, each)):
        # Gaps tell micro-batches apart; where these are narrow, gaps would hide them.
        gap = 0.5 if computing[0][1] > NARROWEST_WITH_GAP else 0.0
        ax.broken_barh(
            computing,
            (row - 0.3, 0.6),
            facecolors=style.COMPUTE,
            edgecolors=style.PAPER,
            linewidths=gap,
            label="compute" if row else None,
        )
        ax.broken_barh(
            communicating,
            (row - 0.3, 0.6),
            facecolors=style.COMMUNICATION,
            label="all-reduce" if row else None,
        )
    ax.set_xlim(0, LONGEST_STEP_SECONDS)
    ax.set_ylim(-0.5, 1.5)
    style.round_ticks(ax.xaxis, LONGEST_STEP_SECONDS, "seconds")
    ax.set_yticks([0, 1], ["no_sync", "after each"])
    ax.set_xlabel("one step on one rank", color=style.INK, fontsize=style.FONT_SIZE)
    style.legend(ax, loc="lower right")


def _draw_memory(ax: Axes, tokens_held: float) -> None:
    style.dress(ax)
    ax.barh([0], [tokens_held], height=0.6, color=style.ALTERNATIVE)
    ax.set_xlim(0, MOST_TOKENS)
    ax.set_ylim(-0.5, 0.5)
    places = [0, 32 * KIB, 64 * KIB, 96 * KIB]
    ax.set_xticks(places, [f"{place // KIB} Ki" if place else "0" for place in places])
    ax.set_yticks([])
    ax.set_xlabel(
        f"tokens whose activations are in memory at once: {tokens_held:.0f}",
        color=style.INK,
        fontsize=style.FONT_SIZE,
    )
