"""The files through which the ranks, their helper and the caller talk to one another."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

JOB = "job.json"
FAILURE = "failure.json"
HELPER_LOG = "helper.log"
MEETING_POINT = "meeting_point"
STATES = "states.json"


def result(rank: int) -> str:
    """File name of the value that a rank's worker returned."""
    return f"rank{rank}.result.json"


def report(rank: int) -> str:
    """File name of the exception that ended a rank."""
    return f"rank{rank}.report.json"


def output(rank: int, stream: str) -> str:
    """File name of what a rank printed on ``stream`` ("out" or "err")."""
    return f"rank{rank}.{stream}.txt"


def journal(rank: int) -> str:
    """File name of the collectives that a rank has entered and left, one a line."""
    return f"rank{rank}.journal.jsonl"


def stack(rank: int) -> str:
    """File name of the lines on which a rank's threads were while it should have been done."""
    return f"rank{rank}.stack.txt"


def flight(rank: int) -> str:
    """File name of what PyTorch's flight recorder holds on a rank."""
    return f"rank{rank}.flight.json"


def write_json(path: Path, data: object) -> None:
    """Write a JSON file that is either complete or not there at all."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(data), encoding="utf-8")
    os.replace(unfinished, path)


def read_json(path: Path) -> Any:
    """Read what `write_json` wrote."""
    return json.loads(path.read_text(encoding="utf-8"))


def name_ranks(ranks: Sequence[int]) -> str:
    """``"rank 2"`` or ``"ranks 0, 1 and 3"``."""
    names = [str(rank) for rank in ranks]
    if len(names) == 1:
        return f"rank {names[0]}"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"
