"""DDP on a virtual cluster with its buckets averaged by a schedule; a worker of its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from commlab.algorithms import ring_all_reduce
from commlab.real.cluster.workers import work_in_place
from commlab.real.execute import execute
from commlab.real.traffic.hooks import (
    PausingLayer,
    Sender,
    Stopwatch,
    send_one_at_a_time,
    timed_step,
)

__all__ = ["train_in_buckets", "work_in_place"]

# DDP makes its buckets anew after the first step.
WARM_UP_STEPS = 1


class RingSender(Sender):
    """A thread that averages buckets one after the other by the ring of this book."""

    def send(
        self, gradients: torch.Tensor, ready: float, averaged: torch.futures.Future[torch.Tensor]
    ) -> None:
        """Average one bucket over all ranks."""
        start = self.watch.now()
        try:
            mean, _ = execute(ring_all_reduce(dist.get_world_size()), gradients)
            mean /= dist.get_world_size()
        except Exception as error:  # It belongs to the thread that waits for the result.
            averaged.set_exception(error)
            return
        end = self.watch.now()
        self.buckets.append(
            {"nbytes": gradients.nbytes, "ready": ready, "start": start, "end": end}
        )
        averaged.set_result(mean)


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
        ``with_ddp``, a list for each limit: for each timed step the ``ready`` seconds of each
        layer's gradient, last layer first, and the ``buckets``: each with ``nbytes``,
        ``ready``, ``start`` and ``end``. ``averaged``: whether the gradients are the mean of
        all ranks'.
    """
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(PausingLayer(hidden, pause) for _ in range(n_layers)))
    watch = Stopwatch(model)
    generator = torch.Generator().manual_seed(dist.get_rank())
    samples = torch.randn(rows, hidden, generator=generator)

    timed_step(model, model, samples, watch)
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    for gradient in expected:
        dist.all_reduce(gradient, op=dist.ReduceOp.AVG)

    with_ddp, averaged = [], True
    for limit in bucket_caps_mb:
        parallel = DistributedDataParallel(model, bucket_cap_mb=limit)
        sender = RingSender(watch)
        parallel.register_comm_hook(sender, send_one_at_a_time)
        steps = []
        for _ in range(WARM_UP_STEPS + n_steps):
            sender.buckets.clear()
            seen = timed_step(parallel, model, samples, watch)
            steps.append({"ready": seen["ready"], "buckets": list(sender.buckets)})
        with_ddp.append(steps[WARM_UP_STEPS:])
        averaged &= all(
            torch.allclose(parameter.grad, mean, rtol=1e-4, atol=1e-7)
            for parameter, mean in zip(model.parameters(), expected, strict=True)
        )
        del parallel  # and with it its hooks, before the next one wraps the model
    return {"with_ddp": with_ddp, "averaged": averaged}
