"""What a rank of a virtual cluster does: move to its place, join the others there, and work."""

from __future__ import annotations

import ctypes
import importlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from commlab.real.cluster.buffers import digest, start_buffer
from commlab.real.execute import execute_plan
from commlab.real.plan import plan_for_rank
from commlab.real.rank import join_group
from commlab.real.schedules import schedule_from_plain

CLONE_NEWNET = 0x40000000  # linux/sched.h


def work_in_place(
    places: list[str], meeting_point: str, group_timeout: float, tasks: list[dict[str, Any]]
) -> list[Any]:
    """Do tasks as one rank of a virtual cluster, one after the other.

    Parameters
    ----------
    places : list of str
        The file of each rank's network namespace.
    meeting_point : str
        A file that does not exist yet; the ranks find each other through it.
    group_timeout : float
        Seconds.
    tasks : list of dict
        Each with ``worker``, "module:function", and its ``arguments``.

    Returns
    -------
    list
        What each task returned on this rank.
    """
    rank = dist.get_rank()
    # The group that `run` made speaks over the loopback of the namespace that we leave.
    dist.destroy_process_group()
    enter_network(Path(places[rank]))
    os.environ["GLOO_SOCKET_IFNAME"] = "nic"
    join_group(rank, len(places), Path(meeting_point), group_timeout)
    return [_function(task["worker"])(**task["arguments"]) for task in tasks]


def _function(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def enter_network(namespace: Path) -> None:
    """Move this thread, and those that it starts from now on, to another network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)  # os.setns came with Python 3.12
    with open(namespace, "rb") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(namespace))


def time_schedule(
    schedule: dict[str, Any], n_elements: int, repeats: int, warm_up: int, seed: int
) -> dict[str, Any]:
    """Execute a schedule on random whole numbers, several times.

    Returns
    -------
    dict
        ``seconds``, those of this rank for each repeat, and ``digest`` of its result.
    """
    rank = dist.get_rank()
    one = schedule_from_plain(schedule)
    counts = one.chunk_counts(n_elements).tolist()
    plan = plan_for_rank(one, rank, counts)
    own = torch.from_numpy(start_buffer(one, rank, counts, seed))
    seconds = []
    for _ in range(warm_up + repeats):
        dist.barrier()
        start = time.perf_counter()
        result, _ = execute_plan(plan, own)
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds[warm_up:], "digest": digest(result.numpy())}
