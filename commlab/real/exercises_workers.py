"""The worker of the deadlock puzzle: runs a function whose source a reader wrote in a notebook.

A function of a notebook cell does not exist in the processes of the ranks. Its text does: it
travels with the job, and every rank compiles it for itself, so no file is written.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from commlab.real.journal import Journal, witnesses

# Stands for the notebook's cell in messages: "your_function.py, line 3".
FILE_NAME = "your_function.py"


def run_source(
    source: str,
    name: str,
    losses: Sequence[float],
    gradients: Sequence[Sequence[float]],
    patience: float,
    folder: str,
) -> dict[str, object]:
    """Run ``name(dist, loss, gradient)`` of a source text on this rank's loss and gradient."""
    group = dist.new_group(timeout=timedelta(seconds=patience))
    journal = Journal(Path(folder), group)
    dist.barrier()  # The first call's patience is not spent on a rank that starts late.
    rank = dist.get_rank()
    loss, gradient = torch.tensor([losses[rank]]), torch.tensor(gradients[rank])
    with witnesses(Path(folder), journal, patience):
        returned = load(source, name)(recorded(journal), loss, gradient)
    return {"returned": _plain(returned), "gradient": gradient.tolist()}


def load(source: str, name: str) -> Callable[..., object]:
    """Compile a source text and return the function of that name."""
    # Tracebacks look their lines up here.
    linecache.cache[FILE_NAME] = (len(source), None, source.splitlines(True), FILE_NAME)
    names: dict[str, Any] = {"torch": torch}
    # Annotations stay text: what they name is known in the notebook only.
    exec(compile(source, FILE_NAME, "exec", flags=annotations.compiler_flag), names)
    return names[name]


def recorded(journal: Journal) -> SimpleNamespace:
    """Return what stands for ``torch.distributed``: its calls are noted in the journal.

    A partial is no frame of Python, so the journal notes the reader's own line.
    """
    collectives = {
        collective.__name__: partial(journal.call, collective)
        for collective in (dist.all_reduce, dist.reduce, dist.broadcast)
    }
    return SimpleNamespace(
        get_rank=dist.get_rank,
        get_world_size=dist.get_world_size,
        ReduceOp=dist.ReduceOp,
        **collectives,
    )


def _plain(returned: object) -> float | str | None:
    """Return a number or None as it is, a tensor of one element as a number, all else as text."""
    if isinstance(returned, torch.Tensor) and returned.numel() == 1:
        return float(returned.item())
    if returned is None or isinstance(returned, (int, float)):
        return returned
    return repr(returned)
