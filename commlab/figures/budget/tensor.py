"""Tensor parallelism against the size of its group: time, and what sequence parallelism saves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from commlab.budget import (
    H100_CLUSTER,
    Cluster,
    activation_memory,
    all_reduce_seconds,
    place,
    tensor_parallel,
)
from commlab.figures import style
from commlab.figures.budget.panels import TIGHT_LEGEND, headline, plot_area
from commlab.models import LLAMA3_8B
from commlab.units import format_seconds

TENSOR_RANKS = (1, 2, 4, 8, 16, 32)
"""GPUs that a layer is cut over, on the x axis: the divisors of the 32 heads."""

MARKED = 8
"""The size that the title speaks of."""


def tensor_parallel_size(
    fig: Figure,
    *,
    tokens: int = 32768,
    gpus_per_node: int = 8,
    cluster: Cluster = H100_CLUSTER,
) -> dict[str, Any]:
    """Draw time and activations of Llama-3 8B against the GPUs of a tensor-parallel group.

    Parameters
    ----------
    fig : Figure
        Drawn on.
    tokens : int
        Tokens that the group processes together, one sequence.
    gpus_per_node : int
        GPUs that share the fast link. Larger groups fill whole nodes; all-reduces between
        nodes are hierarchical, with a network interface for each GPU.
    cluster : Cluster
        Links, peak FLOP/s and MFU.

    Returns
    -------
    dict
        ``ranks``; ``compute``, ``all_reduce`` and ``sequence_parallel`` (seconds per step);
        ``activations`` and ``activations_sequence_parallel`` (bytes per GPU).
    """
    cluster = replace(cluster, gpus_per_node=gpus_per_node)
    ranks = np.array(TENSOR_RANKS)
    steps = [_seconds(tokens, n_ranks, cluster) for n_ranks in TENSOR_RANKS]
    compute, plain, sequence = (np.array(values) for values in zip(*steps, strict=True))
    memory, saved = (
        np.array(
            [
                activation_memory(
                    LLAMA3_8B, tokens, tensor_ranks=n_ranks, sequence_parallel=cut
                ).total
                for n_ranks in TENSOR_RANKS
            ]
        )
        for cut in (False, True)
    )

    time = plot_area(fig, left=0.125, width=0.365, bottom=0.26)
    time.plot(ranks, compute, color=style.COMPUTE, linewidth=2, label="compute")
    time.plot(ranks[1:], plain[1:], color=style.COMMUNICATION, linewidth=2, label="all-reduces")
    time.plot(
        ranks[1:],
        sequence[1:],
        color=style.COMMUNICATION,
        linewidth=1.6,
        linestyle="--",
        label="the same, with SP",
    )
    style.log_axis(time.yaxis, 1e-3, 30, "seconds")
    kept = plot_area(fig, left=0.635, width=0.345, bottom=0.26)
    kept.plot(ranks, memory, color=style.ALTERNATIVE, linewidth=2, label="activations")
    kept.plot(ranks, saved, "--", color=style.ALTERNATIVE, linewidth=1.6, label="with SP")
    style.log_axis(kept.yaxis, 2.0**26, 2.0**40, "bytes", base=2, step=4)
    for ax, name in ((time, "time per step"), (kept, "kept on one GPU")):
        style.log_axis(ax.xaxis, 0.9, 36, "count", base=2)
        if 1 < gpus_per_node <= TENSOR_RANKS[-1]:
            ax.axvline(gpus_per_node, color=style.MUTED, linewidth=1, linestyle=":")
        ax.set_xlabel("GPUs that cut a layer")
        ax.set_title(name, loc="left", y=1.0, color=style.MUTED, fontsize=style.FONT_SIZE - 1)
        style.legend(ax, loc="upper center", bbox_to_anchor=(0.5, -0.26), ncols=3, **TIGHT_LEGEND)
    at = TENSOR_RANKS.index(MARKED)
    share = plain[at] / compute[at]
    headline(
        fig,
        f"TP = {MARKED}: {format_seconds(plain[at])} of all-reduces, {share:.0%} of compute",
    )
    return {
        "ranks": ranks,
        "compute": compute,
        "all_reduce": plain,
        "sequence_parallel": sequence,
        "activations": memory,
        "activations_sequence_parallel": saved,
    }


def _seconds(tokens: int, n_ranks: int, cluster: Cluster) -> tuple[float, float, float]:
    """Compute, all-reduces, and reduce-scatters with all-gathers, on nodes that fill up."""
    step = tensor_parallel(
        LLAMA3_8B, tokens, n_ranks, cluster, across_nodes=True, sequence_parallel=True
    )
    # The counts of the step, but with the group packed on as few nodes as hold it.
    each = all_reduce_seconds(step.activation_bytes, place(n_ranks, cluster), cluster)
    return step.compute_seconds, step.count * each, (step.count + step.extra / 2) * each
