"""Checks of settings and objects: one clear sentence, or the value itself.

:mod:`commlab.checks` has those of counts, sizes and links.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from commlab.models import BF16_BYTES, FP32_BYTES


def check_kind(value: Any, kind: type, what: str, example: str) -> None:
    """Say which kind of object belongs here, unless ``value`` is one.

    Raises
    ------
    TypeError
        With the name of the argument, the class that was expected and an example of it. That
        another object came is told too: swapped arguments are the commonest cause.
    """
    if not isinstance(value, kind):
        raise TypeError(
            f"{what} must be a {kind.__name__}, for example {example}; got {described(value)}."
        )


def described(value: object) -> str:
    """Name what was passed: its class, or "the class X" where a class came for an object."""
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    if isinstance(value, (str, numbers.Number, type(None))):
        return repr(value)
    return f"an object of class {type(value).__name__}"


def check_choice(value: str, choices: Sequence[str], what: str) -> str:
    """Return ``value``, or say which names there are."""
    if not isinstance(value, str) or value not in choices:
        *others, last = (repr(choice) for choice in choices)
        raise ValueError(f"{what} is {value!r}: choose {', '.join(others)} or {last}.")
    return value


def check_list(values: Any, what: str) -> list:
    """Return ``values`` as a list, or say that several are asked for."""
    if not isinstance(values, (Sequence, np.ndarray)) or isinstance(values, str):
        raise ValueError(f"{what} must be a list, one value for each; got {values!r}.")
    return list(values)


def check_flag(value: bool, what: str) -> bool:
    """Return ``value`` as a bool, or say that it must be True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{what} must be True or False; got {value!r}.")
    return bool(value)


def check_whole_from_zero(value: int, what: str) -> int:
    """Return ``value`` as an int, or say that it must be a whole number from 0 up."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or value < 0:
        raise ValueError(f"{what} must be a whole number, 0 or more; got {value!r}.")
    return int(value)


def check_positive(value: float, what: str) -> float:
    """Return ``value`` as a float, or say that it must be a number above zero."""
    usable = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not usable or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{what} must be a number above zero; got {value!r}.")
    return float(value)


def check_part(value: float, what: str) -> float:
    """Return ``value`` as a float, or say that it must be a part from 0 to 1."""
    usable = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not usable or not 0 <= value <= 1:
        raise ValueError(f"{what} is a part, from 0 to 1; got {value!r}. 40 percent is 0.40.")
    return float(value)


def check_mfu(mfu: float) -> float:
    """Return the MFU as a float, or say that it is a part of the peak."""
    if not check_positive(mfu, "mfu") <= 1:
        raise ValueError(
            f"mfu is a part of the peak, above 0 and at most 1; got {mfu!r}. 40 percent is 0.40."
        )
    return float(mfu)


def check_gradient_bytes(gradient_bytes: int) -> int:
    """Return the bytes of one gradient as an int, or say that they are 2 or 4."""
    whole = isinstance(gradient_bytes, numbers.Integral)
    if not whole or gradient_bytes not in (BF16_BYTES, FP32_BYTES):
        raise ValueError(f"gradient_bytes is {gradient_bytes!r}: choose 2 (BF16) or 4 (FP32).")
    return int(gradient_bytes)
