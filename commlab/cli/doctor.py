"""``commlab doctor``: what keeps the ranks of a job from finding one another."""

from __future__ import annotations

import argparse

from commlab.cli.status import DONE, FAULTS_FOUND


def add_to(subcommands: argparse._SubParsersAction) -> None:
    """Add the parser of ``commlab doctor``."""
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
    parser.set_defaults(run=run, name="doctor")


def run(options: argparse.Namespace) -> int:
    """Examine this machine and print the findings."""
    from commlab.real import doctor

    findings = doctor.examine()
    if options.json:
        print(doctor.as_json(findings))
    else:
        for line in doctor.report_lines(findings, options.lang or doctor.usual_language()):
            print(line)
    return FAULTS_FOUND if doctor.has_faults(findings) else DONE
