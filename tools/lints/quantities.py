"""Read numbers and their units out of a text, in English, in Chinese and in LaTeX."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

# Binary and decimal sizes are kept apart: 64 MiB is not 64 MB.
TIME, RATE, FLOPS, RATIO, TOKENS = "time", "rate", "FLOP/s", "ratio", "tokens"
BYTES, BINARY, DECIMAL = "bytes", "binary bytes", "decimal bytes"


@dataclass(frozen=True)
class Unit:
    """A unit: its name in the book, what it measures, and its size in SI units."""

    name: str
    kind: str
    size: Fraction


def _units() -> dict[str, Unit]:
    """Return the units by each of the words that stand for them."""
    day = 86400
    table = {
        TIME: [
            ("ns", Fraction(1, 10**9), "纳秒"),
            ("µs", Fraction(1, 10**6), "微秒 us μs"),
            ("ms", Fraction(1, 1000), "毫秒"),
            ("s", 1, "second seconds 秒"),
            ("min", 60, "minute minutes 分钟"),
            ("h", 3600, "hour hours 小时"),
            ("day", day, "days 天"),
            ("week", 7 * day, "weeks 周"),
            ("year", 365 * day, "years 年"),
        ],
        BYTES: [("B", 1, "byte bytes 字节")],
        BINARY: [(f"{prefix}iB", 1024**power, "") for power, prefix in enumerate("KMGTP", start=1)],
        DECIMAL: [
            (f"{prefix}B", 1000**power, "KB" if prefix == "k" else "")
            for power, prefix in enumerate("kMGTP", start=1)
        ],
        RATE: [
            ("B/s", 1, ""),
            ("kB/s", 10**3, "KB/s"),
            ("MB/s", 10**6, ""),
            ("GB/s", 10**9, ""),
            ("TB/s", 10**12, ""),
            ("GiB/s", 2**30, ""),
            ("Gb/s", Fraction(10**9, 8), "Gbit/s"),
        ],
        FLOPS: [
            ("GFLOP/s", 10**9, "GFLOPS"),
            ("TFLOP/s", 10**12, "TFLOPS"),
            ("PFLOP/s", 10**15, "PFLOPS"),
        ],
        RATIO: [("%", Fraction(1, 100), "percent"), ("×", 1, "times 倍")],
        TOKENS: [("token", 1, "tokens")],
    }
    return {
        word: Unit(name, kind, Fraction(size))
        for kind, rows in table.items()
        for name, size, others in rows
        for word in (name, *others.split())
    }


UNITS = _units()

_SCALES = {
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "千": 10**3,
    "万": 10**4,
    "百万": 10**6,
    "亿": 10**8,
    "万亿": 10**12,
    "K": 1024,
    "M": 10**6,
    "B": 10**9,
    "T": 10**12,
}


@dataclass(frozen=True)
class Quantity:
    """A number that a text states.

    ``value`` is what is written, 32K or 3 trillion multiplied out, without its unit;
    ``half`` is half of its last digit: what is meant lies within value ± half.
    """

    text: str
    value: Fraction
    half: Fraction
    unit: Unit | None

    @property
    def si(self) -> Fraction:
        """The value in SI units."""
        return self.value * (self.unit.size if self.unit else 1)

    @property
    def si_half(self) -> Fraction:
        """Half of the last digit in SI units."""
        return self.half * (self.unit.size if self.unit else 1)


# "3 × 4" multiplies.
_AFTER = {"%": "", "×": r"(?!\s*[\w(\\$])"}


def _alternatives(names: dict[str, Unit]) -> str:
    return "|".join(
        re.escape(name) + _AFTER.get(name, r"(?![A-Za-z/])" if name[-1].isascii() else "")
        for name in sorted(names, key=len, reverse=True)
    )


_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.])(?<![A-Za-z)]/)(?P<whole>\d{1,3}(?:,\d{3})+|\d+)(?P<part>\.\d+)?"
    r"(?:[eE](?P<power>[-+]?\d+))?"
    r"(?:\s*(?P<word>(?:thousand|million|billion|trillion)(?![A-Za-z])|万亿|百万|亿|万|千)"
    # "8B" parameters, but "8 B" bytes.
    r"|(?P<letter>[KMBT])(?![A-Za-z/]))?"
    rf"(?:[ -]?个)?[\s-]*(?P<unit>{_alternatives(UNITS)})?"
)
# In "253 and 506 GB/s" the unit counts for both, but not in "17 ms on 8 and 20 ms on 16".
_ENUMERATION = re.compile(r"\s*(?:、|/|–|~|和|或|到|至|与|and|or|to)\s*")
_NO_ENUMERATION = re.compile(r"(?:\b(?:on|of|in|with|for|to)|=|×)\s*$")
_NOT_STATED = (
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"<[^>\n]*>"),  # tags
    re.compile(r"\]\([^)\n]*\)"),  # targets of links
    re.compile(r"https?://\S+"),
    re.compile(r"\[\^[^\]]*\]"),  # footnotes
    re.compile(r"§\s*\d+(?:\.\d+)*"),  # sections
    re.compile(r"^\s*\d+[.)]\s", re.MULTILINE),  # items of a list
)
_LATEX_TEXT = re.compile(r"\\(?:text|mathrm|operatorname)\{([^{}]*)\}")
_LATEX = (("{,}", ","), ("\\,", " "), ("\\;", " "), ("~", " "), ("\\%", "%"), ("\\times", "×"))


def _plain(text: str) -> str:
    """Return a Markdown text without what is no statement, and with LaTeX's units spelt out."""
    for pattern in _NOT_STATED:
        text = pattern.sub(" ", text)
    text = _LATEX_TEXT.sub(r" \1", text)
    for latex, plain in _LATEX:
        text = text.replace(latex, plain)
    return text.replace("\\mu", "µ").replace("\u00a0", " ").replace("\u202f", " ")


def quantities(text: str) -> list[Quantity]:
    """Return the numbers that a text states in digits, in their order."""
    text = _plain(text)
    matches = list(_NUMBER.finditer(text))
    found: list[Quantity] = []
    following: tuple[int, Unit | None] = (0, None)
    for match in reversed(matches):
        scale = Fraction(10) ** int(match["power"] or 0)
        scale *= _SCALES.get(match["word"] or match["letter"] or "", 1)
        digits = match["part"] or ""
        value = Fraction(match["whole"].replace(",", "") + digits) * scale
        half = scale / (2 * Fraction(10) ** max(len(digits) - 1, 0))
        unit = UNITS[match["unit"]] if match["unit"] else None
        between, before = text[match.end() : following[0]], text[: match.start()]
        if unit is None and _ENUMERATION.fullmatch(between) and not _NO_ENUMERATION.search(before):
            unit = following[1]
        following = (match.start(), unit)
        found.append(Quantity(match[0].strip(), value, half, unit))
    return found[::-1]
