"""``commlab plan``: place a model on a cluster, and say why so."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from commlab.cli.plot import check_matplotlib
from commlab.cli.status import DONE

if TYPE_CHECKING:
    from commlab.budget import Cluster
    from commlab.planner import Answer

_RATE = re.compile(r"\s*(.+?)\s*/\s*s\s*")
_SECONDS = re.compile(r"\s*([0-9.eE+-]+)\s*(ns|us|µs|ms|s)?\s*")
_SECOND_FACTORS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def add_to(subcommands: argparse._SubParsersAction) -> None:
    """Add the parser of ``commlab plan``."""
    parser = subcommands.add_parser(
        "plan",
        help="place a model on a cluster: memory, collectives, time of a step, and why so",
        description=(
            "Try every TP x PP x DP placement of a model, with ZeRO stages, recomputation and "
            "micro-batches, and answer with the fastest that fits: memory of a GPU, time of each "
            "collective, what of it shows, and why the others lose. With a calibration from "
            "`commlab fit LOG --json` the links are those that were measured, and the time has "
            "an interval. Exit status: 0 done, 2 refused, or no placement can run."
        ),
    )
    parser.add_argument(
        "model", help="llama-8b, llama-70b, llama-405b, mixtral-8x7b, or a model's config.json"
    )
    parser.add_argument("--gpus", type=int, required=True, help="GPUs of the run")
    parser.add_argument(
        "--tokens-per-gpu",
        type=int,
        default=8192,
        help="tokens of a step divided by all GPUs (default %(default)s)",
    )
    parser.add_argument(
        "--sequence", type=int, default=8192, help="tokens of a sequence (default %(default)s)"
    )
    _add_cluster(parser)
    sizes = parser.add_argument_group("fixed instead of searched")
    sizes.add_argument("--tensor", type=int, metavar="TP", help="tensor-parallel GPUs")
    sizes.add_argument("--pipeline", type=int, metavar="PP", help="pipeline stages")
    sizes.add_argument("--data", type=int, metavar="DP", help="data-parallel copies")
    sizes.add_argument("--expert", type=int, metavar="EP", help="GPUs that experts are spread over")
    sizes.add_argument("--zero", type=int, choices=(0, 1, 2, 3), help="ZeRO stage (3: like FSDP)")
    sizes.add_argument(
        "--recompute", choices=("none", "selective", "full"), help="activations computed again"
    )
    sizes.add_argument("--micro-batch", type=int, help="sequences of a micro-batch")
    parser.add_argument("--top", type=int, default=10, help="placements to list (default 10)")
    parser.add_argument("--json", action="store_true", help="print JSON: bytes, seconds, bytes/s")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="also draw the steps (png, svg, pdf)"
    )
    parser.set_defaults(run=run, name="plan")


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    cluster = parser.add_argument_group("cluster")
    cluster.add_argument(
        "--cluster", default="h100", help="h100 (default), h200, b200 or a100, nodes of 8"
    )
    cluster.add_argument(
        "--calibration",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="measured links: output of `commlab fit LOG --json`; may be given several times, "
        "for a run on one node and one on several",
    )
    cluster.add_argument("--gpus-per-node", type=int, help="GPUs that NVLink joins (8)")
    cluster.add_argument("--interfaces", type=int, help="network interfaces of a node")
    cluster.add_argument("--alpha", type=_seconds, help="time per message, such as 5us")
    cluster.add_argument("--beta-intra", type=_rate, help="link in a node, such as 450GB/s")
    cluster.add_argument("--beta-inter", type=_rate, help="one network interface, such as 50GB/s")
    cluster.add_argument("--memory", type=_size, help="memory of a GPU, such as 80GB")
    cluster.add_argument(
        "--mfu", type=float, help="part of the peak that the computation alone reaches (0.40)"
    )


def _size(text: str) -> int:
    from commlab.units import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _rate(text: str) -> float:
    match = _RATE.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"cannot read the rate {text!r}: write for example 450GB/s, one direction."
        )
    return float(_size(match[1]))


def _seconds(text: str) -> float:
    match = _SECONDS.fullmatch(text)
    try:
        if match is not None:
            return float(match[1]) * _SECOND_FACTORS[match[2] or "s"]
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"cannot read the time {text!r}: write for example 5us.")


def run(options: argparse.Namespace) -> int:
    """Run ``commlab plan``; what looks like a slip of units goes to stderr, once each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", RuntimeWarning)  # an overflow is refused in the end
        status = _run(options)
    for message in sorted({str(warning.message) for warning in caught}):
        print(f"commlab plan: note: {message}", file=sys.stderr)
    return status


def _run(options: argparse.Namespace) -> int:
    from commlab import planner

    if options.top < 1:
        raise ValueError(f"--top is {options.top}: list at least 1 placement.")
    if options.plot is not None:
        _check_plot(options.plot)
    cluster = _cluster(options)
    runs = [run for path in options.calibration for run in planner.read_calibration(path)]
    calibrated = planner.calibrate(cluster, runs) if options.calibration else None
    request = planner.Request(
        planner.find_model(options.model),
        options.gpus,
        options.tokens_per_gpu,
        sequence=options.sequence,
        cluster=cluster,
        tensor=options.tensor,
        pipeline=options.pipeline,
        data=options.data,
        expert=options.expert,
        zero_stage=options.zero,
        recompute=options.recompute,
        micro_batch=options.micro_batch,
    )
    with _progress() as progress:
        answer = planner.make_answer(request, calibrated, progress)
    if options.json:
        print(json.dumps(planner.as_data(answer), indent=2))
    else:
        print("\n".join(planner.text_lines(answer, options.top)))
    if options.plot is not None:
        _draw(answer, options.plot)
    return DONE


def _cluster(options: argparse.Namespace) -> Cluster:
    from commlab.planner import find_cluster

    changes = {
        "gpus_per_node": options.gpus_per_node,
        "rails": options.interfaces,
        "alpha": options.alpha,
        "beta_intra": options.beta_intra,
        "beta_inter": options.beta_inter,
        "gpu_memory": options.memory,
        "mfu": options.mfu,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    cluster = find_cluster(options.cluster)
    if given:
        cluster = replace(cluster, name=f"{cluster.name}, changed: {', '.join(given)}", **given)
    return cluster


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    from commlab.real._progress import progress_line

    with progress_line() as show:
        yield lambda done, everything: show(f"placement {done} of {everything}")


def _check_plot(path: Path) -> None:
    check_matplotlib()
    from commlab.figures.save import check_plot_path

    check_plot_path(path)


def _draw(answer: Answer, path: Path) -> None:
    from commlab.figures import placements, save, style

    width, _ = style.FIGURE_SIZE
    size = (width + 1, placements.placement_height(len(answer.lines)))
    save.save_figure(path, placements.placement_steps, size, answer=answer)
