"""A calibration as JSON, and as lines for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from commlab.calibrate.diagnose import NOTES
from commlab.calibrate.fit import Fit
from commlab.calibrate.fit_log import Calibration, FittedRun, Refusal
from commlab.calibrate.fit_parameters import Parameter
from commlab.calibrate.records import SkippedLine
from commlab.units import format_bytes, format_rate, format_seconds

FORMAT = "commlab calibration 1"
MEANING = (
    "A call takes T(S) = α + factor·S/β: α is seconds per call, β the bus bandwidth of large "
    "calls, in bytes/s and one direction."
)
MOST_SKIPPED_SHOWN = 5


def as_json(calibration: Calibration) -> dict[str, Any]:
    """Return what `commlab fit --json` prints.

    Returns
    -------
    dict
        ``format``; ``meaning``, one sentence on α and β; ``runs``, one entry per fitted run;
        ``refused``, those that could not be fitted, with ``log``, ``op``, ``n_ranks``, ``code``
        and ``message``; ``skipped_lines`` outside of the runs.

        An entry has ``op``, ``n_ranks``, ``n_nodes``; ``rows``, the points used; ``skipped``, the
        number of lines that were not understood; ``alpha_s``, seconds **per call**, from the piece
        of the smallest sizes, and ``beta_Bps``, **bus bandwidth** in bytes/s, from the piece of
        the largest (null where the sizes do not determine them), each with an interval of 95 %,
        ``alpha_ci`` and ``beta_ci``; ``pieces``; ``median_rel_err``, ``heldout_median_rel_err``
        over the points, and over all rows with the outliers; ``warnings``. Further:
        ``alpha_per_message_s`` = ``alpha_s`` / ``messages``, where a call of ``algorithm`` sends
        so many messages one after the other; ``bus_factor``; ``outliers``; ``skipped_lines``.
    """
    return {
        "format": FORMAT,
        "meaning": MEANING,
        "runs": [_entry(run) for run in calibration.runs],
        "refused": [_refusal(refusal) for refusal in calibration.refused],
        "skipped_lines": [{"log": name, **_skipped(line)} for name, line in calibration.skipped],
    }


def error_json(code: str, message: str) -> dict[str, Any]:
    """Return what is printed where nothing could be fitted."""
    return {"error": {"code": code, "message": message}}


def _entry(one: FittedRun) -> dict[str, Any]:
    fit, run = one.fit, one.fit.run
    return {
        "log": one.log,
        "op": run.op,
        "n_ranks": run.n_ranks,
        "n_nodes": run.n_nodes,
        "hardware": run.hardware,
        "inferred": list(run.inferred),
        "rows": int(fit.used.sum()),
        "skipped": len(one.skipped),
        "alpha_s": None if fit.alpha is None else fit.alpha.value,
        "alpha_ci": _interval(fit.alpha),
        "beta_Bps": None if fit.beta is None else fit.beta.value,
        "beta_ci": _interval(fit.beta),
        "alpha_per_message_s": fit.alpha_per_message,
        "messages": fit.messages,
        "algorithm": fit.algorithm,
        "bus_factor": fit.factor,
        "pieces": [
            {
                "start_bytes": piece.start,
                "min_bytes": piece.first,
                "max_bytes": piece.last,
                "rows": piece.n_rows,
                "alpha_s": piece.alpha,
                "beta_Bps": fit.factor / piece.per_byte if piece.per_byte else None,
            }
            for piece in fit.model.pieces
        ],
        "median_rel_err": fit.median_error,
        "heldout_median_rel_err": fit.held_out_error(),
        "heldout_median_rel_err_all_rows": fit.held_out_error(all_rows=True),
        "outliers": [
            {
                "line": outlier.row.line,
                "bytes": outlier.row.nbytes,
                "seconds": outlier.row.seconds,
                "predicted_s": outlier.predicted,
                "reason": outlier.reason,
            }
            for outlier in fit.outliers
        ],
        "skipped_lines": [_skipped(line) for line in one.skipped],
        "warnings": [{"code": remark.code, "message": remark.message} for remark in one.remarks],
    }


def _interval(parameter: Parameter | None) -> list[float] | None:
    if parameter is None or parameter.interval is None:
        return None
    return list(parameter.interval)


def _refusal(refusal: Refusal) -> dict[str, Any]:
    run = refusal.run
    return {
        "log": refusal.log,
        "op": None if run is None else run.op,
        "n_ranks": None if run is None else run.n_ranks,
        "code": refusal.code,
        "message": refusal.message,
    }


def _skipped(line: SkippedLine) -> dict[str, Any]:
    return {"line": line.line, "text": line.text, "reason": line.reason}


def report_lines(calibration: Calibration) -> Iterator[str]:
    """Yield the report for a terminal."""
    for number, one in enumerate(calibration.runs):
        if number:
            yield ""
        yield from _run_lines(one)
    for name, line in calibration.skipped:
        yield f"{name}, line {line.line}, belongs to no run and was not understood: {line.reason}"
    if calibration.runs:
        yield ""
        yield MEANING


def _run_lines(one: FittedRun) -> Iterator[str]:
    fit, run = one.fit, one.fit.run
    nodes = "" if run.n_nodes is None else f" on {run.n_nodes} node{'s' * (run.n_nodes > 1)}"
    hardware = "" if run.hardware is None else f", {run.hardware}"
    yield f"{one.log}: {run.op}, {run.n_ranks} ranks{nodes}{hardware}"
    if run.inferred:
        yield f"  not stated in the log, but given or worked out: {', '.join(run.inferred)}"
    yield f"  points  {_points(fit)}"
    yield f"  α       {_alpha(fit)}"
    yield f"  β       {_beta(fit)}"
    yield f"  error   {_errors(fit)}"
    if len(fit.model.pieces) > 1:
        yield f"  {'sizes':>21} {'rows':>5} {'α':>9} {'β':>10}"
        for piece in fit.model.pieces:
            sizes = f"{format_bytes(piece.first)} to {format_bytes(piece.last)}"
            beta = format_rate(fit.factor / piece.per_byte) if piece.per_byte else "flat"
            yield f"  {sizes:>21} {piece.n_rows:>5} {format_seconds(piece.alpha):>9} {beta:>10}"
    for remark in one.remarks:
        yield f"  {'note' if remark.code in NOTES else 'look'}    {remark.message} [{remark.code}]"
    if one.skipped:
        yield f"  lines that were not understood: {len(one.skipped)}"
        for line in one.skipped[:MOST_SKIPPED_SHOWN]:
            yield f"    line {line.line}: {line.reason}: {line.text.strip()[:60]!r}"
        if len(one.skipped) > MOST_SKIPPED_SHOWN:
            yield f"    and {len(one.skipped) - MOST_SKIPPED_SHOWN} more (--json lists all)"


def _points(fit: Fit) -> str:
    smallest, largest = format_bytes(fit.rows[0].nbytes), format_bytes(fit.rows[-1].nbytes)
    left_out = f", {len(fit.outliers)} left out" if fit.outliers else ""
    return f"{int(fit.used.sum())} of {len(fit.rows)} rows, {smallest} to {largest}{left_out}"


def _alpha(fit: Fit) -> str:
    text = _parameter(fit.alpha, format_seconds)
    if fit.alpha is None:
        return text
    text += " per call"
    if fit.alpha_per_message is None:
        return text
    return (
        f"{text}; {format_seconds(fit.alpha_per_message)} per message "
        f"({fit.algorithm}: {fit.messages} one after the other)"
    )


def _beta(fit: Fit) -> str:
    text = _parameter(fit.beta, format_rate)
    return text if fit.beta is None else f"{text} of bus bandwidth, factor {fit.factor:.4g}"


def _parameter(parameter: Parameter | None, show: Callable[[float], str]) -> str:
    if parameter is None:
        return "not determined"
    if parameter.interval is None:
        return f"{show(parameter.value)}"
    low, high = parameter.interval
    return f"{show(parameter.value)} ({show(low)} to {show(high)})"


def _errors(fit: Fit) -> str:
    text = f"{fit.median_error:.1%} in the median"
    held_out = fit.held_out_error()
    if held_out is None:
        return text
    text += f", {held_out:.1%} on rows held out"
    if fit.outliers:
        text += f" ({fit.held_out_error(all_rows=True):.1%} with those left out)"
    return text
