"""Workers for test_virtual_cluster.py."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import torch.distributed as dist


def look_around() -> dict[str, object]:
    """What this rank sees of the network it is in."""
    received = {
        line.split(":")[0].strip(): int(line.split(":")[1].split()[0])
        for line in Path("/proc/net/dev").read_text().splitlines()[2:]
    }
    return {
        "interfaces": sorted(name for _, name in socket.if_nameindex()),
        "received": received,
    }


def fail_on_rank_1() -> None:
    if dist.get_rank() == 1:
        raise ValueError("the cause")
    dist.barrier()


def say_here_and_sleep(folder: str) -> None:
    (Path(folder) / f"here{dist.get_rank()}").touch()
    time.sleep(600)
