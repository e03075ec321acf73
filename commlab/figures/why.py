"""Figures of §1: the memory wall, the compute wall and the speed of links."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from commlab.budget import H100_CLUSTER, MFU, compute_time, training_state
from commlab.figures import style
from commlab.hardware import H100, INFINIBAND_NDR, NVLINK4_H100, PCIE5_X16
from commlab.models import LLAMA3_8B, LLAMA3_70B, LLAMA3_405B
from commlab.units import format_bytes, format_rate

DAY = 86400.0
WEEK = 7 * DAY
YEAR = 365 * DAY

RANKS = tuple(2**k for k in range(11))
"""Numbers of GPUs on the x axis of the memory wall: 1 to 1024."""

MODELS = (LLAMA3_8B, LLAMA3_70B, LLAMA3_405B)
COLOURS = (style.COMPUTE, style.ALTERNATIVE, style.THIRD)


def memory_wall(
    fig: Figure, *, parameters: float = LLAMA3_8B.parameters, memory: float = H100.memory_bytes
) -> dict[str, Any]:
    """Training state per GPU against the number of GPUs: copies, optimizer shards, all shards.

    Parameters
    ----------
    fig : Figure
        Drawn on.
    parameters : float
        Parameters Φ.
    memory : float
        Bytes of memory of one GPU.

    Returns
    -------
    dict
        ``ranks``, ``copies``, ``optimizer_shards`` and ``all_shards`` (bytes per GPU), and
        ``fits``: the first number of GPUs whose full shards fit, or None up to 1024.
    """
    curves = {
        name: np.array([training_state(parameters, n, stage).total for n in RANKS])
        for name, stage in (("copies", 0), ("optimizer_shards", 1), ("all_shards", 3))
    }
    fitting = [n for n, nbytes in zip(RANKS, curves["all_shards"], strict=True) if nbytes <= memory]
    fits = fitting[0] if fitting else None

    ax = style.single_axes(fig, left=0.17)
    low, high = 2.0**26, 2.0**50
    ax.axhspan(low, memory, color=style.GRID, alpha=0.45, linewidth=0)
    looks = (
        ("copies", style.WAIT, "a copy on every GPU (DP)"),
        ("optimizer_shards", style.ALTERNATIVE, "optimizer sharded (ZeRO-1)"),
        ("all_shards", style.COMMUNICATION, "all sharded (ZeRO-3 / FSDP)"),
    )
    for name, colour, label in looks:
        ax.plot(RANKS, curves[name], color=colour, linewidth=2, marker="o", ms=3.5, label=label)
    ax.axhline(memory, color=style.INK, linewidth=1.2)
    ax.annotate(
        f"fits in one GPU of {memory / 1e9:g} GB",
        (1, low),
        xytext=(0, 5),
        textcoords="offset points",
        color=style.INK,
        fontsize=style.FONT_SIZE - 1,
    )
    style.log_axis(ax.xaxis, 0.9, 1150, "count", base=2, step=2)
    style.log_axis(ax.yaxis, low, high, "bytes", base=2, step=4)
    ax.set_xlabel("GPUs N")
    ax.set_ylabel("training state per GPU")
    total = format_bytes(training_state(parameters).total)
    reach = "1024 shards still do not fit" if fits is None else _fit_message(fits)
    style.title(ax, f"{parameters / 1e9:.3g} B parameters need {total}: {reach}")
    style.legend(ax, loc="upper right")
    return {"ranks": np.array(RANKS), **curves, "memory": memory, "fits": fits}


def compute_wall(fig: Figure, *, tokens: float = 15e12, mfu: float = MFU) -> dict[str, Any]:
    """Training time against the number of H100 GPUs, for the three Llama-3 shapes.

    Parameters
    ----------
    fig : Figure
        Drawn on.
    tokens : float
        Training tokens D.
    mfu : float
        Part of the peak that is reached.

    Returns
    -------
    dict
        ``gpus`` and, by model name, seconds.
    """
    gpus = np.logspace(0, 5, 41)
    ax = style.single_axes(fig, left=0.18, right=0.95, top=0.8)
    seconds = {}
    for shape, colour in zip(MODELS, COLOURS, strict=True):
        # Perfect scaling: the time on one GPU over the number of GPUs.
        one = compute_time(shape.parameters, tokens) * H100_CLUSTER.mfu / mfu
        seconds[shape.name] = one / gpus
        ax.plot(gpus, seconds[shape.name], color=colour, linewidth=2, label=shape.name)
    style.log_axis(ax.xaxis, 1, 1.2e5, "count")
    _calendar_axis(ax, DAY / 2, 20000 * YEAR)
    ax.set_xlabel(f"H100 GPUs, perfect scaling at MFU {mfu:.0%}")
    ax.set_ylabel("training time")
    years = seconds[LLAMA3_8B.name][0] / YEAR
    in_a_month = seconds[LLAMA3_405B.name][0] / (30 * DAY)
    style.title(
        ax,
        f"{tokens / 1e12:g} T tokens: 8B takes {years:.3g} years on one GPU,\n"
        f"405B in 30 days takes {in_a_month:,.0f} of them",
    )
    style.legend(ax, loc="upper right")
    return {"gpus": gpus, **seconds}


def link_speeds(fig: Figure) -> dict[str, Any]:
    """Bars: what an H100 reaches in memory (reads and writes) and over links (one direction).

    Returns
    -------
    dict
        ``names`` and ``rates`` in bytes/s.
    """
    rows = (
        ("HBM (reads + writes)", H100.memory_rate, style.COMPUTE),
        ("NVLink, line rate", NVLINK4_H100.beta, style.COMMUNICATION),
        ("NVLink, usable by NCCL", NVLINK4_H100.usable, style.COMMUNICATION),
        ("PCIe 5 x16", PCIE5_X16.beta, style.WAIT),
        ("InfiniBand NDR", INFINIBAND_NDR.beta, style.ALTERNATIVE),
    )
    ax = style.single_axes(fig, left=0.34)
    places = np.arange(len(rows))[::-1]
    names = [name for name, _, _ in rows]
    rates = np.array([rate for _, rate, _ in rows])
    ax.barh(places, rates, color=[colour for _, _, colour in rows], height=0.6)
    for place, rate in zip(places, rates, strict=True):
        ax.annotate(
            format_rate(rate),
            (rate, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            color=style.INK,
            fontsize=style.FONT_SIZE - 1,
        )
    style.log_axis(ax.xaxis, 1e10, 1.5e13, "rate")
    ax.set_yticks(places, names)
    ax.set_xlabel("bytes/s, links in one direction (log scale)")
    memory, node = (rate / INFINIBAND_NDR.beta for rate in (H100.memory_rate, NVLINK4_H100.beta))
    style.title(ax, f"Memory : node : network = {memory:.0f} : {node:.0f} : 1")
    return {"names": names, "rates": rates}


def _fit_message(fits: int) -> str:
    return "one GPU holds it" if fits == 1 else f"{fits} GPUs hold it in shards"


def _calendar_axis(ax: Axes, low: float, high: float) -> None:
    """Make the y axis logarithmic; its ticks are a day, a week, a month, years."""
    ticks = {DAY: "1 day", WEEK: "1 week", 30 * DAY: "30 days"}
    ticks.update({YEAR * 10**k: f"{10**k} y" for k in range(5)})
    ax.set_yscale("log")
    ax.set_ylim(low, high)
    ax.yaxis.set_major_locator(FixedLocator(list(ticks)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: ticks[value]))
