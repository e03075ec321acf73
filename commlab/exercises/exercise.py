"""An exercise: who judges its parts, and what helps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from commlab.exercises.verdicts import Verdict, Words

Judge = Callable[[object], Verdict]
"""Returns that an answer is right, or raises `Refused`."""

ONE_ANSWER = ""
"""Name of the part of an exercise that has only one."""


@dataclass(frozen=True)
class Exercise:
    """One exercise or puzzle.

    Attributes
    ----------
    name : str
        What a reader calls it by.
    number : str
        "1" to "10" in the lecture's order, or a letter.
    title : Words
    judges : dict of str to Judge
        By part; the only part of an exercise with one answer is ``ONE_ANSWER``.
    references : dict of str to object
        A right answer for each part.
    hint, solution : Words
        A push in the right direction, and the idea of the worked solution.
    shown : tuple of callable
        Functions whose source is the worked solution.
    starts_processes : bool
        Whether a check starts processes; the solution then does not run it by itself.
    """

    name: str
    number: str
    title: Words
    judges: Mapping[str, Judge]
    references: Mapping[str, object]
    hint: Words
    solution: Words
    shown: tuple[Callable[..., object], ...]
    starts_processes: bool = False
