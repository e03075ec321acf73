"""Run everything that CI checks, phase by phase: called by ``make test``.

A phase that fails does not stop the others. At the end stand a table of wall times and one
line "N passed, N failed" over all phases. In CI a skipped test counts as a failure: what CI
does not run, it does not check. Elsewhere a machine may lack what a few tests need (network
namespaces, /proc), and they are named.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tools.chromium import MISSING, find_chromium

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / ".cache" / "reports"
WORKERS = "2"
# Seconds for one cell: generous, since a slow machine must not turn a right page red.
CELL_TIMEOUT = "180"
# Neighbours share what is slow to make, so each worker takes half of the tests in order, and
# whoever is done takes over half of what the other still has.
UNIT_TESTS = ("--dist=worksteal", "tests", "--ignore=tests/browser")


@dataclass(frozen=True)
class Counts:
    """How many checks passed, failed and were skipped."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.passed + other.passed,
            self.failed + other.failed,
            self.skipped + other.skipped,
        )

    def good(self, skips_allowed: bool) -> bool:
        """Whether something ran, and all of it passed."""
        return self.passed > 0 and self.failed == 0 and (skips_allowed or self.skipped == 0)

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


@dataclass(frozen=True)
class Phase:
    """One command. A pytest command's tests count one by one, any other command as one check.

    One that keeps a single core busy may run ``beside_next``: its output follows the next one's.
    """

    name: str
    command: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    is_pytest: bool = False
    beside_next: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a phase gave and how long it took, in seconds."""

    name: str
    counts: Counts
    seconds: float


def read_junit(report: Path) -> Counts:
    """Count the tests of a junit report; a test with an error has failed."""
    total = Counts()
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        tests, failures, errors, skipped = (
            int(suite.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")
        )
        failed = failures + errors
        total += Counts(max(tests - failed - skipped, 0), failed, skipped)
    return total


def count(phase: Phase, returncode: int, report: Path) -> Counts:
    """Count a finished phase.

    One that failed outside of any test counts as one failure, and so does one without tests.
    """
    if not phase.is_pytest:
        return Counts(passed=1) if returncode == 0 else Counts(failed=1)
    try:
        counts = read_junit(report)
    except (OSError, ElementTree.ParseError) as error:
        print(f"{phase.name}: no report of the tests: {error}", file=sys.stderr)
        counts = Counts()
    if counts == Counts() or (returncode != 0 and counts.failed == 0):
        counts += Counts(failed=1)
    return counts


def run(phase: Phase, output: IO[str] | None = None) -> Outcome:
    """Run a phase with its output passed on, or written to ``output``."""
    print(f"\n=== {phase.name}: {' '.join(phase.command)}", file=output, flush=True)
    report = REPORTS / f"{phase.name.replace(' ', '-')}.xml"
    report.unlink(missing_ok=True)
    command = phase.command
    if phase.is_pytest:
        report.parent.mkdir(parents=True, exist_ok=True)
        command = (*command, f"--junitxml={report}")
    start = time.monotonic()
    try:
        returncode = subprocess.run(
            command, cwd=ROOT, env=os.environ | phase.env, stdout=output, stderr=output
        ).returncode
    except OSError as error:
        print(f"{phase.name}: cannot be started: {error}", file=sys.stderr)
        returncode = 1
    return Outcome(phase.name, count(phase, returncode, report), time.monotonic() - start)


def run_quietly(phase: Phase) -> tuple[Outcome, str]:
    """Run a phase; return what it gave and what it printed."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        outcome = run(phase, output)
        output.seek(0)
        return outcome, output.read()


def run_all(phases: Iterable[Phase]) -> list[Outcome]:
    """Run the phases in turn, those that may run beside the next one together with it."""
    outcomes = []
    beside: list[Future[tuple[Outcome, str]]] = []
    with ThreadPoolExecutor() as pool:
        for phase in phases:
            if phase.beside_next:
                beside.append(pool.submit(run_quietly, phase))
                continue
            outcomes.append(run(phase))
            while beside:
                outcome, printed = beside.pop().result()
                outcomes.append(outcome)
                print(printed, end="", flush=True)
    return outcomes


def python(*arguments: str) -> tuple[str, ...]:
    """Return a command of this environment's Python."""
    return (sys.executable, *arguments)


def pytest(*arguments: str, workers: str = WORKERS) -> tuple[str, ...]:
    """Return a pytest command of this environment."""
    return python("-m", "pytest", "-q", "-n", workers, *arguments)


def phases_of_every_run() -> list[Phase]:
    """Return what CI runs on every change."""
    return [
        Phase("ruff check", python("-m", "ruff", "check", ".")),
        Phase("ruff format", python("-m", "ruff", "format", "--check", ".")),
        Phase("unit", pytest(*UNIT_TESTS), is_pytest=True),
        # Both wait for one core most of the time.
        Phase("mypy", python("-m", "mypy"), beside_next=True),
        Phase("book", ("make", "--no-print-directory", "book")),
        Phase(
            "nbval",
            pytest(
                "--dist=loadfile",
                "--nbval",
                "--nbval-sanitize-with=tests/nbval_sanitize.cfg",
                f"--nbval-cell-timeout={CELL_TIMEOUT}",
                "notebooks",
            ),
            {"COMMLAB_EXPLORE": "check"},
            is_pytest=True,
        ),
        Phase("browser", pytest("--dist=worksteal", "tests/browser"), is_pytest=True),
    ]


def phases_of_the_night() -> list[Phase]:
    """Return what is too long for every change."""
    return [
        Phase(
            "fuzzing",
            pytest(*UNIT_TESTS),
            {"HYPOTHESIS_PROFILE": "nightly"},
            is_pytest=True,
        ),
        Phase("colab pins", python("-m", "tools.matrix", "colab")),
    ]


def table(outcomes: Iterable[Outcome]) -> str:
    """Return the wall times by phase, as text."""
    lines = [f"{'phase':<14}{'seconds':>9}   result"]
    lines += [f"{o.name:<14}{o.seconds:>9.1f}   {o.counts}" for o in outcomes]
    return "\n".join(lines)


def report_all(outcomes: list[Outcome], seconds: float, say: Callable[[str], None] = print) -> int:
    """Print the table, the seconds of all and the closing line; return the exit status."""
    total = sum((outcome.counts for outcome in outcomes), Counts())
    say("\n" + table(outcomes))
    say(f"{'all':<14}{seconds:>9.1f}   (what ran side by side counts once)\n")
    in_ci = bool(os.environ.get("CI"))
    if total.skipped:
        say("A skipped test is not checked" + (": in CI that is a failure." if in_ci else "."))
    say(str(total))
    return 0 if total.good(skips_allowed=not in_ci) else 1


def main() -> int:
    """Run the phases asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="also the checks of the night")
    parser.add_argument("--started", type=float, help="when make started (seconds since 1970)")
    arguments = parser.parse_args()
    if find_chromium() is None:
        print(MISSING, file=sys.stderr)
        return 1
    outcomes = []
    started = time.time() if arguments.started is None else arguments.started
    if arguments.started is not None:
        outcomes.append(Outcome("install", Counts(), max(time.time() - started, 0.0)))
    phases = phases_of_every_run() + (phases_of_the_night() if arguments.full else [])
    outcomes += run_all(phases)
    return report_all(outcomes, time.time() - started)


if __name__ == "__main__":
    sys.exit(main())
