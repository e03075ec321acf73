"""One draw function and its knobs, shown live, on the built page, or for comparison."""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from IPython.display import display

from commlab.explore import cache
from commlab.explore.knob import Knob, text_pair
from commlab.explore.render import Draw, Frame, render_png, render_svg
from commlab.explore.static import static_html
from commlab.figures import style

MAX_KNOBS = 3
MAX_STATES = 400
MODES = ("live", "static", "check")
STORED_DPI = 100

# Every explorer shown in this process, in order: how a test reaches those of a notebook.
displayed: list[Explorer] = []


class DrawError(RuntimeError):
    """A state of an explorer cannot be drawn, or its picture does not follow a knob."""


class Explorer:
    """A picture that follows its knobs; `explore` and `figure` make one.

    The environment variable COMMLAB_EXPLORE chooses how it is shown:

    - ``live`` (default): sliders that redraw an image in the kernel;
    - ``static``: every state drawn now and embedded, for the built book;
    - ``check``: the start state and its key numbers, for stored notebook outputs.

    Attributes
    ----------
    draw : callable
        ``draw(fig, **params) -> dict`` of the plotted data.
    knobs : dict of Knob
        By parameter name; a state is one index for each knob, in this order.
    fixed : dict
        Parameters that no knob changes.
    play : bool
        Whether a button runs the first knob from end to end.
    """

    def __init__(
        self,
        draw: Draw,
        *,
        title: tuple[str, str],
        alt: tuple[str, str],
        figsize: tuple[float, float] = style.FIGURE_SIZE,
        knobs: Mapping[str, Knob] | None = None,
        fixed: Mapping[str, Any] | None = None,
        play: bool = False,
    ) -> None:
        self.draw = draw
        self.title = text_pair(title, "an explorer's title")
        self.alt = text_pair(alt, "an explorer's alt text")
        self.figsize = figsize
        self.knobs = dict(knobs or {})
        self.fixed = dict(fixed or {})
        self.play = play
        self.bound_draw = functools.partial(draw, **self.fixed)
        self._check_knobs()
        identity = (getattr(draw, "__name__", ""), self.title, self.alt)
        self.salt = hashlib.sha256(repr(identity).encode()).hexdigest()[:8]

    def _check_knobs(self) -> None:
        fixed = dict(self.fixed)
        if isinstance(self.draw, functools.partial):
            fixed |= self.draw.keywords
        for name, knob in self.knobs.items():
            if name in fixed:
                raise ValueError(
                    f'the explorer "{self.title[0]}" has both a knob and a fixed value for '
                    f"{name}: leave out one of them."
                )
            if not isinstance(knob, Knob):
                raise TypeError(
                    f"{name}={knob!r} is not a Knob: write {name}=Knob([...]), or fix the "
                    "value with functools.partial."
                )
        if self.play and not self.knobs:
            raise ValueError(
                f'the explorer "{self.title[0]}" has no knob that could play: give it one, or '
                "leave out play."
            )
        if len(self.knobs) > MAX_KNOBS:
            raise ValueError(
                f'the explorer "{self.title[0]}" has {len(self.knobs)} knobs: states multiply, '
                f"so keep to {MAX_KNOBS} and put the next quantity on the x axis."
            )
        n_states = math.prod(map(len, self.knobs.values()))
        if n_states > MAX_STATES:
            raise ValueError(
                f'the explorer "{self.title[0]}" has {n_states} states, more than {MAX_STATES}: '
                "give a knob fewer stops."
            )

    @property
    def start(self) -> tuple[int, ...]:
        """The state a reader sees first."""
        return tuple(knob.index for knob in self.knobs.values())

    def states(self) -> list[tuple[int, ...]]:
        """All states; the last knob changes fastest."""
        return list(itertools.product(*(range(len(knob)) for knob in self.knobs.values())))

    def params(self, state: Sequence[int]) -> dict[str, Any]:
        """The knobs' values in a state."""
        return {
            name: knob.values[index]
            for (name, knob), index in zip(self.knobs.items(), state, strict=True)
        }

    def describe(self, state: Sequence[int]) -> str:
        """Print a state as a reader sees it, e.g. ``'N=8, α=5 µs'``."""
        return ", ".join(
            f"{name}={knob.texts[index]}"
            for (name, knob), index in zip(self.knobs.items(), state, strict=True)
        )

    def frame(self, state: Sequence[int]) -> Frame:
        """Draw one state as SVG.

        Raises
        ------
        DrawError
            If draw raises or returns something that is not finite data; the message
            names the explorer and the state.
        """
        try:
            return render_svg(self.bound_draw, self.params(state), self.figsize, self.salt)
        except Exception as error:
            raise self._draw_error(state, error) from error

    def frames(self) -> list[Frame]:
        """All states as SVG, from the render cache if nothing has changed.

        Raises
        ------
        DrawError
            If a state cannot be drawn, if the start state is not the same when drawn again,
            if moving a knob by one stop from the start state leaves the picture as it was,
            or if the data are equal at a knob's two ends.
        """
        values = {name: knob.values for name, knob in self.knobs.items()}
        key = cache.frames_key(self.draw, self.fixed, values, self.figsize, self.salt)
        frames = cache.load(key, len(self.states())) if key else None
        if frames is None:
            frames = [self.frame(state) for state in self.states()]
            self._check_repeatable(frames[self.states().index(self.start)])
            if key:
                cache.store(key, frames)
        self._check_response(dict(zip(self.states(), frames, strict=True)))
        return frames

    def _check_repeatable(self, first: Frame) -> None:
        if self.frame(self.start) != first:
            raise DrawError(
                f'the explorer "{self.title[0]}" cannot be drawn in advance, since draw gives '
                "another picture the second time: it must depend on its arguments only and "
                "leave them as they are; make random generators inside it, with a seed."
            )

    def _check_response(self, frames: Mapping[tuple[int, ...], Frame]) -> None:
        for position, (name, knob) in enumerate(self.knobs.items()):
            line = [
                frames[self.start[:position] + (stop,) + self.start[position + 1 :]]
                for stop in range(len(knob))
            ]
            for stop, (here, there) in enumerate(itertools.pairwise(line)):
                if here.svg == there.svg:
                    raise DrawError(
                        f'the explorer "{self.title[0]}" draws the same picture at '
                        f"{name}={knob.texts[stop]} and {name}={knob.texts[stop + 1]}: "
                        "a reader would think that the slider is broken."
                    )
            if line[0].data == line[-1].data:
                raise DrawError(
                    f'the explorer "{self.title[0]}" returns the same data at both ends of '
                    f"{name}: return the numbers that this knob changes."
                )

    def png(self, state: Sequence[int], dpi: int) -> tuple[bytes, dict[str, Any]]:
        """Draw one state as PNG; returns the file's bytes and the plotted data.

        Raises
        ------
        DrawError
            As `frame` does.
        """
        try:
            return render_png(self.bound_draw, self.params(state), self.figsize, dpi)
        except Exception as error:
            raise self._draw_error(state, error) from error

    def _draw_error(self, state: Sequence[int], error: Exception) -> DrawError:
        where = self.describe(state) or "its only state"
        return DrawError(
            f'the explorer "{self.title[0]}" cannot draw {where}: {type(error).__name__}: {error}'
        )

    def summary(self, data: Mapping[str, Any]) -> str:
        """Number of states, start state and key numbers, in one line of text each."""
        if self.knobs:
            start = self.describe(self.start)
            head = f'Explorer "{self.title[0]}": {len(self.states())} states; {start}'
        else:
            head = f'Figure "{self.title[0]}"'
        return "\n".join([head, *_key_numbers(data)])

    def _ipython_display_(self) -> None:
        """Show it; ipywidgets 7 has no mime bundle of its own, so this hook is the one way."""
        mode = os.environ.get("COMMLAB_EXPLORE") or "live"
        if mode not in MODES:
            raise ValueError(f"COMMLAB_EXPLORE={mode!r} is unknown: use {', '.join(MODES)}.")
        displayed.append(self)
        if mode == "static":
            anchor = f"explore-{self.salt}-{len(displayed)}"
            html = static_html(self, self.frames(), anchor)
            display({"text/html": html, "text/plain": self.title[0]}, raw=True)
        elif mode == "live" and self.knobs:
            # Imported here: a page without widgets, and the book build, do without them.
            from commlab.explore.live import live_widget

            display(live_widget(self))
        else:
            self._display_start()

    def _display_start(self) -> None:
        picture, data = self.png(self.start, STORED_DPI)
        for end in self._ends():
            self.png(end, STORED_DPI)
        encoded = base64.b64encode(picture).decode()
        bundle = {"image/png": encoded, "text/plain": self.summary(data)}
        display(bundle, raw=True, metadata={"image/png": {"alt": " · ".join(self.alt)}})

    def _ends(self) -> list[tuple[int, ...]]:
        """The states with one knob at either end and the others at the start."""
        return [
            self.start[:position] + (stop,) + self.start[position + 1 :]
            for position, knob in enumerate(self.knobs.values())
            for stop in (0, len(knob) - 1)
        ]


def explore(
    draw: Draw,
    *,
    title: tuple[str, str],
    alt: tuple[str, str],
    figsize: tuple[float, float] = style.FIGURE_SIZE,
    **knobs: Knob,
) -> Explorer:
    """Make a picture that follows sliders.

    Parameters
    ----------
    draw : callable
        ``draw(fig, **params) -> dict``: draws on a matplotlib Figure and returns the
        plotted data. Fixed parameters go in with `functools.partial`.
    title, alt : tuple of str
        Title and description for readers who cannot see it, in English and Chinese.
    figsize : tuple of float
        Width and height in inches.
    **knobs : Knob
        At most three; their states multiply to at most 400.

    Raises
    ------
    TypeError, ValueError
        If a knob, a title or the number of states is wrong; the message says how to
        mend it.
    """
    return Explorer(draw, title=title, alt=alt, figsize=figsize, knobs=knobs)


def figure(
    draw: Draw,
    *,
    title: tuple[str, str],
    alt: tuple[str, str],
    figsize: tuple[float, float] = style.FIGURE_SIZE,
    **params: Any,
) -> Explorer:
    """Make a picture without sliders; `params` are passed to `draw`."""
    return Explorer(draw, title=title, alt=alt, figsize=figsize, fixed=params)


def _key_numbers(data: Mapping[str, Any], prefix: str = "") -> list[str]:
    lines = []
    for key, value in data.items():
        if isinstance(value, Mapping):
            lines += _key_numbers(value, f"{prefix}{key}.")
        else:
            lines.append(f"{prefix}{key} = {_summarise(value)}")
    return lines


def _summarise(value: Any) -> str:
    if isinstance(value, list):
        numbers = list(_numbers(value))
        if not numbers:
            return f"list of {len(value)}"
        return f"list of {len(value)}, {min(numbers):.6g} to {max(numbers):.6g}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def _numbers(value: Any) -> Any:
    """All numbers inside nested lists."""
    for item in value:
        if isinstance(item, list):
            yield from _numbers(item)
        elif isinstance(item, (int, float)):
            yield item
