"""One state of an explorer as a picture: SVG for the built page, PNG for a notebook."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from html import escape
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from commlab.figures import style

Draw = Callable[..., Mapping[str, Any]]

# The page defines these variables for light and for dark; the hexadecimal colour is what
# a reader of the bare SVG gets. Text has its own set: small letters need more contrast
# than lines and areas.
_COLOUR_NAMES = {
    style.INK: "ink",
    style.MUTED: "muted",
    style.GRID: "grid",
    style.PAPER: "paper",
    style.COMPUTE: "compute",
    style.COMMUNICATION: "communication",
    style.WAIT: "wait",
    style.ALTERNATIVE: "alternative",
    style.THIRD: "third",
}
FIGURE_RC = {
    "svg.fonttype": "none",  # letters stay letters: small files, searchable, selectable
    "font.family": ["DejaVu Sans"],
    "font.size": style.FONT_SIZE,
    "text.color": style.INK,
    "axes.labelcolor": style.INK,
    "axes.titlecolor": style.INK,
    "axes.edgecolor": style.MUTED,
    "axes.facecolor": style.PAPER,
    "figure.facecolor": style.PAPER,
    "savefig.facecolor": style.PAPER,
    "xtick.color": style.INK,
    "ytick.color": style.INK,
    "grid.color": style.GRID,
    "hatch.color": style.MUTED,
}
_TAG = re.compile(r"<[^>]*>")
_LONG_NUMBER = re.compile(r"-?\d+\.\d{2,}")
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_HEAD = re.compile(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>')
_DROPPED = re.compile(
    r"<metadata>.*?</metadata>\s*|<!--.*?-->\s*|<defs>\s*<style.*?</style>\s*</defs>\s*", re.DOTALL
)
_NO_TURN = re.compile(r' transform="rotate\(-?0 [^)]*\)"')
_ID = re.compile(r' id="([^"]*)"')
_REFERENCE = re.compile(r"#([A-Za-z_][\w.-]*)")


@dataclass(frozen=True)
class Frame:
    """One drawn state.

    Attributes
    ----------
    svg : str
        The picture.
    message : str
        The titles inside the picture, for readers who cannot see it.
    data : dict
        What `draw` returned, as plain Python numbers, strings, lists and dicts.
    """

    svg: str
    message: str
    data: dict[str, Any]


def render_svg(
    draw: Draw, params: Mapping[str, Any], figsize: tuple[float, float], salt: str
) -> Frame:
    """Draw one state as SVG that follows the page's colours.

    Parameters
    ----------
    draw : callable
        ``draw(fig, **params) -> dict`` of the plotted data.
    params : mapping
        The values of the knobs.
    figsize : tuple of float
        Width and height in inches.
    salt : str
        Keeps the clip paths of two figures on one page apart.
    """
    with mpl.rc_context({**FIGURE_RC, "svg.hashsalt": salt}):
        fig = Figure(figsize=figsize)
        data = plain_data(draw(fig, **params))
        buffer = io.StringIO()
        fig.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        message = _titles(fig)
    return Frame(_slim(buffer.getvalue(), message), message, data)


def render_png(
    draw: Draw, params: Mapping[str, Any], figsize: tuple[float, float], dpi: int
) -> tuple[bytes, dict[str, Any]]:
    """Draw one state as PNG; returns the file's bytes and the plotted data."""
    with mpl.rc_context(FIGURE_RC):
        fig = Figure(figsize=figsize, dpi=dpi)
        data = plain_data(draw(fig, **params))
        buffer = io.BytesIO()
        # No program name in the file: the same picture is the same bytes everywhere.
        # Compression level 3 instead of 6 halves the time of a slider's move.
        fig.savefig(
            buffer, format="png", metadata={"Software": None}, pil_kwargs={"compress_level": 3}
        )
    return buffer.getvalue(), data


def plain_data(data: Any) -> dict[str, Any]:
    """Turn what a draw function returned into plain numbers, strings, lists and dicts.

    Raises
    ------
    TypeError
        If it is not a dict of plotted data, or holds something that is not data.
    ValueError
        If it is empty or a number in it is not finite.
    """
    if not isinstance(data, Mapping):
        raise TypeError(f"draw must return a dict of the plotted data, got {type(data).__name__}.")
    if not data:
        raise ValueError("draw returned an empty dict: return the numbers that it plots.")
    return {key: _plain(value, key) for key, value in _with_text_keys(data).items()}


def _with_text_keys(data: Mapping[Any, Any]) -> dict[str, Any]:
    texts = {str(key): value for key, value in data.items()}
    if len(texts) < len(data):
        raise ValueError(
            f"two keys of the plotted data read the same in {', '.join(map(repr, data))}: "
            "use strings."
        )
    return texts


def _plain(value: Any, where: str) -> Any:
    if value is None or isinstance(value, (bool, str, int)):
        return value
    if isinstance(value, Fraction):
        return float(value)
    # np.longdouble is a number that tolist() leaves as it is.
    if isinstance(value, (float, np.floating)):
        if not math.isfinite(value):
            raise ValueError(f"the plotted data {where!r} holds {value}: plot finite numbers only.")
        return float(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist(), where)
    if isinstance(value, (list, tuple)):
        return [_plain(item, where) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item, f"{where}.{key}") for key, item in _with_text_keys(value).items()}
    raise TypeError(
        f"the plotted data {where!r} holds a {type(value).__name__}: "
        "return numbers, arrays, strings, lists or dicts."
    )


def _titles(fig: Figure) -> str:
    texts = [fig.get_suptitle()]
    for ax in fig.axes:
        texts += [ax.get_title(loc=place) for place in ("left", "center", "right")]
    return " · ".join(" ".join(text.split()) for text in texts if text)


def _slim(svg: str, message: str) -> str:
    """Drop what a page does not need and let the page's variables set the colours."""
    svg = _DROPPED.sub("", svg[svg.index("<svg") :])
    used = set(_REFERENCE.findall(svg))
    svg = _TAG.sub(lambda tag: _slim_tag(tag[0], used), svg)
    svg = re.sub(r"<g>\s*</g>\n?", "", svg)
    svg = _HEAD.sub(lambda head: _head(head[1], message), svg, count=1)
    return "\n".join(line.strip() for line in svg.splitlines())


def _head(view_box: str, message: str) -> str:
    # The line style stands on the root: a <style> element would style the whole page.
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="{view_box}" style="display:block;width:100%;height:auto;'
        f'stroke-linejoin:round;stroke-linecap:butt" data-message="{escape(message)}">'
    )


def _slim_tag(tag: str, used: set[str]) -> str:
    if tag.startswith("<image"):
        return tag
    # Numbered ids differ between states and would spoil the line-wise deduplication.
    tag = _ID.sub(lambda match: match[0] if match[1] in used else "", tag)
    tag = _NO_TURN.sub("", _LONG_NUMBER.sub(_shorten, tag))
    tag = tag.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    suffix = "-text" if tag.startswith(("<text", "<tspan")) else ""
    return _COLOUR.sub(lambda match: _variable(match[0], suffix), tag)


def _shorten(match: re.Match[str]) -> str:
    """Keep a tenth of a point, a hundredth for small numbers such as a marker's shape."""
    number = float(match[0])
    text = f"{number:.2f}" if abs(number) < 10 else f"{number:.1f}"
    text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _variable(colour: str, suffix: str) -> str:
    name = _COLOUR_NAMES.get(colour)
    return f"var(--fig-{name}{suffix}, {colour})" if name else colour
