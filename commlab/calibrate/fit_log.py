"""Fit and diagnose all runs of one or several logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from commlab.calibrate.diagnose import compare, copies, diagnose
from commlab.calibrate.fit import Fit, fit_run
from commlab.calibrate.records import Log, LogError, Remark, Run, SkippedLine


@dataclass(frozen=True)
class FittedRun:
    """A run of a log, its fit, and all that is to be said about it.

    Parameters
    ----------
    log : str
        The log's name.
    fit : Fit
    remarks : tuple of Remark
        From the reader, the fit, and the diagnosis.
    skipped : tuple of SkippedLine
        Lines that were not understood.
    """

    log: str
    fit: Fit
    remarks: tuple[Remark, ...]
    skipped: tuple[SkippedLine, ...]


@dataclass(frozen=True)
class Refusal:
    """A log, or one run of a log, that gives no fit, and why."""

    log: str
    code: str
    message: str
    run: Run | None = None


@dataclass(frozen=True)
class Calibration:
    """What some logs say.

    Parameters
    ----------
    runs : tuple of FittedRun
    refused : tuple of Refusal
    skipped : tuple of (str, SkippedLine)
        Log and line, for lines outside of the runs of a log that has several.
    """

    runs: tuple[FittedRun, ...]
    refused: tuple[Refusal, ...]
    skipped: tuple[tuple[str, SkippedLine], ...] = ()


def fit_logs(logs: Sequence[tuple[str, Log]]) -> Calibration:
    """Fit every run of every log, and compare the runs.

    Parameters
    ----------
    logs : sequence of (str, Log)
        Name and content.

    Returns
    -------
    Calibration
        A run that cannot be fitted is among the refused and keeps no other from its fit.
    """
    runs: list[FittedRun] = []
    refused: list[Refusal] = []
    outside: list[tuple[str, SkippedLine]] = []
    for name, log in logs:
        alone = len(log.runs) == 1
        fitted: list[FittedRun] = []
        for run in log.runs:
            try:
                fit = fit_run(run)
            except LogError as error:
                refused.append(Refusal(name, error.code, error.message, run))
                continue
            said_of_log = log.remarks if alone else ()
            skipped = log.all_skipped() if alone else run.skipped
            remarks = (*said_of_log, *run.remarks, *fit.remarks, *diagnose(fit))
            fitted.append(FittedRun(name, fit, remarks, skipped))
        if not alone:
            outside += [(name, line) for line in log.skipped]
        runs += _with(fitted, copies([one.fit for one in fitted]))
    runs = _with(runs, compare([one.fit for one in runs]))
    return Calibration(tuple(runs), tuple(refused), tuple(outside))


def _with(runs: list[FittedRun], told: list[tuple[Fit, Remark]]) -> list[FittedRun]:
    """Add to each run what was told of its fit."""
    return [
        replace(
            one,
            remarks=(*one.remarks, *(remark for fit, remark in told if fit is one.fit)),
        )
        for one in runs
    ]
