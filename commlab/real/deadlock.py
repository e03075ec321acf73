"""The deadlock lab: break the iron rule on purpose, and let the evidence say who did it."""

from __future__ import annotations

import math
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commlab.checks import check_n_ranks, check_rank
from commlab.real import evidence as notes
from commlab.real.diagnosis import diagnose
from commlab.real.evidence import Evidence, joined_at, read_evidence
from commlab.real.launch import RankError, make_job, run_job, temporary_folder
from commlab.tables import markdown_table

# What the odd rank does, in both languages.
CASES = {
    "others busy": ("calls all_reduce while the others compute", "调用 all_reduce，别人在忙"),
    "others leave": ("calls all_reduce while the others finish", "调用 all_reduce，别人已结束"),
    "wrong number": ("logs by all_reduce before the gradient", "先用 all_reduce 记日志，再传梯度"),
    "other order": ("calls two collectives the other way round", "两次集合通信的顺序颠倒"),
    "other shape": ("brings twice as many elements", "张量的元素多一倍"),
    "far larger": ("brings a million times as many elements", "张量的元素多一百万倍"),
    "killed": ("is killed before a call", "在一次调用之前被杀死"),
    "stopped": ("is stopped before a call", "在一次调用之前被暂停"),
}
# Ranks that can still report an error do so within this time after the first one, in seconds.
LINGER_SECONDS = 2.5
# For importing torch on a busy machine; the lab itself ends sooner.
START_SECONDS = 60.0


@dataclass(frozen=True)
class DeadlockReport:
    """How a run ended that broke the rule, and who broke it.

    Attributes
    ----------
    case : str
        Which rule was broken: a key of ``CASES``.
    guilty : tuple of int
        The ranks that broke it, by the evidence alone.
    sentence_en, sentence_zh : str
        One sentence each, with the guilty ranks and the cure.
    saw : tuple of Evidence
        What is known about each rank.
    seconds : float
        From the moment all ranks had joined until nothing was left of them.
    """

    case: str
    guilty: tuple[int, ...]
    sentence_en: str
    sentence_zh: str
    saw: tuple[Evidence, ...]
    seconds: float

    def __repr__(self) -> str:
        return f"{self._table()}\n\n{self.sentence_zh}\n\n{self.sentence_en}"

    def _repr_markdown_(self) -> str:
        return repr(self)

    def _table(self) -> str:
        headers = ("rank", "last call · 最后的调用", "what it saw · 看到什么", "end · 结局")
        return markdown_table(headers, [_row(one) for one in self.saw], align="llll")


def deadlock_lab(
    case: str,
    ranks: int = 4,
    odd_rank: int = 0,
    patience: float = 2.0,
    detail: bool = False,
) -> DeadlockReport:
    """Let one rank break the iron rule, and find it by the evidence.

    Parameters
    ----------
    case : str
        What the odd rank does: a key of ``CASES``.
    ranks : int
        Number of processes, 3 or more: of two that disagree, none is in the majority.
    odd_rank : int
        The rank that does it. Whoever makes the diagnosis is not told.
    patience : float
        Timeout of the group's collectives, in seconds. PyTorch's default for gloo is 30 min.
    detail : bool
        Whether to set ``TORCH_DISTRIBUTED_DEBUG=DETAIL``: PyTorch then compares the ranks
        before each call.

    Returns
    -------
    DeadlockReport
        No process and no file is left, whatever has happened to the ranks.

    Raises
    ------
    ValueError
        If there is no such case or rank, or this system cannot stop a process (Windows).
    RankError
        If the ranks could not even be started.
    """
    _check(case, ranks, odd_rank, patience)
    environment = {"TORCH_FR_BUFFER_SIZE": "100"}
    if detail:
        environment["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    with temporary_folder() as folder:
        arguments = {
            "case": case,
            "odd_rank": odd_rank,
            "patience": patience,
            "folder": str(folder),
        }
        worker = "commlab.real.deadlock_workers:break_the_rule"
        failure = run_to_its_end(folder, worker, ranks, patience, arguments, environment)
        start = joined_at(folder, ranks)
        if start is None:
            raise failure or RankError("the ranks left no notes: run the lab again.")
        saw = read_evidence(folder, ranks)
    found = diagnose(saw)
    return DeadlockReport(
        case=case,
        guilty=found.guilty,
        sentence_en=found.sentence_en,
        sentence_zh=found.sentence_zh,
        saw=tuple(saw),
        seconds=time.monotonic() - start,
    )


def run_to_its_end(
    folder: Path,
    worker: str,
    ranks: int,
    patience: float,
    arguments: dict[str, Any],
    environment: dict[str, str] | None = None,
) -> RankError | None:
    """Run a worker that may fail or wait for ever; return what the launcher says of a failure.

    Parameters
    ----------
    folder : Path
        Where the ranks leave their notes; they are read before it goes.
    worker : str
        ``"module:function"``.
    ranks : int
    patience : float
        Timeout of the ranks' collectives, in seconds.
    arguments : dict
        Of the worker.
    environment : dict, optional
        Added to that of the ranks.
    """
    seconds = START_SECONDS + 2 * patience
    try:
        run_job(folder, make_job(worker, ranks, seconds, arguments, LINGER_SECONDS), environment)
    except RankError as error:
        return error
    return None


def _check(case: str, ranks: int, odd_rank: int, patience: float) -> None:
    if case not in CASES:
        raise ValueError(f"there is no case {case!r}: choose one of {', '.join(CASES)}.")
    if check_n_ranks(ranks, "ranks") < 3:
        raise ValueError(f"ranks is {ranks}: give 3 or more, so that there is a majority.")
    check_rank(odd_rank, ranks, "odd_rank")
    if isinstance(patience, bool) or not isinstance(patience, (int, float)):
        raise ValueError(f"patience is {patience!r}: give a number of seconds.")
    if not math.isfinite(patience) or not 0.5 <= patience <= 10:
        raise ValueError(f"patience is {patience!r}: give a number of seconds from 0.5 to 10.")
    if case == "stopped" and not hasattr(signal, "SIGSTOP"):
        raise ValueError("this system cannot stop a process: try the case 'killed' instead.")


def _row(one: Evidence) -> tuple[str, str, str, str]:
    last = f"{len(one.calls)}: {one.calls[-1]}" if one.calls else "–"
    return str(one.rank), last, _what_it_saw(one), _how_it_ended(one)


def _what_it_saw(one: Evidence) -> str:
    """Say how the last call went, as this rank could know it."""
    if one.calls and one.calls[-1].outcome == notes.FAILED:
        return one.calls[-1].error
    if one.calls and one.calls[-1].outcome == notes.WAITING:
        return "no answer · 没有回音"
    values = one.value if isinstance(one.value, list) else [one.value]
    if one.value is None:
        return "no error · 没有错误"
    return f"no error, {' '.join(f'{value:g}' for value in values)} · 没有错误"


def _how_it_ended(one: Evidence) -> str:
    """Say how the rank ended, as the process that started it could see."""
    words = {
        notes.FINISHED: "finished · 正常结束",
        notes.RAISED: "error · 报错",
        notes.RUNNING: "still running · 还在运行",
        notes.STOPPED: "stopped · 被暂停",
        notes.DIED: "died · 死亡",
    }
    extra = one.detail if one.state == notes.DIED else one.stands_at
    if one.state in (notes.DIED, notes.RUNNING) and extra:
        return f"{words[one.state]} ({extra})"
    return words[one.state]
