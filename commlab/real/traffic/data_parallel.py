"""One step of DDP and of FSDP, counted. Workers of `commlab.real.run`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

# DDP imports it late: once here, and not once in each rank.
import torch._dynamo
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter
from torch.nn.parallel import DistributedDataParallel

from commlab.real.traffic.operations import OperationLog, count_step

BATCH = 4
DTYPE = torch.bfloat16


def make_layers(n_layers: int, hidden: int, dtype: torch.dtype = DTYPE) -> torch.nn.Sequential:
    """Make the same stack of square layers on every rank: ``n_layers · hidden²`` parameters."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(hidden, hidden, bias=False, dtype=dtype) for _ in range(n_layers)]
    return torch.nn.Sequential(*layers)


def training_step(model: torch.nn.Module, hidden: int) -> Callable[[OperationLog], None]:
    """Return a function that runs forward and backward once, on this rank's own samples."""
    generator = torch.Generator().manual_seed(dist.get_rank())
    samples = torch.randn(BATCH, hidden, generator=generator).to(DTYPE)

    def step(log: OperationLog) -> None:
        log.begin("forward")
        loss = model(samples).float().square().mean()
        log.begin("backward")
        loss.backward()

    return step


def ddp_step(n_layers: int, hidden: int) -> dict[str, Any]:
    """Count a step of DistributedDataParallel, after the buckets have been rebuilt."""
    model = DistributedDataParallel(make_layers(n_layers, hidden))
    step = training_step(model, hidden)
    for _ in range(2):
        step(OperationLog())
    return count_step(step)


def fsdp_step(
    n_layers: int,
    hidden: int,
    reshard_after_forward: bool | int = True,
    own_reduce_scatter: bool = True,
    float32_gradients: bool = False,
) -> dict[str, Any]:
    """Count a step of FSDP2, each layer a unit of its own."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(reduce_dtype=torch.float32 if float32_gradients else None)
    model = make_layers(n_layers, hidden)
    for layer in model:
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshard_after_forward, mp_policy=policy)
        if own_reduce_scatter:
            layer.set_custom_reduce_scatter(AllToAllReduceScatter())
    fully_shard(model, mesh=mesh, mp_policy=policy)  # the root, which has nothing of its own
    step = training_step(model, hidden)
    step(OperationLog())
    return count_step(step)


class AllToAllReduceScatter(ReduceScatter):
    """A reduce-scatter that sends each rank its chunk and nothing else.

    gloo's own runs an all-reduce inside and sends twice as much.
    """

    def allocate(
        self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Make the buffers that FSDP hands to `__call__`."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        """Put the sum, or the mean, of all ranks' chunks of this rank into ``output_tensor``."""
        received = torch.empty_like(input_tensor)
        dist.all_to_all_single(received, input_tensor, group=group)
        chunks = received.view(group.size(), -1)
        if op == dist.ReduceOp.AVG:
            torch.mean(chunks, dim=0, out=output_tensor)
        elif op == dist.ReduceOp.SUM:
            torch.sum(chunks, dim=0, out=output_tensor)
        else:
            raise NotImplementedError(f"this reduce-scatter adds or averages, it cannot {op}.")
