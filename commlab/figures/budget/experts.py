"""A hot expert: what each GPU is sent, what a capacity limit drops, and how long a layer takes."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from commlab.budget import (
    H100_CLUSTER,
    Cluster,
    compute_time,
    expert_loads,
    expert_parallel,
    expert_slots,
)
from commlab.figures import style
from commlab.figures.budget.panels import SMALL, boxes, headline, plot_area
from commlab.models import LLAMA3_8B
from commlab.units import format_seconds

N_EXPERTS = 8
TOKENS = 8192
HOTTEST_SHARES = (0.125, 0.15, 0.20, 0.25, 0.35, 0.50, 0.75)
CAPACITIES = (0.0, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
"""Capacity factors; 0 stands for no limit."""

# The hottest share that the knob offers makes one GPU work six times the balanced load.
HIGHEST_LOAD = 6.3
LONGEST_SECONDS = 85e-3


def hot_expert(
    fig: Figure,
    *,
    hottest_share: float = 0.25,
    capacity: float = 0.0,
    cluster: Cluster = H100_CLUSTER,
) -> dict[str, Any]:
    """Draw the load of 8 GPUs with one expert each, and the forward pass of one MoE layer.

    Parameters
    ----------
    fig : Figure
        Drawn on.
    hottest_share : float
        Part of the tokens that chooses expert 0; the others share the rest evenly.
    capacity : float
        Capacity factor; 0 for no limit.
    cluster : Cluster
        Links, peak FLOP/s and MFU.

    Returns
    -------
    dict
        ``processed``, ``empty`` and ``dropped``: by GPU, over the balanced load;
        ``compute`` of the busiest GPU, ``in_node`` and ``across`` (both all-to-alls), in
        seconds per layer; ``dropped_share`` of all tokens; ``slowdown`` of the busiest
        link's bytes.
    """
    limit = capacity or None
    loads = expert_loads(N_EXPERTS, hottest_share)
    slots, dropped_share, _ = expert_slots(loads, limit)
    size = (TOKENS, LLAMA3_8B.hidden, LLAMA3_8B.layers, N_EXPERTS, cluster)
    inside, across = (
        expert_parallel(
            *size, across_nodes=where, hottest_share=hottest_share, capacity_factor=limit
        )
        for where in (False, True)
    )
    # A forward pass is a third of 6ΦD.
    compute = compute_time(LLAMA3_8B.mlp_parameters, TOKENS * inside.compute_skew, cluster) / 3
    processed = N_EXPERTS * np.minimum(loads, slots)
    empty = N_EXPERTS * np.maximum(slots - loads, 0)
    dropped = N_EXPERTS * np.maximum(loads - slots, 0)

    _draw_loads(plot_area(fig, left=0.1, width=0.42), processed, empty, dropped)
    times = plot_area(fig, left=0.67, width=0.31)
    _draw_times(times, compute, (inside.seconds_per_layer, across.seconds_per_layer))
    lost = f", {dropped_share:.1%} dropped" if dropped_share else ""
    share = f"{100 * hottest_share:.3g}%"
    headline(fig, f"{share} of tokens want expert 0: bytes × {inside.byte_skew:.3g}{lost}")
    return {
        "processed": processed,
        "empty": empty,
        "dropped": dropped,
        "compute": compute,
        "in_node": inside.seconds_per_layer,
        "across": across.seconds_per_layer,
        "dropped_share": dropped_share,
        "slowdown": inside.byte_skew,
    }


def _draw_loads(ax: Axes, processed: np.ndarray, empty: np.ndarray, dropped: np.ndarray) -> None:
    gpus = np.arange(N_EXPERTS)
    for height, bottom, colour in (
        (processed, np.zeros(N_EXPERTS), style.ALTERNATIVE),
        (empty, processed, style.WAIT),
        (dropped, processed, style.THIRD),
    ):
        some = height > 0
        boxes(ax, gpus[some] - 0.36, bottom[some], 0.72, height[some], colour, line=0.0)
    ax.axhline(1.0, color=style.INK, linewidth=1.2, linestyle="--")
    ax.set_xlim(-0.6, N_EXPERTS - 0.4)
    ax.set_ylim(0, HIGHEST_LOAD)
    ax.set_xticks(list(gpus), [str(gpu) for gpu in gpus])
    ax.set_yticks([0, 1, 2, 4, 6], ["0", "1", "2", "4", "6"])
    ax.set_xlabel("GPU (its expert)")
    ax.set_ylabel("tokens over balanced", labelpad=2)
    looks = {"tokens": style.ALTERNATIVE, "dropped": style.THIRD, "empty slots": style.WAIT}
    handles = [Patch(color=colour, label=name) for name, colour in looks.items()]
    style.legend(ax, handles=handles, loc="upper right")


def _draw_times(ax: Axes, compute: float, exchange: tuple[float, float]) -> None:
    places = (0, 1)
    ax.bar(places, [compute] * 2, width=0.6, color=style.COMPUTE)
    ax.bar(places, exchange, bottom=compute, width=0.6, color=style.COMMUNICATION)
    for place, seconds in zip(places, exchange, strict=True):
        ax.text(
            place,
            compute + seconds + 0.012 * LONGEST_SECONDS,
            format_seconds(compute + seconds),
            ha="center",
            va="bottom",
            color=style.INK,
            fontsize=SMALL,
        )
    ax.set_xlim(-0.55, 1.55)
    ax.set_ylim(0, LONGEST_SECONDS)
    ax.set_xticks(list(places), ["in a node", "across"])
    style.round_ticks(ax.yaxis, LONGEST_SECONDS, "seconds")
    looks = {"experts": style.COMPUTE, "all-to-alls": style.COMMUNICATION}
    handles = [Patch(color=colour, label=name) for name, colour in looks.items()]
    style.legend(ax, handles=handles, loc="upper right")
    ax.set_xlabel("one layer, forward")
