"""More workers of test_execute.py, each for one question."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from schedules import all_schedules, random_inputs

from commlab.algorithms import ring_all_gather, ring_all_reduce
from commlab.real.execute import execute
from commlab.real.schedule_workers import compare_one
from commlab.simulate import simulate

# Of 3 ranks: 39 segments of at most 1 MiB, the last of them short by 38 elements, so that six
# would shift the blocks and show in the bits.
LARGE = 39 * 256_410 + 1


def run_in_batches() -> int:
    """Run all schedules of this N in the way that is meant for NCCL; return how many."""
    module = sys.modules[execute.__module__]
    module._takes_single_messages = lambda device: False
    batches = []
    batch_isend_irecv = dist.batch_isend_irecv
    dist.batch_isend_irecv = lambda ops: batches.append(ops) or batch_isend_irecv(ops)
    rank, n_ranks = dist.get_rank(), dist.get_world_size()
    mine = all_schedules(n_ranks)
    for schedule in mine:
        arrays = random_inputs(schedule, 37, "float32", np.random.default_rng(0))
        result, _ = execute(schedule, torch.from_numpy(arrays[rank]), n_elements=37)
        expected = simulate(schedule, arrays, n_elements=37).buffers[rank]
        assert result.numpy().tobytes() == expected.tobytes(), schedule
    assert batches
    return len(mine)


def compare_with_gloo(sizes: list[int]) -> list[list]:
    """Compare gloo's all_reduce with three schedules for all N that the processes allow.

    Returns [N, elements, dtype, differing elements by order of additions] of this process.
    """
    answers = []
    for n_ranks in range(2, dist.get_world_size() + 1):
        group = dist.new_group(list(range(n_ranks)))
        if dist.get_rank() >= n_ranks:
            continue
        runs = [(size, dtype) for size in sizes for dtype in ("float32", "float16", "bfloat16")]
        if n_ranks == 3:
            runs.append((LARGE, "float32"))
        for n_elements, dtype in runs:
            differing = compare_one(n_elements, dtype, seed=n_elements, group=group)
            answers.append([n_ranks, n_elements, dtype, differing])
    return answers


def complain() -> list[str]:
    """Call execute wrongly in every way; return what it says. Nothing is sent."""
    ring = ring_all_reduce(2)
    apart = dist.new_group([0])
    calls = [
        lambda: execute(ring_all_reduce(3), torch.ones(3)),
        lambda: execute(ring, torch.ones(2), group=apart),
        lambda: execute(ring, np.ones(2)),
        lambda: execute(ring, torch.ones(2, 1)),
        lambda: execute(ring, torch.ones(2, requires_grad=True)),
        lambda: execute(ring, torch.ones(2, dtype=torch.bool)),
        lambda: execute(ring, torch.ones(2), n_elements=3),
        lambda: execute(ring, torch.ones(2), n_elements=-1),
        lambda: execute(ring_all_gather(2), torch.ones(2)),
        lambda: execute(replace(ring, starts=[[0, 2]] * 2), torch.ones(2)),
        lambda: execute(ring_all_reduce, torch.ones(2)),
    ]
    answers = []
    for call in calls:
        try:
            call()
            answers.append("no complaint")
        except (ValueError, TypeError) as error:
            answers.append(f"{type(error).__name__}: {error}")
    return answers


def leave_rank_0_waiting(patience: float) -> str:
    """Let rank 0 alone execute; return its error."""
    group = dist.new_group(timeout=timedelta(seconds=patience))
    error = ""
    if dist.get_rank() == 0:
        try:
            execute(ring_all_reduce(2), torch.ones(2), group)
        except RuntimeError as caught:
            error = str(caught)
    dist.barrier()
    return error
