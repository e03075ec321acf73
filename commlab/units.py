"""Bytes, seconds and rates: reading them and printing them.

Sizes are binary (KiB, MiB, GiB are powers of two); rates are decimal (1 GB/s is
1e9 bytes per second), which is what nccl-tests and data sheets use. Mixing the two
moves a result by 7 percent.
"""

from __future__ import annotations

import math
import re

KIB = 2**10
MIB = 2**20
GIB = 2**30
TIB = 2**40

_SIZE_FACTORS = {
    "": 1,
    "B": 1,
    "KIB": KIB,
    "MIB": MIB,
    "GIB": GIB,
    "TIB": TIB,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
_BINARY_SIZES = ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
_DECIMAL_RATES = ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_NUMBER_AND_UNIT = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*")


def parse_size(text: str) -> int:
    """Read a size such as ``"64 MiB"`` or ``"1.5e9 B"``.

    Parameters
    ----------
    text : str
        A number and a unit: B, KiB, MiB, GiB, TiB (powers of two) or
        kB, MB, GB, TB (powers of ten). No unit means bytes.

    Returns
    -------
    int
        The size in bytes, rounded to a whole byte.

    Raises
    ------
    ValueError
        If the text is not a number followed by a known unit.
    """
    match = _NUMBER_AND_UNIT.fullmatch(text)
    factor = _SIZE_FACTORS.get(match[2].upper()) if match else None
    if match is None or factor is None:
        raise ValueError(
            f"cannot read the size {text!r}: write a number and a unit, "
            "for example '64 MiB', '25 MB' or '1048576'."
        )
    size = float(match[1]) * factor
    if not math.isfinite(size):
        raise ValueError(f"the size {text!r} is too large for any memory: write a smaller one.")
    return round(size)


def format_bytes(nbytes: float) -> str:
    """Print a size with a binary unit and about three digits, e.g. ``'1.5 GiB'``."""
    for factor, unit in _BINARY_SIZES:
        if abs(nbytes) >= factor:
            return f"{_three_digits(nbytes / factor)} {unit}"
    return f"{_three_digits(nbytes)} B"


def format_seconds(seconds: float) -> str:
    """Print a time with a fitting unit and three digits, e.g. ``'4.25 ms'``."""
    if seconds == 0:
        return "0 s"
    for factor, unit in _TIMES:
        # 0.9995 of a unit already prints as 1.00 of it.
        if abs(seconds) >= 0.9995 * factor or unit == "ns":
            return f"{_three_digits(seconds / factor)} {unit}"
    raise AssertionError("unreachable: the last unit takes every value")


def format_rate(bytes_per_second: float) -> str:
    """Print a bandwidth with a decimal unit, e.g. ``'450 GB/s'``."""
    for factor, unit in _DECIMAL_RATES:
        if abs(bytes_per_second) >= 0.9995 * factor:
            return f"{_three_digits(bytes_per_second / factor)} {unit}"
    return f"{_three_digits(bytes_per_second)} B/s"


def _three_digits(value: float) -> str:
    """Three significant digits without trailing zeros; whole numbers from 1000 up."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
