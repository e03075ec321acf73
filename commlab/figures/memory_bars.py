"""Stacked bars of memory beside what one GPU has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from commlab.figures import style
from commlab.units import GIB, format_bytes

# Longer bars leave the picture: what matters is on which side of the memory a bar ends.
LONGEST = 200 * GIB
SMALL = style.FONT_SIZE - 1.5


def memory_bars(
    ax: Axes,
    names: Sequence[str],
    parts: Mapping[str, tuple[str, Sequence[float]]],
    memory: float,
) -> list[float]:
    """Draw one horizontal bar for each name, its parts stacked, its total at the right.

    Parameters
    ----------
    ax : Axes
        Drawn into; the totals stand to the right of it.
    names : sequence of str
        One for each bar, from above.
    parts : mapping of str to (colour, sequence of float)
        By label the colour and the bytes in each bar.
    memory : float
        Bytes that a GPU has: a dashed line; totals that fit are in bold.

    Returns
    -------
    list of float
        Total bytes of each bar.
    """
    rows = range(len(names))
    start = [0.0] * len(names)
    for label, (colour, sizes) in parts.items():
        ends = [min(LONGEST, low + size) for low, size in zip(start, sizes, strict=True)]
        widths = [end - low for low, end in zip(start, ends, strict=True)]
        ax.barh(rows, widths, left=start, height=0.64, color=colour, label=label)
        start = ends
    ax.axvline(memory, color=style.INK, linewidth=1.4, linestyle="--")
    totals = [sum(each) for each in zip(*(sizes for _, sizes in parts.values()), strict=True)]
    for row, total in zip(rows, totals, strict=True):
        beyond = " →" if total > LONGEST else ""
        ax.annotate(
            f"{format_bytes(total)}{beyond}",
            (1.0, row),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=style.INK,
            fontsize=SMALL,
            fontweight="bold" if total <= memory else "normal",
        )
    ax.set_xlim(0, LONGEST)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_yticks(list(rows), names)
    ax.set_xticks([50 * GIB * k for k in range(5)], ["0", *(f"{50 * k} GiB" for k in range(1, 5))])
    return totals
