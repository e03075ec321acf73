"""One step of pipeline parallelism, counted. Workers of `commlab.real.run`."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn.functional import mse_loss

from commlab.real.traffic.operations import OperationLog, count_step

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
# Double precision: what is left of a difference is not rounding.
DTYPE = torch.float64


def pipeline_step(schedule: str, n_microbatches: int, rows: int, hidden: int) -> dict[str, Any]:
    """Count a step of a pipeline with one stage on each rank, and check its gradients.

    Parameters
    ----------
    schedule : {"gpipe", "1f1b"}
    n_microbatches : int
    rows : int
        Rows of one micro-batch.
    hidden : int
        Width of a row between the stages.

    Returns
    -------
    dict
        As `count_step`; ``order``: the forward and backward passes of this stage, such as
        "FFBFBB"; and ``gradients_differ``: the largest difference of its gradients from those
        of the whole model in one process, over the largest of them.
    """
    rank, n_ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    parts = [Stage(hidden) for _ in range(n_ranks)]
    batch = torch.randn(n_microbatches * rows, hidden, dtype=DTYPE)
    targets = torch.randn(n_microbatches * rows, hidden, dtype=DTYPE)

    mse_loss(torch.nn.Sequential(*parts)(batch), targets).backward()
    expected = [parameter.grad for parameter in parts[rank].parameters()]
    parts[rank].zero_grad()

    stage = PipelineStage(parts[rank], rank, n_ranks, torch.device("cpu"))
    pipeline = SCHEDULES[schedule](stage, n_microbatches, loss_fn=mse_loss)

    def step(log: OperationLog) -> None:
        log.begin("step")
        parts[rank].zero_grad()
        parts[rank].order.clear()
        inputs = (batch,) if rank == 0 else ()
        pipeline.step(*inputs, target=targets if rank == n_ranks - 1 else None)

    step(OperationLog())  # the stages tell each other the shapes of what they send
    counted = count_step(step)
    return counted | {
        "order": "".join(parts[rank].order),
        "gradients_differ": relative_difference(parts[rank], expected),
    }


class Stage(torch.nn.Module):
    """One stage: a matrix, a bias and a non-linearity.

    Attributes
    ----------
    order : list of str
        "F" for each forward pass that has begun, "B" for each backward pass.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(hidden, hidden, dtype=DTYPE)
        self.order: list[str] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (rows, hidden) to the same shape; note when this and its backward pass run."""
        self.order.append("F")
        output = torch.tanh(self.linear(x))
        output.register_hook(lambda gradient: self.order.append("B"))
        return output


def relative_difference(module: torch.nn.Module, expected: list[torch.Tensor | None]) -> float:
    """Return the largest difference of a module's gradients, over the largest gradient."""
    worst = largest = 0.0
    for parameter, other in zip(module.parameters(), expected, strict=True):
        assert parameter.grad is not None and other is not None
        worst = max(worst, (parameter.grad - other).abs().max().item())
        largest = max(largest, other.abs().max().item())
    return worst / largest
