"""``commlab fit``: α and β of nccl-tests logs, with a diagnosis."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commlab.cli.plot import check_matplotlib
from commlab.cli.status import DONE, REFUSED

if TYPE_CHECKING:
    from commlab.calibrate.fit import Fit
    from commlab.calibrate.records import Log

STDIN = "-"


def add_to(subcommands: argparse._SubParsersAction) -> None:
    """Add the parser of ``commlab fit``."""
    parser = subcommands.add_parser(
        "fit",
        help="read nccl-tests logs: α, β and what is odd about them",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=(
            "Read logs of nccl-tests, rccl-tests or commlab bench, fit α and β, and say what is\n"
            "odd about them.\n\n"
            "A call takes T(S) = α + factor·S/β. α (alpha_s) is seconds per call: what a call of\n"
            "almost no bytes takes, from the smallest sizes. β (beta_Bps) is the bus bandwidth of\n"
            "the largest, in bytes/s and one direction. factor is nccl-tests' own: 2(N-1)/N for\n"
            "all_reduce, (N-1)/N for all_gather, reduce_scatter and alltoall, 1 for sendrecv,\n"
            "broadcast and reduce. The book's α is per message: alpha_per_message_s is α divided\n"
            "by the messages that a ring sends one after the other, 2(N-1) for all_reduce.\n"
            "Where α or β changes with the size, there are several such pieces.\n\n"
            "Exit status: 0 done; 2 refused: some LOG gave no fit. The reason goes to stderr and\n"
            "with --json to stdout; what the other logs gave is printed all the same."
        ),
    )
    parser.add_argument("logs", nargs="+", metavar="LOG", help="a file, or - for standard input")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--op", help="the collective, where the log does not name it: all_reduce")
    parser.add_argument("--ranks", type=int, help="number of ranks, where the log does not say")
    parser.add_argument("--nodes", type=int, help="number of nodes, where the log does not say")
    parser.add_argument("--plot", type=Path, help="draw times and residuals into this file (.png)")
    parser.add_argument("--out", type=Path, help="write the calibration to this file, as JSON")
    parser.set_defaults(run=run, name="fit")


def run(options: argparse.Namespace) -> int:
    """Read, fit, print, and write what was asked for."""
    from commlab.calibrate.fit_log import Calibration, Refusal, fit_logs
    from commlab.calibrate.records import LogError
    from commlab.calibrate.report import as_json, error_json, report_lines

    for path in (options.plot, options.out):
        if path is not None and not path.absolute().parent.is_dir():
            raise ValueError(f"cannot write {path}: there is no folder {path.parent}.")
    read, refused = [], []
    for name in options.logs:
        try:
            read.append((name, _read(name, options)))
        except LogError as error:
            refused.append(Refusal(name, error.code, error.message))
    found = fit_logs(read)
    calibration = Calibration(found.runs, (*refused, *found.refused), found.skipped)
    for refusal in calibration.refused:
        print(f"commlab fit: {refusal.log}: {refusal.message}", file=sys.stderr)
    fitted = {one.log for one in calibration.runs}
    status = DONE if fitted.issuperset(options.logs) else REFUSED

    content = as_json(calibration)
    if not fitted:
        if options.json:
            first = calibration.refused[0]
            print(json.dumps(error_json(first.code, first.message), ensure_ascii=False))
        return status
    if options.json:
        print(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        for line in report_lines(calibration):
            print(line)
    if options.out is not None:
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
        options.out.write_text(text + "\n", encoding="utf-8")
    if options.plot is not None:
        _plot(options.plot, [one.fit for one in calibration.runs])
    return status


def _read(name: str, options: argparse.Namespace) -> Log:
    from commlab.calibrate.read import read_log, read_log_file

    stated = {"op": options.op, "n_ranks": options.ranks, "n_nodes": options.nodes}
    if name != STDIN:
        return read_log_file(name, **stated)
    # A terminal has bytes below its text; a text that stands in for it may not.
    stream = getattr(sys.stdin, "buffer", sys.stdin)
    return read_log(stream.read(), **stated)


def _plot(path: Path, fits: Sequence[Fit]) -> None:
    check_matplotlib()
    from commlab.figures.fit import save_fits

    save_fits(path, fits)
