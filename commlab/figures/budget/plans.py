"""Where the groups of a plan sit on the cluster, and what the step costs for it."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from commlab.budget import H100_CLUSTER, Cluster, Plan, TrainingStep, training_step
from commlab.figures import style
from commlab.figures.budget.panels import SMALL, boxes, headline, plot_area
from commlab.models import LLAMA3_70B, TransformerShape
from commlab.units import format_bytes, format_seconds

N_GPUS = 64
SEQUENCES = 256
"""Sequences of 8192 tokens of a step, all GPUs together: 2 Mi tokens."""

PLANS = ((2, 1), (4, 1), (8, 1), (16, 1), (4, 4), (8, 2), (8, 4), (2, 8))
"""Tensor and pipeline sizes that the knob offers; data takes the rest of the GPUs."""

ORDERS = tuple(permutations(("tensor", "data", "pipeline")))
"""Which axis has neighbouring GPUs, which one comes next, and which one lies outside."""

AXIS_COLOURS = {
    "tensor": style.COMMUNICATION,
    "data": style.ALTERNATIVE,
    "pipeline": style.THIRD,
}
LONGEST_SECONDS = 170.0


def plan_placement(
    fig: Figure,
    *,
    sizes: tuple[int, int] = (8, 2),
    order: tuple[str, ...] = ORDERS[0],
    shape: TransformerShape = LLAMA3_70B,
    cluster: Cluster = H100_CLUSTER,
) -> dict[str, Any]:
    """Draw the partners of GPU 0 on the nodes, and the step's time by cause.

    Parameters
    ----------
    fig : Figure
        Drawn on.
    sizes : tuple of int
        Tensor and pipeline size.
    order : tuple of str
        The axes from the innermost outwards.
    shape : TransformerShape
        The model: ZeRO-1, sequence parallelism, 1F1B, 256 sequences of 8192 tokens.
    cluster : Cluster

    Returns
    -------
    dict
        ``seconds`` by cause, ``memory`` in bytes, and ``partners``: for each axis the ranks
        of GPU 0's group.
    """
    tensor, pipeline = sizes
    data = N_GPUS // (tensor * pipeline)
    plan = Plan(
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        n_microbatches=SEQUENCES // data,
        zero_stage=1,
        sequence_parallel=True,
        order=order,
    )
    step = training_step(shape, plan, cluster)
    partners = {axis: plan.ranks(axis)[0] for axis in AXIS_COLOURS}
    seconds = {
        "compute": step.compute,
        "tensor": step.tensor,
        "data": step.data,
        "bubble": step.bubble,
    }
    _draw_nodes(plot_area(fig, left=0.12, width=0.42), partners, cluster.gpus_per_node)
    _draw_seconds(plot_area(fig, left=0.72, width=0.26), seconds)
    headline(fig, _message(step))
    return {"seconds": seconds, "memory": step.memory.total, "partners": partners}


def _message(step: TrainingStep) -> str:
    used = f"{format_bytes(step.memory.total)} of {format_bytes(step.memory.capacity)}"
    result = used if step.fits else f"{used}: too much"
    waiting = 1 - step.compute / step.seconds
    return f"{format_seconds(step.seconds)} a step, {waiting:.0%} waiting; {result}"


def _draw_nodes(ax: Axes, partners: dict[str, list[int]], per_node: int) -> None:
    ax.grid(False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    ranks = np.arange(N_GPUS)
    _squares(ax, ranks, per_node, style.GRID)
    for axis, group in partners.items():
        _squares(ax, np.array(group[1:], dtype=int), per_node, AXIS_COLOURS[axis])
    _squares(ax, np.array([0]), per_node, style.INK)
    ax.set_xlim(0, per_node)
    ax.set_ylim(N_GPUS // per_node + 1.3, 0)
    nodes = range(N_GPUS // per_node)
    ax.set_yticks([node + 0.45 for node in nodes], [f"node {node}" for node in nodes])
    ax.set_xticks([])
    ax.tick_params(labelsize=SMALL - 1)
    handles = [Patch(color=colour, label=axis) for axis, colour in AXIS_COLOURS.items()]
    ax.set_xlabel("partners of GPU 0 (black), by axis", labelpad=8)
    style.legend(
        ax,
        handles=handles,
        loc="lower center",
        ncols=3,
        handlelength=0.9,
        handletextpad=0.4,
        columnspacing=1.0,
        borderpad=0.0,
        borderaxespad=0.1,
    )


def _squares(ax: Axes, ranks: np.ndarray, per_node: int, colour: str) -> None:
    boxes(ax, ranks % per_node, ranks // per_node, 0.9, 0.9, colour, line=0.0)


def _draw_seconds(ax: Axes, seconds: dict[str, float]) -> None:
    looks = {
        "compute": style.COMPUTE,
        "tensor": style.COMMUNICATION,
        "data": style.ALTERNATIVE,
        "bubble": style.WAIT,
    }
    low = 0.0
    for name, part in seconds.items():
        ax.bar([0], [part], bottom=low, width=0.62, color=looks[name], label=name)
        low += part
    ax.set_xlim(-0.75, 0.75)
    ax.set_ylim(0, LONGEST_SECONDS)
    ax.set_xticks([])
    style.round_ticks(ax.yaxis, LONGEST_SECONDS, "seconds")
    ax.set_xlabel("one step", labelpad=8)
    style.legend(ax, loc="upper right")
