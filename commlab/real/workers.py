"""The first distributed programs of §6, started by `commlab.real.run`.

Every rank runs the same function. Who it is, it asks `torch.distributed`; what it returns
must be plain data. The same functions run on GPUs if the group is one of NCCL and the tensors
are made on the GPU (not tried here).
"""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist

# torch 2.13 has new names for these two and warns about the old ones.
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

FLOAT32_BYTES = 4
# Calls of all_reduce that are timed together, so that the clock itself does not count.
MAX_CALLS = 10
BYTES_PER_BLOCK = 4 * 2**20
WARM_UP_BLOCKS = 2


def first_program() -> list[float]:
    """Sum one vector over all ranks."""
    rank = dist.get_rank()
    x = torch.arange(1.0, 5.0) + 10 * rank
    print(f"before {x.tolist()}")
    dist.all_reduce(x)  # in place: now x is the sum, on every rank
    return x.tolist()


def five_collectives() -> dict[str, list[float]]:
    """Call five collectives on [10r+1 … 10r+N] and return what this rank holds after each."""
    rank, n_ranks = dist.get_rank(), dist.get_world_size()
    own = torch.arange(1.0, n_ranks + 1) + 10 * rank

    total = own.clone()
    dist.all_reduce(total)
    copied = own.clone()
    dist.broadcast(copied, src=0)
    gathered = torch.empty(n_ranks * n_ranks)
    all_gather_single(gathered, own)
    chunk = torch.empty(1)
    reduce_scatter_single(chunk, own)
    exchanged = torch.empty(n_ranks)
    dist.all_to_all_single(exchanged, own)

    results = {
        "all_reduce": total,
        "broadcast": copied,
        "all_gather": gathered,
        "reduce_scatter": chunk,
        "all_to_all": exchanged,
    }
    return {name: tensor.tolist() for name, tensor in results.items()}


def rank_0_waits(patience: float) -> list[str]:
    """Call two collectives on rank 0 while the others are busy; return the two errors."""
    limit = timedelta(seconds=patience)
    impatient_group = dist.new_group(timeout=limit)
    if dist.get_rank() != 0:
        time.sleep(3 * patience)  # busy with something else
        return []
    errors = []
    try:
        dist.all_reduce(torch.ones(1), group=impatient_group)
    except RuntimeError as error:
        errors.append(str(error))
    try:
        dist.monitored_barrier(timeout=limit, wait_all_ranks=True)
    except RuntimeError as error:
        errors.append(str(error))
    return errors


def time_all_reduce(sizes: list[int], blocks: int) -> list[list[float]]:
    """Time all_reduce of float32 vectors.

    Parameters
    ----------
    sizes : list of int
        Bytes, S.
    blocks : int
        Timed blocks for each size. A block is a few calls, one after the other.

    Returns
    -------
    list of list of float
        For each size, the seconds per call in each block, as the slowest rank saw them.
    """
    return [time_one_size(nbytes, blocks) for nbytes in sizes]


def time_one_size(nbytes: int, blocks: int) -> list[float]:
    """Return the seconds per call of each timed block, the same on every rank."""
    x = torch.zeros(nbytes // FLOAT32_BYTES)
    calls = max(1, min(MAX_CALLS, BYTES_PER_BLOCK // nbytes))
    seconds = torch.empty(WARM_UP_BLOCKS + blocks, dtype=torch.float64)
    for block in range(len(seconds)):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            dist.all_reduce(x)
        seconds[block] = (time.perf_counter() - start) / calls
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return seconds[WARM_UP_BLOCKS:].tolist()
