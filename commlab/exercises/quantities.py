"""Numbers with a unit as readers write them: bytes, seconds, ratios and parts of a whole."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from commlab.exercises.verdicts import Words, in_code, refuse
from commlab.units import GIB, KIB, MIB, TIB, format_bytes, format_seconds

# Commas part thousands only: "7,5 GiB" is refused rather than taken for 75.
_NUMBER_AND_UNIT = re.compile(
    r"\s*([-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?(?:[eE][-+]?\d+)?)\s*([^\s\d,.]*)\s*"
)


@dataclass(frozen=True)
class Unit:
    """What kind of number is asked for.

    Attributes
    ----------
    name : Words
        "bytes", "字节".
    example : Words
        How such an answer may be written.
    factors : dict of str to float
        The units that a text may carry, in units of a bare number.
    show : callable
        Prints a value.
    needs_unit : bool
        Whether a number in a text must carry its unit.
    """

    name: Words
    example: Words
    factors: Mapping[str, float]
    show: Callable[[float], str]
    needs_unit: bool = True


class Quantity(NamedTuple):
    """A number that a reader wrote: its value in the unit's base, and the unit it was written in.

    ``1.2 s`` and ``1200 ms`` have one value; which digits were rounded only the unit tells.
    """

    value: float
    written_in: float


BYTES = Unit(
    Words("a number of bytes", "一个字节数"),
    Words("`'3 MiB'` or `3 * MIB`", "`'3 MiB'` 或 `3 * MIB`"),
    {"B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
    | {"KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB},
    format_bytes,
)
SECONDS = Unit(
    Words("a number of seconds", "一个秒数"),
    Words("`'20 ms'` or `0.02`", "`'20 ms'` 或 `0.02`"),
    {"s": 1, "ms": 1e-3, "µs": 1e-6, "μs": 1e-6, "us": 1e-6, "ns": 1e-9, "min": 60.0},
    format_seconds,
)
TIMES = Unit(
    Words("a plain number", "一个不带单位的数"),
    Words("`3` or `1.5`", "`3` 或 `1.5`"),
    {"": 1, "x": 1, "×": 1, "倍": 1},
    "{:.4g}".format,
    needs_unit=False,
)
PART = Unit(
    Words("a part of a whole", "一个占比"),
    Words("`'12 %'` or `0.12`", "`'12 %'` 或 `0.12`"),
    {"": 1, "%": 0.01},
    "{:.2%}".format,
    needs_unit=False,
)


def read_quantity(answer: object, unit: Unit) -> Quantity:
    """Return an answer as a number in the unit's base (bytes, seconds, 1).

    Raises
    ------
    Refused
        If it is no such number; the reason is "type", "unit", "no_unit" or "not_a_size".
    """
    if isinstance(answer, str):
        read = _read_text(answer, unit)
        _check_size(read.value, answer, unit)
        return read
    if hasattr(answer, "item") and getattr(answer, "ndim", None) == 0:
        answer = answer.item()
    if isinstance(answer, bool) or not isinstance(answer, numbers.Real):
        raise refuse(
            "type",
            f"This should be {unit.name.en}, for example {unit.example.en}; "
            f"you gave a {in_code(type(answer).__name__)}.",
            f"这里要填{unit.name.zh}，例如 {unit.example.zh}；"
            f"你给的是 {in_code(type(answer).__name__)}。",
        )
    _check_size(float(answer), answer, unit)
    return Quantity(float(answer), 1.0)


def _check_size(value: float, answer: object, unit: Unit) -> None:
    if not math.isfinite(value) or value < 0:
        raise refuse(
            "not_a_size",
            f"{in_code(answer)} cannot be the answer: it is {unit.name.en}, finite and not "
            "below zero.",
            f"{in_code(answer)} 不可能是答案：这里要填{unit.name.zh}，有限且不小于零。",
        )


def _read_text(text: str, unit: Unit) -> Quantity:
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None:
        raise refuse(
            "type",
            f"{in_code(text)} cannot be read: write a number and its unit, "
            f"for example {unit.example.en}.",
            f"读不懂 {in_code(text)}：请写一个数和它的单位，例如 {unit.example.zh}。",
        )
    number, written = float(match[1].replace(",", "")), match[2]
    if written in unit.factors:
        return Quantity(number * unit.factors[written], unit.factors[written])
    if not written:
        raise refuse(
            "no_unit",
            f"{in_code(text)} has no unit: this should be {unit.name.en}, "
            f"for example {unit.example.en}.",
            f"{in_code(text)} 没有单位：这里要填{unit.name.zh}，例如 {unit.example.zh}。",
        )
    for known in unit.factors:
        if written.lower() == known.lower():
            raise refuse(
                "unit",
                f"Capitals matter in units: write {in_code(known)}, not {in_code(written)}.",
                f"单位区分大小写：请写 {in_code(known)}，不要写 {in_code(written)}。",
            )
    raise refuse(
        "unit",
        f"The unit {in_code(written)} does not fit: this should be {unit.name.en}, "
        f"for example {unit.example.en}.",
        f"单位 {in_code(written)} 不合适：这里要填{unit.name.zh}，例如 {unit.example.zh}。",
    )
