"""Eight ways to break the rule that all ranks call the same collectives in the same order.

The workers of `commlab.real.deadlock_lab`. In each of them one rank, chosen at random by whoever
starts it, is *odd*: it does what the others do not.
"""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from commlab.real.journal import Journal, witnesses

BUSY_SECONDS = 600.0  # outlives everybody's patience


def break_the_rule(case: str, odd_rank: int, patience: float, folder: str) -> object:
    """Make one collective as it should be, then let ``odd_rank`` go astray."""
    group = dist.new_group(timeout=timedelta(seconds=patience))
    journal = Journal(Path(folder), group)
    dist.barrier()  # The first call's patience is not spent on a rank that starts late.
    with witnesses(Path(folder), journal, patience):
        journal.call(dist.all_reduce, torch.ones(4))
        return WORKERS[case](journal, dist.get_rank() == odd_rank)


def others_busy(journal: Journal, odd: bool) -> None:
    """Let one rank call a collective while the others compute."""
    if odd:
        journal.call(dist.all_reduce, torch.ones(4))
    else:
        time.sleep(BUSY_SECONDS)


def others_leave(journal: Journal, odd: bool) -> None:
    """Let one rank call a collective while the others finish."""
    if odd:
        journal.call(dist.all_reduce, torch.ones(4))


def wrong_number(journal: Journal, odd: bool) -> float:
    """Let one rank log early and the others late, around a collective of the same shape."""
    log, gradient = torch.tensor([7000.0]), torch.tensor([10.0 ** dist.get_rank()])
    if odd:
        journal.call(dist.all_reduce, log)
    journal.call(dist.all_reduce, gradient)
    if not odd:
        journal.call(dist.all_reduce, log)
    return gradient.item()


def other_order(journal: Journal, odd: bool) -> None:
    """Let one rank call two collectives the other way round."""
    gradient, weights = torch.ones(4), torch.ones(4)
    if odd:
        journal.call(dist.broadcast, weights, src=0)
        journal.call(dist.all_reduce, gradient)
    else:
        journal.call(dist.all_reduce, gradient)
        journal.call(dist.broadcast, weights, src=0)


def other_shape(journal: Journal, odd: bool) -> list[float]:
    """Let one rank bring twice as many elements as the others; return sums of ones."""
    ones = torch.ones(8 if odd else 4)
    journal.call(dist.all_reduce, ones)
    return ones.tolist()


def far_larger(journal: Journal, odd: bool) -> None:
    """Let one rank bring a million times as many elements as the others."""
    journal.call(dist.all_reduce, torch.ones(4_000_000 if odd else 4))


def killed(journal: Journal, odd: bool) -> None:
    """Let one rank die before a collective, as if memory had run out."""
    if odd:
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
    journal.call(dist.all_reduce, torch.ones(4))


def stopped(journal: Journal, odd: bool) -> None:
    """Let one rank be stopped before a collective, as by a debugger."""
    if odd:
        os.kill(os.getpid(), signal.SIGSTOP)
    journal.call(dist.all_reduce, torch.ones(4))


WORKERS = {
    "others busy": others_busy,
    "others leave": others_leave,
    "wrong number": wrong_number,
    "other order": other_order,
    "other shape": other_shape,
    "far larger": far_larger,
    "killed": killed,
    "stopped": stopped,
}
