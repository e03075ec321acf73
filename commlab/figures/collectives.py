"""Figures of §2: who sends how much to whom."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from commlab.algorithms import REGISTRY
from commlab.figures import style
from commlab.ledger import ledger

# What a reader chooses from, with the registry key behind it.
PATTERNS: dict[str, tuple[str, str]] = {
    "all-reduce, naive": ("all_reduce", "naive"),
    "all-reduce, ring": ("all_reduce", "ring"),
    "reduce-scatter, ring": ("reduce_scatter", "ring"),
    "broadcast, binomial tree": ("broadcast", "binomial_tree"),
    "reduce, binomial tree": ("reduce", "binomial_tree"),
    "all-gather, ring": ("all_gather", "ring"),
    "all-to-all, pairwise": ("all_to_all", "pairwise"),
}
# Side of the matrix in points, a little less than the plot area has.
MATRIX_SIDE = 150.0
# The most that one link carries: a ring's neighbours come near to 2 S.
FULL_CELL = 2.0


def draw_traffic(
    fig: Figure, pattern: str = "all-reduce, ring", n_ranks: int = 4
) -> dict[str, object]:
    """Draw a collective as a matrix: row sends to column.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
        Figure to draw on.
    pattern : str
        A key of `PATTERNS`.
    n_ranks : int
        Number of ranks N.

    Returns
    -------
    dict
        The traffic matrix, what each rank sends and receives (in parts of S), and the
        busiest rank's share as a fraction.
    """
    collective, algorithm = PATTERNS[pattern]
    book = ledger(REGISTRY[collective, algorithm].build(n_ranks))
    matrix = np.zeros((n_ranks, n_ranks))
    for (src, dst), share in book.by_link.items():
        matrix[src, dst] = share

    # Placed by hand: the bars stand beside the rows of the matrix.
    squares = fig.add_axes((0.1, 0.16, 0.45, 0.67))
    _draw_matrix(squares, matrix)
    totals = fig.add_axes((0.63, 0.16, 0.34, 0.67))
    _draw_totals(totals, matrix)
    busiest = max(book.max_sent, book.max_received)
    fig.suptitle(
        f"{pattern}, N = {n_ranks}: the busiest rank moves {busiest} S",
        x=0.03,
        y=0.97,
        ha="left",
        color=style.INK,
        fontsize=style.FONT_SIZE + 0.5,
    )
    return {
        "collective": pattern,
        "N": n_ranks,
        "sent from row to column [S]": matrix,
        "sent by each rank [S]": [str(share) for share in book.sent],
        "received by each rank [S]": [str(share) for share in book.received],
        "most sent [S]": str(book.max_sent),
        "most received [S]": str(book.max_received),
        "links in use": len(book.by_link),
    }


def _draw_matrix(ax: Axes, matrix: np.ndarray) -> None:
    """A square per link in use; its area is the amount that the link carries."""
    style.dress(ax)
    n_ranks = len(matrix)
    cell = MATRIX_SIDE / n_ranks
    # One line of markers per size: a scatter of 240 squares costs a frame twice its time.
    for share in np.unique(matrix[matrix > 0]):
        src, dst = np.nonzero(matrix == share)
        side = cell * np.sqrt(share / FULL_CELL)
        ax.plot(dst, src, linestyle="none", marker="s", markersize=side, color=style.COMMUNICATION)
    # Tick labels are most of the time that a frame takes.
    ticks = list(range(0, n_ranks, 1 if n_ranks <= 6 else 4))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(FixedLocator(ticks))
    ax.set_xlim(-0.5, n_ranks - 0.5)
    ax.set_ylim(n_ranks - 0.5, -0.5)
    ax.set_xlabel("to rank", color=style.INK, fontsize=style.FONT_SIZE)
    ax.set_ylabel("from rank", color=style.INK, fontsize=style.FONT_SIZE)


def _draw_totals(ax: Axes, matrix: np.ndarray) -> None:
    """Bars beside the rows: what each rank sends and receives in all."""
    style.dress(ax)
    n_ranks = len(matrix)
    ranks = np.arange(n_ranks)
    sent, received = matrix.sum(axis=1), matrix.sum(axis=0)
    # Two collections of thick lines: 32 bars, drawn one by one, would double the time.
    thickness = 0.36 * MATRIX_SIDE / n_ranks
    for offset, amount, colour, label in (
        (-0.19, sent, style.COMMUNICATION, "sent"),
        (+0.19, received, style.ALTERNATIVE, "received"),
    ):
        ax.hlines(ranks + offset, 0, amount, color=colour, linewidth=thickness, capstyle="butt")
        # The bars' own thickness would blow up the legend where ranks are few.
        ax.plot([], [], color=colour, linewidth=6, label=label)
    ax.set_xlim(0, 1.05 * max(1.0, sent.max(), received.max()))
    ax.set_ylim(n_ranks - 0.5, -0.5)
    ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    ax.yaxis.set_major_locator(FixedLocator([]))
    ax.set_xlabel("per rank [S]", color=style.INK, fontsize=style.FONT_SIZE)
    # Above the plot area: the bars may fill all of it.
    style.legend(
        ax, loc="lower left", bbox_to_anchor=(-0.03, 0.98), ncol=2, borderpad=0, columnspacing=1
    )
