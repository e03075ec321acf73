"""What the figures of §7 share: a headline over two plot areas, and many boxes as one shape."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import ArrayLike

from commlab.figures import style

SMALL = style.FONT_SIZE - 1.5
TIGHT_LEGEND = {"handlelength": 0.9, "handletextpad": 0.4, "columnspacing": 0.9, "borderpad": 0.0}
"""A legend of one row below the axes."""


def headline(fig: Figure, message: str) -> None:
    """Set one title over all plot areas, flush left."""
    size = style.FONT_SIZE + 0.5
    fig.suptitle(message, x=0.03, y=0.96, ha="left", color=style.INK, fontsize=size)


def plot_area(fig: Figure, left: float, width: float, bottom: float = 0.16) -> Axes:
    """Add one of two plot areas that share a headline."""
    ax = fig.add_axes((left, bottom, width, 0.84 - bottom))
    style.dress(ax)
    return ax


def boxes(
    ax: Axes,
    left: ArrayLike,
    bottom: ArrayLike,
    width: ArrayLike,
    height: ArrayLike,
    colour: str,
    line: float = 0.7,
) -> None:
    """Draw boxes of one colour, with lines of paper between them, as a single shape.

    A frame of many patches takes several times as long, and as many bytes on the page.
    """
    x, y, across, up = np.broadcast_arrays(
        *(np.asarray(part, dtype=float) for part in (left, bottom, width, height))
    )
    if x.size == 0:
        return
    corners = np.stack(
        [
            np.stack([x, y], axis=-1),
            np.stack([x + across, y], axis=-1),
            np.stack([x + across, y + up], axis=-1),
            np.stack([x, y + up], axis=-1),
            np.stack([x, y], axis=-1),
        ],
        axis=1,
    )
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * x.size
    shape = Path(corners.reshape(-1, 2), codes)
    ax.add_patch(PathPatch(shape, facecolor=colour, edgecolor=style.PAPER, linewidth=line))
