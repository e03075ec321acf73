"""What one rank does: join the group, call the worker, leave the result in a file."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from commlab.real import _files


def main(folder: Path, job: dict, rank: int, worker: Callable[..., object]) -> None:
    """Run the worker as one rank of the job, with its prints going to files."""
    threading.Thread(target=_end_with_helper, daemon=True).start()
    _capture_output(folder, rank)
    _prefer_long_turns()
    torch.set_num_threads(1)
    try:
        join_group(rank, job["ranks"], folder / _files.MEETING_POINT, job["timeout"])
        result = worker(**job["arguments"])
        write_result(folder, rank, result)
    except BaseException as error:
        write_report(folder, rank, error, at=time.monotonic())
        leave(1)
    leave(0)


def join_group(rank: int, n_ranks: int, meeting_point: Path, timeout: float) -> None:
    """Make this process rank ``rank`` of a gloo group of ``n_ranks``, and wait for the others."""
    store = dist.FileStore(str(meeting_point), n_ranks)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=n_ranks, timeout=timedelta(seconds=timeout)
    )
    # A rank whose work is short must not be gone before the last one has connected to it.
    dist.barrier()


def write_result(folder: Path, rank: int, result: object) -> None:
    """Leave what the worker returned in this rank's file; refuse what JSON cannot carry."""
    try:
        _files.write_json(folder / _files.result(rank), result)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"the worker returned something that is not plain data ({error}): return numbers, "
            "strings, lists or dictionaries (for a tensor, tensor.tolist())"
        ) from error


def write_report(folder: Path, rank: int, error: BaseException, at: float) -> dict[str, Any]:
    """Leave in a file why this rank failed; return the same.

    Parameters
    ----------
    at : float
        Seconds on a clock that all ranks share, to tell who failed first.
    """
    report = {
        "at": at,
        "cause": f"{type(error).__name__}: {error}",
        "where": _where(error),
        "traceback": "".join(traceback.format_exception(error)),
    }
    _files.write_json(folder / _files.report(rank), report)
    return report


def _where(error: BaseException) -> str:
    """Name the last line outside of torch, e.g. ``"workers.py, line 12, in my_worker"``."""
    torch_folder = str(Path(torch.__file__).parent)
    frames = traceback.extract_tb(error.__traceback__)
    frame = [one for one in frames if not one.filename.startswith(torch_folder)][-1]
    return f"{Path(frame.filename).name}, line {frame.lineno}, in {frame.name}"


def _capture_output(folder: Path, rank: int) -> None:
    """Send this process's output to files, that of C++ libraries too."""
    for number, name in ((1, "out"), (2, "err")):
        with open(folder / _files.output(rank, name), "wb") as file:
            os.dup2(file.fileno(), number)


def leave(status: int) -> None:
    """End this rank at once: a group that has lost a rank can take long to take apart."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _prefer_long_turns() -> None:
    """Ask Linux to switch less often between the ranks: there are more of them than cores."""
    if hasattr(os, "SCHED_BATCH"):
        # Only a preference: a sandbox may forbid it.
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _end_with_helper() -> None:
    """End this rank when its helper is gone, whatever the worker is doing."""
    helper = multiprocessing.parent_process()
    assert helper is not None  # A rank is always a child of the helper.
    wait([helper.sentinel])
    os._exit(1)
