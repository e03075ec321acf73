"""Judge of a placement: data, tensor and pipeline parallelism on a cluster."""

from __future__ import annotations

import numbers
from dataclasses import dataclass, replace
from functools import cache

from commlab.budget import H100_CLUSTER, Cluster, Plan, TrainingStep, training_step
from commlab.exercises.code_answers import call
from commlab.exercises.verdicts import Refused, Verdict, Words, in_code, refuse, right
from commlab.models import LLAMA3_8B, LLAMA3_70B, TransformerShape
from commlab.planner.search import divisors
from commlab.units import format_bytes, format_seconds

AXES = ("data", "tensor", "pipeline")
# How much longer than the fastest placement a right one may take.
SLACK = 1.05

SMALL_NODES = replace(
    H100_CLUSTER, name="H100 nodes of 4, NVLink 4, one NDR InfiniBand port per GPU", gpus_per_node=4
)


@dataclass(frozen=True)
class Case:
    """A model, its batch of sequences of 8192 tokens, and the GPUs that it is placed on."""

    shape: TransformerShape
    n_gpus: int
    n_sequences: int
    cluster: Cluster

    @property
    def name(self) -> Words:
        """The case, for a sentence."""
        model, per_node = self.shape.name, self.cluster.gpus_per_node
        return Words(
            f"{model}, {self.n_gpus} GPUs, {per_node} per node",
            f"{model}，{self.n_gpus} 块 GPU，每个节点 {per_node} 块",
        )


CASES = (
    Case(LLAMA3_70B, 64, 256, H100_CLUSTER),
    Case(LLAMA3_8B, 16, 64, H100_CLUSTER),
    Case(LLAMA3_70B, 128, 256, SMALL_NODES),
)


def training_plan(data: int, tensor: int, pipeline: int, n_sequences: int) -> Plan:
    """Return the plan of the placement puzzle: three sizes are free, all else is fixed.

    Micro-batches of one sequence of 8192 tokens, ZeRO stage 1, sequence parallelism, 1F1B, no
    recomputation; neighbouring GPUs are neighbours on the tensor axis, then data, then
    pipeline.

    Raises
    ------
    ValueError
        If the sequences do not divide among the data-parallel copies, or as in `Plan`.
    """
    if n_sequences % data:
        raise ValueError(
            f"{n_sequences} sequences do not divide among {data} copies: choose a divisor."
        )
    return Plan(
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        n_microbatches=n_sequences // data,
        zero_stage=1 if data > 1 else 0,
        sequence_parallel=True,
    )


def judge_placement(answer: object) -> Verdict:
    """Judge ``place(shape, n_gpus, n_sequences, cluster)`` on every case."""
    for case in CASES:
        sizes = _sizes(call(answer, case.shape, case.n_gpus, case.n_sequences, case.cluster))
        step = _step(sizes, case)
        least = least_seconds(case)
        if step.seconds > SLACK * least:
            raise _slow(sizes, step, least, case)
    return right(
        f"in all {len(CASES)} cases your placement fits and takes at most 5 % longer than the "
        "best of all placements.",
        f"{len(CASES)} 种情形下，你的放置都放得下，而且最多只比所有放置中最快的慢 5 %。",
    )


def _sizes(result: object) -> dict[str, int]:
    """Return the three sizes that the reader's function has given."""
    named = isinstance(result, dict) and set(result) == set(AXES)
    if not named or not all(_is_size(value) for value in result.values()):  # type: ignore[attr-defined]
        raise refuse(
            "result_type",
            "Your function must return a dict of three whole numbers from 1 up, such as "
            f"`{{'data': 2, 'tensor': 2, 'pipeline': 1}}`; it returned {in_code(repr(result))}.",
            "你的函数应返回一个字典，里面是三个不小于 1 的整数，例如 "
            f"`{{'data': 2, 'tensor': 2, 'pipeline': 1}}`；它返回了 {in_code(repr(result))}。",
        )
    return {axis: int(result[axis]) for axis in AXES}  # type: ignore[index]


def _is_size(value: object) -> bool:
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return whole and int(value) >= 1  # type: ignore[call-overload]


def _told(sizes: dict[str, int]) -> str:
    return in_code(" × ".join(f"{axis} {size}" for axis, size in sizes.items()))


def _step(sizes: dict[str, int], case: Case) -> TrainingStep:
    """Return the training step of a placement, or refuse one that is impossible."""
    product = sizes["data"] * sizes["tensor"] * sizes["pipeline"]
    if product != case.n_gpus:
        raise refuse(
            "product",
            f"{case.name.en}: {_told(sizes)} makes {product} GPUs, not {case.n_gpus}.",
            f"{case.name.zh}：{_told(sizes)} 用了 {product} 块 GPU，不是 {case.n_gpus} 块。",
        )
    try:
        plan = training_plan(**sizes, n_sequences=case.n_sequences)
        step = training_step(case.shape, plan, case.cluster)
    except ValueError as error:
        raise refuse(
            "indivisible",
            f"{case.name.en}: {_told(sizes)} is impossible: {error}",
            f"{case.name.zh}：{_told(sizes)} 不可行，有些数除不尽（{in_code(error)}）。",
        ) from error
    if not step.fits:
        raise _too_large(sizes, step, case)
    return step


def _too_large(sizes: dict[str, int], step: TrainingStep, case: Case) -> Refused:
    """Refuse a placement that does not fit, with what fills the memory."""
    memory = step.memory
    needed, capacity = format_bytes(memory.total), format_bytes(memory.capacity)
    filling = format_bytes(memory.activations)
    why_en = "Tensor and pipeline parallelism divide the parameters and their optimizer state."
    why_zh = "张量并行和流水线并行会切开参数和优化器状态。"
    if memory.activations > memory.total / 2:
        why_en = (
            f"Activations fill {filling} of it, which only tensor parallelism divides: the first "
            "stage of a pipeline keeps as many micro-batches as there are stages."
        )
        why_zh = (
            f"其中激活值占 {filling}，只有张量并行能切开它：流水线有几段，第一段就要留几个"
            "微批次的激活值。"
        )
    return refuse(
        "memory",
        f"{case.name.en}: {_told(sizes)} does not fit: the fullest GPU needs {needed} and has "
        f"{capacity}. {why_en}",
        f"{case.name.zh}：{_told(sizes)} 放不下：最满的 GPU 需要 {needed}，只有 {capacity}。"
        f"{why_zh}",
    )


@cache
def least_seconds(case: Case) -> float:
    """Return the seconds of the fastest placement that fits: all are tried."""
    fitting = []
    for tensor in divisors(case.n_gpus):
        for pipeline in divisors(case.n_gpus // tensor):
            data = case.n_gpus // (tensor * pipeline)
            try:
                plan = training_plan(data, tensor, pipeline, case.n_sequences)
                step = training_step(case.shape, plan, case.cluster)
            except ValueError:
                continue
            if step.fits:
                fitting.append(step.seconds)
    return min(fitting)


def _slow(sizes: dict[str, int], step: TrainingStep, least: float, case: Case) -> Refused:
    """Refuse a placement that is too slow, with what costs most."""
    costs = {
        "tensor": (step.tensor, "tensor parallelism", "张量并行的通信"),
        "data": (step.data, "data-parallel traffic that nothing hides", "藏不住的数据并行通信"),
        "pipeline": (step.bubble, "the pipeline's bubble", "流水线的空泡"),
    }
    axis, (seconds, name_en, name_zh) = max(costs.items(), key=lambda item: item[1][0])
    longer = f"{step.seconds / least - 1:.0%}"
    share = f"{format_seconds(seconds)} of {format_seconds(step.seconds)}"
    return refuse(
        f"slow_{axis}",
        f"{case.name.en}: {_told(sizes)} fits, but takes {longer} longer than the best. Most is "
        f"lost to {name_en}: {share}.",
        f"{case.name.zh}：{_told(sizes)} 放得下，但比最快的慢 {longer}。损失最多的是{name_zh}："
        f"{format_seconds(step.seconds)} 里占 {format_seconds(seconds)}。",
    )
