"""How the benchmarks measure: the functions take turns, and the fastest turn of each counts.

On a shared machine a neighbour only ever makes a run slower, so the fastest run says most
about the program; taking turns lets the functions share what the machine does meanwhile. The
clock counts the seconds of a processor, not those spent waiting for one.
"""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Mapping

import numpy as np


def fastest_seconds(
    functions: Mapping[str, Callable[[], object]],
    repeats: int = 7,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, float]:
    """Call all functions in turn, `repeats` times, and return the fastest time of each.

    A function that starts other processes needs ``clock=seconds_of_children``.
    """
    seconds = {name: float("inf") for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = clock()
            function()
            seconds[name] = min(seconds[name], clock() - start)
    return seconds


def fastest_call(function: Callable[[], object], calls: int = 500, repeats: int = 5) -> float:
    """Return the seconds of one call of a function that is too quick to be timed alone."""

    def many() -> None:
        for _ in range(calls):
            function()

    return fastest_seconds({"calls": many}, repeats)["calls"] / calls


def seconds_of_children() -> float:
    """Return the seconds of a processor that all ended child processes took together."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def machine() -> str:
    """Return the machine and the versions that the numbers belong to."""
    return (
        f"{_processor()}, {os.cpu_count()} cores; {platform.system()}, "
        f"Python {sys.version.split()[0]}, NumPy {np.__version__}"
    )


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
        return names[0]
    except (OSError, IndexError):  # not Linux, or a kernel that does not tell
        return platform.processor() or platform.machine()
