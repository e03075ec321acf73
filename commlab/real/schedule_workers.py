"""Workers that run schedules, started by `commlab.real.run`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from commlab.algorithms import naive_all_reduce, ring_all_reduce
from commlab.algorithms.gloo import gloo_ring_all_reduce
from commlab.real.execute import execute
from commlab.real.schedules import WIDENED, array_from_plain, array_to_plain, schedule_from_plain


def execute_one(
    schedule: dict[str, Any], buffers: list[dict[str, str]], dtype: str | None
) -> dict[str, Any]:
    """Execute one schedule on this rank's buffer; return the result and what was sent."""
    own = torch.from_numpy(array_from_plain(buffers[dist.get_rank()]))
    if dtype is not None:
        own = own.to(getattr(torch, dtype))
    result, sent = execute(schedule_from_plain(schedule), own)
    if dtype in WIDENED:
        result = result.to(getattr(torch, WIDENED[dtype]))
    return {"result": array_to_plain(result.numpy()), "sent": sent}


def compare_orders(n_elements: int, dtypes: list[str], seed: int) -> dict[str, dict[str, int]]:
    """Compare the bits of gloo's all_reduce with those of three schedules, for each type.

    Returns
    -------
    dict
        ``differing[dtype][order]``, as `compare_one` counts.
    """
    return {dtype: compare_one(n_elements, dtype, seed) for dtype in dtypes}


def compare_one(
    n_elements: int, dtype: str, seed: int, group: dist.ProcessGroup | None = None
) -> dict[str, int]:
    """Count the elements in which three orders of additions differ from gloo's all_reduce.

    All run on the same random numbers, the three as schedules, by sends and receives.
    """
    rank, n_ranks = dist.get_rank(group), dist.get_world_size(group)
    values = np.random.default_rng([seed, rank]).standard_normal(n_elements)
    own = torch.from_numpy(values).to(getattr(torch, dtype))
    by_gloo = own.clone()
    dist.all_reduce(by_gloo, group=group)
    orders = {
        "rank order": naive_all_reduce(n_ranks),
        "textbook ring": ring_all_reduce(n_ranks),
        "gloo's ring": gloo_ring_all_reduce(n_ranks, n_elements, own.element_size()),
    }
    return {
        order: count_differing(execute(schedule, own, group)[0], by_gloo)
        for order, schedule in orders.items()
    }


def count_differing(one: torch.Tensor, other: torch.Tensor) -> int:
    """Count the elements whose bits differ."""
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[one.element_size()]
    return int((one.view(bits) != other.view(bits)).sum())
