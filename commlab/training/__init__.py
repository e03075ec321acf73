"""Data parallelism on a list of ranks: softmax regression without a framework.

One small model, several ways to train it on the same batches: on one process, on N ranks
that all-reduce their gradients, on one process that takes a batch in pieces, and on N ranks
that do so. The gradients go through the same schedules and the same simulator as everything
else in the book, so the bytes are counted, not assumed.

Every loss here is a cross-entropy averaged over samples (the *mean loss*), unless a
function says otherwise: "data parallel equals big batch" holds for mean losses only.
"""

from commlab.training.data import Batches, make_batches
from commlab.training.loops import (
    SGD,
    DataParallelRun,
    max_difference,
    train_data_parallel,
    train_gradient_accumulation,
    train_ranks_in_micro_batches,
    train_single,
)
from commlab.training.model import gradient, mean_loss, sample_losses
from commlab.training.optimizers import Adam, GradientDescent, Momentum, Optimizer
from commlab.training.shards import (
    combination_factors,
    distributed_sampler_indices,
    even_counts,
    micro_batch_factors,
    shard_slices,
)

__all__ = [
    "SGD",
    "Adam",
    "Batches",
    "DataParallelRun",
    "GradientDescent",
    "Momentum",
    "Optimizer",
    "combination_factors",
    "distributed_sampler_indices",
    "even_counts",
    "gradient",
    "make_batches",
    "max_difference",
    "mean_loss",
    "micro_batch_factors",
    "sample_losses",
    "shard_slices",
    "train_data_parallel",
    "train_gradient_accumulation",
    "train_ranks_in_micro_batches",
    "train_single",
]
