"""The command ``commlab``: measure collectives, and find out why they do not start.

Each subcommand imports what it needs when it is called, so that ``commlab --help`` is quick
and works where PyTorch is missing or broken.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

DONE = 0
FAULTS_FOUND = 1
REFUSED = 2
INTERRUPTED = 130

DEFAULT_RANKS = 4


class _Parser(argparse.ArgumentParser):
    """A parser that refuses in one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(REFUSED, f"{self.prog}: {message} (see {self.prog} --help).\n")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all subcommands."""
    parser = _Parser(prog="commlab", description=__doc__.partition("\n")[0])
    subcommands = parser.add_subparsers(title="subcommands", required=True, metavar="COMMAND")
    _add_bench(subcommands)
    _add_doctor(subcommands)
    return parser


def _add_bench(subcommands: argparse._SubParsersAction) -> None:
    parser = subcommands.add_parser(
        "bench",
        help="time collectives over sizes and algorithms",
        description=(
            "Time collectives between processes of this machine, or, under torchrun, between all "
            "its ranks. Every result is checked once, on whole numbers, before it is timed. The "
            "table goes to stdout, progress to stderr. Exit status: 0 done, 2 refused."
        ),
    )
    parser.add_argument(
        "--ranks", type=int, help=f"processes on this machine (default {DEFAULT_RANKS})"
    )
    parser.add_argument(
        "--sizes",
        default="1KiB..64MiB",
        help="sizes S and ranges that double, with commas between them: 4KiB,1MiB..64MiB "
        "(default %(default)s)",
    )
    parser.add_argument(
        "--collectives", default="all", help="names with commas between them, or all (default)"
    )
    parser.add_argument(
        "--algorithms",
        default="backend",
        help="backend (the backend's own, default), names of this book's algorithms such as "
        "ring,recursive_doubling, or all",
    )
    parser.add_argument("--blocks", type=int, default=11, help="timings per size (default 11)")
    parser.add_argument("--out", type=Path, help="also write the result to this file, as JSON")
    parser.add_argument(
        "--backend",
        choices=("auto", "gloo", "nccl"),
        default="auto",
        help="under torchrun; auto takes NCCL where every rank has a GPU "
        "(NCCL: not run on GPUs here)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=1800.0,
        help="seconds for the sweep; under torchrun for one collective (default 1800)",
    )
    parser.set_defaults(run=_run_bench, name="bench")


def _add_doctor(subcommands: argparse._SubParsersAction) -> None:
    parser = subcommands.add_parser(
        "doctor",
        help="say what is wrong with host name, interface, ports, versions, GPUs",
        description=(
            "Look at what keeps the ranks of a job from finding one another, and say what to do. "
            "On a cluster run it on every node. Exit status: 0 no fault, 1 a fault was found. "
            "What it says about GPUs was not run on GPUs here."
        ),
    )
    parser.add_argument("--json", action="store_true", help="print JSON, in both languages")
    parser.add_argument(
        "--lang", choices=("en", "zh"), help="language (default: that of the terminal)"
    )
    parser.set_defaults(run=_run_doctor, name="doctor")


def _run_bench(options: argparse.Namespace) -> int:
    from commlab.real import bench, bench_plan, bench_result

    sweep = bench_plan.read_sweep(
        options.collectives, options.algorithms, options.sizes, options.blocks
    )
    if _is_started_by_torchrun():
        n_ranks = os.environ["WORLD_SIZE"]
        if options.ranks is not None and str(options.ranks) != n_ranks:
            raise ValueError(
                f"torchrun has started {n_ranks} ranks, not {options.ranks}: leave out --ranks."
            )
        # What goes wrong inside of torch also comes as an exception, without pages of stack.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
        result = bench.run_under_torchrun(sweep, options.backend, options.timeout, options.out)
    else:
        if options.backend == "nccl":
            raise ValueError("NCCL needs one process per GPU: start this command with torchrun.")
        reason = bench_result.why_not_writable(options.out)
        if reason is not None:
            raise ValueError(reason)
        ranks = DEFAULT_RANKS if options.ranks is None else options.ranks
        result = bench.run_here(sweep, ranks, options.timeout)
    if result is None:  # a rank other than 0
        return DONE
    if options.out is not None:
        bench_result.write_result(options.out, result)
    for line in bench_result.table_lines(result):
        print(line)
    return DONE


def _run_doctor(options: argparse.Namespace) -> int:
    from commlab.real import doctor

    findings = doctor.examine()
    if options.json:
        print(doctor.as_json(findings))
    else:
        for line in doctor.report_lines(findings, options.lang or doctor.usual_language()):
            print(line)
    return FAULTS_FOUND if doctor.has_faults(findings) else DONE


def _is_started_by_torchrun() -> bool:
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; return the exit status: 0 done, 1 faults found, 2 refused."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a letter must not hide the line.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    options = make_parser().parse_args(arguments)
    try:
        status = options.run(options)
        sys.stdout.flush()  # so that a closed pipe shows here
        return status
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except ValueError as error:
        # Under torchrun all ranks refuse alike, and one of them says so.
        if not _is_started_by_torchrun() or os.environ["RANK"] == "0":
            print(f"commlab {options.name}: {error}", file=sys.stderr)
    except (RuntimeError, OSError) as error:
        print(f"commlab {options.name}: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print(f"commlab {options.name}: interrupted, nothing was written.", file=sys.stderr)
        return INTERRUPTED
    return REFUSED


def command() -> NoReturn:
    """Run the command line of this process, as ``commlab`` and ``python -m commlab.cli`` do."""
    status = main()
    if status != DONE and "torch" in sys.modules:  # this process is, or was to be, a rank
        from commlab.real.rank import leave

        leave(status)
    sys.exit(status)


if __name__ == "__main__":
    command()
