"""Python, this package and PyTorch: the right ones, and what they were built for."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import commlab
from commlab.real.doctor.finding import Finding, Text, error, note, ok, warning

# As pyproject.toml asks for; a test holds them together.
OLDEST_PYTHON = (3, 11)
OLDEST_TORCH = (2, 11)
TORCH_SECONDS = 120.0

# In a process of its own: a broken PyTorch may take the interpreter down with it.
_ASK_TORCH = """
import json
import torch
import torch.distributed as dist

there = dist.is_available()
n_gpus = torch.cuda.device_count()
nccl = torch.cuda.nccl.version() if there and dist.is_nccl_available() else None
print(json.dumps({
    "version": torch.__version__,
    "cuda": torch.version.cuda,
    "hip": torch.version.hip,
    "distributed": there,
    "gloo": there and dist.is_gloo_available(),
    "nccl": None if nccl is None else ".".join(map(str, nccl)),
    "gpus": [torch.cuda.get_device_name(i) for i in range(n_gpus)],
    "without_p2p": [
        [i, j] for i in range(n_gpus) for j in range(n_gpus)
        if i != j and not torch.cuda.can_device_access_peer(i, j)
    ],
}))
"""


def python() -> list[Finding]:
    """Whether this Python is new enough."""
    told = ".".join(map(str, sys.version_info[:3]))
    if tuple(sys.version_info[:2]) < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return [
            error(
                "Python",
                f"This is Python {told}; the package needs {oldest} or newer.",
                f"这是 Python {told}，本包需要 {oldest} 或更新的版本。",
                f"Make an environment with Python {oldest} or newer, the same on every node.",
                f"用 Python {oldest} 或更新的版本建一个环境，各节点要一致。",
            )
        ]
    where = sys.executable
    return [
        ok(
            "Python",
            f"This is Python {told} ({where}).",
            f"这是 Python {told}（{where}）。",
        )
    ]


def package() -> list[Finding]:
    """Whether the commlab that Python finds is this one, and no other lies beside it."""
    here = Path(commlab.__file__).resolve().parent
    if any(True for _ in metadata.distributions(name="commlab")):
        return [
            error(
                "package",
                "The package named commlab on PyPI, somebody else's, is installed.",
                "装了 PyPI 上名叫 commlab 的包，那是别人的项目。",
                "Run `pip uninstall commlab`, then install this book's package again from its "
                "repository.",
                "运行 pip uninstall commlab，再从本书的仓库重新安装本书的包。",
            )
        ]
    others = [
        folder
        for folder in ((Path(entry) / "commlab").resolve() for entry in sys.path)
        if (folder / "__init__.py").exists() and folder != here
    ]
    if others:
        return [
            warning(
                "package",
                f"There is a second commlab in {others[0]}; this one is in {here}.",
                f"{others[0]} 里还有一个 commlab；现在用的在 {here}。",
                "Remove one of them, or all ranks may not run the same code.",
                "删掉其中一个，否则各 rank 运行的可能不是同一份代码。",
            )
        ]
    version = commlab.__version__
    return [
        ok(
            "package",
            f"commlab {version} of this book, in {here}.",
            f"本书的 commlab {version}，在 {here}。",
        )
    ]


def ask_torch() -> dict[str, Any]:
    """Return what PyTorch says of itself: ``missing``, ``broken`` with the reason, or its facts."""
    if importlib.util.find_spec("torch") is None:
        return {"missing": True}
    try:
        answer = subprocess.run(
            [sys.executable, "-c", _ASK_TORCH],
            capture_output=True,
            text=True,
            timeout=TORCH_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"broken": f"importing it took more than {TORCH_SECONDS:g} s"}
    if answer.returncode != 0:
        lines = answer.stderr.strip().splitlines() or [f"exit status {answer.returncode}"]
        return {"broken": lines[-1]}
    return json.loads(answer.stdout.strip().splitlines()[-1])


def torch(facts: dict[str, Any]) -> list[Finding]:
    """Judge what `ask_torch` returned: there, whole, new enough, with torch.distributed."""
    if facts.get("missing"):
        return [
            error(
                "PyTorch",
                f"PyTorch is not installed for {sys.executable}.",
                f"{sys.executable} 里没有装 PyTorch。",
                "Install it, or activate the environment that has it, on every node.",
                "在每个节点上安装它，或者激活装了它的环境。",
            )
        ]
    if "broken" in facts:
        return [
            error(
                "PyTorch",
                f"PyTorch cannot be imported ({facts['broken']}).",
                f"无法导入 PyTorch（{facts['broken']}）。",
                "Install it again in a fresh environment.",
                "在一个全新的环境里重新安装它。",
            )
        ]
    version = facts["version"]
    if not (facts["distributed"] and facts["gloo"]):
        return [
            error(
                "PyTorch",
                f"PyTorch {version} was built without torch.distributed or gloo.",
                f"PyTorch {version} 编译时没有带 torch.distributed 或 gloo。",
                "Install an official build.",
                "安装官方的发行版。",
            )
        ]
    if _major_minor(version) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        return [
            warning(
                "PyTorch",
                f"PyTorch {version} is older than {oldest}, the oldest tried here.",
                f"PyTorch {version} 比这里试过的最老版本 {oldest} 还老。",
                "Update it, to the same version on every node.",
                "升级它，各节点用同一个版本。",
            )
        ]
    if facts["cuda"]:
        built = Text(f"built for CUDA {facts['cuda']}", f"为 CUDA {facts['cuda']} 编译")
    elif facts["hip"]:
        built = Text(f"built for ROCm {facts['hip']}", f"为 ROCm {facts['hip']} 编译")
    else:
        built = Text("built for the CPU", "CPU 版")
    findings = [
        ok(
            "PyTorch",
            f"PyTorch {version}, {built.en}, with gloo.",
            f"PyTorch {version}，{built.zh}，带 gloo。",
        )
    ]
    if facts["nccl"]:
        findings.append(
            note(
                "NCCL",
                f"PyTorch brings NCCL {facts['nccl']}.",
                f"PyTorch 带的是 NCCL {facts['nccl']}。",
                "Compare this line between the nodes: they need the same version.",
                "各节点的这一行要一样：NCCL 版本必须一致。",
            )
        )
    return findings


def _major_minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2])
