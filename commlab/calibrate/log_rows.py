"""From the text of rows to numbers: layouts chosen, times and rates read, nonsense refused."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import NamedTuple

from commlab.calibrate.log_fragments import layouts_of
from commlab.calibrate.log_layout import FULL, Layout
from commlab.calibrate.log_parts import Block, Fragment
from commlab.calibrate.log_tokens import number
from commlab.calibrate.records import LogError

# No link, and no NVSwitch, comes near to 100 TB/s for one rank.
FASTEST = 1e14
_MOST_BYTES = 2**60
_ENOUGH_VOTES = 48


class Half(NamedTuple):
    """Out-of-place or in-place: time in s, rates in B/s, each with half its last digit."""

    seconds: float
    seconds_half: float
    algbw: float | None
    algbw_half: float
    busbw: float | None
    busbw_half: float
    n_wrong: int | None
    no_check: bool

    def agrees(self, nbytes: int, slack: float = 2e-3) -> bool:
        """Tell whether algbw is size over time, to the printed digits."""
        if self.algbw is None:
            return True
        fastest = nbytes / max(self.seconds - self.seconds_half, 1e-30)
        slowest = nbytes / (self.seconds + self.seconds_half)
        return slowest * (1 - slack) <= self.algbw + self.algbw_half and (
            self.algbw - self.algbw_half <= fastest * (1 + slack)
        )


class RawRow(NamedTuple):
    """One row as printed."""

    line: int
    nbytes: int
    n_elements: int | None
    dtype: str | None
    redop: str | None
    root: int | None
    out: Half | None
    again: Half | None
    recovered: bool


class ReadRows(NamedTuple):
    """The rows of a block, the lines of zero-size rows, and the rows that fit no layout."""

    rows: list[RawRow]
    zero_size: list[Fragment]
    misfits: list[Fragment]


def read_rows(block: Block) -> ReadRows:
    """Turn the rows of a block into numbers.

    Raises
    ------
    LogError
        ``impossible_rates``.
    """
    layout_of = _choose_layouts(block)
    read = ReadRows([], [], [])
    for fragment in block.rows:
        layout = layout_of[fragment.kinds, fragment.gap]
        row = _read_row(block, fragment, layout) if layout else None
        if row is None:
            read.misfits.append(fragment)
        elif row.nbytes == 0:
            read.zero_size.append(fragment)
        else:
            refuse_impossible(row, block.cpu_time)
            read.rows.append(row)
    return read


def _choose_layouts(block: Block) -> dict[tuple[str, bool], Layout | None]:
    """Choose one layout for all rows that look alike: the one whose numbers agree."""
    alike: dict[tuple[str, bool], list[Fragment]] = defaultdict(list)
    for fragment in block.rows:
        alike[fragment.kinds, fragment.gap].append(fragment)
    chosen: dict[tuple[str, bool], Layout | None] = {}
    for key, fragments in alike.items():
        options = layouts_of(block, fragments[0])
        # Titles say what the columns are; other columns, and bare numbers, have to prove it.
        guessed = not block.titles or (bool(options) and options[0].guessed)
        unlike_titles = bool(options) and options[0].guessed and options[0].quality < FULL
        proof = unlike_titles or (guessed and "t" not in key[0])
        chosen[key] = _elect(block, fragments[:_ENOUGH_VOTES], options, proof)
    return chosen


def _elect(
    block: Block, fragments: list[Fragment], options: list[Layout], proof: bool
) -> Layout | None:
    best, most = None, -math.inf
    for layout in options:
        votes = sum(_vote(block, fragment, layout) for fragment in fragments)
        if votes > most:
            best, most = layout, votes
    return None if proof and most <= 0 else best


def _vote(block: Block, fragment: Fragment, layout: Layout) -> float:
    """Judge a layout by a row: 1 if its rates agree, −1 if not, 0 if they show nothing."""
    row = _read_row(block, fragment, layout)
    half = row and (row.out or row.again)
    if not row or not half or half.seconds <= 0 or not math.isfinite(half.seconds):
        return -1
    votes = 0.0
    if half.algbw is not None and half.algbw > 10 * half.algbw_half:
        votes += 1 if half.agrees(row.nbytes) else -1
    if half.busbw and half.algbw and not 0 < half.busbw <= 2.02 * half.algbw + half.busbw_half:
        votes -= 1
    if row.root is not None and row.root < -1:
        votes -= 1
    return votes


def _read_row(block: Block, fragment: Fragment, layout: Layout) -> RawRow | None:
    values = dict(zip(layout.columns, fragment.tokens, strict=True))
    nbytes = int(number(values["size"])[0])
    if not 0 <= nbytes <= _MOST_BYTES:
        return None
    out = _read_half(block, values, "0")
    again = _read_half(block, values, "1")
    if again and "busbw0" in values and "busbw1" not in values:
        again = None  # cut off in the middle, perhaps of a number
    if out is None and again is None:
        return None
    redop = values.get("redop")
    count = values.get("count")
    root = values.get("root")
    return RawRow(
        line=fragment.number,
        nbytes=nbytes,
        n_elements=int(number(count)[0]) if count else None,
        dtype=values["type"].lower() if "type" in values else None,
        redop=redop.lower() if redop else None,
        root=int(number(root)[0]) if root and root[-1:].isdigit() else None,
        out=out,
        again=again,
        recovered=fragment.recovered,
    )


def _read_half(block: Block, values: dict[str, str], digit: str) -> Half | None:
    time = values.get("time" + digit)
    if time is None or not _is_number(time):
        return None
    seconds, seconds_half = number(time)
    scale = 1e-6 * block.microseconds
    algbw, algbw_half = _rate(values.get("algbw" + digit))
    busbw, busbw_half = _rate(values.get("busbw" + digit))
    wrong = values.get("wrong" + digit)
    # Columns called error or res hold a deviation, not a number of wrong elements.
    counted = wrong is not None and _is_number(wrong) and math.isfinite(number(wrong)[0])
    check = wrong if wrong is not None else values.get("error" + digit)
    return Half(
        seconds * scale,
        seconds_half * scale,
        algbw,
        algbw_half,
        busbw,
        busbw_half,
        int(number(wrong)[0]) if wrong is not None and counted else None,
        check is not None and not _is_number(check),
    )


def _is_number(word: str) -> bool:
    if word[0] in "0123456789.+-":
        return word != "-"
    return word.lower().startswith(("nan", "inf"))


def _rate(word: str | None) -> tuple[float | None, float]:
    if word is None or not _is_number(word):
        return None, 0.0
    value, half = number(word)
    return value * 1e9, half * 1e9


def refuse_impossible(row: RawRow, cpu_time: bool = False) -> None:
    """Refuse a time of zero or less, and a rate that no machine has.

    With ``cpu_time`` the time is that of starting the call: it may be as short as it likes.
    """
    half = row.out or row.again
    assert half is not None
    rates = [rate for rate in (half.algbw, half.busbw) if rate is not None]
    possible = 0 < half.seconds < math.inf and all(0 <= rate <= FASTEST for rate in rates)
    if possible and (cpu_time or row.nbytes / half.seconds <= FASTEST):
        return
    shown = ", ".join(f"{rate / 1e9:g} GB/s" for rate in rates)
    raise LogError(
        "impossible_rates",
        f"Line {row.line} is impossible ({row.nbytes} bytes in {half.seconds * 1e6:g} µs"
        f"{', ' if shown else ''}{shown}): measure again, or take this line out.",
    )
