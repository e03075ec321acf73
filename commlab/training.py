"""Data parallelism on a list of ranks: softmax regression without a framework.

One small model, several ways to train it on the same batches: on one process, on N ranks
that all-reduce their gradients, and on one process that takes a batch in pieces. The
gradients go through the same schedules and the same simulator as everything else in the
book, so the bytes are counted, not assumed.

Every loss here is a cross-entropy averaged over samples (the *mean loss*), unless a
function says otherwise: "data parallel equals big batch" holds for mean losses only.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from commlab.algorithms import REGISTRY
from commlab.checks import check_n_ranks
from commlab.simulate import simulate

Reduction = Literal["mean", "sum"]
Combination = Literal["weighted", "mean_of_means"]


@dataclass(frozen=True)
class Batches:
    """The samples of a training run, one batch per step.

    Attributes
    ----------
    features : numpy.ndarray
        Shape (steps, batch size, features), float64.
    labels : numpy.ndarray
        Shape (steps, batch size), integers from 0 to ``n_classes - 1``.
    n_classes : int
        Number of classes.
    """

    features: NDArray[np.float64]
    labels: NDArray[np.int64]
    n_classes: int

    @property
    def batch_size(self) -> int:
        """Samples per step, over all ranks together."""
        return self.features.shape[1]

    def initial_weights(self) -> NDArray[np.float64]:
        """The start of every run: zeros of shape (features, classes)."""
        return np.zeros((self.features.shape[2], self.n_classes))


@dataclass(frozen=True)
class DataParallelRun:
    """What a data-parallel training run leaves behind.

    Attributes
    ----------
    weights : list of numpy.ndarray
        Per rank, the weights after the last step, shape (features, classes).
    history : numpy.ndarray
        Rank 0's weights after each step, shape (steps, features, classes).
    sent_per_step : list of int
        Per rank, the bytes that it sent in each step, counted from the messages.
    """

    weights: list[NDArray[np.float64]]
    history: NDArray[np.float64]
    sent_per_step: list[int]


def make_batches(
    n_steps: int,
    batch_size: int,
    *,
    n_features: int = 32,
    n_classes: int = 8,
    seed: int = 0,
    sorted_share: float = 0.0,
) -> Batches:
    """Draw random samples that a linear model can partly learn.

    Labels come from a random linear map plus noise, so the loss has a minimum away from
    zero, as real data have.

    Parameters
    ----------
    n_steps, batch_size, n_features, n_classes : int
        Shape of the data.
    seed : int
        Seed of numpy's generator; the same seed gives the same samples.
    sorted_share : float
        Part of every batch, from 0 to 1, that is put in order of its labels. With 0 the
        shards of a batch look alike; with 1 each shard sees other classes.

    Returns
    -------
    Batches
        All samples of the run.

    Raises
    ------
    ValueError
        If a size is not a positive integer or ``sorted_share`` is not from 0 to 1.
    """
    for name, value in (
        ("n_steps", n_steps),
        ("batch_size", batch_size),
        ("n_features", n_features),
        ("n_classes", n_classes),
    ):
        check_n_ranks(value, name)
    if not 0.0 <= sorted_share <= 1.0:
        raise ValueError(f"sorted_share is a part from 0 to 1, got {sorted_share!r}.")
    rng = np.random.default_rng(seed)
    teacher = rng.normal(size=(n_features, n_classes))
    features = rng.normal(size=(n_steps, batch_size, n_features))
    noise = rng.gumbel(scale=2.0, size=(n_steps, batch_size, n_classes))
    labels = np.argmax(features @ teacher + noise, axis=2)

    n_sorted = round(sorted_share * batch_size)
    for step in range(n_steps):
        # A random subset of places keeps its places, but its samples come in label order.
        places = np.sort(rng.permutation(batch_size)[:n_sorted])
        order = places[np.argsort(labels[step, places], kind="stable")]
        features[step, places] = features[step, order]
        labels[step, places] = labels[step, order]
    return Batches(features, labels, n_classes)


def gradient(
    weights: NDArray[np.float64],
    features: NDArray[np.float64],
    labels: NDArray[np.int64],
    reduction: Reduction = "mean",
) -> NDArray[np.float64]:
    """Gradient of the cross-entropy of softmax regression.

    Parameters
    ----------
    weights : numpy.ndarray
        Shape (features, classes).
    features : numpy.ndarray
        Shape (samples, features).
    labels : numpy.ndarray
        Shape (samples,), integers.
    reduction : {"mean", "sum"}
        Whether the loss is averaged or summed over the samples.

    Returns
    -------
    numpy.ndarray
        Same shape as ``weights``.

    Raises
    ------
    ValueError
        If there is no sample, or ``reduction`` is unknown.
    """
    _check_choice("reduction", reduction, Reduction)
    n_samples = len(labels)
    if n_samples == 0:
        raise ValueError("a mean over 0 samples is undefined: give each shard a sample.")
    logits = features @ weights
    logits -= logits.max(axis=1, keepdims=True)
    probabilities = np.exp(logits)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    # d loss / d logits = probabilities - one-hot label.
    probabilities[np.arange(n_samples), labels] -= 1.0
    total = features.T @ probabilities
    return total / n_samples if reduction == "mean" else total


def mean_loss(
    weights: NDArray[np.float64], features: NDArray[np.float64], labels: NDArray[np.int64]
) -> float:
    """Cross-entropy of softmax regression in nats, averaged over the samples.

    The arguments are those of `gradient`.
    """
    logits = features @ weights
    logits -= logits.max(axis=1, keepdims=True)
    of_label = logits[np.arange(len(labels)), labels]
    return float(np.mean(np.log(np.exp(logits).sum(axis=1)) - of_label))


def train_single(batches: Batches, learning_rate: float = 0.5) -> NDArray[np.float64]:
    """Train on one process that sees each whole batch at once.

    Parameters
    ----------
    batches : Batches
        The samples, one batch per step.
    learning_rate : float
        Step size of gradient descent.

    Returns
    -------
    numpy.ndarray
        The weights after each step, shape (steps, features, classes).
    """
    weights = batches.initial_weights()
    history = []
    for features, labels in zip(batches.features, batches.labels, strict=True):
        weights = weights - learning_rate * gradient(weights, features, labels)
        history.append(weights)
    return np.array(history)


def train_data_parallel(
    batches: Batches,
    counts: Sequence[int],
    learning_rate: float = 0.5,
    combination: Combination = "weighted",
    algorithm: str = "ring",
) -> DataParallelRun:
    """Train on N ranks that all-reduce their gradients in every step.

    Parameters
    ----------
    batches : Batches
        The samples, one batch per step; each batch is cut into shards in order.
    counts : sequence of int
        ``counts[r]`` samples of each batch go to rank r; they add up to the batch size.
    learning_rate : float
        Step size of gradient descent.
    combination : {"weighted", "mean_of_means"}
        How local mean gradients become one: weighted by the samples behind them (right
        for any counts), or plainly averaged (right for equal counts only).
    algorithm : str
        Name of an all-reduce in ``commlab.algorithms.REGISTRY``.

    Returns
    -------
    DataParallelRun
        Weights of every rank, history of rank 0, bytes sent in a step.

    Raises
    ------
    ValueError
        If the counts do not fit the batch, or a name is unknown.
    """
    shards = shard_slices(counts, batches.batch_size)
    factors = combination_factors(counts, combination)
    if ("all_reduce", algorithm) not in REGISTRY:
        known = ", ".join(name for kind, name in REGISTRY if kind == "all_reduce")
        raise ValueError(f"no all-reduce is called {algorithm!r}: choose one of {known}.")
    schedule = REGISTRY["all_reduce", algorithm].build(len(counts))

    weights = [batches.initial_weights() for _ in counts]
    shape = weights[0].shape
    history = []
    for features, labels in zip(batches.features, batches.labels, strict=True):
        # Scaled before they are summed: the sum of N large gradients could overflow.
        scaled = [
            factor * gradient(weights[rank], features[shard], labels[shard]).ravel()
            for rank, (shard, factor) in enumerate(zip(shards, factors, strict=True))
        ]
        result = simulate(schedule, scaled)
        weights = [
            own - learning_rate * total.reshape(shape)
            for own, total in zip(weights, result.buffers, strict=True)
        ]
        history.append(weights[0])
    itemsize = scaled[0].itemsize
    sent_per_step = [elements * itemsize for elements in result.ledger.elements_sent()]
    return DataParallelRun(weights, np.array(history), sent_per_step)


def train_gradient_accumulation(
    batches: Batches,
    counts: Sequence[int],
    learning_rate: float = 0.5,
    combination: Combination = "weighted",
) -> NDArray[np.float64]:
    """Train on one process that takes each batch in micro-batches and updates once.

    Parameters
    ----------
    batches, counts, learning_rate, combination
        As in `train_data_parallel`, with micro-batches in place of ranks.

    Returns
    -------
    numpy.ndarray
        The weights after each step, shape (steps, features, classes).

    Raises
    ------
    ValueError
        If the counts do not fit the batch, or ``combination`` is unknown.
    """
    shards = shard_slices(counts, batches.batch_size)
    factors = combination_factors(counts, combination)
    weights = batches.initial_weights()
    history = []
    for features, labels in zip(batches.features, batches.labels, strict=True):
        accumulated = np.zeros_like(weights)
        for shard, factor in zip(shards, factors, strict=True):
            accumulated += factor * gradient(weights, features[shard], labels[shard])
        weights = weights - learning_rate * accumulated
        history.append(weights)
    return np.array(history)


def even_counts(n_samples: int, n_parts: int) -> list[int]:
    """Cut a number of samples into parts that differ by one at most, larger ones first.

    Raises
    ------
    ValueError
        If a part would be empty.
    """
    check_n_ranks(n_parts, "n_parts")
    check_n_ranks(n_samples, "n_samples")
    if n_samples < n_parts:
        raise ValueError(
            f"{n_samples} samples do not fill {n_parts} parts: take fewer parts or a larger batch."
        )
    base, extra = divmod(n_samples, n_parts)
    return [base + (part < extra) for part in range(n_parts)]


def shard_slices(counts: Sequence[int], n_samples: int) -> list[slice]:
    """The slice of a batch that each rank gets, in rank order.

    Raises
    ------
    ValueError
        If a count is below 1 or the counts do not add up to ``n_samples``.
    """
    if len(counts) == 0:
        raise ValueError("counts is empty: give one number of samples per rank.")
    counts = [check_n_ranks(count, f"counts[{rank}]") for rank, count in enumerate(counts)]
    if sum(counts) != n_samples:
        raise ValueError(
            f"the shards {counts} hold {sum(counts)} samples, but the batch has {n_samples}: "
            "make the counts add up to the batch size."
        )
    ends = np.cumsum(counts).tolist()
    return [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]


def combination_factors(counts: Sequence[int], combination: Combination) -> list[float]:
    """What each rank multiplies its local mean gradient by before the sum.

    Parameters
    ----------
    counts : sequence of int
        Samples per rank.
    combination : {"weighted", "mean_of_means"}
        ``n_r / sum(n)``, or ``1 / N``.

    Returns
    -------
    list of float
        One factor per rank; they add up to 1.

    Raises
    ------
    ValueError
        If ``combination`` is unknown.
    """
    _check_choice("combination", combination, Combination)
    if combination == "mean_of_means":
        return [1.0 / len(counts)] * len(counts)
    total = sum(counts)
    return [count / total for count in counts]


def distributed_sampler_indices(
    n_samples: int, n_ranks: int, drop_last: bool = False
) -> list[list[int]]:
    """Which samples each rank gets from PyTorch's DistributedSampler without shuffling.

    Every rank gets equally many. If that does not work out, the list is filled up by
    repeating samples from its start, or cut at its end if ``drop_last`` is true.

    Parameters
    ----------
    n_samples : int
        Length of the data set.
    n_ranks : int
        Number of ranks.
    drop_last : bool
        Cut instead of fill.

    Returns
    -------
    list of list of int
        Per rank, the indices in the order in which they are visited.

    Raises
    ------
    ValueError
        If ``n_samples`` is below 0 or ``n_ranks`` below 1.

    Notes
    -----
    Mirrors ``torch/utils/data/distributed.py`` of PyTorch 2.13; a test compares the two.
    """
    if not isinstance(n_samples, numbers.Integral) or n_samples < 0:
        raise ValueError(f"n_samples must be a whole number, 0 or more; got {n_samples!r}.")
    check_n_ranks(n_ranks)
    if drop_last:
        total = n_samples // n_ranks * n_ranks
    else:
        total = math.ceil(n_samples / n_ranks) * n_ranks
    visited = [place % n_samples for place in range(total)]
    return [visited[rank::n_ranks] for rank in range(n_ranks)]


def max_difference(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """The largest absolute difference between two arrays of one shape."""
    return float(np.max(np.abs(first - second)))


def _check_choice(name: str, value: str, choices: object) -> None:
    if value not in get_args(choices):
        known = " or ".join(repr(choice) for choice in get_args(choices))
        raise ValueError(f"{name} must be {known}, got {value!r}.")
