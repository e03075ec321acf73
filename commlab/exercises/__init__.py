"""Exercises that check themselves: right or wrong, why, a hint, and a worked solution.

    from commlab import exercises

    exercises.check("uneven_shards", my_function)     one answer
    exercises.check("volume", ring_bytes="2 GiB")     several, by name
    exercises.hint("volume")
    exercises.solution("volume")
    exercises.progress()

Nothing is stored and nothing is sent: what was solved is known as long as the kernel lives.
Neither torch nor matplotlib is imported before an exercise needs it.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache

from commlab.exercises.deadlock import log_and_average
from commlab.exercises.exercise import ONE_ANSWER, Exercise
from commlab.exercises.helping import Folded
from commlab.exercises.lecture_algorithms import CROSSOVER, UNCUT_RING, VOLUME
from commlab.exercises.lecture_parallelism import FSDP_VOLUME, GROWS_WITH, HOT_EXPERT
from commlab.exercises.lecture_training import ACCUMULATION, LLAMA_70B, UNEVEN_SHARDS
from commlab.exercises.placement import training_plan
from commlab.exercises.puzzles import (
    BUCKET_SIZE,
    DEADLOCK,
    FAST_BROADCAST,
    LOSS_FACTORS,
    PLACEMENT,
    RING_ORDER,
    SHORT_ALL_REDUCE,
)
from commlab.exercises.verdicts import (
    OPEN,
    RIGHT,
    Refused,
    Report,
    Verdict,
    Words,
    in_code,
    refuse,
    unanswered,
)
from commlab.tables import Table, table

EXERCISES: dict[str, Exercise] = {
    exercise.name: exercise
    for exercise in (
        VOLUME,
        UNCUT_RING,
        CROSSOVER,
        LLAMA_70B,
        ACCUMULATION,
        UNEVEN_SHARDS,
        GROWS_WITH,
        FSDP_VOLUME,
        DEADLOCK,
        HOT_EXPERT,
        SHORT_ALL_REDUCE,
        FAST_BROADCAST,
        LOSS_FACTORS,
        PLACEMENT,
        BUCKET_SIZE,
        RING_ORDER,
    )
}
"""All exercises by name: the ten of the lecture, of which the ninth is the first puzzle, and six
puzzles more."""

__all__ = [
    "EXERCISES",
    "Report",
    "Verdict",
    "check",
    "hint",
    "log_and_average",
    "progress",
    "solution",
    "training_plan",
]

# What was found last about each part, as long as this kernel lives.
_found: dict[str, dict[str, str]] = {}


def check(name: str, answer: object = ..., **parts: object) -> Report:
    """Judge answers to an exercise.

    Parameters
    ----------
    name : str
        The exercise: a key of ``EXERCISES``.
    answer : object
        The answer of an exercise that has only one.
    **parts
        The answers of an exercise that has several, by name. ``...`` or None is an open blank.

    Returns
    -------
    Report
        For every part whether it is right, and why not. Whatever is wrong with an answer is
        said there, in both languages: nothing is raised.
    """
    exercise = _find(name)
    if isinstance(exercise, Verdict):
        return Report(str(name), {ONE_ANSWER: exercise})
    given = {ONE_ANSWER: answer} if answer is not ... or not parts else dict(parts)
    if list(exercise.judges) != [ONE_ANSWER] and given == {ONE_ANSWER: ...}:
        given = {}
    unknown = [part for part in given if part not in exercise.judges]
    if unknown:
        return Report(name, {ONE_ANSWER: _wrong_call(exercise)})
    verdicts = {part: _judged(exercise, part, given.get(part, ...)) for part in exercise.judges}
    known = _found.setdefault(name, {})
    for part, verdict in verdicts.items():
        # Solved is solved: a later look at a blank takes nothing away.
        if known.get(part) != RIGHT:
            known[part] = verdict.status
    return Report(name, verdicts)


def hint(name: str) -> Folded:
    """Return a push in the right direction, folded up."""
    exercise = _find(name)
    if isinstance(exercise, Verdict):
        return Folded(Words("No hint", "没有提示"), exercise.words)
    return Folded(Words("Hint", "提示"), exercise.hint)


def solution(name: str) -> Folded:
    """Return the worked solution, folded up: the idea, the code, and what the checker says."""
    from commlab.explore import show_source

    exercise = _find(name)
    if isinstance(exercise, Verdict):
        return Folded(Words("No solution", "没有解答"), exercise.words)
    rest = [show_source(*exercise.shown)._repr_markdown_()]
    if not exercise.starts_processes:
        rest.append(_report_on_solution(name)._repr_markdown_())
    return Folded(Words("Worked solution", "参考解答"), exercise.solution, "\n\n".join(rest))


@cache
def _report_on_solution(name: str) -> Report:
    """Judge the worked solution like a reader's answer; it never changes, so once is enough."""
    exercise = EXERCISES[name]
    verdicts = {
        part: _judged(exercise, part, answer) for part, answer in exercise.references.items()
    }
    return Report(name, verdicts)


def progress() -> Table:
    """Return a table of what was solved since this kernel started."""
    rows = []
    for exercise in EXERCISES.values():
        found = _found.get(exercise.name, {})
        n_right = sum(status == RIGHT for status in found.values())
        n_tried = sum(status != OPEN for status in found.values())
        state = "… not tried · 还没做" if not n_tried else "✗ not yet · 还没对"
        if n_right == len(exercise.judges):
            state = "✓ solved · 做对了"
        title = f"{exercise.title.en} · {exercise.title.zh}"
        rows.append((exercise.number, title, f"{n_right} / {len(exercise.judges)}", state))
    headers = ("no. · 题号", "exercise · 题目", "right · 对", "state · 状态")
    return table(headers, rows, align="llrl")


def _find(name: str) -> Exercise | Verdict:
    """Return an exercise, or the verdict that there is none of that name."""
    if isinstance(name, str) and name in EXERCISES:
        return EXERCISES[name]
    close = get_close_matches(str(name), EXERCISES, n=1)
    known = ", ".join(EXERCISES)
    meant_en = (
        f"did you mean {in_code(close[0])}?" if close else f"there are {in_code(known, 400)}."
    )
    meant_zh = (
        f"你是不是指 {in_code(close[0])}？" if close else f"现有的题目：{in_code(known, 400)}。"
    )
    return refuse(
        "unknown_name",
        f"There is no exercise {in_code(name)}: {meant_en}",
        f"没有名为 {in_code(name)} 的题目：{meant_zh}",
    ).verdict


def _wrong_call(exercise: Exercise) -> Verdict:
    """Return the verdict on a call with answers that the exercise does not have."""
    parts = [part for part in exercise.judges if part != ONE_ANSWER]
    arguments = "".join(f", {part}=..." for part in parts) or ", my_answer"
    usage = in_code(f'exercises.check("{exercise.name}"{arguments})')
    return refuse(
        "wrong_call",
        f"These are not the parts of this exercise: write {usage}.",
        f"这道题的各小题不是这样给的：请写 {usage}。",
    ).verdict


def _judged(exercise: Exercise, part: str, answer: object) -> Verdict:
    """Return the verdict on one part."""
    try:
        if answer is ... or answer is None:
            raise unanswered()
        return exercise.judges[part](answer)
    except Refused as refused:
        return refused.verdict
