"""Judges of numbers and of choices: they recognise the usual mistakes by their value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from commlab.exercises.quantities import (
    BYTES,
    PART,
    SECONDS,
    TIMES,
    Quantity,
    Unit,
    read_quantity,
)
from commlab.exercises.verdicts import Verdict, Words, in_code, is_blank, refuse, right, unanswered
from commlab.units import GIB, KIB, MIB

# How far an answer may be off that is not the right one rounded to two digits.
TOLERANCE = 0.01
# How far a count may be off, which nobody rounds.
COUNT_TOLERANCE = 1e-3
# How close a wrong number must be to a known mistake to be taken for it.
MISTAKE_TOLERANCE = 0.005


@dataclass(frozen=True)
class Mistake:
    """A wrong number that readers arrive at, and what it looks like."""

    reason: str
    value: float
    words: Words


# Ratio of answer and right value, for mistakes that any number may suffer.
_BITS = Words(
    "It is off by a factor of 8: bits for bytes?",
    "差了 8 倍：是不是把比特当成了字节？",
)
_PREFIX = Words(
    "The digits are right and the power of ten is not: check the prefix of the unit "
    "(µ, m; k, M, G).",
    "数字对，但数量级不对：检查单位的前缀（µ、m；k、M、G）。",
)
_BINARY = Words(
    "It looks like GB for GiB, or MB for MiB: sizes such as GiB are powers of two, GB and GB/s "
    "powers of ten.",
    "像是混淆了 GiB 和 GB（或 MiB 和 MB）：GiB 这样的大小是 2 的幂，GB 和 GB/s 是 10 的幂。",
)
_TWO = Words(
    "It is off by a factor of 2: count the phases again, the directions of the link, and the "
    "bytes per number.",
    "差了 2 倍：再数一遍有几个阶段、链路有几个方向、每个数有几字节。",
)
_PERCENT = Words(
    "It is off by a factor of 100: twelve percent is `'12 %'` or `0.12`.",
    "差了 100 倍：百分之十二写成 `'12 %'` 或 `0.12`。",
)
_NO_UNIT = Words(
    "A bare number counts bytes: multiply it (`* MIB`), or write its unit (`'3 MiB'`).",
    "不带单位的数就是字节数：请乘上单位（`* MIB`），或者写出单位（`'3 MiB'`）。",
)


def _everywhere(value: float, unit: Unit) -> list[Mistake]:
    """List the mistakes that have nothing to do with what is asked."""
    found = []
    if unit is PART:
        found += [Mistake("percent", value * ratio, _PERCENT) for ratio in (100, 0.01)]
    if unit is BYTES:
        found += [Mistake("bare_number", value / size, _NO_UNIT) for size in (KIB, MIB, GIB)]
    if unit in (BYTES, SECONDS):
        found += [Mistake("factor_two", value * ratio, _TWO) for ratio in (2, 0.5)]
        found += [Mistake("bits_for_bytes", value * ratio, _BITS) for ratio in (8, 1 / 8)]
        powers = [10.0**power for power in (-9, -6, -3, 3, 6, 9)]
        found += [Mistake("unit_prefix", value * power, _PREFIX) for power in powers]
        # KiB is nowhere asked for, and 1.024 itself is how far rounding goes.
        binary = [1.024**power for power in (-3, -2, 2, 3)]
        found += [Mistake("binary_prefix", value * power, _BINARY) for power in binary]
    return found


def _agrees(read: Quantity, value: float, tolerance: float, unit: Unit) -> bool:
    """Whether an answer is this value, or this value rounded to two digits in its own unit."""
    if unit is TIMES:
        return math.isclose(read.value, value, rel_tol=COUNT_TOLERANCE)
    rounded = float(f"{value / read.written_in:.1e}") * read.written_in
    return math.isclose(read.value, value, rel_tol=tolerance) or math.isclose(read.value, rounded)


@dataclass(frozen=True)
class Number:
    """Judge of one number with its unit.

    Attributes
    ----------
    expected : float
        The right value, in bytes, seconds or 1.
    unit : Unit
    meaning : Words
        What the number tells; shown once it is right.
    mistakes : sequence of Mistake
        Those of this question; looked for before the general ones.
    """

    expected: float
    unit: Unit
    meaning: Words
    mistakes: Sequence[Mistake] = ()

    def __call__(self, answer: object) -> Verdict:
        """Return that it is right, or raise `Refused`."""
        if is_blank(answer):
            raise unanswered()
        read = read_quantity(answer, self.unit)
        value = read.value
        if _agrees(read, self.expected, TOLERANCE, self.unit):
            shown = self.unit.show(self.expected)
            return right(f"{shown}: {self.meaning.en}", f"{shown}：{self.meaning.zh}")
        yours = in_code(self.unit.show(value))
        for mistake in (*self.mistakes, *_everywhere(self.expected, self.unit)):
            if _agrees(read, mistake.value, MISTAKE_TOLERANCE, self.unit):
                raise refuse(
                    mistake.reason,
                    f"You have {yours}. {mistake.words.en}",
                    f"你的答案是 {yours}。{mistake.words.zh}",
                )
        size_en, size_zh = ("large", "大") if value > self.expected else ("small", "小")
        digits_en, digits_zh = "", ""
        if self.unit is not TIMES:
            digits_en, digits_zh = ", correct to two digits or more", "，至少两位有效数字"
        raise refuse(
            f"too_{size_en}",
            f"You have {yours}, which is too {size_en}; this should be "
            f"{self.unit.name.en}{digits_en}.",
            f"你的答案是 {yours}，太{size_zh}了；这里要填{self.unit.name.zh}{digits_zh}。",
        )


@dataclass(frozen=True)
class Choice:
    """Judge of one row of a table in which every cell is one of a few words.

    Attributes
    ----------
    expected : tuple of str
        The right words, cell by cell.
    options : tuple of tuple of str
        The words to choose from, cell by cell.
    why : tuple of Words
        What to think of where a cell is wrong.
    meaning : Words
    """

    expected: tuple[str, ...]
    options: tuple[tuple[str, ...], ...]
    why: tuple[Words, ...]
    meaning: Words

    def __call__(self, answer: object) -> Verdict:
        """Return that it is right, or raise `Refused`."""
        if is_blank(answer):
            raise unanswered()
        cells = list(answer) if isinstance(answer, (tuple, list)) else []
        if any(is_blank(cell) for cell in cells):
            raise unanswered()
        choices = " ".join(in_code(" / ".join(words)) for words in self.options)
        fits = len(cells) == len(self.options) and all(
            cell in words for cell, words in zip(cells, self.options, strict=False)
        )
        if not fits:
            raise refuse(
                "type",
                f"Give {len(self.options)} words, one of each group, in this order: {choices}; "
                f"you gave {in_code(repr(answer))}.",
                f"请给 {len(self.options)} 个词，按这个顺序每组选一个：{choices}；"
                f"你给的是 {in_code(repr(answer))}。",
            )
        for cell, wanted, words, why in zip(
            cells, self.expected, self.options, self.why, strict=True
        ):
            if cell != wanted:
                raise refuse(
                    f"not_{cell}",
                    f"{in_code(cell)} is not right ({in_code(' / '.join(words))}). {why.en}",
                    f"{in_code(cell)} 不对（{in_code(' / '.join(words))}）。{why.zh}",
                )
        return right(self.meaning.en, self.meaning.zh)
