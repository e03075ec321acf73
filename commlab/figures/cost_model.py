"""The figures of §4: what one message costs, and what follows from it.

Every function draws on the Figure it is given and returns the numbers it has drawn. Times
are in seconds, sizes in bytes, bandwidths in bytes per second and direction, as everywhere
in commlab. Ranges of the axes are fixed where a reader compares positions of a slider, and
follow the data where the shape of the picture is the message.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from commlab.algorithms import REGISTRY
from commlab.cost import (
    alpha_beta_all_gather,
    alpha_beta_halving_doubling_allreduce,
    alpha_beta_recursive_doubling_allreduce,
    alpha_beta_reduce_scatter,
    alpha_beta_ring_allreduce,
    alpha_beta_tree_allreduce,
    flat_ring_over_nodes_time,
    hierarchical_allreduce_time,
    hierarchical_ring_crossover,
    price,
    ring_tree_crossover,
)
from commlab.figures import style
from commlab.topology import flat_topology
from commlab.units import GIB, KIB, format_bytes, format_seconds

POINTS = 41
LINE = 2.0
# Room for "100 ms" and the axis label on the left, for half of "64 GiB" on the right.
CURVES = {"left": 0.17, "right": 0.95}
BARS = {"left": 0.12, "right": 0.95, "top": 0.85}


def message_time(fig: Figure, *, alpha: float, beta: float) -> dict[str, object]:
    """Draw the time of one message against its size, with the two costs it is made of.

    Returns ``nbytes``, ``seconds``, ``transfer`` (n/β), and the knee ``half_size`` with
    ``half_seconds``.
    """
    nbytes = np.geomspace(KIB, GIB, POINTS)
    transfer = nbytes / beta
    seconds = alpha + transfer
    half_size = alpha * beta
    half_seconds = alpha + half_size / beta

    ax = style.single_axes(fig, **CURVES)
    style.log_axis(ax.xaxis, KIB, GIB, "bytes", base=2, step=5)
    style.log_axis(ax.yaxis, 1e-6, 1e-2, "seconds")
    ax.plot(nbytes, np.full(POINTS, alpha), color=style.WAIT, linestyle="--", label="α")
    ax.plot(nbytes, transfer, color=style.ALTERNATIVE, linestyle="--", label="n / β")
    ax.plot(nbytes, seconds, color=style.COMMUNICATION, linewidth=LINE, label="α + n / β")
    _mark(ax, half_size, half_seconds, f"n½ = αβ = {format_bytes(half_size)}", (-8, 8))
    ax.set_xlabel("message n")
    ax.set_ylabel("time T")
    style.title(ax, "Flat while α rules, steep once the bytes rule")
    style.legend(ax, loc="upper left")
    return {
        "nbytes": nbytes,
        "seconds": seconds,
        "transfer": transfer,
        "half_size": half_size,
        "half_seconds": half_seconds,
    }


def step_timelines(
    fig: Figure, *, nbytes: float, n_ranks: int, alpha: float, beta: float
) -> dict[str, object]:
    """Draw ring, tree and naive all-reduce as rows of steps, priced step by step.

    The times are those of :func:`commlab.price`, read from the schedules; no closed form is
    used here. Grey is the part of a step that is α, colour the part that moves bytes.

    Returns ``names``, ``by_step`` (seconds of each step, by name) and ``totals``.
    """
    topology = flat_topology(n_ranks, alpha, beta)
    names = ["ring", "binomial_tree", "naive"]
    by_step = {}
    for name in names:
        schedule = REGISTRY["all_reduce", name].build(n_ranks)
        by_step[name] = price(schedule, topology, nbytes).by_step
    totals = {name: float(steps.sum()) for name, steps in by_step.items()}
    end = max(totals.values())

    ax = style.single_axes(fig, **BARS)
    for row, name in enumerate(names):
        steps = by_step[name]
        starts = np.concatenate(([0.0], np.cumsum(steps)[:-1])) / end
        latency = [(start, alpha / end) for start in starts]
        moving = [(s + alpha / end, (t - alpha) / end) for s, t in zip(starts, steps, strict=True)]
        ax.broken_barh(latency, (row - 0.3, 0.6), facecolors=style.WAIT)
        ax.broken_barh(moving, (row - 0.3, 0.6), facecolors=style.COMMUNICATION)
        # The white line between two steps keeps them countable.
        ax.vlines(starts[1:], row - 0.3, row + 0.3, color=style.PAPER, linewidth=1.2)
        text = f"{len(steps)} steps, {format_seconds(totals[name])}"
        ax.text(0.008, row - 0.36, text, color=style.INK, fontsize=style.FONT_SIZE - 1.5)
    ax.set_yticks(range(len(names)), ["ring", "tree", "naive"])
    ax.set_ylim(len(names) - 0.55, -0.75)
    ax.set_xlim(0, 1.0)
    style.round_ticks(ax.xaxis, end, "seconds", length=1.0)
    ax.set_xlabel("time; grey: α of a step, orange: its bytes")
    fastest = min(totals, key=totals.get)
    style.title(ax, f"{format_bytes(nbytes)} on {n_ranks} ranks: {_SHORT[fastest]} is done first")
    return {"names": names, "by_step": by_step, "totals": totals}


def ring_vs_tree(fig: Figure, *, n_ranks: int, alpha: float, beta: float) -> dict[str, object]:
    """Draw ring and binomial tree against the message size, with their crossover.

    Returns ``nbytes``, ``ring``, ``tree`` (seconds), ``crossover`` (bytes, 0 if there is
    none) and ``crossover_seconds``.
    """
    low, high = KIB, 4 * GIB
    nbytes = np.geomspace(low, high, POINTS)
    ring = alpha_beta_ring_allreduce(nbytes, n_ranks, alpha, beta)
    tree = alpha_beta_tree_allreduce(nbytes, n_ranks, alpha, beta)
    crossover = ring_tree_crossover(n_ranks, alpha, beta)
    crossover_seconds = float(alpha_beta_ring_allreduce(crossover, n_ranks, alpha, beta))

    ax = style.single_axes(fig, **CURVES)
    style.log_axis(ax.xaxis, low, high, "bytes", base=2, step=4)
    style.log_axis(ax.yaxis, 1e-6, 10.0, "seconds")
    ax.plot(nbytes, ring, color=style.COMMUNICATION, linewidth=LINE, label="ring")
    ax.plot(nbytes, tree, color=style.ALTERNATIVE, linewidth=LINE, label="binomial tree")
    if crossover > 0:
        _mark(ax, crossover, crossover_seconds, format_seconds(crossover_seconds))
        message = f"Tree wins below {format_bytes(crossover)}, ring above"
    else:
        message = f"{n_ranks} ranks: the ring is never slower"
    ax.set_xlabel("message S")
    ax.set_ylabel("all-reduce time T")
    style.title(ax, message)
    style.legend(ax, loc="upper left")
    return {
        "nbytes": nbytes,
        "ring": ring,
        "tree": tree,
        "crossover": crossover,
        "crossover_seconds": crossover_seconds,
    }


def effective_bandwidth(
    fig: Figure, *, n_ranks: int, alpha: float, beta: float
) -> dict[str, object]:
    """Draw algbw and busbw of the ring against the message size.

    Returns ``nbytes``, ``algbw``, ``busbw`` (bytes per second), ``half_size`` and
    ``half_busbw``.
    """
    low, high = 64 * KIB, 64 * GIB
    nbytes = np.geomspace(low, high, POINTS)
    factor = 2 * (n_ranks - 1) / n_ranks
    algbw = nbytes / alpha_beta_ring_allreduce(nbytes, n_ranks, alpha, beta)
    busbw = factor * algbw
    # Each message carries S/N: it must have the half-performance size α·β of one message.
    half_size = n_ranks * alpha * beta
    half_seconds = alpha_beta_ring_allreduce(half_size, n_ranks, alpha, beta)
    half_busbw = float(factor * half_size / half_seconds)

    ax = style.single_axes(fig, **CURVES | {"left": 0.19})
    style.log_axis(ax.xaxis, low, high, "bytes", base=2, step=4)
    ax.set_ylim(0, 1.3 * beta)
    style.round_ticks(ax.yaxis, 1.3 * beta, "rate")
    ax.axhline(beta, color=style.WAIT, linestyle="--", label="link β")
    ax.plot(nbytes, busbw, color=style.COMMUNICATION, linewidth=LINE, label="busbw")
    ax.plot(nbytes, algbw, color=style.ALTERNATIVE, linewidth=LINE, label="algbw")
    _mark(ax, half_size, half_busbw, "")
    ax.set_xlabel("message S")
    ax.set_ylabel("bandwidth")
    style.title(ax, f"{n_ranks} ranks: half of β at S = Nαβ = {format_bytes(half_size)}")
    style.legend(ax, loc="upper left", ncol=3)
    return {
        "nbytes": nbytes,
        "algbw": algbw,
        "busbw": busbw,
        "half_size": half_size,
        "half_busbw": half_busbw,
    }


def hierarchy_diagram(
    fig: Figure, *, n_nodes: int = 3, gpus_per_node: int = 4
) -> dict[str, object]:
    """Draw which GPUs talk to each other in the three phases of the hierarchical all-reduce.

    A row is a node; a column holds the GPUs with the same number in their nodes.

    Returns ``groups``: for each phase the list of groups, each a list of (node, GPU).
    """
    rows = [[(node, gpu) for gpu in range(gpus_per_node)] for node in range(n_nodes)]
    columns = [[(node, gpu) for node in range(n_nodes)] for gpu in range(gpus_per_node)]
    groups = [rows, columns, rows]
    titles = ["1 reduce-scatter", "2 all-reduce", "3 all-gather"]
    colours = [style.ALTERNATIVE, style.COMMUNICATION, style.ALTERNATIVE]
    for phase, (phase_groups, message, colour) in enumerate(
        zip(groups, titles, colours, strict=True)
    ):
        ax = fig.add_axes((0.07 + 0.31 * phase, 0.10, 0.29, 0.74))
        ax.set_facecolor("none")
        ax.set_axis_off()
        for group in phase_groups:
            x = [gpu for _, gpu in group]
            y = [node for node, _ in group]
            ax.plot(x, y, color=colour, linewidth=7, alpha=0.45, solid_capstyle="round")
            ax.plot(x, y, "s", color=colour, markersize=9)
        ax.set_xlim(-0.7, gpus_per_node - 0.3)
        ax.set_ylim(n_nodes - 0.3, -0.7)
        style.title(ax, message)
        if phase == 0:
            for node in range(n_nodes):
                ax.text(
                    -0.9,
                    node,
                    f"node {node}",
                    rotation=90,
                    ha="center",
                    va="center",
                    color=style.MUTED,
                    fontsize=style.FONT_SIZE - 2,
                )
    return {"groups": groups}


def hierarchical_vs_flat(
    fig: Figure,
    *,
    n_nodes: int,
    gpus_per_node: int,
    alpha: float,
    beta_intra: float,
    beta_inter: float,
) -> dict[str, object]:
    """Draw three ways over several nodes against the message size; one NIC per GPU.

    Returns ``nbytes``, ``one_nic_ring``, ``multi_rail_ring``, ``hierarchical`` (seconds),
    ``crossover`` (bytes; None if the hierarchical scheme and the multi-rail ring do not
    cross) and ``speedup``, the one-NIC ring over the hierarchical scheme at each size.
    """
    low, high = 64 * KIB, 64 * GIB
    nbytes = np.geomspace(low, high, POINTS)
    cluster = (n_nodes, gpus_per_node, alpha, beta_intra, beta_inter)
    one_nic = flat_ring_over_nodes_time(nbytes, *cluster, rails=1)
    rails = flat_ring_over_nodes_time(nbytes, *cluster, rails=gpus_per_node)
    two_level = hierarchical_allreduce_time(nbytes, *cluster)
    crossover = hierarchical_ring_crossover(*cluster)

    ax = style.single_axes(fig, **CURVES)
    style.log_axis(ax.xaxis, low, high, "bytes", base=2, step=4)
    style.log_axis(ax.yaxis, 1e-5, 10.0, "seconds")
    ax.plot(nbytes, one_nic, color=style.WAIT, linewidth=LINE, label="flat ring, 1 NIC at a time")
    ax.plot(nbytes, two_level, color=style.COMMUNICATION, linewidth=LINE, label="hierarchical")
    ax.plot(
        nbytes, rails, color=style.ALTERNATIVE, linewidth=LINE, label="flat rings over all rails"
    )
    if crossover is None:
        message = "hierarchical ahead of rails at any size"
    elif crossover > high:
        message = f"hierarchical ahead of rails up to {format_bytes(high)}"
    else:
        at = hierarchical_allreduce_time(
            crossover, n_nodes, gpus_per_node, alpha, beta_intra, beta_inter
        )
        _mark(ax, crossover, float(at), "")
        message = f"hierarchical ahead of rails below {format_bytes(crossover)}"
    ax.set_xlabel("message S")
    ax.set_ylabel("all-reduce time T")
    style.title(ax, f"{n_nodes} × {gpus_per_node} GPUs: {message}")
    style.legend(ax, loc="upper left")
    return {
        "nbytes": nbytes,
        "one_nic_ring": one_nic,
        "multi_rail_ring": rails,
        "hierarchical": two_level,
        "crossover": crossover,
        "speedup": one_nic / two_level,
    }


def three_ways_over_nodes(
    fig: Figure,
    *,
    beta_intra: float,
    beta_inter: float,
    rails: int,
    n_nodes: int = 8,
    gpus_per_node: int = 8,
    nbytes: float = GIB,
    alpha: float,
) -> dict[str, object]:
    """Draw one message size over several nodes as bars; the hierarchical one by its phases.

    A node has ``rails`` NICs. In the hierarchical scheme all GPUs of a node send at once, so
    the NIC that most of them share sets the time; the multi-rail ring uses all NICs.

    Returns ``one_nic_ring``, ``multi_rail_ring``, ``hierarchical`` (seconds) and ``phases``
    (the three of the hierarchical scheme).
    """
    cluster = (n_nodes, gpus_per_node, alpha, beta_intra, beta_inter)
    one_nic = float(flat_ring_over_nodes_time(nbytes, *cluster, rails=1))
    rail_ring = float(
        flat_ring_over_nodes_time(
            nbytes, n_nodes, gpus_per_node, alpha, beta_intra, beta_inter, rails=rails
        )
    )
    gpus_per_nic = -(-gpus_per_node // rails)
    shard = nbytes / gpus_per_node
    phases = [
        float(alpha_beta_reduce_scatter(nbytes, gpus_per_node, alpha, beta_intra)),
        float(alpha_beta_ring_allreduce(shard, n_nodes, alpha, beta_inter / gpus_per_nic)),
        float(alpha_beta_all_gather(nbytes, gpus_per_node, alpha, beta_intra)),
    ]
    two_level = sum(phases)
    longest = max(one_nic, rail_ring, two_level)

    ax = style.single_axes(fig, **BARS | {"left": 0.05})
    bars = (
        ([one_nic], [style.WAIT], "flat ring, 1 NIC at a time", one_nic),
        (
            phases,
            [style.ALTERNATIVE, style.COMMUNICATION, style.ALTERNATIVE],
            f"hierarchical, {_nics(rails)}: node, between nodes, node",
            two_level,
        ),
        ([rail_ring], [style.COMMUNICATION], f"flat rings over {_nics(rails)}", rail_ring),
    )
    for row, (pieces, colours, label, total) in enumerate(bars):
        left = 0.0
        for piece, colour in zip(pieces, colours, strict=True):
            ax.broken_barh([(left / longest, piece / longest)], (row, 0.45), facecolors=colour)
            left += piece
        ax.text(
            0.008,
            row - 0.08,
            f"{label}: {format_seconds(total)}",
            color=style.INK,
            fontsize=style.FONT_SIZE - 1.5,
        )
    ax.set_yticks([])
    ax.set_ylim(2.65, -0.4)
    ax.set_xlim(0, 1.0)
    style.round_ticks(ax.xaxis, longest, "seconds", length=1.0)
    ax.set_xlabel(f"all-reduce of {format_bytes(nbytes)} on {n_nodes} × {gpus_per_node} GPUs")
    style.title(ax, f"Hierarchical is {one_nic / two_level:.2f} times as fast as one NIC")
    return {
        "one_nic_ring": one_nic,
        "multi_rail_ring": rail_ring,
        "hierarchical": two_level,
        "phases": phases,
    }


def distance_to_best(fig: Figure, *, n_ranks: int, alpha: float, beta: float) -> dict[str, object]:
    """Draw four algorithms as multiples of the fastest of them, against the message size.

    Returns ``nbytes``, ``ratios`` (by name), ``winners``, the names that are fastest at some
    size, in order of size, and ``ring_at_best``, the smallest of the ring's ratios.
    """
    low, high = KIB, 4 * GIB
    nbytes = np.geomspace(low, high, POINTS)
    seconds = {
        name: closed_form(nbytes, n_ranks, alpha, beta) for name, closed_form, _ in _CONTENDERS
    }
    best = np.min(list(seconds.values()), axis=0)
    ratios = {name: values / best for name, values in seconds.items()}
    leader = [min(seconds, key=lambda name, i=i: seconds[name][i]) for i in range(POINTS)]
    winners = [name for i, name in enumerate(leader) if i == 0 or name != leader[i - 1]]

    ax = style.single_axes(fig, **CURVES | {"left": 0.11, "top": 0.8})
    style.log_axis(ax.xaxis, low, high, "bytes", base=2, step=4)
    style.log_axis(ax.yaxis, 0.9, 40.0, "count", base=2)
    for name, _, colour in _CONTENDERS:
        ax.plot(nbytes, ratios[name], color=colour, linewidth=LINE, label=name)
    ax.set_xlabel("message S")
    ax.set_ylabel("time / time of the fastest")
    ring_at_best = float(ratios["ring"].min())
    style.title(
        ax,
        f"{n_ranks} ranks: first {', then '.join(winners)}\n"
        f"(the ring comes within {ring_at_best:.3f} times of the fastest)",
    )
    style.legend(ax, loc="upper center")
    return {
        "nbytes": nbytes,
        "ratios": ratios,
        "winners": winners,
        "ring_at_best": ring_at_best,
    }


_SHORT = {"ring": "the ring", "binomial_tree": "the tree", "naive": "naive"}

# The order settles ties: with two ranks some of these are the same algorithm.
_CONTENDERS = (
    ("recursive doubling", alpha_beta_recursive_doubling_allreduce, style.COMPUTE),
    ("halving-doubling", alpha_beta_halving_doubling_allreduce, style.THIRD),
    ("ring", alpha_beta_ring_allreduce, style.COMMUNICATION),
    ("binomial tree", alpha_beta_tree_allreduce, style.ALTERNATIVE),
)


def _nics(count: int) -> str:
    return "1 NIC" if count == 1 else f"{count} NICs"


def _mark(ax: Axes, x: float, y: float, text: str, offset: tuple[float, float] = (8, -12)) -> None:
    """Put a dot on a point that the text names, and drop a line to the size axis.

    The text starts at the offset (in points) if that is to the right, and ends there else.
    """
    bottom = ax.get_ylim()[0]
    ax.plot([x, x], [bottom, y], color=style.INK, linestyle=":", linewidth=1.2)
    ax.plot([x], [y], "o", color=style.INK, markersize=6)
    if text:
        ax.annotate(
            text,
            (x, y),
            xytext=offset,
            textcoords="offset points",
            horizontalalignment="left" if offset[0] > 0 else "right",
            color=style.INK,
            fontsize=style.FONT_SIZE - 1,
        )
