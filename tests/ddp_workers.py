"""Softmax regression under DDP, for test_training.py. The ranks import this module."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from commlab.training import Batches, make_batches, shard_slices

LEARNING_RATE = 0.5


def all_ways(counts: Sequence[int], micro_counts: Sequence[Sequence[int]]) -> dict[str, object]:
    """Train in all the ways that section 5 speaks of; return the weights each ends with."""
    batch_size = sum(counts)
    batches = make_batches(n_steps=10, batch_size=batch_size, seed=0)
    rank, n_ranks = dist.get_rank(), dist.get_world_size()
    mine = [shard_slices(counts, batch_size)[rank]]
    right = [n_ranks * counts[rank] / batch_size]
    flat = [count for own in micro_counts for count in own]
    n_micro = len(micro_counts[0])
    pieces = shard_slices(flat, batch_size)[rank * n_micro : (rank + 1) * n_micro]
    scales = [n_ranks * count / batch_size for count in micro_counts[rank]]
    slow = LEARNING_RATE / batch_size
    return {
        "plain": train(batches, mine, [1.0]),
        "scaled": train(batches, mine, right),
        "sum": train(batches, mine, [1.0], reduction="sum", learning_rate=slow),
        "synced each time": train(batches, pieces, scales, no_sync=""),
        "no_sync": train(batches, pieces, scales, no_sync="forward and backward"),
        "gradients": {
            around: local_gradient(around)
            for around in ("", "forward and backward", "backward", "forward")
        },
    }


def train(
    batches: Batches,
    pieces: Sequence[slice],
    scales: Sequence[float],
    reduction: str = "mean",
    learning_rate: float = LEARNING_RATE,
    no_sync: str = "",
) -> list[list[float]]:
    """Train with DDP on this rank's pieces of each batch, with the losses scaled."""
    n_features = batches.features.shape[2]
    model = torch.nn.Linear(n_features, batches.n_classes, bias=False, dtype=torch.float64)
    torch.nn.init.zeros_(model.weight)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    for features, labels in zip(batches.features, batches.labels, strict=True):
        optimizer.zero_grad()
        for number, (piece, scale) in enumerate(zip(pieces, scales, strict=True), start=1):
            x, y = torch.from_numpy(features[piece]), torch.from_numpy(labels[piece])
            last = number == len(pieces)
            silent = parallel.no_sync() if no_sync and not last else contextlib.nullcontext()
            with silent:
                (scale * cross_entropy(parallel(x), y, reduction=reduction)).backward()
        optimizer.step()
    return model.weight.detach().T.tolist()


def local_gradient(around: str) -> float:
    """Return the gradient after one pass with no_sync around the named parts of it.

    Alone, rank r's gradient is r + 1.
    """
    model = torch.nn.Linear(1, 1, bias=False)
    parallel = DistributedDataParallel(model)

    def silent(part: str) -> contextlib.AbstractContextManager:
        return parallel.no_sync() if part in around else contextlib.nullcontext()

    with silent("forward"):
        output = parallel(torch.tensor([dist.get_rank() + 1.0]))
    with silent("backward"):
        output.backward()
    gradient = model.weight.grad
    assert gradient is not None
    return gradient.item()
