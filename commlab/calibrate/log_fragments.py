"""Pieces of rows: how whole they are, and which belong together."""

from __future__ import annotations

from functools import lru_cache

from commlab.calibrate.log_layout import (
    FULL,
    HALF,
    Layout,
    layouts,
    numbers_agree,
    size_over_count,
)
from commlab.calibrate.log_parts import Block, Fragment
from commlab.calibrate.log_tokens import Kinds

_GAP = " " * 24
_LONGEST_ROW = 1000
# Columns of a table without titles: five labels, two halves of four, and one more.
_MOST_UNTITLED = 14


def has_gap(text: str) -> bool:
    """Tell whether a row has a hole as wide as the out-of-place half."""
    return _GAP in text.strip()


def layouts_of(block: Block | None, fragment: Fragment) -> list[Layout]:
    """Return the layouts that a row of a block may have."""
    return _layouts(block.titles if block else None, fragment.kinds, fragment.gap)


@lru_cache(maxsize=4096)
def _layouts(titles: tuple[str, ...] | None, kinds: str, gap: bool) -> list[Layout]:
    return layouts(titles, kinds, gap)


def quality_of(block: Block | None, fragment: Fragment) -> int:
    """Return how whole a row is: FULL, HALF, or 0 where it fits no layout."""
    found = layouts_of(block, fragment)
    if not found or not block or not found[0].guessed:
        return found[0].quality if found else 0
    unit = None if block.cpu_time else block.microseconds
    guesses = [one for one in found if one.guessed]
    return FULL if any(numbers_agree(one, fragment.tokens, unit) for one in guesses) else HALF


def joined(
    block: Block | None, kinds: Kinds, first: Fragment, rest: Fragment, quality_of_rest: int
) -> tuple[Fragment, int] | None:
    """Return a broken row and its next part as one, with its quality; None if they are two."""
    if quality_of_rest and not ("t" in first.kinds and "t" not in rest.kinds):
        return None  # a row by itself
    before = quality_of(block, first)
    most = len(block.titles) if block and block.titles else _MOST_UNTITLED
    best: Fragment | None = None
    best_quality = -1
    # A number may be broken in the middle, and a prefix may stand before its second part.
    for second in (rest.text, f" {rest.text}", rest.text.lstrip()):
        whole = _whole(kinds, first, rest, second)
        if len(whole.tokens) > most or len(whole.text) > _LONGEST_ROW or "w" in whole.kinds:
            continue
        quality = quality_of(block, whole)
        if quality > best_quality:
            best, best_quality = whole, quality
    if best is None or best_quality < before or (best_quality == before and before):
        return None
    return best, best_quality


def with_first_digits(
    block: Block | None, kinds: Kinds, first: Fragment, rest: Fragment
) -> Fragment | None:
    """Return a row with the digits that noise broke off its size, if the count asks for them."""
    if first.kinds != "i" or first.text[-1:].isspace():
        return None
    whole = _whole(kinds, first, rest, rest.text.lstrip())
    alone, together = _size_over_count(block, rest), _size_over_count(block, whole)
    if not alone or not together or not together.is_integer():
        return None
    usual = _size_over_count(block, block.rows[-1]) if block and block.rows else None
    return None if alone.is_integer() and together != usual else whole


def _whole(kinds: Kinds, first: Fragment, rest: Fragment, second: str) -> Fragment:
    text = first.text + second
    tokens = text.split()
    lines = [*first.joined, rest.number]
    return Fragment(first.number, text, tokens, kinds.of(tokens), has_gap(text), lines, True)


def _size_over_count(block: Block | None, row: Fragment) -> float | None:
    found = layouts_of(block, row)
    return size_over_count(found[0], row.tokens) if found else None
