"""A knob: a short, finite list of values that a reader can set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any


def _plain_text(value: Any) -> str:
    """Print a value without a unit; a knob whose value has a unit brings its own format."""
    return f"{value:g}" if isinstance(value, float) else str(value)


class Knob:
    """The stops of one slider.

    A knob is finite so that the same stops exist in a notebook, where a kernel draws on
    demand, and on the built page, where every state was drawn beforehand.

    Parameters
    ----------
    values : sequence
        The stops, at least two, from left to right.
    value : object, optional
        The stop a reader starts at; by default the middle one.
    label : tuple of str
        What the knob changes, in English and in Chinese.
    format : callable, optional
        ``value -> str`` with the unit, for instance ``units.format_bytes``.

    Raises
    ------
    ValueError
        If there are fewer than two stops, the start is not among them, or two stops
        would be shown by the same text.
    TypeError
        If the label is not a pair of texts, values is no sequence, or format is no
        function that returns a text.
    """

    def __init__(
        self,
        values: Sequence[Any],
        value: Any = None,
        label: tuple[str, str] = ("", ""),
        format: Callable[[Any], str] | None = None,
    ) -> None:
        self.label = text_pair(label, "a knob's label")
        if not isinstance(values, Iterable):
            raise TypeError(
                f"the knob {self.label[0]!r} needs a list of stops, got {values!r}: pass a "
                "single value with functools.partial."
            )
        self.values = list(values)
        write = format or _plain_text
        if not callable(write):
            raise TypeError(
                f"the format of the knob {self.label[0]!r} must be a function, such as "
                f"'{{:d}} ranks'.format, got {write!r}."
            )
        self.texts = [write(stop) for stop in self.values]
        for text in self.texts:
            if not isinstance(text, str):
                raise TypeError(
                    f"the format of the knob {self.label[0]!r} must return a text, got {text!r}."
                )
        if len(self.values) < 2:
            raise ValueError(
                f"the knob {self.label[0]!r} has {len(self.values)} stop(s): "
                "give at least two values, or pass a fixed value with functools.partial."
            )
        doubled = sorted({text for text in self.texts if self.texts.count(text) > 1})
        if doubled:
            raise ValueError(
                f"the knob {self.label[0]!r} shows two stops as {doubled[0]!r}: "
                "give it a format with more digits."
            )
        if value is None:
            self.index = len(self.values) // 2
        elif value in self.values:
            self.index = self.values.index(value)
        else:
            raise ValueError(
                f"the knob {self.label[0]!r} cannot start at {value!r}: choose one of its "
                f"stops {', '.join(self.texts)}."
            )

    def __len__(self) -> int:
        return len(self.values)


def text_pair(pair: tuple[str, str], what: str) -> tuple[str, str]:
    """Check an (English, Chinese) pair of texts and return it as a tuple.

    Raises
    ------
    TypeError
        If it is anything else than two non-empty strings.
    """
    if (
        not isinstance(pair, (tuple, list))
        or len(pair) != 2
        or not all(isinstance(text, str) and text for text in pair)
    ):
        raise TypeError(f'{what} must be a pair ("English", "中文"), got {pair!r}.')
    return pair[0], pair[1]
