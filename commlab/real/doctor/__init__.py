"""`commlab doctor`: say in plain words what keeps ranks from starting or from meeting.

A check is a small function that returns findings; most look at the environment of this
process and at this machine only, so on a cluster the doctor is run on every node. Nothing
here imports torch: it is asked in a process of its own. What is said about GPUs was not run on
GPUs here.
"""

from __future__ import annotations

import datetime
import json
import locale
import os
import socket
from collections.abc import Callable, Iterator, Sequence

from commlab.real.doctor import gpus, network, software, system
from commlab.real.doctor.finding import ERROR, NOTE, OK, SEVERITIES, WARNING, Finding, Text

_LABELS = {
    ERROR: Text("error", "错误"),
    WARNING: Text("warning", "警告"),
    NOTE: Text("note", "说明"),
    OK: Text("ok", "正常"),
}


def examine() -> list[Finding]:
    """Make all checks; return what they found, the worst first."""
    facts = software.ask_torch()
    driver = gpus.ask_driver()
    checks: list[Callable[[], list[Finding]]] = [
        network.host_name,
        network.loopback,
        network.gloo_interface,
        network.nccl_interface,
        network.master,
        network.proxies,
        software.python,
        software.package,
        lambda: software.torch(facts),
        lambda: gpus.visible(facts, driver),
        lambda: gpus.links(gpus.ask_topology()),
        gpus.nccl_variables,
        system.shared_memory,
        system.locked_memory,
        system.clocks,
        system.namespaces,
    ]
    findings = [finding for check in checks for finding in check()]
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def has_faults(findings: Sequence[Finding]) -> bool:
    """Whether anything was found that keeps a job from running."""
    return any(finding.severity == ERROR for finding in findings)


def as_json(findings: Sequence[Finding]) -> str:
    """Return the findings as JSON, in both languages."""
    return json.dumps(
        {
            "host": socket.gethostname(),
            "date": _now(),
            "findings": [
                {
                    "check": finding.check,
                    "severity": finding.severity,
                    "what": finding.what._asdict(),
                    "advice": None if finding.advice is None else finding.advice._asdict(),
                }
                for finding in findings
            ],
        },
        indent=1,
        ensure_ascii=False,
    )


def report_lines(findings: Sequence[Finding], language: str) -> Iterator[str]:
    """Yield the report in "en" or "zh"."""
    yield f"commlab doctor, {socket.gethostname()}, {_now()}"
    for finding in findings:
        label = getattr(_LABELS[finding.severity], language)
        yield f"[{label}] {getattr(finding.what, language)}"
        if finding.advice is not None:
            yield f"    → {getattr(finding.advice, language)}"
    counted = {
        severity: sum(finding.severity == severity for finding in findings)
        for severity in (ERROR, WARNING)
    }
    if language == "zh":
        yield f"{counted[ERROR]} 个错误，{counted[WARNING]} 个警告。"
    else:
        yield f"Errors: {counted[ERROR]}, warnings: {counted[WARNING]}."


def usual_language() -> str:
    """Return "zh" where the terminal speaks Chinese, otherwise "en"."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(name)
        if value:
            return "zh" if value.startswith("zh") else "en"
    # Windows and macOS may set none of these.
    return "zh" if (locale.getlocale()[0] or "").startswith(("zh", "Chinese")) else "en"


def _now() -> str:
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")
