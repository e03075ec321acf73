"""No figure of the book draws text outside of its canvas, and none lacks a letter."""

from __future__ import annotations

import logging
import warnings

import matplotlib as mpl
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from commlab.explore import Explorer
from commlab.explore.render import FIGURE_RC
from tests.notebook_explorers import NOTEBOOKS, explorers_of

# Two pages start real processes; their figures are drawn in tests of their own and by the build.
PAGES = [path for path in NOTEBOOKS if not path.stem.startswith(("06", "measure"))]
# Letters may be a little wider than in DejaVu Sans where a browser has another font.
MARGIN_PIXELS = 2.0


def end_states(explorer: Explorer) -> set[tuple[int, ...]]:
    """The start state, and those with one knob at an end."""
    states = {explorer.start}
    for position, knob in enumerate(explorer.knobs.values()):
        for stop in (0, len(knob) - 1):
            states.add(explorer.start[:position] + (stop,) + explorer.start[position + 1 :])
    return states


def texts_at_the_edge(fig: Figure, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Draw the figure; return the texts that touch its edges, or a tick label."""
    drawn: list[Text] = []
    draw = Text.draw

    def note_and_draw(text: Text, renderer: object) -> None:
        drawn.append(text)
        draw(text, renderer)

    canvas = FigureCanvasAgg(fig)
    # A tick outside of the limits has a label, too, which is never drawn.
    with monkeypatch.context() as patch:
        patch.setattr(Text, "draw", note_and_draw)
        canvas.draw()
    width, height = canvas.get_width_height()
    collisions = [
        f"{label.get_text()} on {tick.get_text()}"
        for ax in fig.axes
        for label, ticks in (
            (ax.yaxis.label, ax.yaxis.get_ticklabels()),
            (ax.xaxis.label, ax.xaxis.get_ticklabels()),
        )
        for tick in ticks
        if label.get_text() and tick in drawn and tick.get_text()
        # Another font may be a little wider: boxes keep a distance.
        if label.get_window_extent().padded(MARGIN_PIXELS).overlaps(tick.get_window_extent())
    ]
    at_the_edge = []
    for text in drawn:
        box = text.get_window_extent()
        inside = MARGIN_PIXELS <= box.x0 and box.x1 <= width - MARGIN_PIXELS
        inside = inside and MARGIN_PIXELS <= box.y0 and box.y1 <= height - MARGIN_PIXELS
        if text.get_visible() and text.get_text().strip() and not inside:
            at_the_edge.append(text.get_text())
    return at_the_edge + collisions


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_text_is_inside_and_has_its_letters(path, caplog, monkeypatch):
    caplog.set_level(logging.WARNING, logger="matplotlib")
    faults = {}
    with warnings.catch_warnings(), mpl.rc_context(FIGURE_RC):
        warnings.simplefilter("error")  # a missing glyph is a warning, in mathtext a log record
        for explorer in explorers_of(path):
            for state in end_states(explorer):
                fig = Figure(figsize=explorer.figsize, dpi=100)
                explorer.bound_draw(fig, **explorer.params(state))
                at_the_edge = texts_at_the_edge(fig, monkeypatch)
                if at_the_edge:
                    faults[explorer.title[0], state] = at_the_edge
    assert faults == {}
    assert caplog.records == []
