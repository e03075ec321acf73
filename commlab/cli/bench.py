"""``commlab bench``: time collectives on this machine, or under torchrun between machines."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from commlab.cli.status import DONE

DEFAULT_RANKS = 4


def add_to(subcommands: argparse._SubParsersAction) -> None:
    """Add the parser of ``commlab bench``."""
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
    parser.set_defaults(run=run, name="bench")


def run(options: argparse.Namespace) -> int:
    """Run the sweep, print its table, and write it where that was asked for."""
    from commlab.real import bench, bench_plan, bench_result

    sweep = bench_plan.read_sweep(
        options.collectives, options.algorithms, options.sizes, options.blocks
    )
    if is_started_by_torchrun():
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


def is_started_by_torchrun() -> bool:
    """Tell whether this process is a rank of somebody's torchrun."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ
