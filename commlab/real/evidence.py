"""What is known about each rank after a run: read from the files that the run has left."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commlab.real import _files

WAITING, LEFT, FAILED = "waiting", "left", "failed"
FINISHED, RAISED, RUNNING, STOPPED, DIED = "finished", "raised", "running", "stopped", "died"

# Frames in these files are how a rank got into a collective, or waits: not what it is doing.
_MACHINERY = ("journal.py", "rank.py", "_helper.py")


@dataclass(frozen=True)
class Call:
    """One collective that a rank has entered.

    Attributes
    ----------
    op, shape, dtype : str, tuple of int, str
        What was called, and on what.
    where : str
        The line of the program that called it.
    outcome : str
        ``"left"``, ``"failed"``, or ``"waiting"`` if the rank never came out.
    result : int or None
        A digest of the result's bits, once the call was left.
    error : str
        What the backend said, if the call failed.
    """

    op: str
    shape: tuple[int, ...]
    dtype: str
    where: str
    outcome: str = WAITING
    result: int | None = None
    error: str = ""

    @property
    def signature(self) -> tuple[str, tuple[int, ...], str]:
        """What all ranks have to agree on."""
        return self.op, self.shape, self.dtype

    def __str__(self) -> str:
        return f"{self.op}({self.dtype}[{', '.join(map(str, self.shape))}])"


@dataclass(frozen=True)
class Evidence:
    """What is known about one rank.

    Attributes
    ----------
    rank : int
        The rank.
    calls : tuple of Call
        The collectives that it entered, in order.
    state : str
        ``"finished"``, ``"raised"``, ``"running"``, ``"stopped"`` or ``"died"``, just before
        what was left of the run was ended.
    detail : str
        The exception that it raised, or how it died.
    stands_at : str
        The line on which it was while the others lost their patience, if it could still tell.
    recorded : tuple of str, or None
        The operations in PyTorch's flight recorder, or None if it could not be asked.
    value : object
        What its worker returned.
    """

    rank: int
    calls: tuple[Call, ...]
    state: str
    detail: str = ""
    stands_at: str = ""
    recorded: tuple[str, ...] | None = None
    value: Any = None


def read_evidence(folder: Path, n_ranks: int) -> list[Evidence]:
    """Read what a run has left in its folder about each rank."""
    states = _read(folder / _files.STATES) or [None] * n_ranks
    return [_evidence(folder, rank, states[rank]) for rank in range(n_ranks)]


def joined_at(folder: Path, n_ranks: int) -> float | None:
    """When the last rank had joined (monotonic clock, s); None while one has not."""
    moments = [
        event["at"]
        for rank in range(n_ranks)
        for event in _events(folder / _files.journal(rank))
        if event["event"] == "joined"
    ]
    return max(moments) if len(moments) == n_ranks else None


def _evidence(folder: Path, rank: int, state: dict | None) -> Evidence:
    report = _read(folder / _files.report(rank))
    name, detail = _state(state, report, folder / _files.output(rank, "err"))
    flight = _read(folder / _files.flight(rank))
    return Evidence(
        rank=rank,
        calls=_calls(_events(folder / _files.journal(rank))),
        state=name,
        detail=detail,
        stands_at=_stands_at(folder / _files.stack(rank)),
        recorded=None if flight is None else tuple(_recorded(entry) for entry in flight),
        value=_read(folder / _files.result(rank)),
    )


def _state(state: dict | None, report: dict | None, errors: Path) -> tuple[str, str]:
    if report is not None:
        return RAISED, report["cause"]
    if state is None or state["status"] is None:
        return (STOPPED if state is not None and state["stopped"] else RUNNING), ""
    status = state["status"]
    if status == 0:
        return FINISHED, ""
    how = f"signal {-status}" if status < 0 else f"status {status}"
    # gloo ends a process that receives more than it expects, and says so here.
    last_words = re.search(r"what\(\): +(?:\[[^\]]*\] )?(.*)", _text(errors))
    return DIED, f"{how}: {last_words[1]}" if last_words else how


def _calls(events: list[dict]) -> tuple[Call, ...]:
    calls: list[Call] = []
    for event in events:
        kind = event.pop("event")
        if kind == "entered":
            calls.append(Call(**(event | {"shape": tuple(event["shape"])})))
        elif kind in (LEFT, FAILED):
            entered = calls.pop()
            calls.append(Call(*entered.signature, entered.where, outcome=kind, **event))
    return tuple(calls)


def _events(path: Path) -> list[dict]:
    # The last line of a rank that was killed may be incomplete.
    return [json.loads(line) for line in _text(path).splitlines(True) if line.endswith("\n")]


def _stands_at(path: Path) -> str:
    """Return the innermost line of the rank's own program in a dump of faulthandler."""
    for thread in reversed(_text(path).split("hread 0x")):
        frames = re.findall(r'File "(.+)", line (\d+) in (.+)', thread)
        names = [Path(file).name for file, _, _ in frames]
        if "rank.py" not in names or "_end_with_helper" in thread:
            continue
        for (file, line, function), name in zip(frames, names, strict=True):
            if "/torch/" not in file.replace("\\", "/") and name not in _MACHINERY:
                return f"{name}, line {line}, in {function}"
    return ""


def _recorded(entry: list) -> str:
    number, name, shapes = entry
    return f"{number}: {name.removeprefix('gloo:')} {shapes[0] if shapes else ''}".rstrip()


def _read(path: Path) -> Any:
    return _files.read_json(path) if path.exists() else None


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
