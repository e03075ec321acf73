"""Workers for test_bench.py, a bench whose ring forgets its last step among them."""

from __future__ import annotations

from dataclasses import replace

from commlab.algorithms import REGISTRY
from commlab.real import bench_workers
from commlab.schedule import Schedule


def sweep_with_a_lazy_ring(**arguments: object) -> list | None:
    right = REGISTRY["all_reduce", "ring"]

    def build(n_ranks: int) -> Schedule:
        schedule = right.builder(n_ranks)
        return replace(schedule, steps=schedule.steps[:-1])

    REGISTRY["all_reduce", "ring"] = replace(right, builder=build)
    return bench_workers.sweep(**arguments)


def believed_right(collective: str, n_elements: int) -> list[float]:
    """What this rank must hold afterwards, as the bench believes."""
    return bench_workers.expected(collective, n_elements).tolist()
