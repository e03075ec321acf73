"""The words of a row: what kind each is, and what number it stands for."""

from __future__ import annotations

import re

# Bytes of one element, by every name that nccl-tests, rccl-tests or torch has printed.
DTYPE_BYTES = {
    **dict.fromkeys(("char", "int8", "uint8", "byte"), 1),
    **dict.fromkeys(("half", "float16", "bfloat16", "fp16", "bf16"), 2),
    **dict.fromkeys(("int", "int32", "uint32", "float", "float32", "fp32", "single"), 4),
    **dict.fromkeys(("int64", "uint64", "double", "float64", "fp64", "long"), 8),
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "f8e4m3", "f8e5m2", "e4m3", "e5m2"), 1),
    **dict.fromkeys(("float8_e4m3", "float8_e5m2", "float8e4m3", "float8e5m2"), 1),
}
REDOPS = frozenset("sum prod max min avg mulsum all none premulsum product average".split())

_NUMBER = re.compile(r"[-+]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][-+]?\d{1,3})?\*?", re.A)
_INTEGER = re.compile(r"[-+]?\d{1,18}", re.A)
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3}){1,6}(?:\.\d{1,40})?", re.A)
_DECIMAL_COMMA = re.compile(r"\d{1,18},\d{1,2}", re.A)
_NO_NUMBER = re.compile(r"[-+]?(?:nan|inf|infinity)(?:\(\w{0,9}\))?", re.A | re.I)
_DATE = re.compile(r"\d{4}[-/]\d\d[-/]\d\d", re.A)
_CLOCK = re.compile(r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?", re.A)
_LONGEST = 64
_PLAIN = re.compile(r"\d{1,40}(?:\.\d{0,40})?", re.A)
_HALF_DIGITS = [0.5 * 10.0**-decimals for decimals in range(41)]


def kind_of(token: str) -> str:
    """Return the kind of a word of a row, as one letter.

    ``i`` whole number, ``n`` other number (also nan and inf), ``t`` type of the elements,
    ``o`` reduction, ``a`` N/A, ``d`` date, ``h`` time of day, ``w`` any other word.
    """
    if len(token) > _LONGEST:
        return "w"
    if _INTEGER.fullmatch(token):
        return "i"
    if _NUMBER.fullmatch(token):
        return "n"
    lower = token.lower()
    if lower in DTYPE_BYTES:
        return "t"
    if lower in REDOPS:
        return "o"
    if lower in ("n/a", "na", "-"):
        return "a"
    if _THOUSANDS.fullmatch(token):
        return "n" if "." in token else "i"
    if _DECIMAL_COMMA.fullmatch(token) or _NO_NUMBER.fullmatch(token):
        return "n"
    if _DATE.fullmatch(token):
        return "d"
    if _CLOCK.fullmatch(token):
        return "h"
    return "w"


class Kinds:
    """`kind_of` with a memory: a log repeats its words."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, tokens: list[str]) -> str:
        """Return the kinds of several words, one letter each."""
        known = self._known
        letters = []
        for token in tokens:
            kind = known.get(token)
            if kind is None:
                kind = kind_of(token)
                if len(known) < 100_000:
                    known[token] = kind
            letters.append(kind)
        return "".join(letters)


def number(token: str) -> tuple[float, float]:
    """Return the number that a word of kind i or n stands for, and half its last digit."""
    if not _PLAIN.fullmatch(token):
        return _odd_number(token.rstrip("*").lower())
    point = token.find(".")
    return float(token), _HALF_DIGITS[len(token) - point - 1 if point >= 0 else 0]


def _odd_number(text: str) -> tuple[float, float]:
    """Read exponents, thousands separators, a decimal comma, nan and inf."""
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    text = text.replace(",", ".")
    if "n" in text:  # nan and inf
        return float(text.partition("(")[0]), 0.0
    mantissa, _, exponent = text.partition("e")
    decimals = len(mantissa.partition(".")[2])
    return float(text), 0.5 * 10.0 ** min(300, int(exponent or 0) - decimals)
