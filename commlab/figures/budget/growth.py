"""What grows with parameters and what with tokens: the data-parallel step, and all three ratios."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from commlab.budget import (
    H100_CLUSTER,
    Cluster,
    compute_time,
    data_parallel,
    expert_parallel,
    tensor_parallel,
)
from commlab.figures import style
from commlab.hardware import INFINIBAND
from commlab.models import LLAMA3_8B
from commlab.units import format_seconds

GPUS = tuple(2**k for k in range(1, 13))
"""Numbers of GPUs on the x axis of the data-parallel step: 2 to 4096."""

GROUP = 8
"""GPUs of a tensor- or expert-parallel group, and of a node."""


def data_parallel_step(
    fig: Figure, *, tokens: int = 32768, beta_inter: float = INFINIBAND
) -> dict[str, Any]:
    """Compute and gradient all-reduce of one step against the number of GPUs.

    Parameters
    ----------
    fig : Figure
        Drawn on.
    tokens : int
        Tokens per GPU and step.
    beta_inter : float
        Bytes/s between nodes, per GPU, one direction.

    Returns
    -------
    dict
        ``gpus``, ``compute`` (seconds), ``hierarchical`` and ``rails`` (seconds per number
        of GPUs).
    """
    cluster = replace(H100_CLUSTER, beta_inter=beta_inter)
    phi = LLAMA3_8B.parameters
    compute = compute_time(phi, tokens, cluster)
    times = {
        algorithm: np.array([data_parallel(phi, n, cluster, algorithm).seconds for n in GPUS])
        for algorithm in ("hierarchical", "rails")
    }
    ax = style.single_axes(fig, left=0.16)
    ax.axhline(compute, color=style.COMPUTE, linewidth=2, label="compute")
    looks = (
        ("hierarchical", style.COMMUNICATION, "-", "all-reduce, hierarchical"),
        ("rails", style.ALTERNATIVE, "--", "all-reduce, ring over 8 rails"),
    )
    for name, colour, line, label in looks:
        ax.plot(GPUS, times[name], line, color=colour, linewidth=2, marker="o", ms=3.5, label=label)
    ax.axvline(GROUP, color=style.MUTED, linewidth=1, linestyle=":")
    ax.annotate(
        "one node",
        (GROUP, 1.25e-2),
        xytext=(4, 0),
        textcoords="offset points",
        color=style.MUTED,
        fontsize=style.FONT_SIZE - 1.5,
    )
    style.log_axis(ax.xaxis, 1.8, 4600, "count", base=2, step=2)
    style.log_axis(ax.yaxis, 1e-2, 100, "seconds")
    ax.set_xlabel("GPUs")
    ax.set_ylabel("seconds per step")
    at_64 = times["hierarchical"][GPUS.index(64)]
    style.title(
        ax,
        f"64 GPUs: {format_seconds(at_64)} of communication is {_percent(at_64 / compute)} "
        "of compute",
    )
    style.legend(ax, loc="upper right")
    return {"gpus": np.array(GPUS), "compute": compute, **times}


def paid_off_by_tokens(
    fig: Figure, *, beta_inter: float = INFINIBAND, mfu: float = H100_CLUSTER.mfu
) -> dict[str, Any]:
    """Communication over compute against tokens per GPU: DP, TP and MoE, in and across nodes.

    Parameters
    ----------
    fig : Figure
        Drawn on.
    beta_inter : float
        Bytes/s between nodes, per GPU, one direction.
    mfu : float
        Part of the peak that is reached.

    Returns
    -------
    dict
        ``tokens`` and six curves of communication time over compute time.
    """
    cluster = replace(H100_CLUSTER, beta_inter=beta_inter, mfu=mfu)
    tokens = 2 ** np.arange(10, 18)
    kinds = {
        "DP": (style.COMMUNICATION, _data_parallel_ratio),
        "TP = 8": (style.ALTERNATIVE, _tensor_parallel_ratio),
        "MoE, 8 experts": (style.THIRD, _expert_parallel_ratio),
    }
    ax = style.single_axes(fig, left=0.15)
    ax.axhline(1.0, color=style.INK, linewidth=1.2)
    ax.annotate(
        "as long as compute",
        (131072, 1.0),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
        color=style.INK,
        fontsize=style.FONT_SIZE - 1.5,
    )
    ratios: dict[str, np.ndarray] = {}
    for kind, (colour, ratio) in kinds.items():
        for across, line in ((False, "-"), (True, "--")):
            values = np.array([ratio(int(count), cluster, across) for count in tokens])
            ratios[f"{kind}, {'across nodes' if across else 'in a node'}"] = values
            ax.plot(tokens, values, line, color=colour, linewidth=2)
    style.log_axis(ax.xaxis, 950, 140000, "count", base=2, step=2)
    _percent_axis(ax)
    ax.set_xlabel("tokens per GPU and step")
    ax.set_ylabel("communication / compute")
    style.title(ax, "More tokens pay off data parallelism, not TP or MoE")
    handles = [
        Line2D([], [], color=colour, linewidth=2, label=kind) for kind, (colour, _) in kinds.items()
    ]
    handles.append(Line2D([], [], color=style.MUTED, linestyle="-", label="inside a node"))
    handles.append(Line2D([], [], color=style.MUTED, linestyle="--", label="across nodes"))
    style.legend(ax, handles=handles, loc="lower left", ncols=2)
    return {"tokens": tokens, **ratios}


def _data_parallel_ratio(tokens: int, cluster: Cluster, across: bool) -> float:
    phi = LLAMA3_8B.parameters
    n_gpus = 8 * GROUP if across else GROUP
    return data_parallel(phi, n_gpus, cluster).seconds / compute_time(phi, tokens, cluster)


def _tensor_parallel_ratio(tokens: int, cluster: Cluster, across: bool) -> float:
    # Each GPU of the group sees all tokens and does 1/GROUP of their work.
    step = tensor_parallel(LLAMA3_8B, tokens * GROUP, GROUP, cluster, across_nodes=across)
    return step.seconds / step.compute_seconds


def _expert_parallel_ratio(tokens: int, cluster: Cluster, across: bool) -> float:
    step = expert_parallel(
        tokens, LLAMA3_8B.hidden, LLAMA3_8B.layers, GROUP, cluster, across_nodes=across
    )
    return step.seconds / compute_time(LLAMA3_8B.parameters, tokens, cluster)


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.3g}%"


def _percent_axis(ax: Axes) -> None:
    """Make the y axis logarithmic with ticks in percent."""
    ax.set_yscale("log")
    ax.set_ylim(2e-4, 60)
    ax.yaxis.set_major_locator(FixedLocator([1e-3, 1e-2, 1e-1, 1, 10]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
