"""DDP on a virtual cluster with its buckets averaged by a schedule; a worker of its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from commlab.algorithms import ring_all_reduce
from commlab.real.cluster.workers import work_in_place
from commlab.real.execute import execute
from commlab.real.traffic.hooks import Sender, pausing_model, steps_with_ddp, timed_step

__all__ = ["train_in_buckets", "work_in_place"]

# DDP makes its buckets anew after the first step.
WARM_UP_STEPS = 1


class RingSender(Sender):
    """A thread that averages buckets one after the other by the ring of this book."""

    def average(self, gradients: torch.Tensor) -> torch.Tensor:
        """Return the mean over all ranks."""
        mean, _ = execute(ring_all_reduce(dist.get_world_size()), gradients)
        return mean / dist.get_world_size()


def train_in_buckets(
    n_layers: int,
    hidden: int,
    rows: int,
    pause: float,
    bucket_caps_mb: Sequence[float],
    n_steps: int,
) -> dict[str, Any]:
    """Time training steps with DDP for several limits of a bucket.

    Parameters
    ----------
    n_layers, hidden, rows, pause
        As of `commlab.real.traffic.measure_overlap`.
    bucket_caps_mb : sequence of float
        Limits of a bucket, in MiB.
    n_steps : int
        Timed steps for each.

    Returns
    -------
    dict
        ``with_ddp`` and ``averaged``, as of `commlab.real.traffic.hooks.timed_steps`.
    """
    model, samples, watch = pausing_model(n_layers, hidden, rows, pause)
    timed_step(model, model, samples, watch)
    with_ddp, averaged = steps_with_ddp(
        model, samples, watch, RingSender, bucket_caps_mb, n_steps, WARM_UP_STEPS
    )
    return {"with_ddp": with_ddp, "averaged": averaged}
