"""GPUs: those of the driver, those that PyTorch sees, and the links between them.

Not run on GPUs here: tested on outputs of ``nvidia-smi`` as people have published them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Any

from commlab.real.doctor.finding import (
    ERROR,
    NOTE,
    OK,
    WARNING,
    Finding,
    Text,
    error,
    note,
    ok,
    warning,
)

SMI_SECONDS = 30.0
# What switches a fast way off, and which one.
NCCL_SWITCHES = {
    "NCCL_P2P_DISABLE": Text("direct copies between GPUs", "GPU 之间的直接拷贝"),
    "NCCL_SHM_DISABLE": Text("shared memory", "共享内存"),
    "NCCL_IB_DISABLE": Text("InfiniBand", "InfiniBand"),
}
NCCL_CHOICES = ("NCCL_ALGO", "NCCL_PROTO")
# From ``nvidia-smi topo -m``: how two GPUs are joined, the best first.
SLOW_LINKS = ("SYS", "NODE", "PHB")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def ask_driver() -> list[str] | None:
    """Return the driver's list of GPUs, one line each; None where there is no nvidia-smi."""
    answer = _nvidia_smi(
        "--query-gpu=index,name,driver_version,memory.total", "--format=csv,noheader"
    )
    return None if answer is None else [line for line in answer.splitlines() if line.strip()]


def ask_topology() -> str | None:
    """Return the driver's matrix of links; None where there is no nvidia-smi."""
    return _nvidia_smi("topo", "-m")


def _nvidia_smi(*arguments: str) -> str | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        answer = subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=SMI_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout if answer.returncode == 0 else ""


def visible(facts: dict[str, Any], driver: list[str] | None) -> list[Finding]:
    """Compare the driver's GPUs with those that PyTorch sees.

    Parameters
    ----------
    facts : dict
        From `software.ask_torch`.
    driver : list of str or None
        From `ask_driver`.
    """
    seen = facts.get("gpus")
    if seen is None:
        return []  # Another check says what is wrong with PyTorch.
    if not seen:
        return [_none_seen(facts, driver)]
    if facts["nccl"] is None:
        return [
            error(
                "GPUs",
                f"PyTorch sees {len(seen)} GPUs and was built without NCCL.",
                f"PyTorch 看到 {len(seen)} 块 GPU，但编译时没有带 NCCL。",
                "Install an official Linux build of PyTorch.",
                "安装 PyTorch 官方的 Linux 版。",
            )
        ]
    told = f"{len(seen)} × {seen[0]}" if len(set(seen)) == 1 else ", ".join(seen)
    findings = [
        ok(
            "GPUs",
            f"PyTorch sees {told}.",
            f"PyTorch 看到 {told}。",
        ),
    ]
    if len(set(seen)) > 1:
        findings.append(
            warning(
                "GPUs",
                "The GPUs are not all of one kind.",
                "这些 GPU 不是同一种型号。",
                "The slowest one sets the pace: choose equal ones with CUDA_VISIBLE_DEVICES.",
                "最慢的一块决定速度：用 CUDA_VISIBLE_DEVICES 选同一种型号。",
            )
        )
    if driver is not None and len(driver) > len(seen):
        findings.append(_some_hidden(len(driver), len(seen)))
    return findings + _without_p2p(facts)


def _none_seen(facts: dict[str, Any], driver: list[str] | None) -> Finding:
    """Why PyTorch sees no GPU."""
    if driver is None:
        return note(
            "GPUs",
            "There is no GPU here, so the ranks use gloo on the CPU.",
            "这里没有 GPU，rank 用 CPU 上的 gloo 通信。",
        )
    if not driver:
        return error(
            "GPUs",
            "nvidia-smi is installed, but finds no GPU or no driver.",
            "装了 nvidia-smi，但它找不到 GPU 或驱动。",
            "Run nvidia-smi and see what it says; in a container, start it with the GPUs.",
            "运行 nvidia-smi 看它的提示；如果在容器里，启动容器时要带上 GPU。",
        )
    if facts["cuda"] is None:
        return error(
            "GPUs",
            f"The driver has {len(driver)} GPUs, and this PyTorch was built for the CPU.",
            f"驱动有 {len(driver)} 块 GPU，但装的 PyTorch 是 CPU 版。",
            "Install the CUDA build of PyTorch.",
            "安装 CUDA 版的 PyTorch。",
        )
    if os.environ.get("CUDA_VISIBLE_DEVICES") is not None:
        return _some_hidden(len(driver), 0)
    return error(
        "GPUs",
        f"The driver has {len(driver)} GPUs, and PyTorch (CUDA {facts['cuda']}) sees none.",
        f"驱动有 {len(driver)} 块 GPU，但 PyTorch（CUDA {facts['cuda']}）一块也看不到。",
        "The driver is probably too old for this CUDA version: update it, or install a PyTorch "
        "built for an older CUDA.",
        "多半是驱动对这个 CUDA 版本太老：升级驱动，或者安装为更老的 CUDA 编译的 PyTorch。",
    )


def _some_hidden(there: int, seen: int) -> Finding:
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    return Finding(
        "GPUs",
        WARNING if seen else ERROR,
        Text(
            f"The driver has {there} GPUs, and PyTorch sees {seen} "
            f"(CUDA_VISIBLE_DEVICES is {value!r}).",
            f"驱动有 {there} 块 GPU，PyTorch 看到 {seen} 块（CUDA_VISIBLE_DEVICES 是 {value!r}）。",
        ),
        Text(
            "Unset CUDA_VISIBLE_DEVICES to use all, or start as many ranks as PyTorch sees GPUs.",
            "取消 CUDA_VISIBLE_DEVICES 就能用全部 GPU；否则 PyTorch 看到几块就启动几个 rank。",
        ),
    )


def _without_p2p(facts: dict[str, Any]) -> list[Finding]:
    pairs = facts["without_p2p"]
    if not pairs:
        return []
    first, second = pairs[0]
    return [
        warning(
            "P2P",
            f"GPU {first} cannot read GPU {second} directly, nor {len(pairs) - 1} other pairs.",
            f"GPU {first} 不能直接读 GPU {second}，另外还有 {len(pairs) - 1} 对也不能。",
            "Data goes through the memory of the machine, which is slow: in a virtual machine "
            "or with ACS or the IOMMU on, ask the administrator.",
            "数据要经过主机内存，会慢：如果是虚拟机，或者开着 ACS、IOMMU，请找管理员。",
        )
    ]


def links(matrix: str | None) -> list[Finding]:
    """Count the pairs of GPUs by how they are joined, in the output of ``nvidia-smi topo -m``."""
    kinds = read_links(matrix or "")
    if not kinds:
        return []
    counted = {kind: sum(one == kind for one in kinds.values()) for kind in kinds.values()}
    told = ", ".join(f"{counted[kind]} {kind}" for kind in sorted(counted))
    if any(kind.startswith("NV") for kind in counted) and not set(SLOW_LINKS) & set(counted):
        severity, advice = OK, None
    else:
        severity = NOTE
        advice = Text(
            "NV# is NVLink; PIX and PXB are PCIe switches; PHB, NODE and SYS go through the CPU. "
            "Put the ranks that talk most on the GPUs that are joined best.",
            "NV# 是 NVLink；PIX、PXB 经过 PCIe 交换机；PHB、NODE、SYS 要经过 CPU。"
            "通信最多的 rank 要放在连得最好的 GPU 上。",
        )
    return [
        Finding(
            "links",
            severity,
            Text(f"Pairs of GPUs by link: {told}.", f"GPU 两两之间的链路：{told}。"),
            advice,
        )
    ]


def read_links(matrix: str) -> dict[tuple[int, int], str]:
    """Return how each pair of GPUs is joined: ``{(0, 1): "NV18", …}``, lower number first."""
    kinds: dict[tuple[int, int], str] = {}
    for line in _COLOUR.sub("", matrix).splitlines():
        words = line.split()
        if not words or not re.fullmatch(r"GPU\d+", words[0]) or "X" not in words:
            continue  # the head of the matrix, a network card's row, or the legend
        row = int(words[0][3:])
        for column, kind in enumerate(words[1:]):
            # Cells beyond the GPUs' columns are network cards and affinities.
            if column < row and re.fullmatch(r"NV\d+|PIX|PXB|PHB|NODE|SYS", kind):
                kinds[column, row] = kind
    return kinds


def nccl_variables() -> list[Finding]:
    """Say what NCCL's variables have switched off or fixed."""
    findings = []
    for name, what in NCCL_SWITCHES.items():
        if os.environ.get(name, "0") not in ("", "0"):
            findings.append(
                warning(
                    name,
                    f"{name} is set: NCCL does without {what.en}.",
                    f"设置了 {name}：NCCL 不使用{what.zh}。",
                    "Unset it, unless you are looking for a fault.",
                    "除非在排查故障，否则取消它。",
                )
            )
    for name in NCCL_CHOICES:
        value = os.environ.get(name)
        if value:
            findings.append(
                note(
                    name,
                    f"{name} is {value!r}: NCCL no longer chooses by size.",
                    f"{name} 是 {value!r}：NCCL 不再按消息大小选择。",
                )
            )
    return findings
