"""The result of `commlab bench`: as data, as a file, and as a table like that of nccl-tests."""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from commlab import __version__
from commlab.calibrate.bus import bus_factor
from commlab.real.bench_plan import BACKEND, DTYPE
from commlab.real.measure import about_this_machine

FORMAT = "commlab bench 1"


def make_result(
    cases: Sequence[dict[str, Any]],
    measured: Sequence[dict[str, Any]],
    hosts: Sequence[str],
    n_nodes: int,
    backend: str,
    device: str,
    versions: dict[str, str],
    skipped: Sequence[str],
) -> dict[str, Any]:
    """Put everything that a reader of the numbers needs into one dictionary.

    Returns
    -------
    dict
        ``format``, ``date``, ``machine`` (of rank 0), ``hosts`` (by rank), ``versions``,
        ``backend``, ``device``, ``dtype``, ``n_ranks``, ``n_nodes``, ``skipped`` and
        ``series``: one for each collective and algorithm, with ``collective``, ``algorithm``,
        ``options``, ``n_ranks``, ``n_nodes``, ``bus_factor`` and ``rows``. A row has ``nbytes``
        (S), ``n_elements``, ``median_s``, ``low_s`` and ``high_s`` (quartiles; seconds per call
        on the slowest rank), ``blocks``, ``calls`` per block, ``algbw_Bps`` (S / median) and
        ``busbw_Bps``, in bytes per second.
    """
    n_ranks = len(hosts)
    series: dict[tuple[str, str], dict[str, Any]] = {}
    for case, answer in zip(cases, measured, strict=True):
        factor = bus_factor(case["collective"], n_ranks)
        for algorithm, seconds in zip(case["algorithms"], answer["seconds"], strict=True):
            one = series.setdefault(
                (case["collective"], algorithm["name"]),
                {
                    "collective": case["collective"],
                    "algorithm": algorithm["name"],
                    "options": algorithm["options"],
                    "n_ranks": n_ranks,
                    "n_nodes": n_nodes,
                    "bus_factor": factor,
                    "rows": [],
                },
            )
            low, median, high = np.percentile(seconds, [25, 50, 75]).tolist()
            one["rows"].append(
                {
                    "nbytes": case["nbytes"],
                    "n_elements": case["n_elements"],
                    "median_s": median,
                    "low_s": low,
                    "high_s": high,
                    "blocks": len(seconds),
                    "calls": answer["calls"],
                    "algbw_Bps": case["nbytes"] / median,
                    "busbw_Bps": factor * case["nbytes"] / median,
                }
            )
    return {
        "format": FORMAT,
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": about_this_machine(),
        "hosts": list(hosts),
        "versions": {
            "commlab": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "torch": metadata.version("torch"),
            **versions,
        },
        "backend": backend,
        "device": device,
        "dtype": DTYPE,
        "n_ranks": n_ranks,
        "n_nodes": n_nodes,
        "skipped": list(skipped),
        "series": list(series.values()),
    }


def why_not_writable(output: Path | None) -> str | None:
    """Say why the result could not be written there; None if it can, or need not be."""
    if output is None:
        return None
    if output.is_dir():
        return f"{output} is a folder: name a file for the result, for example {output}/bench.json."
    if not output.parent.is_dir():
        return f"there is no folder {output.parent} for the result: make it first."
    if not os.access(output.parent, os.W_OK):
        return f"the folder {output.parent} may not be written to: name another place."
    return None


def write_result(output: Path, result: dict[str, Any]) -> None:
    """Write the result as JSON: whole, or not at all."""
    unfinished = output.with_name(output.name + ".unfinished")
    unfinished.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    os.replace(unfinished, output)


def table_lines(result: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the table, one block for each series, in the columns of nccl-tests.

    Times are in µs, rates in GB/s (1e9), sizes in bytes. ``#wrong`` is 0 in every row: what
    computes wrong numbers is not timed. Two columns more give the quartiles of the time.
    """
    yield f"# commlab bench, {result['date']}, {result['machine']}"
    nodes = f"{result['n_nodes']} node{'s' if result['n_nodes'] > 1 else ''}"
    yield (
        f"# nranks {result['n_ranks']} on {nodes}, backend {result['backend']}, "
        f"device {result['device']}"
    )
    for reason in result["skipped"]:
        yield f"# left out: {reason}"
    for series in result["series"]:
        yield "#"
        yield f"# collective {series['collective']}, algorithm {series['algorithm']}"
        if series["collective"] == "reduce_scatter" and series["algorithm"] == BACKEND:
            yield from _note_on_reduce_scatter(result["backend"])
        yield _HEADER
        yield _UNITS
        sums = series["collective"] in ("all_reduce", "reduce_scatter", "reduce")
        root = "0" if series["collective"] in ("broadcast", "reduce") else "-1"
        for row in series["rows"]:
            yield (
                f"{row['nbytes']:>14d} {row['n_elements']:>13d} {'float':>8} "
                f"{'sum' if sums else 'none':>7} {root:>6} {_micro(row['median_s']):>10} "
                f"{_giga(row['algbw_Bps']):>8} {_giga(row['busbw_Bps']):>8} {0:>7d} "
                f"{_micro(row['low_s']):>10} {_micro(row['high_s']):>10}"
            )


_HEADER = (
    f"#{'size':>13} {'count':>13} {'type':>8} {'redop':>7} {'root':>6} {'time':>10} "
    f"{'algbw':>8} {'busbw':>8} {'#wrong':>7} {'time-25%':>10} {'time-75%':>10}"
)
_UNITS = (
    f"#{'(B)':>13} {'(elements)':>13} {'':>8} {'':>7} {'':>6} {'(us)':>10} "
    f"{'(GB/s)':>8} {'(GB/s)':>8} {'':>7} {'(us)':>10} {'(us)':>10}"
)


def _note_on_reduce_scatter(backend: str) -> Iterator[str]:
    if backend == "gloo":
        yield "# gloo runs an all_reduce inside: it sends twice what a reduce_scatter must."


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.2f}"


def _giga(bytes_per_second: float) -> str:
    """Two decimals as nccl-tests prints them, more where these would show nothing."""
    rate = bytes_per_second / 1e9
    return f"{rate:.2f}" if rate >= 10 else f"{rate:.3g}"
