"""The command ``commlab``: measure collectives, fit α and β, find out why a job does not start.

One module for each subcommand; each imports what it needs when it is called, so that
``commlab --help`` is quick and works where PyTorch is missing or broken.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from commlab.cli import bench, doctor, fit, plan
from commlab.cli.status import DONE, FAULTS_FOUND, INTERRUPTED, REFUSED

__all__ = ["DONE", "FAULTS_FOUND", "INTERRUPTED", "REFUSED", "command", "main", "make_parser"]

SUBCOMMANDS = (bench, fit, plan, doctor)


class _Parser(argparse.ArgumentParser):
    """A parser that refuses in one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(REFUSED, f"{self.prog}: {message} (see {self.prog} --help).\n")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all subcommands."""
    parser = _Parser(prog="commlab", description=__doc__.partition("\n")[0])
    subcommands = parser.add_subparsers(title="subcommands", required=True, metavar="COMMAND")
    for subcommand in SUBCOMMANDS:
        subcommand.add_to(subcommands)
    return parser


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
        if not bench.is_started_by_torchrun() or os.environ["RANK"] == "0":
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
