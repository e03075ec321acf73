"""Look for what a run may have left behind: for test_real.py and test_deadlock.py."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

TESTS = Path(__file__).parent
ROOT = TESTS.parent


def processes_of(folder: Path) -> list[psutil.Process]:
    """Living helpers and ranks whose files are in this folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            is_ours = str(folder) in " ".join(process.cmdline())
            if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def python(script: str, **environment: str) -> dict:
    """Arguments of subprocess for a script that finds commlab and these tests' workers."""
    paths = os.pathsep.join([str(ROOT), str(TESTS)])
    return {
        "args": [sys.executable, "-c", script],
        "env": os.environ | {"PYTHONPATH": paths} | environment,
        "text": True,
    }
