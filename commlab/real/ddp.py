"""The DistributedDataParallel programs of §6, started by `commlab.real.run`."""

from __future__ import annotations

import copy
import hashlib

import torch

# DDP needs it and imports it late. Here it is imported once, before the ranks are forked,
# and not once in each of them.
import torch._dynamo
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

N_FEATURES = 20
N_CLASSES = 10
LEARNING_RATE = 0.5


def train_with_ddp(n_steps: int, batch_size: int) -> dict[str, object]:
    """Train softmax regression with DDP, and with one process that sees the whole batch.

    Returns fingerprints of this rank's parameters before DDP wraps the model, after that,
    and after training; and the largest difference from the one process.
    """
    rank, n_ranks = dist.get_rank(), dist.get_world_size()
    features, labels = make_samples(batch_size)
    mine = slice(rank, None, n_ranks)  # every N-th sample: equal shares

    torch.manual_seed(rank)  # on purpose: every rank starts with other weights
    model = torch.nn.Linear(N_FEATURES, N_CLASSES)
    at_start = fingerprint(model)
    parallel = DistributedDataParallel(model)
    once_wrapped = fingerprint(model)

    alone = copy.deepcopy(model)
    train(parallel, features[mine], labels[mine], n_steps)
    train(alone, features, labels, n_steps)
    pairs = zip(model.parameters(), alone.parameters(), strict=True)
    return {
        "at_start": at_start,
        "once_wrapped": once_wrapped,
        "trained": fingerprint(model),
        "difference": max((one - other).abs().max().item() for one, other in pairs),
    }


def train(
    model: torch.nn.Module, features: torch.Tensor, labels: torch.Tensor, n_steps: int
) -> None:
    """Take steps of gradient descent on the mean cross-entropy, in place."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for _ in range(n_steps):
        optimizer.zero_grad()
        loss = cross_entropy(model(features), labels)
        loss.backward()  # under DDP, the all-reduces happen in here
        optimizer.step()


def make_samples(n_samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Make the same float32 features and labels on every rank: a noisy linear rule."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(n_samples, N_FEATURES, generator=generator)
    rule = torch.randn(N_FEATURES, N_CLASSES, generator=generator)
    noise = torch.randn(n_samples, N_CLASSES, generator=generator)
    return features, (features @ rule + noise).argmax(dim=1)


def fingerprint(model: torch.nn.Module) -> str:
    """Hash all bits of a model's parameters: equal only if every bit is equal."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def ddp_details(huge: float) -> dict[str, float]:
    """Let DDP average gradients of size ``huge``, and broadcast a buffer.

    With ``huge`` above a quarter of the float32 range, four ranks tell dividing before the
    all-reduce from dividing after it.
    """
    rank, n_ranks = dist.get_rank(), dist.get_world_size()
    model = torch.nn.Linear(1, 1, bias=False)
    buffer = torch.tensor(-1.0)
    model.register_buffer("a_buffer", buffer)
    parallel = DistributedDataParallel(model)
    buffer.fill_(rank)
    output = parallel(torch.ones(1))  # this forward broadcasts rank 0's buffers
    (huge * output).sum().backward()  # the gradient is `huge` on every rank
    gradient = model.weight.grad
    assert gradient is not None

    sum_first = torch.tensor([huge])
    dist.all_reduce(sum_first)
    return {
        "buffer": buffer.item(),
        "ddp_gradient": gradient.item(),
        "sum_then_divide": (sum_first / n_ranks).item(),
        "first_bucket_bytes": dist._DEFAULT_FIRST_BUCKET_BYTES,
        "bucket_bytes": parallel.bucket_bytes_cap,
    }
