"""Limits and clocks of this machine, and whether it can play a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import commlab
from commlab.real.doctor.finding import Finding, note, ok, warning
from commlab.units import GIB, format_bytes, format_seconds

SHARED_MEMORY = Path("/dev/shm")
# Containers start with 64 MiB, and NCCL takes some MiB for each pair of ranks.
ENOUGH_SHARED_MEMORY = GIB
INFINIBAND = Path("/sys/class/infiniband")
CLOCK_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
SLOW_CLOCK_SOURCES = ("acpi_pm", "hpet", "jiffies", "refined-jiffies")
FINE_ENOUGH_SECONDS = 1e-6
# File systems round times, and clocks of two machines differ a little.
CLOCK_SLACK_SECONDS = 120.0
UNSHARE_SECONDS = 10.0


def shared_memory() -> list[Finding]:
    """Whether /dev/shm is large enough for NCCL and for loaders of data."""
    if not hasattr(os, "statvfs") or not SHARED_MEMORY.exists():
        return []
    disk = os.statvfs(SHARED_MEMORY)
    size = disk.f_blocks * disk.f_frsize
    if size >= ENOUGH_SHARED_MEMORY:
        told = format_bytes(size)
        return [
            ok(
                "shared memory",
                f"{SHARED_MEMORY} holds {told}.",
                f"{SHARED_MEMORY} 有 {told}。",
            )
        ]
    return [
        warning(
            "shared memory",
            f"{SHARED_MEMORY} holds only {format_bytes(size)}.",
            f"{SHARED_MEMORY} 只有 {format_bytes(size)}。",
            "NCCL may fail there: start the container with --ipc=host or --shm-size=8g.",
            "NCCL 可能因此失败：启动容器时加 --ipc=host 或 --shm-size=8g。",
        )
    ]


def locked_memory() -> list[Finding]:
    """Whether InfiniBand may lock memory (ulimit -l)."""
    try:
        import resource
    except ImportError:  # Windows
        return []
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    cards = sorted(card.name for card in INFINIBAND.iterdir()) if INFINIBAND.is_dir() else []
    unlimited = limit == resource.RLIM_INFINITY
    amount = "unlimited" if unlimited else format_bytes(limit)
    told = ", ".join(cards)
    if cards and not unlimited:
        return [
            warning(
                "ulimit -l",
                f"Only {amount} may be locked, and InfiniBand ({told}) locks all that "
                "it sends from.",
                f"只允许锁定 {amount} 内存，而 InfiniBand（{told}）要锁定所有收发缓冲区。",
                "Set `ulimit -l unlimited` (in Slurm: PropagateResourceLimitsExcept=MEMLOCK).",
                "设成 ulimit -l unlimited（Slurm 里是 PropagateResourceLimitsExcept=MEMLOCK）。",
            )
        ]
    return [
        ok(
            "ulimit -l",
            f"InfiniBand cards: {told or 'none'}; memory that may be locked: {amount}.",
            f"InfiniBand 网卡：{told or '没有'}；可锁定的内存：{amount}。",
        )
    ]


def clocks() -> list[Finding]:
    """Whether the clocks can time a message, and the date can be right."""
    findings = []
    resolution = time.get_clock_info("perf_counter").resolution
    source = CLOCK_SOURCE.read_text().strip() if CLOCK_SOURCE.exists() else ""
    if resolution > FINE_ENOUGH_SECONDS or source in SLOW_CLOCK_SOURCES:
        told = source or format_seconds(resolution)
        findings.append(
            warning(
                "clock",
                f"The clock of this machine is slow or coarse ({told}).",
                f"这台机器的时钟读取慢或者精度低（{told}）。",
                "Times of small messages will be wrong: use another clock source (tsc), or look "
                "at large messages only.",
                "小消息的计时会不准：换一个时钟源（tsc），或者只看大消息。",
            )
        )
    written = Path(commlab.__file__).stat().st_mtime
    if time.time() < written - CLOCK_SLACK_SECONDS:
        findings.append(
            warning(
                "clock",
                "The date of this machine lies before the day this package was written to it.",
                "这台机器的日期早于本包写入的日期。",
                "Set the clock (NTP): logs of several nodes cannot be compared otherwise.",
                "校准时钟（NTP），否则各节点的日志无法对照。",
            )
        )
    told = format_seconds(resolution)
    return findings or [
        ok(
            "clock",
            f"The clock ticks every {told}.",
            f"时钟的精度是 {told}。",
        )
    ]


def namespaces() -> list[Finding]:
    """Whether network namespaces can be made: the virtual cluster of this book needs them."""
    _, reason = find_unshare()
    if reason is None:
        return [
            ok(
                "namespaces",
                "Network namespaces can be made: this machine can play a cluster.",
                "可以建立网络命名空间：这台机器能扮演一个集群。",
            )
        ]
    return [
        note(
            "namespaces",
            f"Network namespaces cannot be made here ({reason}), so this machine cannot play a "
            "cluster; nothing else needs them.",
            f"这里不能建立网络命名空间（{reason}），所以不能扮演集群；其他功能不需要它。",
        )
    ]


def find_unshare() -> tuple[list[str], str | None]:
    """Find out how to get namespaces, of networks among others.

    Returns
    -------
    command : list of str
        The beginning of a command that runs a program in namespaces of its own; empty where
        there is none.
    reason : str or None
        Why there is none.
    """
    if sys.platform != "linux":
        return [], f"this is {sys.platform}"
    reason = None
    # With the rights of root it needs no namespace of users; others get those rights in one.
    for rights in ([], ["--user", "--map-root-user"]):
        command = ["unshare", *rights, "--net", "--mount", "--uts"]
        reason = _why_refused([*command, *"ip link add one type veth peer name other".split()])
        if reason is None:
            return command, None
    return [], reason


def _why_refused(command: list[str]) -> str | None:
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=UNSHARE_SECONDS, check=False
        )
    except FileNotFoundError:
        return f"there is no program {command[0]}"
    except subprocess.TimeoutExpired:
        return f"{command[0]} hangs"
    if answer.returncode == 0:
        return None
    lines = answer.stderr.strip().splitlines() or [f"exit status {answer.returncode}"]
    return lines[-1]
