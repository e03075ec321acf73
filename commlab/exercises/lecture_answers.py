"""Worked solutions of the lecture's exercises: what `commlab.exercises.solution` shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from commlab.cost import hierarchical_allreduce_time, ring_tree_crossover
from commlab.hardware import ALPHA, H100, INFINIBAND, NVLINK
from commlab.models import BF16_BYTES, LLAMA3_8B, LLAMA3_70B
from commlab.schedule import COPY, REDUCE, Schedule, Step
from commlab.units import GIB

Arrays = list[np.ndarray]


def volume() -> dict[str, float]:
    """Exercise 1: 16 ranks, 4 GiB each, 450 GB/s, no latency."""
    n_ranks, nbytes, beta = 16, 4 * GIB, NVLINK
    ring_bytes = 2 * (n_ranks - 1) / n_ranks * nbytes
    root_bytes = (n_ranks - 1) * nbytes
    return {
        "ring_bytes": ring_bytes,
        "root_bytes": root_bytes,
        "ring_seconds": ring_bytes / beta,
        # The root first receives all of that, then sends as much.
        "naive_seconds": 2 * root_bytes / beta,
    }


def uncut_ring_numbers() -> dict[str, float]:
    """Exercise 2: a ring of 16 ranks, cut and not cut."""
    n_ranks = 16
    cut_seconds = 2 * (n_ranks - 1) * (1 / n_ranks)  # in units of S/β
    uncut_seconds = 2 * (n_ranks - 1) * 1
    return {
        "ring_steps": n_ranks - 1,
        "most_sent": 2,
        "slowdown": uncut_seconds / cut_seconds,
    }


def uncut_ring(n_ranks: int) -> Schedule:
    """Exercise 2: the whole vector walks around the ring twice, to be summed, then copied."""
    steps = [Step([r], [r + 1], [0], REDUCE) for r in range(n_ranks - 1)]
    last = n_ranks - 1
    steps += [Step([(last + s) % n_ranks], [s], [0], COPY) for s in range(n_ranks - 1)]
    return Schedule("all_reduce", n_ranks, [Fraction(1)], [[0]] * n_ranks, [[0]] * n_ranks, steps)


def crossover_numbers() -> dict[str, float]:
    """Exercise 3: 8 ranks on NVLink."""
    return {"crossover_bytes": ring_tree_crossover(8, ALPHA, NVLINK)}


def crossover(n_ranks: int, alpha: float, beta: float) -> float:
    """Exercise 3: solve 2(N-1)(α + S/(Nβ)) = 2⌈log2 N⌉(α + S/β) for S."""
    ring_steps = 2 * (n_ranks - 1)
    tree_steps = 2 * np.ceil(np.log2(n_ranks))
    more_latency = (ring_steps - tree_steps) * alpha
    fewer_bytes = (tree_steps - ring_steps / n_ranks) / beta  # per byte of S
    return float(more_latency / fewer_bytes)


def llama_70b() -> dict[str, float]:
    """Exercise 4: gradients of Llama-3 70B on 8 nodes of 8, 32K tokens per GPU, MFU 40 %."""
    nbytes = BF16_BYTES * LLAMA3_70B.parameters
    all_reduce = hierarchical_allreduce_time(nbytes, 8, 8, ALPHA, NVLINK, INFINIBAND)
    flops = 6 * LLAMA3_70B.parameters * 32768
    compute = flops / (0.40 * H100.bf16_flops)
    return {
        "all_reduce_seconds": float(all_reduce),
        "compute_seconds": compute,
        "communication_part": float(all_reduce) / compute,
    }


def accumulation_numbers() -> dict[str, float]:
    """Exercise 5: one rank stands for 8, 256 samples at a time."""
    return {"samples_in_memory": 256, "time_factor": 8}


def accumulate(
    gradient: Callable[..., np.ndarray],
    weights: np.ndarray,
    features: np.ndarray,
    labels: np.ndarray,
    k: int,
) -> np.ndarray:
    """Exercise 5: the mean gradient of a batch, a k-th of it at a time."""
    total = np.zeros_like(weights)
    for x, y in zip(np.split(features, k), np.split(labels, k), strict=True):
        total += gradient(weights, x, y) / k
    return total


def global_mean(
    gradient_sums: Arrays, counts: Sequence[int], all_reduce: Callable[[Arrays], Arrays]
) -> Arrays:
    """Exercise 6: sums and counts travel together; every rank divides."""
    buffers = [np.append(total, n) for total, n in zip(gradient_sums, counts, strict=True)]
    return [buffer[:-1] / buffer[-1] for buffer in all_reduce(buffers)]


def grows_with() -> dict[str, tuple[str, str]]:
    """Exercise 7: what each kind of traffic grows with, and whether it can hide."""
    return {
        "data": ("parameters", "overlaps"),
        "fsdp": ("parameters", "overlaps"),
        "tensor": ("tokens", "waits"),
        "expert": ("tokens", "waits"),
    }


def fsdp_volume(n_ranks: int, parameter_bytes: float, reshard: bool) -> float:
    """Exercise 8: one gather forward, one more backward if dropped, one reduce-scatter."""
    collectives = 3 if reshard else 2
    return collectives * (n_ranks - 1) / n_ranks * parameter_bytes


def fsdp_numbers() -> dict[str, float]:
    """Exercise 8: Llama-3 8B in BF16, kept whole from the forward to the backward pass."""
    return {"kept_bytes": BF16_BYTES * LLAMA3_8B.parameters}


def hot_expert() -> dict[str, float]:
    """Exercise 10: expert 0 of 8 gets 25 % of the tokens; then a capacity factor of 1.25."""
    even_share, hottest_share = 1 / 8, 0.25
    capacity = 1.25 * even_share  # the part of all tokens that one expert can take
    return {
        # The busiest GPU receives twice its even share, and the all-to-all ends with it.
        "slowdown": hottest_share / even_share,
        "dropped": hottest_share - capacity,
    }
