"""Training loops: on one process, on N ranks, in pieces, and both together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commlab.algorithms import REGISTRY
from commlab.schedule import Schedule
from commlab.setting_checks import check_flag
from commlab.simulate import simulate
from commlab.training.data import Batches, check_batches
from commlab.training.model import Reduction, gradient
from commlab.training.optimizers import GradientDescent, Optimizer, State, check_optimizer
from commlab.training.shards import (
    Combination,
    MicroBatchCombination,
    combination_factors,
    micro_batch_factors,
    shard_slices,
)

SGD = GradientDescent()
"""What a loop uses unless told otherwise."""


@dataclass(frozen=True)
class DataParallelRun:
    """What a data-parallel training run leaves behind.

    Attributes
    ----------
    weights : list of numpy.ndarray
        Per rank, the weights after the last step, shape (features, classes).
    states : list of tuple of numpy.ndarray
        Per rank, the state of its optimizer after the last step.
    history : numpy.ndarray
        Rank 0's weights after each step, shape (steps, features, classes).
    sent_per_step : list of int
        Per rank, the bytes that it sent in each step, counted from the messages.
    """

    weights: list[NDArray[np.float64]]
    states: list[State]
    history: NDArray[np.float64]
    sent_per_step: list[int]


def train_single(
    batches: Batches, optimizer: Optimizer = SGD, reduction: Reduction = "mean"
) -> NDArray[np.float64]:
    """Train on one process that sees each whole batch at once.

    Parameters
    ----------
    batches : Batches
        The samples, one batch per step.
    optimizer : Optimizer
        Rule of the update; plain gradient descent unless given.
    reduction : {"mean", "sum"}
        Whether the loss is averaged or summed over the samples.

    Returns
    -------
    numpy.ndarray
        The weights after each step, shape (steps, features, classes).

    Raises
    ------
    TypeError
        If batches or optimizer are something else.
    ValueError
        If ``reduction`` is unknown.
    """
    weights = check_batches(batches).initial_weights()
    state = check_optimizer(optimizer).start(weights)
    history = []
    for features, labels in zip(batches.features, batches.labels, strict=True):
        whole = gradient(weights, features, labels, reduction)
        weights, state = optimizer.step(weights, whole, state)
        history.append(weights)
    return np.array(history)


def train_data_parallel(
    batches: Batches,
    counts: Sequence[int],
    optimizer: Optimizer = SGD,
    combination: Combination = "weighted",
    reduction: Reduction = "mean",
    algorithm: str = "ring",
) -> DataParallelRun:
    """Train on N ranks that all-reduce their gradients in every step.

    Parameters
    ----------
    batches : Batches
        The samples, one batch per step; each batch is cut into shards in order.
    counts : sequence of int
        ``counts[r]`` samples of each batch go to rank r; they add up to the batch size.
    optimizer : Optimizer
        Rule of the update; every rank keeps a state of its own.
    combination : {"weighted", "mean_of_means"}
        How local gradients become one: see `combination_factors`.
    reduction : {"mean", "sum"}
        Whether each rank averages or sums its loss over its samples.
    algorithm : str
        Name of an all-reduce in ``commlab.algorithms.REGISTRY``.

    Returns
    -------
    DataParallelRun
        Weights and optimizer states of every rank, history of rank 0, bytes sent in a step.

    Raises
    ------
    TypeError
        If batches or optimizer are something else.
    ValueError
        If the counts do not fit the batch, or a name is unknown.
    """
    shards = shard_slices(counts, check_batches(batches).batch_size)
    factors = combination_factors(counts, combination, reduction)
    schedule = _all_reduce_schedule(algorithm, len(counts))

    weights = [batches.initial_weights() for _ in counts]
    states = [check_optimizer(optimizer).start(own) for own in weights]
    history = []
    for features, labels in zip(batches.features, batches.labels, strict=True):
        # Scaled before they are summed: the sum of N large gradients could overflow.
        scaled = [
            factor * gradient(weights[rank], features[shard], labels[shard], reduction)
            for rank, (shard, factor) in enumerate(zip(shards, factors, strict=True))
        ]
        totals, sent = all_reduce_gradients(schedule, scaled)
        for rank, total in enumerate(totals):
            weights[rank], states[rank] = optimizer.step(weights[rank], total, states[rank])
        history.append(weights[0])
    return DataParallelRun(weights, states, np.array(history), sent)


def train_gradient_accumulation(
    batches: Batches,
    counts: Sequence[int],
    optimizer: Optimizer = SGD,
    combination: Combination = "weighted",
) -> NDArray[np.float64]:
    """Train on one process that takes each batch in micro-batches and updates once.

    Parameters
    ----------
    batches, counts, optimizer, combination
        As in `train_data_parallel`, with micro-batches in place of ranks.

    Returns
    -------
    numpy.ndarray
        The weights after each step, shape (steps, features, classes).

    Raises
    ------
    TypeError
        If batches or optimizer are something else.
    ValueError
        If the counts do not fit the batch, or ``combination`` is unknown.
    """
    shards = shard_slices(counts, check_batches(batches).batch_size)
    factors = combination_factors(counts, combination)
    weights = batches.initial_weights()
    state = check_optimizer(optimizer).start(weights)
    history = []
    for features, labels in zip(batches.features, batches.labels, strict=True):
        accumulated = np.zeros_like(weights)
        for shard, factor in zip(shards, factors, strict=True):
            accumulated += factor * gradient(weights, features[shard], labels[shard])
        weights, state = optimizer.step(weights, accumulated, state)
        history.append(weights)
    return np.array(history)


def train_ranks_in_micro_batches(
    batches: Batches,
    counts: Sequence[Sequence[int]],
    optimizer: Optimizer = SGD,
    combination: MicroBatchCombination = "weighted",
    no_sync: bool = True,
    algorithm: str = "ring",
) -> DataParallelRun:
    """Train on N ranks, each of which takes its shard in micro-batches.

    Parameters
    ----------
    batches : Batches
        The samples, one batch per step; rank 0's micro-batches come first, in order.
    counts : sequence of sequence of int
        ``counts[r][j]`` samples are in micro-batch j of rank r; all together they add up
        to the batch size, and every rank has equally many micro-batches.
    optimizer : Optimizer
        Rule of the update; every rank keeps a state of its own.
    combination : {"weighted", "weighted_per_rank", "mean_of_means"}
        How the micro-batches' mean gradients become one: see `micro_batch_factors`.
    no_sync : bool
        True adds up on each rank and all-reduces once, after the last micro-batch; False
        all-reduces after every micro-batch.
    algorithm : str
        Name of an all-reduce in ``commlab.algorithms.REGISTRY``.

    Returns
    -------
    DataParallelRun
        Weights and optimizer states of every rank, history of rank 0, bytes sent in a step.

    Raises
    ------
    TypeError
        If batches or optimizer are something else.
    ValueError
        If the counts do not fit the batch or differ in length, or a name is unknown.
    """
    no_sync = check_flag(no_sync, "no_sync")
    shards = _micro_batch_slices(counts, check_batches(batches).batch_size)
    factors = micro_batch_factors(counts, combination)
    n_ranks, n_micro = len(counts), len(counts[0])
    schedule = _all_reduce_schedule(algorithm, n_ranks)

    weights = [batches.initial_weights() for _ in counts]
    states = [check_optimizer(optimizer).start(own) for own in weights]
    history = []
    for features, labels in zip(batches.features, batches.labels, strict=True):
        local = [np.zeros_like(own) for own in weights]  # not yet all-reduced
        totals = [np.zeros_like(own) for own in weights]
        sent = [0] * n_ranks
        for micro in range(n_micro):
            for rank in range(n_ranks):
                shard, factor = shards[rank][micro], factors[rank][micro]
                local[rank] += factor * gradient(weights[rank], features[shard], labels[shard])
            if no_sync and micro < n_micro - 1:
                continue
            summed, now_sent = all_reduce_gradients(schedule, local)
            totals = [old + new for old, new in zip(totals, summed, strict=True)]
            sent = [old + new for old, new in zip(sent, now_sent, strict=True)]
            local = [np.zeros_like(own) for own in weights]
        for rank, total in enumerate(totals):
            weights[rank], states[rank] = optimizer.step(weights[rank], total, states[rank])
        history.append(weights[0])
    return DataParallelRun(weights, states, np.array(history), sent)


def max_difference(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """The largest absolute difference between two arrays of one shape.

    Raises
    ------
    ValueError
        If the shapes differ, or the arrays are empty.
    """
    if np.shape(first) != np.shape(second) or np.size(first) == 0:
        raise ValueError(
            f"the arrays have shapes {np.shape(first)} and {np.shape(second)}: compare two of one "
            "shape, with at least one element."
        )
    return float(np.max(np.abs(first - second)))


def _all_reduce_schedule(algorithm: str, n_ranks: int) -> Schedule:
    if not isinstance(algorithm, str) or ("all_reduce", algorithm) not in REGISTRY:
        known = ", ".join(name for kind, name in REGISTRY if kind == "all_reduce")
        raise ValueError(f"no all-reduce is called {algorithm!r}: choose one of {known}.")
    return REGISTRY["all_reduce", algorithm].build(n_ranks)


def all_reduce_gradients(
    schedule: Schedule, gradients: Sequence[NDArray[np.float64]]
) -> tuple[list[NDArray[np.float64]], list[int]]:
    """Add up the gradients of all ranks.

    Parameters
    ----------
    schedule : Schedule
        An all-reduce.
    gradients : sequence of numpy.ndarray
        One per rank, all of one shape.

    Returns
    -------
    totals : list of numpy.ndarray
        The sum as each rank holds it.
    sent : list of int
        The bytes that each rank sent.
    """
    result = simulate(schedule, [local.ravel() for local in gradients])
    shape, itemsize = gradients[0].shape, gradients[0].itemsize
    sent = [elements * itemsize for elements in result.ledger.elements_sent()]
    return [total.reshape(shape) for total in result.buffers], sent


def _micro_batch_slices(counts: Sequence[Sequence[int]], batch_size: int) -> list[list[slice]]:
    is_table = isinstance(counts, (Sequence, np.ndarray)) and len(counts) > 0
    if not is_table or any(np.ndim(own) != 1 for own in counts):
        raise ValueError(
            f"counts is {counts!r}: give one list per rank, with the samples of each of its "
            "micro-batches."
        )
    lengths = [len(own) for own in counts]
    if len(set(lengths)) > 1:
        raise ValueError(
            f"the ranks have {lengths} micro-batches: give every rank equally many, since "
            "each of them must take part in every all-reduce."
        )
    flat = shard_slices([count for own in counts for count in own], batch_size)
    n_micro = lengths[0]
    return [flat[rank * n_micro : (rank + 1) * n_micro] for rank in range(len(counts))]
