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
