"""Workers that misbehave, for test_real.py. The ranks import this module; the tests do not."""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist


def add_one(start: float) -> float:
    x = torch.tensor(start + dist.get_rank())
    dist.all_reduce(x)
    return x.item()


def raise_in_rank_2() -> None:
    if dist.get_rank() == 2:
        raise ValueError("the cause")
    dist.all_reduce(torch.ones(3))


def kill_rank_1() -> None:
    if dist.get_rank() == 1:
        os.kill(os.getpid(), 9)
    dist.all_reduce(torch.ones(3))


def hang_except_rank_0() -> None:
    print("here", flush=True)
    if dist.get_rank() != 0:
        time.sleep(600)


def return_a_tensor() -> torch.Tensor:
    return torch.ones(2)


def warn() -> None:
    os.write(2, b"careful\n")


def one_call_too_many() -> float:
    """Let rank 0 alone call all_reduce once more, and return what each rank believes."""
    rank = dist.get_rank()
    if rank == 0:
        dist.all_reduce(torch.tensor([1000.0]))  # "only for the log"
    gradient = torch.tensor([10.0**rank])
    dist.all_reduce(gradient)
    if rank != 0:
        # Rank 0 is one call ahead. Without this one it would wait for the others.
        dist.all_reduce(torch.zeros(1))
    return gradient.item()


def rank_0_alone() -> None:
    """Call a collective on rank 0 while the other ranks finish."""
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(1))
