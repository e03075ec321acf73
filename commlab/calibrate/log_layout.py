"""Which column of a row holds what: from the line of titles, or from how such rows look."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from commlab.calibrate.log_tokens import DTYPE_BYTES, kind_of, number

FULL, HALF = 2, 1
_MOST_COLUMNS = 60

_SAME_TITLES = {
    "bytes": "size",
    "size(b)": "size",
    "msgsize": "size",
    "n": "count",
    "elements": "count",
    "count(elements)": "count",
    "dtype": "type",
    "datatype": "type",
    "op": "redop",
    "cputime": "time",
    "time(us)": "time",
    "time(ms)": "time",
    "time(s)": "time",
    "algobw": "algbw",
    "algbw(gb/s)": "algbw",
    "busbw(gb/s)": "busbw",
    "#wrong": "wrong",
    "errors": "error",
    "res": "error",
}
_COLUMNS = ("size", "count", "type", "redop", "root", "timestamp")
_OF_A_HALF = ("time", "algbw", "busbw", "wrong", "error")
_FITS = {
    "size": "i",
    "count": "i",
    "type": "tw",
    "redop": "ow",
    "root": "ia",
    "time": "ina",
    "algbw": "ina",
    "busbw": "ina",
    "wrong": "ina",
    "error": "ina",
    "date": "d",
    "clock": "h",
    "other": "inatowdh",
}


class Layout(NamedTuple):
    """One name for each word of a row; ``time0`` is out-of-place, ``time1`` in-place.

    ``guessed`` says that the titles name other columns: the numbers have to agree with these.
    """

    columns: tuple[str, ...]
    quality: int
    guessed: bool = False


def columns_of_titles(words: list[str]) -> tuple[str, ...] | None:
    """Return the columns that a line of titles names, or None if it is no such line."""
    if len(words) > _MOST_COLUMNS:
        return None
    names: list[str] = []
    half = -1
    for word in words:
        title = word.lower().strip("|,:")
        if title in ("#", ""):
            continue
        title = _SAME_TITLES.get(title, _SAME_TITLES.get(title.lstrip("#"), title.lstrip("#")))
        if title in _OF_A_HALF:
            # A half begins with whatever of it is named for the second time.
            if half < 0 or f"{title}{half}" in names:
                half += 1
            names.append(f"{title}{half}" if half < 2 else "other")
        elif title == "timestamp":
            names += ["date", "clock"]
        else:
            names.append(title if title in _COLUMNS and title not in names else "other")
    if "size" in names and "time0" in names and len(names) >= 3:
        return tuple(names)
    return None


def layouts(titles: tuple[str, ...] | None, kinds: str, gap: bool) -> list[Layout]:
    """Return the layouts that a row of these kinds may have, the likeliest first.

    Parameters
    ----------
    titles : tuple of str or None
        What `columns_of_titles` read; None where the log has no titles.
    kinds : str
        The kind of each word, of `log_tokens.kind_of`.
    gap : bool
        The row has a hole as wide as the out-of-place half.
    """
    options = _titled(titles, gap) if titles else _untitled(kinds, gap)
    found = []
    for columns, quality in options:
        missing = len(kinds) - len(columns)
        if 0 < missing <= 12 and quality == FULL and titles:
            columns = columns + ("other",) * missing
        if len(columns) == len(kinds) and _fits(columns, kinds):
            as_titled = not titles or quality < FULL or columns[: len(titles)] == titles
            found.append(Layout(columns, quality, not as_titled))
    if titles and not found and "t" in kinds:
        found = [Layout(one.columns, HALF, True) for one in layouts(None, kinds, gap)]
    return found


def numbers_agree(layout: Layout, tokens: list[str], microseconds: float | None) -> bool:
    """Tell whether size, time and algbw of a row may stand where a layout has them.

    Parameters
    ----------
    layout : Layout
    tokens : list of str
        The words of the row.
    microseconds : float or None
        The unit of the time column; None where the time is not that of the rate (-C 1).
    """
    values = {
        column: number(word)
        for column, word in zip(layout.columns, tokens, strict=True)
        if kind_of(word) in "in"
    }
    half = "0" if "time0" in layout.columns else "1"
    nbytes, time = values.get("size"), values.get("time" + half)
    if not nbytes or not time or not nbytes[0]:
        return True
    if not 0 < time[0] < math.inf:
        return False
    algbw = values.get("algbw" + half)
    if not algbw or not microseconds:
        return True
    gigabytes = nbytes[0] / (time[0] * microseconds) / 1e3
    # Old versions count (N−1)/N of the size: at least half.
    return gigabytes / 2.1 - algbw[1] <= algbw[0] <= 1.1 * gigabytes + algbw[1]


def size_over_count(layout: Layout, tokens: list[str]) -> float | None:
    """Return size over count times width: a whole number, 1 or N; None if nobody can know."""
    values = dict(zip(layout.columns, tokens, strict=True))
    width = DTYPE_BYTES.get(values.get("type", "").lower())
    if not width or "count" not in values or "size" not in values:
        return None
    nbytes, count = number(values["size"])[0], number(values["count"])[0]
    return nbytes / (count * width) if count else None


def _fits(columns: tuple[str, ...], kinds: str) -> bool:
    return all(
        kind in _FITS[column.rstrip("01")] for column, kind in zip(columns, kinds, strict=True)
    )


def _titled(titles: tuple[str, ...], gap: bool) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield what the row may be: as titled, with blank labels, with one half, or cut off."""
    labels = list(_labels_as_printed(titles))
    named = next((at for at, column in enumerate(titles) if column != "other"), 0)
    if named:  # what stands before the titles and not before the rows: a label, a quotation mark
        labels += list(_labels_as_printed(titles[named:]))
    for columns in labels:
        yield columns, FULL
    if "time1" in titles:
        for keep in "10" if gap else "01":
            drop = "0" if keep == "1" else "1"
            for columns in labels:
                yield tuple(_one_half(columns, drop)), HALF
    for columns in labels:
        enough = columns.index("busbw0") + 1 if "busbw0" in columns else len(columns)
        for end in range(len(columns) - 1, enough - 1, -1):
            yield columns[:end], HALF


def _labels_as_printed(titles: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the titles, then with labels left out that some versions leave blank."""
    yield titles
    for blank in (
        {"redop"},
        {"root"},
        {"redop", "root"},
        {"type"},
        {"type", "redop"},
        {"type", "redop", "root"},
        {"date", "clock"},
    ):
        if blank <= set(titles):
            yield tuple(column for column in titles if column not in blank)
    if "redop" not in titles and "type" in titles:
        after = titles.index("type") + 1
        yield (*titles[:after], "redop", *titles[after:])


def _one_half(columns: tuple[str, ...], drop: str) -> Iterator[str]:
    """Leave out one half, with what stands between its columns and the next half."""
    dropping = False
    for column in columns:
        if column[-1] in "01":
            dropping = column[-1] == drop
        elif column != "other":
            dropping = False
        if not dropping:
            yield column


_HALF_4 = ("time", "algbw", "busbw", "wrong")
_HALF_3 = ("time", "algbw", "busbw")
_HALF_8 = (*_HALF_4, "other", "other", "other", "other")
_HALF_9 = (*_HALF_8, "other")
_HALF_5 = (*_HALF_4, "other")
_HALVES = (_HALF_4, _HALF_3, _HALF_8, _HALF_5, _HALF_9)
_LABELS = (
    ("size", "count", "type", "redop", "root"),
    ("size", "count", "type", "redop"),
    ("size", "count", "type", "root"),
    ("size", "count", "type"),
    ("size", "count"),
    ("size",),
)


def _untitled(kinds: str, gap: bool) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the layouts of all versions that have as many words."""
    stamp = ("date", "clock") if kinds.endswith("dh") else ()
    for labels in _LABELS:
        for half in _HALVES:
            yield (*labels, *_numbered(half, "0"), *_numbered(half, "1"), *stamp), FULL
    for labels in _LABELS:
        for half in _HALVES:
            yield (*labels, *_numbered(half, "1" if gap else "0"), *stamp), HALF
    for labels in _LABELS:
        for end in range(len(_CUT_OFF) - 1, len(_HALF_4), -1):
            yield (*labels, *_CUT_OFF[:end]), HALF


def _numbered(half: tuple[str, ...], digit: str) -> tuple[str, ...]:
    return tuple(column if column == "other" else column + digit for column in half)


_CUT_OFF = (*_numbered(_HALF_4, "0"), *_numbered(_HALF_4, "1"))
