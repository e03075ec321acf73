"""Start N ranks on this machine, from a notebook as well as from a terminal.

A notebook kernel cannot simply fork: a copy of a process that has already computed with
several threads may hang for ever, and a function written in a cell does not exist in a fresh
interpreter. So ``run`` starts one fresh Python, the *helper* (``commlab.real._helper``).
The helper imports torch once, turns itself into N ranks and watches over them:

    this process ── pipe ──> helper ── fork ──> rank 0 … rank N−1

The ranks find one another through a file in a fresh folder (no port, no host name), and leave
their results there as JSON. The pipe ends the run: a byte asks the helper to stop, and its
end-of-file, which the operating system sends even when this process is killed, tells the helper
that it is alone and has to clear up as well.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from commlab.real import _files
from commlab.real._progress import progress_line

# How long the helper may take to end its ranks before it is killed with them.
GRACE_SECONDS = 3.0
# How long killed processes may take to disappear.
VANISH_SECONDS = 2.0
# How often the progress line is brought up to date.
PROGRESS_SECONDS = 0.5


class RankError(RuntimeError):
    """A run failed; the message names the rank and the cause.

    Attributes
    ----------
    rank : int or None
        The rank that failed first, or None if the run failed as a whole (time is up).
    details : str
        The traceback of that rank, where it left one.
    """

    def __init__(self, message: str, rank: int | None = None, details: str = "") -> None:
        super().__init__(message)
        self.rank = rank
        self.details = details


def run(
    worker: str | Callable[..., object],
    ranks: int = 4,
    timeout: float = 60.0,
    **arguments: object,
) -> list:
    """Run ``worker(**arguments)`` in ``ranks`` processes that form one gloo group.

    Parameters
    ----------
    worker : str or function
        ``"module:function"``, or a function of an importable module. Each rank calls it once,
        after it has joined the group; it asks ``torch.distributed.get_rank()`` who it is.
    ranks : int
        Number of processes.
    timeout : float
        Seconds for the whole run, importing torch (about 2 s) included.
    **arguments
        Passed to the worker in every rank. They travel as JSON.

    Returns
    -------
    list
        What each rank's worker returned, in rank order: plain data (numbers, strings, lists,
        dictionaries). What the ranks print comes out at the end, sorted by rank. Meanwhile a
        terminal or a live notebook shows a line that says how far the run is.

    Raises
    ------
    ValueError
        If the worker does not exist, ``ranks`` or ``timeout`` make no sense, or an argument is
        not plain data.
    RankError
        If a rank raises or dies, or if the time is up. No process is left behind.
    """
    job = make_job(worker, ranks, timeout, arguments)
    with temporary_folder() as folder:
        try:
            run_job(folder, job)
        finally:
            _show_output(folder, ranks)
        return [_files.read_json(folder / _files.result(rank)) for rank in range(ranks)]


def make_job(
    worker: str | Callable[..., object],
    ranks: int,
    timeout: float,
    arguments: Mapping[str, object],
    linger: float = 0.0,
) -> dict[str, object]:
    """Check what `run` was asked for and write it down for the helper.

    ``linger`` is how many seconds the other ranks may go on after one has failed; by default
    they are ended at once.
    """
    _check_numbers(ranks, timeout)
    return {
        "worker": _worker_name(worker),
        "ranks": ranks,
        "timeout": timeout,
        "arguments": _plain(arguments),
        "start_method": _start_method(),
        "linger": linger,
    }


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make the folder of one run; it is removed at the end, by the helper if we are killed."""
    # A folder that a killed process is still writing to must not hide the real error.
    with tempfile.TemporaryDirectory(prefix="commlab-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def run_job(
    folder: Path, job: dict[str, Any], environment: Mapping[str, str] | None = None
) -> None:
    """Run a job in a folder, where results, reports and outputs are found afterwards.

    ``environment`` is added to the ranks' environment. Raises as `run` does; leaves no process.
    """
    if not _is_installed("torch"):
        raise RankError(
            f"PyTorch is not installed for {sys.executable}: install the environment of this book."
        )
    _files.write_json(folder / _files.JOB, job)
    status = _run_helper(folder, job["ranks"], job["timeout"], environment or {})
    if status != 0:
        _raise_failure(folder, status)


def _run_helper(folder: Path, ranks: int, timeout: float, environment: Mapping[str, str]) -> int:
    """Start the helper, wait for it and return its exit status; leave no process behind."""
    process = None
    try:
        with open(folder / _files.HELPER_LOG, "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "commlab.real._helper", str(folder)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=_environment() | dict(environment),
                # Out of our process group: Ctrl-C reaches this process alone, which then
                # ends the others in good order.
                start_new_session=True,
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        return _wait(process, folder, ranks, timeout)
    except subprocess.TimeoutExpired:
        raise RankError(_why_late(folder, ranks, timeout)) from None
    finally:
        # Also reached by KeyboardInterrupt. An interrupt before `process` is assigned is
        # covered too: the pipe is then closed by the garbage collector.
        if process is not None:
            _stop(process)


def _wait(process: subprocess.Popen, folder: Path, ranks: int, timeout: float) -> int:
    """Wait for the helper's exit status, and meanwhile say how far the run is."""
    start = time.monotonic()
    with progress_line() as show:
        while True:
            elapsed = time.monotonic() - start
            try:
                return process.wait(min(PROGRESS_SECONDS, max(0.0, timeout - elapsed)))
            except subprocess.TimeoutExpired:
                if elapsed >= timeout:
                    raise
            show(
                f"{_how_far(folder, ranks)}, {time.monotonic() - start:.0f} s "
                f"(at most {timeout:g} s)"
            )


def _how_far(folder: Path, ranks: int) -> str:
    started, finished = _progress(folder, ranks)
    if len(started) < ranks:
        return f"{ranks} ranks are starting"
    return f"{ranks} ranks at work, {len(finished)} done"


def _progress(folder: Path, ranks: int) -> tuple[list[int], list[int]]:
    """Which ranks have started and which have finished, from the files that are there now."""
    started = [rank for rank in range(ranks) if (folder / _files.output(rank, "out")).exists()]
    finished = [rank for rank in range(ranks) if (folder / _files.result(rank)).exists()]
    return started, finished


def _stop(process: subprocess.Popen) -> None:
    """End the helper and its ranks, and wait until they are gone."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # It may have ended by itself.
        process.stdin.write(b"stop")
        process.stdin.close()
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.returncode < 0 and hasattr(os, "killpg"):
        _kill_group(process.pid)


def _kill_group(group: int) -> None:
    """Kill what a killed helper has left of its process group, and see it go."""
    deadline = time.monotonic() + VANISH_SECONDS
    # Raised once nobody is left; on macOS the second one, while the dead are not yet buried.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < deadline:
            os.killpg(group, signal.SIGKILL)
            time.sleep(0.01)


def _environment() -> dict[str, str]:
    """Make the environment of the ranks: ours, and what gloo on one machine needs."""
    environment = dict(os.environ)
    # The ranks find every module that this process finds, also after sys.path was changed.
    environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    # One thread each: N ranks with one thread per core would fight for the cores. It also
    # keeps OpenMP from starting threads, which a fork does not survive.
    environment["OMP_NUM_THREADS"] = "1"
    # What goes wrong inside of gloo reaches the worker as an exception, too.
    environment["TORCH_CPP_LOG_LEVEL"] = "FATAL"
    environment["PYTHONIOENCODING"] = "utf-8"
    # Nothing that a rank has printed is lost when it is killed.
    environment["PYTHONUNBUFFERED"] = "1"
    interface = _loopback_interface()
    if interface is not None:
        # Otherwise gloo looks up the host name, which may lead to a VPN or nowhere.
        environment["GLOO_SOCKET_IFNAME"] = interface
    return environment


def _loopback_interface() -> str | None:
    """``lo`` on Linux, ``lo0`` on macOS, None where no such interface is listed."""
    for _, name in socket.if_nameindex():
        if name.rstrip("0123456789") == "lo":
            return name
    return None


def _start_method() -> str:
    """How the helper makes ranks: fork shares one import of torch, but only Linux does it well."""
    return "fork" if sys.platform == "linux" else "spawn"


def _check_numbers(ranks: int, timeout: float) -> None:
    if not isinstance(ranks, int) or isinstance(ranks, bool) or ranks < 1:
        raise ValueError(f"ranks is {ranks!r}: give a whole number of processes, 1 or more.")
    if not isinstance(timeout, (int, float)) or not math.isfinite(timeout) or timeout <= 0:
        raise ValueError(f"timeout is {timeout!r}: give a number of seconds above 0.")


def _worker_name(worker: str | Callable[..., object]) -> str:
    """Return ``module:function``; refuse what a fresh interpreter could not import."""
    if callable(worker):
        module, function = worker.__module__, worker.__qualname__
        if module == "__main__" or "<" in function:
            raise ValueError(
                f"the worker {function!r} exists only in this notebook or function, where the "
                "ranks cannot import it: write it at the top level of a module (a .py file)."
            )
    else:
        module, _, function = str(worker).partition(":")
        if not module or not function:
            raise ValueError(
                f"the worker {worker!r} is not of the form 'module:function', "
                "for example 'commlab.real.workers:five_collectives'."
            )
    if not _is_installed(module):
        raise ValueError(
            f"there is no module {module!r} for the worker: check its spelling, and that the "
            "folder of its file is on sys.path."
        )
    return f"{module}:{function}"


def _is_installed(module: str) -> bool:
    """Whether a module can be found; it is not imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _plain(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments; refuse what JSON cannot carry."""
    for name, value in arguments.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"the argument {name!r} ({type(value).__name__}) cannot travel to the ranks: pass "
                "numbers, strings, lists or dictionaries (for an array, array.tolist())."
            ) from error
    return dict(arguments)


def _show_output(folder: Path, ranks: int) -> None:
    """Print what the ranks printed, rank after rank."""
    for stream_name, stream in (("out", sys.stdout), ("err", sys.stderr)):
        for rank in range(ranks):
            path = folder / _files.output(rank, stream_name)
            if not path.exists():
                continue
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                print(f"[rank {rank}] {line}", file=stream)


def _raise_failure(folder: Path, status: int) -> None:
    """Turn what the run left behind into one error."""
    failure_file = folder / _files.FAILURE
    if not failure_file.exists():
        log = (folder / _files.HELPER_LOG).read_text(encoding="utf-8", errors="replace")
        last_line = log.strip().splitlines()[-1:] or ["it left no message"]
        raise RankError(
            f"the process that starts the ranks ended with status {status}: {last_line[0]}",
            details=log,
        )
    failure = _files.read_json(failure_file)
    if failure["refused"]:
        raise ValueError(failure["message"])
    raise RankError(failure["message"], failure["rank"], failure["details"])


def _why_late(folder: Path, ranks: int, timeout: float) -> str:
    """Say which ranks have not finished, from the files that are there now."""
    started, finished = _progress(folder, ranks)
    working = [rank for rank in range(ranks) if rank not in finished]
    message = f"the run did not end within {timeout:g} s: "
    if not started:
        return message + "the ranks had not started yet, so give run() a longer timeout."
    message += f"{_files.name_ranks(working)} had not finished"
    if finished:
        message += f", {_files.name_ranks(finished)} had"
    return message + (
        ". Give run() a longer timeout, or look for a collective that not every rank calls."
    )
