"""Calling a function that a reader wrote, and telling in one sentence how it failed."""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from commlab.exercises.verdicts import (
    Refused,
    Verdict,
    Words,
    in_code,
    is_blank,
    refuse,
    right,
    unanswered,
)


def call(function: object, *arguments: object) -> Any:
    """Call the reader's function and return its result.

    Raises
    ------
    Refused
        If it is no function ("type"), is still blank ("open"), returns None ("nothing"), or
        raises ("raised"): then with the reader's own line on which that happened.
    """
    if is_blank(function):
        raise unanswered()
    if not callable(function) or isinstance(function, type):
        raise refuse(
            "type",
            "Give the function itself, without calling it; you gave a "
            f"{in_code(type(function).__name__)}.",
            f"请给函数本身，不要调用它；你给的是 {in_code(type(function).__name__)}。",
        )
    try:
        result = function(*arguments)
    # Whatever it is, it is the answer's fault, and the reader is to see which line.
    except Exception as error:
        if isinstance(error, TypeError) and "ellipsis" in str(error):
            raise _blank_code() from None
        what = in_code(f"{type(error).__name__}: {error}")
        number, line = _own_line(error.__traceback__, function)
        where_en = f" at its line {number}, {in_code(line)}" if line else ""
        where_zh = f"，在第 {number} 行 {in_code(line)}" if line else ""
        raise refuse(
            "raised",
            f"Your function raised {what}{where_en}.",
            f"你的函数抛出了 {what}{where_zh}。",
        ) from error
    if result is ...:
        raise _blank_code()
    if result is None:
        raise refuse(
            "nothing",
            "Your function returned `None`: is a `return` missing? Every branch must return a "
            "result.",
            "你的函数返回了 `None`：是不是漏了 `return`？每个分支都要返回结果。",
        )
    return result


def _blank_code() -> Refused:
    return unanswered(
        "Your function still holds a `...`: put your code in its place.",
        "你的函数里还留着 `...`：把它换成你的代码。",
    )


def _own_line(trace: TracebackType | None, function: object) -> tuple[int, str]:
    """Return number and text of the last line that stands where the function was written."""
    code = getattr(function, "__code__", None)
    number, line = 0, ""
    while trace is not None and code is not None:
        if trace.tb_frame.f_code.co_filename == code.co_filename:
            number = trace.tb_lineno
            line = linecache.getline(code.co_filename, number).strip()
        trace = trace.tb_next
    return number, line


@dataclass(frozen=True)
class Formula:
    """Judge of a function of numbers: compared with the right one at several arguments.

    Attributes
    ----------
    reference : callable
        The right function.
    cases : sequence of tuple
        Arguments to try.
    rivals : dict
        Reason to wrong function and what to say of it; recognised by agreeing everywhere.
    meaning : Words
    """

    reference: Callable[..., float]
    cases: Sequence[tuple]
    rivals: Mapping[str, tuple[Callable[..., float], Words]]
    meaning: Words

    def __call__(self, answer: object) -> Verdict:
        """Return that it is right, or raise `Refused`."""
        values = [_number(call(answer, *case)) for case in self.cases]
        wanted = [self.reference(*case) for case in self.cases]
        if _agree(values, wanted):
            return right(self.meaning.en, self.meaning.zh)
        for reason, (rival, words) in self.rivals.items():
            if _agree(values, [rival(*case) for case in self.cases]):
                raise refuse(reason, words.en, words.zh)
        case, value = next(
            (case, value)
            for case, value, right_one in zip(self.cases, values, wanted, strict=True)
            if not math.isclose(value, right_one, rel_tol=1e-6)
        )
        given = in_code(", ".join(_shown(argument) for argument in case))
        raise refuse(
            "value",
            f"For the arguments {given} your function returns {in_code(f'{value:.6g}')}, which is "
            "not right.",
            f"参数为 {given} 时，你的函数返回 {in_code(f'{value:.6g}')}，不对。",
        )


def _shown(argument: object) -> str:
    return str(argument) if isinstance(argument, bool) else f"{argument:g}"


def _number(result: object) -> float:
    array = np.asarray(result)
    if array.dtype.kind not in "iuf" or array.size != 1:
        raise refuse(
            "result_type",
            f"Your function must return one number; it returned {in_code(repr(result))}.",
            f"你的函数应返回一个数；它返回了 {in_code(repr(result))}。",
        )
    return float(array.reshape(-1)[0])


def _agree(values: Sequence[float], others: Sequence[float]) -> bool:
    pairs = zip(values, others, strict=True)
    return all(math.isclose(value, other, rel_tol=1e-6) for value, other in pairs)


def numbers_in(result: object, shape: tuple[int, ...], what: Words) -> np.ndarray:
    """Return a result as an array of finite numbers of a shape, or refuse it."""
    try:
        array = np.asarray(result, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.shape != shape or not np.isfinite(array).all():
        raise refuse(
            "result_type",
            f"Your function must return {what.en}; it returned {in_code(repr(result))}.",
            f"你的函数应返回{what.zh}；它返回了 {in_code(repr(result))}。",
        )
    return array
