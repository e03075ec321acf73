"""One look for every figure of the book.

Three colours carry meaning (compute, communication, wait); ink, muted ink, grid and paper
are placeholders that the built page replaces by its own colours, so that a figure is
readable in light and in dark mode. The three colours come from the Okabe-Ito palette,
which is chosen to stay apart for colour-blind readers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from commlab.units import format_bytes, format_rate, format_seconds

COMPUTE = "#0a7d5c"
COMMUNICATION = "#d55e00"
WAIT = "#8a8f98"
# A second and third curve of communication, when one figure compares algorithms.
ALTERNATIVE = "#2a78c2"
THIRD = "#b8519a"

INK = "#1f2328"
MUTED = "#5b6570"
GRID = "#d9dde2"
PAPER = "#ffffff"

FIGURE_SIZE = (5.6, 3.5)
FONT_SIZE = 10.5
POINTS_PER_INCH = 72
# From the axes down to the top of the x label: tick labels are in between.
X_LABEL_POINTS = 21
# From the left edge of the figure to the right side of the y label.
Y_LABEL_POINTS = 17


def single_axes(
    fig: Figure,
    *,
    left: float = 0.14,
    right: float = 0.97,
    bottom: float = 0.16,
    top: float = 0.87,
) -> Axes:
    """Add one plot area with fixed margins (constrained layout costs 0.7 s a frame)."""
    ax = fig.add_axes((left, bottom, right - left, top - bottom))
    dress(ax)
    # Fixed places spare matplotlib a second measurement of all tick labels.
    width, height = (side * POINTS_PER_INCH for side in fig.get_size_inches())
    ax.xaxis.set_label_coords(0.5, -X_LABEL_POINTS / ((top - bottom) * height))
    ax.yaxis.set_label_coords((Y_LABEL_POINTS - left * width) / ((right - left) * width), 0.5)
    return ax


def dress(ax: Axes) -> None:
    """Give a plot area the book's ink, grid and font sizes."""
    ax.set_facecolor(PAPER)
    ax.grid(True, color=GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    for name, spine in ax.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(MUTED)
    # The grid marks the ticks; their own little lines would cost a tenth of a frame.
    ax.tick_params(colors=INK, labelsize=FONT_SIZE - 1, left=False, bottom=False, pad=5)
    ax.xaxis.label.set(color=INK, fontsize=FONT_SIZE)
    ax.yaxis.label.set(color=INK, fontsize=FONT_SIZE)
    ax.title.set(color=INK, fontsize=FONT_SIZE + 0.5)


def title(ax: Axes, message: str) -> None:
    """Set a title that states what the figure shows, flush left."""
    # A fixed y spares matplotlib a search for overlaps, a sixth of a frame.
    ax.set_title(message, loc="left", y=1.0, color=INK, fontsize=FONT_SIZE + 0.5)


def legend(ax: Axes, **options: object) -> None:
    """A legend without a frame, in the book's ink."""
    ax.legend(frameon=False, labelcolor=INK, fontsize=FONT_SIZE - 1, **options)


def log_axis(axis: Axis, low: float, high: float, kind: str, base: int = 10, step: int = 1) -> None:
    """Make an axis logarithmic with fixed, plainly labelled ticks.

    Parameters
    ----------
    axis : matplotlib.axis.Axis
        ``ax.xaxis`` or ``ax.yaxis``.
    low, high : float
        Limits, both above zero.
    kind : {"bytes", "seconds", "rate", "count"}
        How a tick is printed.
    base : {2, 10}
        Ticks stand at powers of this base.
    step : int
        Every how many powers a tick stands.

    Notes
    -----
    Minor ticks are left out: matplotlib's search for them costs 0.3 s a frame.
    """
    formatter = _FORMATTERS[kind]
    ax = axis.axes
    if axis.axis_name == "x":
        ax.set_xscale("log", base=base)
        ax.set_xlim(low, high)
    else:
        ax.set_yscale("log", base=base)
        ax.set_ylim(low, high)
    first = math.ceil(math.log(low, base) - 1e-9)
    last = math.floor(math.log(high, base) + 1e-9)
    axis.set_major_locator(FixedLocator([float(base) ** k for k in range(first, last + 1, step)]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: formatter(value)))


def round_ticks(axis: Axis, high: float, kind: str, length: float | None = None) -> None:
    """Put about four ticks at round values between 0 and a largest value.

    Parameters
    ----------
    axis : matplotlib.axis.Axis
        A linear axis that starts at 0.
    high : float
        The largest value, in the unit of `kind`.
    kind : {"bytes", "seconds", "rate", "count"}
        How a tick is printed.
    length : float, optional
        Where `high` lies on the axis, if the axis has another scale than the values.
    """
    values = MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]).tick_values(0.0, high)
    values = [float(value) for value in values if 0 <= value <= high * (1 + 1e-9)]
    scale = 1.0 if length is None else length / high
    texts = [_FORMATTERS[kind](value) if value else "0" for value in values]
    axis.set_ticks([scale * value for value in values], texts)


_FORMATTERS: dict[str, Callable[[float], str]] = {
    "bytes": format_bytes,
    "seconds": format_seconds,
    "rate": format_rate,
    "count": "{:g}".format,
}
