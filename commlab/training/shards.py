"""Who gets which samples, and what each local gradient is multiplied by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from commlab.checks import check_n_ranks
from commlab.setting_checks import check_flag, check_list, check_whole_from_zero
from commlab.training.model import Reduction, check_choice

Combination = Literal["weighted", "mean_of_means"]
MicroBatchCombination = Literal["weighted", "weighted_per_rank", "mean_of_means"]


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
    counts = check_counts(counts)
    if sum(counts) != n_samples:
        raise ValueError(
            f"the shards {counts} hold {sum(counts)} samples, but the batch has {n_samples}: "
            "make the counts add up to the batch size."
        )
    ends = np.cumsum(counts).tolist()
    return [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]


def check_counts(counts: Sequence[int], what: str = "counts") -> list[int]:
    """Return the samples of each rank, or say that each needs at least one."""
    if not isinstance(counts, (Sequence, np.ndarray)) or len(counts) == 0:
        raise ValueError(f"{what} is {counts!r}: give one number of samples per rank.")
    return [check_n_ranks(count, f"{what}[{rank}]") for rank, count in enumerate(counts)]


def combination_factors(
    counts: Sequence[int], combination: Combination, reduction: Reduction = "mean"
) -> list[float]:
    """What each rank multiplies its local gradient by before the sum.

    Parameters
    ----------
    counts : sequence of int
        Samples per rank.
    combination : {"weighted", "mean_of_means"}
        ``"weighted"`` is right for any counts: ``n_r / sum(n)`` for mean losses, 1 for sum
        losses. ``"mean_of_means"`` is ``1 / N`` for either, as DDP has it.
    reduction : {"mean", "sum"}
        Whether each local loss is averaged or summed over the rank's samples.

    Returns
    -------
    list of float
        One factor per rank; those of mean losses add up to 1.

    Raises
    ------
    ValueError
        If a count is below 1, or ``combination`` or ``reduction`` is unknown.
    """
    counts = check_counts(counts)
    check_choice("combination", combination, Combination)
    check_choice("reduction", reduction, Reduction)
    if combination == "mean_of_means":
        return [1.0 / len(counts)] * len(counts)
    if reduction == "sum":
        return [1.0] * len(counts)
    total = sum(counts)
    return [count / total for count in counts]


def micro_batch_factors(
    counts: Sequence[Sequence[int]], combination: MicroBatchCombination
) -> list[list[float]]:
    """What rank r multiplies the mean gradient of its micro-batch j by before it adds up.

    Parameters
    ----------
    counts : sequence of sequence of int
        ``counts[r][j]`` samples (tokens, for a language model) are in micro-batch j of
        rank r.
    combination : {"weighted", "weighted_per_rank", "mean_of_means"}
        ``"weighted"``: by the samples of all ranks together, right for any counts.
        ``"weighted_per_rank"``: each rank by its own samples, then a plain mean over
        ranks. ``"mean_of_means"``: all micro-batches alike.

    Returns
    -------
    list of list of float
        Factors in the shape of ``counts``; all of them add up to 1.

    Raises
    ------
    ValueError
        If a count is below 1, or ``combination`` is unknown.
    """
    check_choice("combination", combination, MicroBatchCombination)
    listed = enumerate(check_list(counts, "counts"))
    counts = [check_counts(own, f"counts[{rank}]") for rank, own in listed]
    n_ranks = len(counts)
    if combination == "mean_of_means":
        return [[1.0 / (n_ranks * len(own)) for _ in own] for own in counts]
    if combination == "weighted_per_rank":
        return [[count / (n_ranks * sum(own)) for count in own] for own in counts]
    total = sum(sum(own) for own in counts)
    return [[count / total for count in own] for own in counts]


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
    check_whole_from_zero(n_samples, "n_samples")
    check_n_ranks(n_ranks)
    if check_flag(drop_last, "drop_last"):
        total = n_samples // n_ranks * n_ranks
    else:
        total = math.ceil(n_samples / n_ranks) * n_ranks
    visited = [place % n_samples for place in range(total)]
    return [visited[rank::n_ranks] for rank in range(n_ranks)]
