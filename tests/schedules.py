"""Schedules and their changes, shared by the tests of the core."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from commlab.algorithms import REGISTRY
from commlab.schedule import Schedule, Step

RANKS = range(2, 17)
ALGORITHMS = sorted(REGISTRY)
TWO_LEVEL = [key for key in ALGORITHMS if "gpus_per_node" in REGISTRY[key].options]
PIPELINED = [key for key in ALGORITHMS if "pipeline_chunks" in REGISTRY[key].options]


def all_schedules(n_ranks: int) -> list[Schedule]:
    """Every registered algorithm that supports this N, with every node size and some k."""
    built = [REGISTRY[key].build(n_ranks) for key in ALGORITHMS if REGISTRY[key].supports(n_ranks)]
    for gpus_per_node in range(2, n_ranks):
        if n_ranks % gpus_per_node == 0:
            for key in TWO_LEVEL:
                built.append(REGISTRY[key].build(n_ranks, gpus_per_node=gpus_per_node))
    built.append(REGISTRY["all_reduce", "halving_doubling"].build(n_ranks, fold="halves"))
    for pipeline_chunks in (1, 3):
        for key in PIPELINED:
            built.append(REGISTRY[key].build(n_ranks, pipeline_chunks=pipeline_chunks))
    return built


def with_steps(schedule: Schedule, steps: list[Step]) -> Schedule:
    return replace(schedule, steps=steps)


def random_inputs(
    schedule: Schedule, n_elements: int, dtype: str, rng: np.random.Generator
) -> list[np.ndarray]:
    """Random start buffers for any schedule: the chunks of ``starts``, in order."""
    counts = schedule.chunk_counts(n_elements)
    lengths = [int(counts[list(chunks)].sum()) for chunks in schedule.starts]
    if np.dtype(dtype).kind in "iu":
        # Few values per rank would let a wrong schedule be right by chance.
        return [rng.integers(0, 2**20, length).astype(dtype) for length in lengths]
    return [rng.standard_normal(length).astype(dtype) for length in lengths]


def expected_outputs(
    schedule: Schedule, n_elements: int, inputs: list[np.ndarray]
) -> list[np.ndarray]:
    """What ``ends`` promises, by plain numpy: each chunk is the sum over its starters."""
    counts = schedule.chunk_counts(n_elements).tolist()
    totals = {chunk: np.zeros(count, dtype=inputs[0].dtype) for chunk, count in enumerate(counts)}
    for rank, chunks in enumerate(schedule.starts):
        position = 0
        for chunk in chunks:
            totals[chunk] = totals[chunk] + inputs[rank][position : position + counts[chunk]]
            position += counts[chunk]
    empty = inputs[0][:0]
    return [
        np.concatenate([empty, *(totals[chunk] for chunk in chunks)]) for chunks in schedule.ends
    ]


def permuted(schedule: Schedule, order: list[int]) -> Schedule:
    """The same schedule with rank r renamed to ``order[r]``."""
    renamed = np.array(order)
    starts: list = [()] * schedule.n_ranks
    ends: list = [()] * schedule.n_ranks
    for rank, new in enumerate(order):
        starts[new], ends[new] = schedule.starts[rank], schedule.ends[rank]
    steps = [
        Step(renamed[step.src], renamed[step.dst], step.chunk, step.op) for step in schedule.steps
    ]
    return replace(schedule, starts=starts, ends=ends, steps=steps)


def anonymous(schedule: Schedule) -> Schedule:
    """The same schedule without its names."""
    return replace(schedule, collective="x", name="")


def uneven_all_reduce() -> Schedule:
    """Three ranks, chunks of unequal shares, everything through rank 2."""
    return Schedule(
        "all_reduce",
        3,
        shares=[Fraction(1, 6), Fraction(1, 2), Fraction(1, 3)],
        starts=[[0, 1, 2]] * 3,
        ends=[[0, 1, 2]] * 3,
        steps=[
            Step([0, 0, 0], [2, 2, 2], [0, 1, 2], 1),
            Step([1, 1, 1], [2, 2, 2], [0, 1, 2], 1),
            Step([2, 2, 2], [0, 0, 0], [0, 1, 2], 0),
            Step([2, 2, 2], [1, 1, 1], [0, 1, 2], 0),
        ],
    )
