"""How much memory is free on this machine, or in the container that it pretends to be."""

from __future__ import annotations

import os
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
# A container's limit, where the system has control groups of version 2.
_CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int | None:
    """Return the bytes that new processes may use; None where the system does not say."""
    known = [amount for amount in (_free_of_machine(), _free_of_container()) if amount is not None]
    return min(known, default=None)


def _free_of_machine() -> int | None:
    if _MEMINFO.exists():
        for line in _MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:  # macOS says how much there is in all.
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _free_of_container() -> int | None:
    try:
        limit = int((_CGROUP / "memory.max").read_text(encoding="ascii"))
        return limit - int((_CGROUP / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such group, or its limit is "max"
        return None
