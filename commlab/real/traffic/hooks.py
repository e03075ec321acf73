"""DDP's buckets and when they are sent, seen through a communication hook.

Workers of `commlab.real.run`.
"""

# No `from __future__ import annotations` here: DDP reads the annotations of its hook.

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

import torch

# DDP imports it late: once here, and not once in each rank.
import torch._dynamo
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from commlab.real.workers import FLOAT32_BYTES, time_one_size

WARM_UP_STEPS = 2
TIMED_BLOCKS = 5


def see_buckets(
    elements: Sequence[int],
    used_in_order: Sequence[int],
    n_iterations: int,
    find_unused_parameters: bool,
    bucket_cap_mb: float | None,
) -> list[list[list[int]]]:
    """Let DDP fill its buckets, and note what each holds. Nothing is sent.

    Parameters
    ----------
    elements : sequence of int
        Length of each parameter, float32, in the order in which they are registered.
    used_in_order : sequence of int
        The order in which the forward pass uses them; their gradients come in reverse.
    n_iterations : int
    find_unused_parameters : bool
    bucket_cap_mb : float, optional
        Left alone where None.

    Returns
    -------
    list
        For each iteration the buckets in the order in which DDP hands them over: the numbers
        of the parameters in each.
    """
    model = Chain(elements, used_in_order)
    limit = {} if bucket_cap_mb is None else {"bucket_cap_mb": bucket_cap_mb}
    parallel = DistributedDataParallel(
        model, find_unused_parameters=find_unused_parameters, **limit
    )
    number = {id(parameter): i for i, parameter in enumerate(model.pieces)}
    seen: list[list[int]] = []

    def note(state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        seen.append([number[id(parameter)] for parameter in bucket.parameters()])
        unchanged: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        unchanged.set_result(bucket.buffer())
        return unchanged

    parallel.register_comm_hook(None, note)
    iterations = []
    for _ in range(n_iterations):
        parallel(torch.ones(1)).backward()
        iterations.append(list(seen))
        seen.clear()
    return iterations


class Chain(torch.nn.Module):
    """Parameters that are used one after the other."""

    def __init__(self, elements: Sequence[int], used_in_order: Sequence[int]) -> None:
        super().__init__()
        self.pieces = torch.nn.ParameterList(torch.zeros(count) for count in elements)
        self.used_in_order = used_in_order

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map one number to one number."""
        for i in self.used_in_order:
            x = x * torch.exp(self.pieces[i].mean())
        return x.sum()


class Pause(torch.autograd.Function):
    """An identity whose backward pass takes its time, and no processor."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, seconds: float) -> torch.Tensor:
        """Hand the values on."""
        ctx.seconds = seconds
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Wait, then hand the gradient on."""
        time.sleep(ctx.seconds)
        return gradients[0], None


class PausingLayer(torch.nn.Module):
    """A square matrix whose backward pass takes ``pause`` seconds more."""

    def __init__(self, hidden: int, pause: float) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(hidden, hidden, bias=False)
        self.pause = pause

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (rows, hidden) to the same shape."""
        return Pause.apply(self.linear(x), self.pause)


class Stopwatch:
    """Note when each gradient of a model is there, in seconds after the backward pass began."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.begin = 0.0
        self.ready: dict[int, float] = {}
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(self._note)

    def now(self) -> float:
        """Seconds since the backward pass began."""
        return time.perf_counter() - self.begin

    def _note(self, parameter: torch.Tensor) -> None:
        self.ready[id(parameter)] = self.now()


class Sender:
    """A thread that averages buckets one after the other, as a stream of NCCL would.

    gloo alone would send two of them at once.

    Attributes
    ----------
    buckets : list of dict
        ``nbytes`` of each, and when it was ``ready``, and its all-reduce ``start`` and ``end``.
    """

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch
        self.thread = ThreadPoolExecutor(max_workers=1)
        self.buckets: list[dict[str, float]] = []

    def send(
        self, gradients: torch.Tensor, ready: float, averaged: torch.futures.Future[torch.Tensor]
    ) -> None:
        """Average one bucket over all ranks, and note when."""
        start = self.watch.now()
        try:
            mean = self.average(gradients)
        except Exception as error:  # It belongs to the thread that waits for the result.
            averaged.set_exception(error)
            return
        end = self.watch.now()
        self.buckets.append(
            {"nbytes": gradients.nbytes, "ready": ready, "start": start, "end": end}
        )
        averaged.set_result(mean)

    def average(self, gradients: torch.Tensor) -> torch.Tensor:
        """Return the mean over all ranks; here in place, by the backend's all-reduce."""
        gradients /= dist.get_world_size()
        dist.all_reduce(gradients)
        return gradients


def send_one_at_a_time(
    sender: Sender, bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Take a full bucket: DDP calls this communication hook in the order of the buckets."""
    ready = max(sender.watch.ready[id(parameter)] for parameter in bucket.parameters())
    averaged: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    sender.thread.submit(sender.send, bucket.buffer(), ready, averaged)
    return averaged


def timed_steps(
    n_layers: int,
    hidden: int,
    rows: int,
    pause: float,
    bucket_caps_mb: Sequence[float],
    n_steps: int,
) -> dict[str, Any]:
    """Time training steps alone and under DDP with each limit; time all-reduces alone.

    Returns
    -------
    dict
        ``alone`` and, in ``with_ddp``, a list for each limit: for each timed step ``forward``
        seconds, the ``ready`` seconds of each layer's gradient, last layer first, and, with
        DDP, the ``buckets``: each with ``nbytes``, ``ready``, ``start`` and ``end``.
        ``all_reduce``: pairs of a bucket's bytes and seconds. ``gradient_nbytes``: bytes of
        one layer's gradient. ``averaged``: whether the gradients are the mean of all ranks'.
    """
    model, samples, watch = pausing_model(n_layers, hidden, rows, pause)
    alone = [timed_step(model, model, samples, watch) for _ in range(WARM_UP_STEPS + n_steps)]
    with_ddp, averaged = steps_with_ddp(model, samples, watch, Sender, bucket_caps_mb, n_steps)
    sizes = {int(bucket["nbytes"]) for steps in with_ddp for bucket in steps[-1]["buckets"]}
    return {
        "alone": alone[WARM_UP_STEPS:],
        "with_ddp": with_ddp,
        "all_reduce": [[size, median(time_one_size(size, TIMED_BLOCKS))] for size in sorted(sizes)],
        "gradient_nbytes": FLOAT32_BYTES * hidden**2,
        "averaged": averaged,
    }


def pausing_model(
    n_layers: int, hidden: int, rows: int, pause: float
) -> tuple[torch.nn.Module, torch.Tensor, Stopwatch]:
    """Return one model for all ranks, samples of this rank's own, and the model's stopwatch."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(PausingLayer(hidden, pause) for _ in range(n_layers)))
    generator = torch.Generator().manual_seed(dist.get_rank())
    return model, torch.randn(rows, hidden, generator=generator), Stopwatch(model)


def steps_with_ddp(
    model: torch.nn.Module,
    samples: torch.Tensor,
    watch: Stopwatch,
    make_sender: Callable[[Stopwatch], Sender],
    bucket_caps_mb: Sequence[float],
    n_steps: int,
    n_warm_up: int = WARM_UP_STEPS,
) -> tuple[list[list[dict[str, Any]]], bool]:
    """Time steps under DDP with each limit of a bucket.

    The model still holds the gradients of a step without DDP: their mean is what is expected.

    Returns
    -------
    steps : list of list of dict
        For each limit and timed step what `timed_step` gives, and the ``buckets``.
    averaged : bool
        Whether the gradients are the mean of all ranks'.
    """
    expected = gradients_of(model)
    for gradient in expected:
        dist.all_reduce(gradient, op=dist.ReduceOp.AVG)
    with_ddp, averaged = [], True
    for limit in bucket_caps_mb:
        parallel = DistributedDataParallel(model, bucket_cap_mb=limit)
        sender = make_sender(watch)
        parallel.register_comm_hook(sender, send_one_at_a_time)
        steps = []
        for _ in range(n_warm_up + n_steps):
            sender.buckets.clear()
            seen = timed_step(parallel, model, samples, watch)
            steps.append(seen | {"buckets": list(sender.buckets)})
        with_ddp.append(steps[n_warm_up:])
        averaged &= all(
            torch.allclose(gradient, mean, rtol=1e-4, atol=1e-7)
            for gradient, mean in zip(gradients_of(model), expected, strict=True)
        )
        del parallel  # and with it its hooks, before the next one wraps the model
    return with_ddp, averaged


def timed_step(
    called: torch.nn.Module, model: torch.nn.Module, samples: torch.Tensor, watch: Stopwatch
) -> dict[str, Any]:
    """Run one step, ``called`` being the model or its DDP; all ranks begin together."""
    model.zero_grad()
    dist.barrier()
    before = time.perf_counter()
    loss = called(samples).square().mean()
    watch.begin = time.perf_counter()
    loss.backward()
    ready = [watch.ready[id(parameter)] for parameter in model.parameters()]
    return {"forward": watch.begin - before, "ready": ready[::-1]}


def gradients_of(model: torch.nn.Module) -> list[torch.Tensor]:
    """Return a copy of each gradient."""
    gradients = [parameter.grad for parameter in model.parameters()]
    return [gradient.clone() for gradient in gradients if gradient is not None]
