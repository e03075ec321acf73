"""Judge of a bucket size: by the timeline of backward pass and all-reduces."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from commlab.cost import alpha_beta_ring_allreduce, hierarchical_allreduce_time
from commlab.exercises.code_answers import call, numbers_in
from commlab.exercises.verdicts import Refused, Verdict, Words, in_code, refuse, right
from commlab.hardware import ALPHA, INFINIBAND, NVLINK
from commlab.overlap import bucket_timeline
from commlab.units import GIB, KIB, MIB, format_bytes, format_seconds

# How much more may show of the communication than with the best bucket.
SLACK = 1.25
# The smallest bucket that is tried, in bytes.
SMALLEST = 256 * KIB


@dataclass(frozen=True)
class Case:
    """Gradients, the backward pass that yields them, and what an all-reduce of n bytes takes."""

    name: Words
    nbytes: int
    backward_seconds: float
    all_reduce_time: Callable[[float], float]

    def exposed(self, bucket_nbytes: float) -> float:
        """Return the seconds of communication that show after the backward pass."""
        n_buckets = max(1, round(self.nbytes / bucket_nbytes))
        each = self.all_reduce_time(self.nbytes / n_buckets)
        _, end = bucket_timeline(n_buckets, self.backward_seconds, each)
        return float(end[-1]) - self.backward_seconds


def _on_one_node(nbytes: float) -> float:
    return float(alpha_beta_ring_allreduce(nbytes, 8, ALPHA, NVLINK))


def _on_eight_nodes(nbytes: float) -> float:
    return float(hierarchical_allreduce_time(nbytes, 8, 8, ALPHA, NVLINK, INFINIBAND))


def _with_slow_starts(nbytes: float) -> float:
    return float(alpha_beta_ring_allreduce(nbytes, 64, 10 * ALPHA, INFINIBAND))


CASES = (
    Case(Words("8 GPUs on NVLink", "NVLink 上的 8 块 GPU"), GIB, 0.02, _on_one_node),
    Case(Words("8 nodes of 8 GPUs", "8 个节点，各 8 块 GPU"), GIB, 0.03, _on_eight_nodes),
    # Here the network is busy longer than the backward pass: it decides.
    Case(
        Words("64 ranks, α = 50 µs", "64 个 rank，α = 50 µs"), 256 * MIB, 0.005, _with_slow_starts
    ),
)


@cache
def least_exposed(case: Case) -> float:
    """Return the least exposed seconds of a case over bucket sizes, eight an octave."""
    octaves = math.log2(case.nbytes / SMALLEST)
    sizes = [case.nbytes / 2 ** (k / 8) for k in range(math.floor(8 * octaves) + 1)]
    return min(case.exposed(size) for size in sizes)


def judge_bucket(answer: object) -> Verdict:
    """Judge ``bucket_bytes(nbytes, backward_seconds, all_reduce_time) -> bytes``."""
    for case in CASES:
        result = call(answer, case.nbytes, case.backward_seconds, case.all_reduce_time)
        bucket = float(numbers_in(result, (), Words("one number of bytes", "一个字节数")))
        if not SMALLEST <= bucket <= case.nbytes:
            raise _out_of_range(bucket, case)
        exposed, least = case.exposed(bucket), least_exposed(case)
        if exposed > SLACK * least:
            raise _exposed(bucket, exposed, least, case)
    return right(
        f"in all {len(CASES)} cases at most a quarter more communication shows than with the best "
        "bucket.",
        f"{len(CASES)} 种情形下，露在外面的通信都最多只比最好的桶多四分之一。",
    )


def _out_of_range(bucket: float, case: Case) -> Refused:
    shown, smallest, whole = (
        in_code(f"{bucket:g}"),
        format_bytes(SMALLEST),
        format_bytes(case.nbytes),
    )
    return refuse(
        "range",
        f"{case.name.en}: a bucket of {shown} bytes makes no sense: return bytes, from {smallest} "
        f"up to all gradients ({whole}).",
        f"{case.name.zh}：{shown} 字节的桶没有意义：请返回字节数，"
        f"从 {smallest} 到全部梯度（{whole}）。",
    )


def _exposed(bucket: float, exposed: float, least: float, case: Case) -> Refused:
    """Refuse a bucket of the wrong size, and say in which direction it is wrong."""
    smaller = case.exposed(max(bucket / 1.5, SMALLEST)) < exposed
    reason = "bucket_too_large" if smaller else "bucket_too_small"
    why_en, why_zh = {
        "bucket_too_large": (
            "too large: the last bucket waits long and then shows",
            "太大：最后一个桶等得久，发送时全露在外面",
        ),
        "bucket_too_small": (
            "too small: every bucket pays the latency again",
            "太小：每个桶都要再付一次延迟",
        ),
    }[reason]
    return refuse(
        reason,
        f"{case.name.en}: with buckets of {format_bytes(bucket)} {format_seconds(exposed)} of "
        f"communication shows, {exposed / least:.2f} times the least. They are {why_en}.",
        f"{case.name.zh}：桶为 {format_bytes(bucket)} 时，露在外面的通信有 "
        f"{format_seconds(exposed)}，是最少的 {exposed / least:.2f} 倍。桶{why_zh}。",
    )
