"""Worked solutions of the puzzles: what `commlab.exercises.solution` shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from commlab.budget import Cluster, training_step
from commlab.cost import best_chain_chunks
from commlab.exercises.placement import training_plan
from commlab.hardware import ALPHA, NVLINK
from commlab.models import TransformerShape
from commlab.overlap import bucket_timeline
from commlab.schedule import COPY, REDUCE, Schedule, Step
from commlab.units import GIB


def short_all_reduce(n_ranks: int) -> Schedule:
    """Halve the vector with partners ever closer, then double it with partners ever farther."""
    r, everything = np.arange(n_ranks), list(range(n_ranks))
    distances = [n_ranks >> s for s in range(1, n_ranks.bit_length())]
    steps = []
    for d in distances:  # r keeps the chunks that share its bits so far, and gives the others
        rank, chunk = np.array([(a, c) for a in r for c in r if (a ^ c) // d == 1]).T
        steps.append(Step(rank, rank ^ d, chunk, REDUCE))
    for d in reversed(distances):
        rank, chunk = np.array([(a, c) for a in r for c in r if (a ^ c) < d]).T
        steps.append(Step(rank, rank ^ d, chunk, COPY))
    shares = [Fraction(1, n_ranks)] * n_ranks
    return Schedule(
        "all_reduce", n_ranks, shares, [everything] * n_ranks, [everything] * n_ranks, steps
    )


def fast_broadcast(n_ranks: int) -> Schedule:
    """Cut the vector into k chunks that follow each other down the chain 0, 1, 2, ..."""
    k = best_chain_chunks(GIB, n_ranks, ALPHA, NVLINK)
    chunks = list(range(k))
    steps = []
    for s in range(n_ranks - 2 + k):
        r = np.array([rank for rank in range(n_ranks - 1) if 0 <= s - rank < k])
        steps.append(Step(r, r + 1, s - r, COPY))
    starts = [chunks] + [[]] * (n_ranks - 1)
    return Schedule("broadcast", n_ranks, [Fraction(1, k)] * k, starts, [chunks] * n_ranks, steps)


def log_and_average(dist: Any, loss: Any, gradient: Any) -> float | None:
    """Let every rank make both calls, in one order; only the value is for rank 0 alone."""
    dist.all_reduce(loss)
    mean_loss = None
    if dist.get_rank() == 0:
        mean_loss = loss.item() / dist.get_world_size()
    dist.all_reduce(gradient)
    gradient /= dist.get_world_size()
    return mean_loss


def loss_factors(tokens: Sequence[Sequence[int]]) -> list[list[float]]:
    """Each mean counts for its tokens; N takes back the mean over ranks that DDP takes."""
    n_ranks = len(tokens)
    total = sum(sum(row) for row in tokens)
    return [[n_ranks * t / total for t in row] for row in tokens]


def place(
    shape: TransformerShape, n_gpus: int, n_sequences: int, cluster: Cluster
) -> dict[str, int]:
    """Try every way to write n_gpus as a product, and keep the fastest that fits."""
    sizes = [2**power for power in range(n_gpus.bit_length())]
    best: dict[str, int] = {}
    best_seconds = float("inf")
    for tensor, pipeline in product(sizes, sizes):
        data = n_gpus // (tensor * pipeline)
        if data * tensor * pipeline != n_gpus or n_sequences % data:
            continue
        try:
            plan = training_plan(data, tensor, pipeline, n_sequences)
            step = training_step(shape, plan, cluster)
        except ValueError:  # layers or heads that do not divide
            continue
        if step.fits and step.seconds < best_seconds:
            best = {"data": data, "tensor": tensor, "pipeline": pipeline}
            best_seconds = step.seconds
    return best


def bucket_bytes(
    nbytes: float, backward_seconds: float, all_reduce_time: Callable[[float], float]
) -> float:
    """Try numbers of buckets, and keep the one whose last all-reduce ends first."""

    def last_end(n_buckets: int) -> float:
        each = all_reduce_time(nbytes / n_buckets)
        return float(bucket_timeline(n_buckets, backward_seconds, each)[1][-1])

    best = min(range(1, 257), key=last_end)
    return nbytes / best


def ring_order(node_of: Sequence[int]) -> list[int]:
    """Walk through one node after the other: the ring enters and leaves each node once."""
    return sorted(range(len(node_of)), key=lambda rank: (node_of[rank], rank))
