"""The figure of the virtual cluster: what was measured beside what was priced."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from matplotlib.figure import Figure

from commlab.figures import style

# Inches for a row, and above and below all of them.
ROW_INCHES, TOP_INCHES, BOTTOM_INCHES = 0.27, 0.4, 0.6
FIGURE_WIDTH = 6.4
# Rows of the next experiment stand further down.
GAP = 0.6
PRICED_WIDTH = 0.62


def figure_size(experiments: Sequence[str]) -> tuple[float, float]:
    """Return width and height in inches that give every time its room."""
    n_places = _places(experiments)[-1] + 1
    return FIGURE_WIDTH, TOP_INCHES + ROW_INCHES * n_places + BOTTOM_INCHES


def measured_and_priced(
    fig: Figure,
    *,
    experiments: Sequence[str],
    names: Sequence[str],
    measured: Sequence[float],
    priced: Sequence[float],
) -> dict[str, object]:
    """Draw each time as a point on the bar of its price, experiment after experiment.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
        Figure to draw on, of `figure_size`.
    experiments, names : sequence of str
        What is compared, and each schedule in it.
    measured, priced : sequence of float
        Seconds.

    Returns
    -------
    dict
        ``labels``; ``measured`` and ``priced`` seconds; ``ratio`` of the two.

    Raises
    ------
    ValueError
        If there is nothing to draw.
    """
    places = _places(experiments)
    ratio = [clock / price for clock, price in zip(measured, priced, strict=True)]
    labels = [f"{one}: {name}" for one, name in zip(experiments, names, strict=True)]
    longest = max(*measured, *priced)

    height = fig.get_size_inches()[1]
    ax = style.single_axes(
        fig, left=0.39, right=0.95, bottom=BOTTOM_INCHES / height, top=1 - TOP_INCHES / height
    )
    ax.barh(places, priced, PRICED_WIDTH, color=style.GRID, label="priced")
    ax.plot(
        measured, places, "o", color=style.COMMUNICATION, markersize=5, label="measured, median"
    )
    ax.set_yticks(places, labels)
    ax.set_ylim(places[-1] + 0.7, -0.7)
    ax.set_xlim(0, 1.05 * longest)
    ax.grid(False, axis="y")
    style.round_ticks(ax.xaxis, longest, "seconds")
    ax.set_xlabel("time T")
    style.legend(ax, loc="upper right")
    style.title(ax, f"The clock says {min(ratio):.2f} to {max(ratio):.2f} times the price")
    return {"labels": labels, "measured": [*measured], "priced": [*priced], "ratio": ratio}


def _places(experiments: Sequence[str]) -> list[float]:
    """Where each row stands, counted from the top, in rows."""
    if not experiments:
        raise ValueError("the figure needs at least one time.")
    places = [0.0]
    for above, this in pairwise(experiments):
        places.append(places[-1] + 1 + GAP * (this != above))
    return places
