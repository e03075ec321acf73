"""The explorer in a notebook with a kernel: sliders that redraw one image.

Only core widgets that ipywidgets 7.7 (Colab) and 8 share are used. There is no Output
widget: what a callback prints or raises there is lost to tests and to the book build.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import ipywidgets
from IPython.display import display

from commlab.explore.explorer import DrawError

if TYPE_CHECKING:
    from commlab.explore.explorer import Explorer

LIVE_DPI = 110
PIXELS_PER_INCH = 100
_PLAY_INTERVAL_MS = 1200
_HIDDEN = "position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)"


def live_widget(explorer: Explorer) -> ipywidgets.VBox:
    """Build the sliders and the image; moving a slider redraws the image.

    A draw that raises shows its message in place of the image, and the exception goes
    on to the kernel's log. If it raises at the start state, the sliders are shown all the
    same, so that a reader can move on, before the exception goes on to the cell.
    """
    english, chinese = (escape(text) for text in explorer.title)
    alt = escape(" · ".join(explorer.alt))
    heading = ipywidgets.HTML(
        f'<b>{english} · {chinese}</b><span style="{_HIDDEN}">{alt}</span>',
        layout=ipywidgets.Layout(width="auto"),
    )
    width, height = (round(side * PIXELS_PER_INCH) for side in explorer.figsize)
    # The box keeps its height while the picture changes, so that nothing below it jumps.
    image = ipywidgets.Image(
        format="png",
        layout=ipywidgets.Layout(
            width=f"{width}px", max_width="100%", height="auto", align_self="flex-start"
        ),
    )
    problem = ipywidgets.HTML(layout=ipywidgets.Layout(display="none", min_height=f"{height}px"))
    sliders = [
        ipywidgets.SelectionSlider(
            # Places, not values: the slider would look a value up by comparing.
            options=[(text, place) for place, text in enumerate(knob.texts)],
            index=knob.index,
            description=" · ".join(knob.label),
            style={"description_width": "initial"},
            layout=ipywidgets.Layout(width=f"{width}px", max_width="100%"),
            continuous_update=True,
        )
        for knob in explorer.knobs.values()
    ]

    def redraw(_change: Any = None) -> None:
        try:
            picture, _ = explorer.png([slider.index for slider in sliders], LIVE_DPI)
        except DrawError as error:
            problem.value = (
                "<b>This state cannot be drawn · 这个状态画不出来</b><br>"
                f"<code>{escape(str(error))}</code>"
            )
            image.layout.display = "none"
            problem.layout.display = ""
            raise
        image.value = picture
        image.layout.display = ""
        problem.layout.display = "none"

    for slider in sliders:
        slider.observe(redraw, "value")
    rows: list[ipywidgets.Widget] = list(sliders)
    if explorer.play:
        rows.append(_play(sliders[0], len(sliders[0].options)))
    box = ipywidgets.VBox([heading, *rows, image, problem])
    try:
        redraw()
    except DrawError:
        display(box)
        raise
    return box


def _play(slider: ipywidgets.SelectionSlider, n_stops: int) -> ipywidgets.Play:
    play = ipywidgets.Play(min=0, max=n_stops - 1, step=1, interval=_PLAY_INTERVAL_MS)
    play.value = slider.index
    ipywidgets.link((play, "value"), (slider, "index"))
    return play
