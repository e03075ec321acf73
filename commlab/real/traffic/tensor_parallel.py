"""One step of tensor parallelism, counted. Workers of `commlab.real.run`."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.functional import gelu, scaled_dot_product_attention

from commlab.real.traffic.operations import OperationLog, count_step

DTYPE = torch.bfloat16


class Attention(torch.nn.Module):
    """Self-attention of as many heads as this rank's matrices have."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.head_dim = hidden // heads
        self.query, self.key, self.value, self.output = (linear(hidden, hidden) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (sequences, tokens, hidden) to the same shape."""
        n_sequences, n_tokens, _ = x.shape
        shape = (n_sequences, n_tokens, -1, self.head_dim)
        q, k, v = (
            matrix(x).view(shape).transpose(1, 2) for matrix in (self.query, self.key, self.value)
        )
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(mixed.transpose(1, 2).reshape(n_sequences, n_tokens, -1))


class Layer(torch.nn.Module):
    """A layer of a Transformer: attention and a two-matrix MLP, norms left out."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(hidden, heads)
        self.up, self.down = linear(hidden, 4 * hidden), linear(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (sequences, tokens, hidden) to the same shape."""
        x = x + self.attention(x)
        return x + self.down(gelu(self.up(x)))


def linear(n_in: int, n_out: int) -> torch.nn.Linear:
    """Make a matrix without bias."""
    return torch.nn.Linear(n_in, n_out, bias=False, dtype=DTYPE)


def naive_plan() -> dict[str, ParallelStyle]:
    """Cut the first matrices by columns and the last by rows, each on its own.

    The backward pass then adds up the gradient of the attention's input three times: once
    for the query, once for the key, once for the value.
    """
    return {
        "attention.query": ColwiseParallel(),
        "attention.key": ColwiseParallel(),
        "attention.value": ColwiseParallel(),
        "attention.output": RowwiseParallel(),
        "up": ColwiseParallel(),
        "down": RowwiseParallel(),
    }


def shared_input_plan() -> dict[str, ParallelStyle]:
    """Make the attention's input one distributed tensor, whose gradient is added up once."""
    share_input = PrepareModuleInput(
        input_layouts=Replicate(), desired_input_layouts=Replicate(), use_local_output=False
    )
    return {**naive_plan(), "attention": share_input}


PLANS = {"naive": naive_plan, "shared input": shared_input_plan}


def tensor_parallel_step(
    plan: str, n_layers: int, hidden: int, heads: int, tokens: int
) -> dict[str, Any]:
    """Count a step of a small Transformer cut by a plan; compare its output with the whole's.

    Returns
    -------
    dict
        As `count_step`; and ``output_differs``, the largest difference from the uncut model's
        output, over that output's largest value.
    """
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Layer(hidden, heads) for _ in range(n_layers)))
    x = torch.randn(1, tokens, hidden, dtype=DTYPE)
    with torch.no_grad():
        whole = model(x)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        parallelize_module(layer, mesh, PLANS[plan]())
    x.requires_grad_()  # so that the first layer, too, has a gradient to hand on

    def step(log: OperationLog) -> torch.Tensor:
        log.begin("forward")
        output = model(x)
        log.begin("backward")
        output.float().square().mean().backward()
        return output

    output = step(OperationLog())
    difference = (output.detach() - whole).abs().max() / whole.abs().max()
    return count_step(step) | {"output_differs": difference.item()}
