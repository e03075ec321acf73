"""The helper process: makes the ranks, watches them, and ends them when anything fails.

Started by `commlab.real.launch.run` as ``python -m commlab.real._helper FOLDER``.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from commlab.real import _files

# What gloo says in the ranks that were left waiting for one that is gone.
_SIGNS_OF_A_LOST_PEER = ("closed by peer", "reset by peer")
SETTLE_SECONDS = 0.5
# Taken by whoever ends the run, and never given back: killed ranks look like failed ones, and
# the main thread must not leave while the other one still clears up.
_ending = threading.Lock()
# Only Unix waits for two pipes at once. Windows needs no pause: it does not fork.
_CAN_PAUSE = os.name == "posix"


class _UnknownWorkerError(LookupError):
    """The module is there, the function is not."""


def main() -> int:
    """Run one job to its end. Returns 0 if every rank finished."""
    folder = Path(sys.argv[1])
    job = _files.read_json(folder / _files.JOB)
    watchman = _Watchman(folder)
    watchman.start()
    try:
        worker = _import_worker(job["worker"])
    except _UnknownWorkerError as error:
        _files.write_json(folder / _files.FAILURE, {"refused": True, "message": str(error)})
        return 2
    # This import is the expensive one (about 2 s); forked ranks share it.
    from commlab.real import rank as one_rank

    context = multiprocessing.get_context(job["start_method"])
    processes = [
        context.Process(target=one_rank.main, args=(folder, job, rank, worker), name=f"rank {rank}")
        for rank in range(job["ranks"])
    ]
    if job["start_method"] == "fork":
        # A process should have a single thread when it forks.
        watchman.pause()
    for process in processes:
        process.start()
        watchman.processes.append(process)
    if job["start_method"] == "fork":
        watchman.start()

    failure = _watch(folder, processes)
    if failure is not None:
        _let_others_end(processes, job["linger"])
    _ending.acquire()
    _write_states(folder, processes)
    if failure is None:
        return 0
    _end(processes)
    _files.write_json(folder / _files.FAILURE, {"refused": False, **failure})
    return 1


class _Watchman:
    """A thread that ends the run when the parent says so on stdin, or is gone (end-of-file).

    Attributes
    ----------
    processes : list
        The ranks that exist by now.
    """

    def __init__(self, folder: Path) -> None:
        self.processes: list[BaseProcess] = []
        self._folder = folder
        self._thread: threading.Thread | None = None
        self._pause_read = self._pause_write = -1

    def start(self) -> None:
        if _CAN_PAUSE:
            self._pause_read, self._pause_write = os.pipe()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def pause(self) -> None:
        """End the thread; `start` makes another one."""
        assert self._thread is not None
        os.close(self._pause_write)
        self._thread.join()
        os.close(self._pause_read)

    def _watch(self) -> None:
        if _CAN_PAUSE:
            ready, _, _ = select.select([0, self._pause_read], [], [])
            if 0 not in ready:
                return
        # Not sys.stdin: its lock would be held while we wait.
        parent_is_there = os.read(0, 1) != b""
        _ending.acquire()
        if parent_is_there:
            _write_states(self._folder, self.processes)
        _end(self.processes)
        if not parent_is_there:
            shutil.rmtree(self._folder, ignore_errors=True)
        if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
            # Also a rank that was being started at this very moment.
            os.killpg(0, signal.SIGKILL)
        os._exit(1)


def _import_worker(name: str) -> Callable[..., object]:
    module_name, _, function = name.partition(":")
    module = importlib.import_module(module_name)
    worker = getattr(module, function, None)
    if not callable(worker):
        raise _UnknownWorkerError(f"the module {module_name!r} has no function {function!r}.")
    return worker


def _watch(folder: Path, processes: Sequence[BaseProcess]) -> dict[str, object] | None:
    """Wait until every rank has finished (returns None) or one has failed (returns why)."""
    running = list(processes)
    while running:
        wait([process.sentinel for process in running])
        running = [process for process in running if process.exitcode is None]
        if any(process.exitcode not in (None, 0) for process in processes):
            return _first_failure(folder, processes)
    return None


def _first_failure(folder: Path, processes: Sequence[BaseProcess]) -> dict[str, object]:
    """Which rank failed first, and why: the others only lost their partner."""
    reports = _read_reports(folder, len(processes))
    # A rank that is killed leaves no report; the ranks that miss it do.
    for rank, process in enumerate(processes):
        status = process.exitcode
        if status not in (None, 0) and rank not in reports:
            what = f"was ended by signal {-status}" if status < 0 else f"left with status {status}"
            return {"rank": rank, "message": f"rank {rank} {what}.", "details": ""}
    rank = min(reports, key=lambda one: reports[one]["at"])
    report = reports[rank]
    message = f"rank {rank} failed: {report['cause']} ({report['where']})"
    if _has_lost_a_peer(report):
        _let_others_end(processes, SETTLE_SECONDS)
        reports = _read_reports(folder, len(processes))
        waiting = [one for one in reports if _has_lost_a_peer(reports[one])]
        left = [
            one
            for one in range(len(processes))
            if one not in reports and (folder / _files.result(one)).exists()
        ]
        if left:
            rank = left[0]
            message = (
                f"{_files.name_ranks(left)} had finished while {_files.name_ranks(waiting)} still "
                f"waited in a collective ({report['where']}): "
                "every rank must make the same calls in the same order."
            )
    return {"rank": rank, "message": message, "details": report["traceback"]}


def _read_reports(folder: Path, n_ranks: int) -> dict[int, dict]:
    """Read the reports of the ranks that raised, by rank."""
    paths = {rank: folder / _files.report(rank) for rank in range(n_ranks)}
    return {rank: _files.read_json(path) for rank, path in paths.items() if path.exists()}


def _has_lost_a_peer(report: dict) -> bool:
    return any(sign in report["cause"] for sign in _SIGNS_OF_A_LOST_PEER)


def _let_others_end(processes: Sequence[BaseProcess], seconds: float) -> None:
    """Wait a moment for the ranks that miss the same peer, or are about to finish."""
    deadline = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))


def _write_states(folder: Path, processes: Sequence[BaseProcess]) -> None:
    """Write down how each rank has ended, or what it is doing, before any of them is killed."""
    states = [
        {"status": process.exitcode, "stopped": process.exitcode is None and _is_stopped(process)}
        for process in processes
    ]
    _files.write_json(folder / _files.STATES, states)


def _is_stopped(process: BaseProcess) -> bool:
    """Whether a living process is held by SIGSTOP or a debugger, as the system sees it."""
    stat = Path(f"/proc/{process.pid}/stat")
    if stat.exists():
        # "pid (name) state …", and the name may hold spaces and brackets.
        state = stat.read_text().rpartition(")")[2].split()[0]
    elif os.name == "posix":
        command = ["ps", "-o", "state=", "-p", str(process.pid)]
        state = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    else:
        return False  # Windows stops no process.
    return state[:1].upper() == "T"


def _end(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.join()


if __name__ == "__main__":
    sys.exit(main())
