"""Draw into a file: what the command line's ``--plot`` does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

KINDS = (".png", ".svg", ".pdf")
DOTS_PER_INCH = 150


def check_plot_path(path: Path) -> None:
    """Say what would keep a figure from being written there; call it before long work.

    Raises
    ------
    ValueError
        If the name has no suffix of `KINDS`, or if its folder is missing.
    """
    if path.suffix.lower() not in KINDS:
        raise ValueError(f"--plot {path}: name a file that ends in {', '.join(KINDS)}.")
    if not path.parent.is_dir():
        raise ValueError(f"--plot {path}: there is no folder {path.parent}: make it first.")


def save_figure(
    path: Path, draw: Callable[..., Any], size: tuple[float, float], **data: Any
) -> None:
    """Call a draw function on a figure of ``size`` inches and write it to a file.

    Parameters
    ----------
    path : Path
        Its suffix says the kind of file.
    draw : callable
        ``draw(fig, **data)``, as all of :mod:`commlab.figures` are.
    size : tuple of float
        Width and height in inches.
    """
    figure = Figure(figsize=size, dpi=DOTS_PER_INCH)
    draw(figure, **data)
    figure.savefig(path)
