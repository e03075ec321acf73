"""Memory of one GPU by ZeRO stage: what N divides, and what it does not."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from commlab.budget import H100_CLUSTER, Cluster, Plan, training_step
from commlab.figures import style
from commlab.figures.budget.panels import TIGHT_LEGEND
from commlab.figures.memory_bars import memory_bars
from commlab.models import LLAMA3_8B, TransformerShape
from commlab.units import format_bytes

STAGE_NAMES = ("DP", "ZeRO-1", "ZeRO-2", "ZeRO-3")

PARTS = {
    "parameters": style.ALTERNATIVE,
    "gradients": style.COMMUNICATION,
    "optimizer": style.THIRD,
    "activations": style.COMPUTE,
    "gathered": style.WAIT,
}


def memory_by_stage(
    fig: Figure,
    *,
    n_gpus: int = 64,
    tokens: int = 8192,
    shape: TransformerShape = LLAMA3_8B,
    cluster: Cluster = H100_CLUSTER,
) -> dict[str, Any]:
    """Draw the memory of one GPU under plain data parallelism and ZeRO-1 to ZeRO-3.

    Parameters
    ----------
    fig : Figure
        Drawn on.
    n_gpus : int
        Data-parallel GPUs.
    tokens : int
        Tokens of the one sequence that a GPU works on; 0 leaves out all that is not state:
        activations and gathered layers.
    shape : TransformerShape
        The model.
    cluster : Cluster
        Memory of a GPU.

    Returns
    -------
    dict
        For each part the bytes by stage, ``total``, and ``fits``: the first stage that fits,
        or None.
    """
    steps = [
        training_step(shape, Plan(data=n_gpus, zero_stage=stage, sequence=max(tokens, 1)), cluster)
        for stage in range(len(STAGE_NAMES))
    ]
    parts = {name: [getattr(step.memory, name) for step in steps] for name in PARTS}
    if tokens == 0:
        parts["activations"] = parts["gathered"] = [0.0] * len(steps)
    ax = style.single_axes(fig, left=0.14, right=0.82, bottom=0.27)
    bars = {name: (colour, parts[name]) for name, colour in PARTS.items()}
    totals = memory_bars(ax, STAGE_NAMES, bars, cluster.gpu_memory)
    fitting = [stage for stage, total in enumerate(totals) if total <= cluster.gpu_memory]
    fits = fitting[0] if fitting else None
    ax.set_xlabel(f"memory of one GPU; dashed: {format_bytes(cluster.gpu_memory)}")
    style.legend(ax, loc="upper center", bbox_to_anchor=(0.5, -0.24), ncols=5, **TIGHT_LEGEND)
    result = "nothing fits" if fits is None else f"{STAGE_NAMES[fits]} is the first to fit"
    style.title(ax, f"{shape.name} on {n_gpus} GPUs: {result}")
    return {**parts, "total": totals, "fits": fits}
