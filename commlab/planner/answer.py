"""The answer to a planning question: memory, collectives, time with its interval, and why."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from commlab.budget import Cluster, TrainingStep, training_step
from commlab.budget.groups import Traffic
from commlab.planner.calibration import CalibratedCluster
from commlab.planner.search import Outcome, Request, rank_placements
from commlab.tables import markdown_table
from commlab.units import format_bytes, format_seconds

FORMAT = "commlab plan 1"


class NoPlacementError(ValueError):
    """No placement can run; the message names the nearest and what would help."""


@dataclass(frozen=True)
class Line:
    """One placement in the answer; ``seconds`` is None where it cannot run.

    ``interval`` holds the fast and the slow end, where links were measured.
    """

    outcome: Outcome
    seconds: float | None = None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Answer:
    """A plan, what it rests on, and the placements it was preferred to.

    Parameters
    ----------
    request : Request
    best : TrainingStep
    lines : tuple of Line
        All placements, the best one first.
    remarks : tuple of str
        Where the links' figures came from.
    """

    request: Request
    best: TrainingStep
    lines: tuple[Line, ...]
    remarks: tuple[str, ...]

    @property
    def interval(self) -> tuple[float, float] | None:
        """Seconds of the step at the fast and the slow end of the links; None if not measured."""
        return self.lines[0].interval

    @property
    def undecided(self) -> list[Line]:
        """Placements whose interval overlaps that of the best: the fit cannot tell them apart."""
        if self.interval is None:
            return []
        slow = self.interval[1]
        return [line for line in self.lines[1:] if line.interval and line.interval[0] <= slow]


def make_answer(
    request: Request,
    calibrated: CalibratedCluster | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Answer:
    """Search the placements of a request and put the answer together.

    Parameters
    ----------
    request : Request
        With a calibration its cluster is replaced by the calibrated one.
    calibrated : CalibratedCluster, optional
        Measured links; without them there is no interval.
    progress : callable, optional
        Called with how many placements are done and how many there are.

    Returns
    -------
    Answer

    Raises
    ------
    NoPlacementError
        If no placement can run.
    ValueError
        If a step takes no finite time.
    """
    if calibrated is not None:
        request = replace(request, cluster=calibrated.cluster)
    ranking = rank_placements(request, progress)
    if ranking.best is None:
        raise NoPlacementError(_why_none(request, ranking.outcomes))
    lines = tuple(_line(request, outcome, calibrated) for outcome in ranking.outcomes)
    times = [time for line in lines for time in (line.seconds, *(line.interval or ()))]
    if not all(time is None or math.isfinite(time) for time in times):
        raise ValueError(
            "a step would take longer than can be computed: check the MFU, alpha and the links."
        )
    if calibrated is None:
        remarks: tuple[str, ...] = ("links at line rate: no calibration, so no interval",)
    else:
        remarks = calibrated.remarks
    return Answer(request, ranking.best, lines, remarks)


def _why_none(request: Request, outcomes: tuple[Outcome, ...]) -> str:
    what = f"{request.shape.name} on {request.n_gpus} GPUs"
    if not outcomes:
        return f"{what}: no placement has the sizes that were asked for: leave one of them open."
    # Those that only lack memory come nearest.
    lacking = [(outcome.needs, outcome) for outcome in outcomes if outcome.needs is not None]
    if lacking:
        _, nearest = min(lacking, key=lambda pair: pair[0])
        cure = "Take more GPUs, fewer tokens per GPU, or leave more sizes open."
    else:
        nearest = outcomes[0]
        cure = (
            f"Take a multiple of {request.sequence} tokens per GPU, shorter sequences, or leave "
            "more sizes open."
        )
    return (
        f"{what}: none of {len(outcomes)} placements can run; the nearest, {nearest.placement}: "
        f"{nearest.why}. {cure}"
    )


def _line(request: Request, outcome: Outcome, calibrated: CalibratedCluster | None) -> Line:
    if outcome.step is None:
        return Line(outcome)
    if calibrated is None:
        return Line(outcome, outcome.step.seconds)
    fast, slow = (
        training_step(request.shape, outcome.step.plan, cluster).seconds
        for cluster in (calibrated.fast, calibrated.slow)
    )
    return Line(outcome, outcome.step.seconds, (fast, slow))


def text_lines(answer: Answer, top: int = 10) -> list[str]:
    """Return the answer as lines of text for a terminal.

    Parameters
    ----------
    answer : Answer
    top : int
        Placements to list; how many more there are is said.
    """
    step, request = answer.best, answer.request
    lines = [
        f"{request.shape.name}, {request.n_gpus} GPUs, {request.tokens_per_gpu} tokens per GPU and "
        f"step: {answer.lines[0].outcome.placement}, {_settings(step)}",
        "",
        *_quantities(answer),
        "",
        "What each GPU sends in a step, before overlap:",
        _traffic(step),
        "",
        "Placements, fastest first:",
        _placements(answer, top),
    ]
    left_out = len(answer.lines) - top
    if left_out > 0:
        lines.append(f"({left_out} more: --top {len(answer.lines)} lists all)")
    if answer.undecided:
        names = ", ".join(str(line.outcome.placement) for line in answer.undecided[:5])
        lines += ["", f"Within the links' interval as fast as the best: {names}."]
    lines += ["", *(f"link: {remark}" for remark in answer.remarks)]
    lines += [f"assuming: {note}" for note in step.assumptions]
    return lines


def _settings(step: TrainingStep) -> str:
    plan = step.plan
    recompute = "no" if plan.recompute == "none" else plan.recompute
    return (
        f"ZeRO stage {plan.zero_stage}, {recompute} recomputation, micro-batches: "
        f"{plan.n_microbatches} of {plan.micro_batch} x {plan.sequence} tokens"
    )


def _quantities(answer: Answer) -> list[str]:
    step, n_gpus = answer.best, answer.request.n_gpus
    memory = {
        f"  of which {name}": text
        for name, text in step.memory.lines.items()
        if name not in ("total", "memory of the GPU")
    }
    values = step.lines
    first = "memory of the fullest GPU"
    rows = {first: values.pop(first), **memory, **values}
    rows["tokens per second and GPU"] = f"{step.tokens_per_second / n_gpus:,.0f}"
    rows["exposed communication"] = f"{step.exposed:.1%} of the step"
    if answer.interval is not None:
        # With the digits of the interval's ends, which lie within a few percent.
        rows["step"] = f"{step.seconds:.4g} s"
        rows["step, interval of the links"] = _span(answer.interval)
    width = max(len(name) for name in rows)
    return [f"{name:<{width}}  {text}" for name, text in rows.items()]


def _traffic(step: TrainingStep) -> str:
    rows = [
        (
            item.what,
            item.when,
            item.collective,
            item.group,
            item.count,
            format_bytes(item.nbytes),
            format_seconds(item.seconds_each),
            format_seconds(item.seconds),
        )
        for item in _all_traffic(step)
    ]
    if not rows:
        return "nothing: one GPU works alone"
    headers = ("what", "when", "collective", "group", "times", "bytes each", "time each", "time")
    return markdown_table(headers, rows, "llllrrrr")


def _all_traffic(step: TrainingStep) -> list[Traffic]:
    return [item for kind in step.traffic.values() for item in kind if item.group.n_ranks > 1]


def _placements(answer: Answer, top: int) -> str:
    rows: list[tuple[object, ...]] = []
    for line in answer.lines[:top]:
        step = line.outcome.step
        if step is None or line.seconds is None:
            rows.append((line.outcome.placement, "-", "-", "-", "-", line.outcome.why))
            continue
        rows.append(
            (
                line.outcome.placement,
                step.plan.zero_stage,
                step.plan.recompute,
                format_bytes(step.memory.total),
                _seconds(line),
                line.outcome.why or "the fastest",
            )
        )
    return markdown_table(
        ("placement", "ZeRO", "recompute", "memory", "step", "why"), rows, "lrlrrl"
    )


def _seconds(line: Line) -> str:
    if line.seconds is None:
        return "-"
    if line.interval is None:
        return format_seconds(line.seconds)
    return f"{line.seconds:.4g} s ({_span(line.interval)})"


def _span(interval: tuple[float, float]) -> str:
    """Print both ends with digits enough to tell them apart, 4 to 6."""
    fast, slow = interval
    digits = next((n for n in (4, 5) if f"{fast:.{n}g}" != f"{slow:.{n}g}"), 6)
    return f"{fast:.{digits}g} to {slow:.{digits}g} s"


def as_data(answer: Answer) -> dict[str, Any]:
    """Return the answer as data for JSON: bytes, seconds and rates as plain numbers."""
    step, request = answer.best, answer.request
    cluster = request.cluster
    return {
        "format": FORMAT,
        "model": request.shape.name,
        "parameters": request.shape.parameters,
        "n_gpus": request.n_gpus,
        "tokens_per_gpu": request.tokens_per_gpu,
        "sequence": request.sequence,
        "cluster": _cluster_data(cluster),
        "best": {
            **_line_data(answer.lines[0]),
            "memory": {
                "parameters": step.memory.parameters,
                "gradients": step.memory.gradients,
                "optimizer": step.memory.optimizer,
                "activations": step.memory.activations,
                "gathered": step.memory.gathered,
                "total": step.memory.total,
                "capacity": step.memory.capacity,
            },
            "compute_s": step.compute,
            "recompute_s": step.recompute,
            "tensor_s": step.tensor,
            "expert_s": step.expert,
            "data_exposed_s": step.data,
            "bubble_s": step.bubble,
            "exposed_share": step.exposed,
            "tokens_per_second": step.tokens_per_second,
            "tokens_per_second_per_gpu": step.tokens_per_second / request.n_gpus,
            "mfu": step.mfu,
            "collectives": [
                {
                    "what": item.what,
                    "when": item.when,
                    "collective": item.collective,
                    "n_ranks": item.group.n_ranks,
                    "n_nodes": item.group.n_nodes,
                    "count": item.count,
                    "nbytes": item.nbytes,
                    "seconds_each": item.seconds_each,
                    "seconds": item.seconds,
                }
                for item in _all_traffic(step)
            ],
        },
        "placements": [_line_data(line) for line in answer.lines],
        "undecided": [str(line.outcome.placement) for line in answer.undecided],
        "remarks": list(answer.remarks),
        "assumptions": list(step.assumptions),
    }


def _cluster_data(cluster: Cluster) -> dict[str, Any]:
    return {
        "name": cluster.name,
        "gpus_per_node": cluster.gpus_per_node,
        "alpha_s": cluster.alpha,
        "beta_intra_Bps": cluster.beta_intra,
        "beta_inter_Bps": cluster.beta_inter,
        "interfaces_per_node": cluster.n_rails,
        "peak_flops": cluster.peak_flops,
        "mfu": cluster.mfu,
        "gpu_memory": cluster.gpu_memory,
    }


def _line_data(line: Line) -> dict[str, Any]:
    placement, step = line.outcome.placement, line.outcome.step
    data: dict[str, Any] = {
        "tensor": placement.tensor,
        "pipeline": placement.pipeline,
        "data": placement.data,
        "expert": placement.expert,
        "runs": step is not None,
        "why": line.outcome.why,
        "seconds": line.seconds,
        "seconds_interval": None if line.interval is None else list(line.interval),
    }
    if step is not None:
        data["zero_stage"] = step.plan.zero_stage
        data["recompute"] = step.plan.recompute
        data["micro_batch"] = step.plan.micro_batch
        data["n_microbatches"] = step.plan.n_microbatches
        data["memory_bytes"] = step.memory.total
    return data
