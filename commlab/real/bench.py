"""`commlab bench`: time collectives over sizes and algorithms, and keep the result as data.

An algorithm is ``"backend"``, which is the collective of gloo or NCCL itself, or a name of
``REGISTRY``, whose schedule is run by sends and receives. The ranks are started here
(`run_here`) or have been started by torchrun (`run_under_torchrun`); both return the same.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from commlab.real import _files
from commlab.real.bench_plan import Sweep, plan_cases, why_too_large
from commlab.real.bench_result import make_result, why_not_writable
from commlab.real.launch import make_job, run_job, temporary_folder

FOLLOW_SECONDS = 0.3


def run_here(sweep: Sweep, ranks: int, timeout: float) -> dict[str, Any]:
    """Measure between processes of this machine, over gloo.

    Parameters
    ----------
    sweep : Sweep
    ranks : int
        2 or more.
    timeout : float
        Seconds for the whole sweep.

    Returns
    -------
    dict
        See `make_result`.

    Raises
    ------
    ValueError
        If the sweep makes no sense or would not fit into the memory; nothing is started then.
    RankError
        If a rank fails, a collective computes wrong numbers, or the time is up.
    """
    cases, skipped = plan_cases(sweep, ranks)
    reason = why_too_large(sweep, ranks)
    if reason is not None:
        raise ValueError(reason)
    with temporary_folder() as folder:
        progress_file = folder / "progress.txt"
        arguments = {"cases": cases, "blocks": sweep.blocks, "progress_file": str(progress_file)}
        job = make_job("commlab.real.bench_workers:sweep", ranks, timeout, arguments)
        with _lines_shown(progress_file):
            run_job(folder, job)
        measured = _files.read_json(folder / _files.result(0))
    hosts = [socket.gethostname()] * ranks
    return make_result(cases, measured, hosts, 1, "gloo", "cpu", {}, skipped)


def run_under_torchrun(
    sweep: Sweep, backend: str, timeout: float, output: Path | None
) -> dict[str, Any] | None:
    """Measure as one of the ranks that torchrun has started. NCCL: not run on GPUs here.

    Parameters
    ----------
    sweep : Sweep
    backend : str
        "gloo", "nccl" or "auto".
    timeout : float
        Seconds that one collective may take.
    output : Path, optional
        Where rank 0 will write; checked before anything is measured.

    Returns
    -------
    dict or None
        On rank 0 the result, see `make_result`; None on the others.

    Raises
    ------
    ValueError
        If the sweep, the backend, the output or the memory of any node refuses; on all ranks.
    JoinError, RuntimeError
        If the ranks do not find or lose one another, or a collective computes wrong numbers.
    """
    from commlab.real import torchrun
    from commlab.real.bench_workers import measure_cases

    place = torchrun.read_place()
    per_node = place.ranks_per_node if place.n_nodes > 1 else None
    cases, skipped = plan_cases(sweep, place.n_ranks, per_node)
    with torchrun.joined(place, backend, timeout) as group:
        reason = why_too_large(sweep, place.ranks_per_node)
        if reason is None and place.rank == 0:
            reason = why_not_writable(output)
        torchrun.refuse_together(reason)
        measured = measure_cases(cases, sweep.blocks, group.device, _print_line)
        hosts = torchrun.gather_from_all(socket.gethostname())
    if place.rank != 0:
        return None
    device, versions = torchrun.describe_device(group.device)
    return make_result(
        cases, measured, hosts, place.n_nodes, group.backend, device, versions, skipped
    )


@contextlib.contextmanager
def _lines_shown(path: Path) -> Iterator[None]:
    """Meanwhile, print on stderr what a rank appends to a file."""
    ended = threading.Event()
    follower = threading.Thread(target=_follow, args=(path, ended), daemon=True)
    follower.start()
    try:
        yield
    finally:
        ended.set()
        follower.join()


def _follow(path: Path, ended: threading.Event) -> None:
    shown = 0
    while True:
        is_last_look = ended.wait(FOLLOW_SECONDS)
        if path.exists():
            # What follows the last line's end is a line that is still being written.
            lines = path.read_text(encoding="utf-8").split("\n")[:-1]
            for line in lines[shown:]:
                _print_line(line)
            shown = len(lines)
        if is_last_look:
            return


def _print_line(text: str) -> None:
    """Print on stderr, over the line that a terminal shows while ranks are at work."""
    if sys.stderr.isatty():
        text = f"\r{text}\x1b[K"
    print(text, file=sys.stderr, flush=True)
