"""How the order of additions changes the bits of a sum.

Floating-point addition is commutative but not associative: an algorithm that adds the same
numbers in another order gives results that differ in their last bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from commlab.checks import check_n_ranks
from commlab.collectives import all_reduce


def rank_order_sum(buffers: Sequence[np.ndarray]) -> np.ndarray:
    """Add the buffers from left to right: ``((x0 + x1) + x2) + ...``, in their own dtype."""
    total = np.array(buffers[0])
    for buffer in buffers[1:]:
        total += buffer
    return total


def share_differing(result: np.ndarray, reference: np.ndarray) -> float:
    """Return the share of elements, from 0 to 1, whose bits differ.

    Raises
    ------
    ValueError
        If the shapes or dtypes differ.
    """
    if result.shape != reference.shape or result.dtype != reference.dtype:
        raise ValueError(
            f"only arrays of one shape and dtype can be compared bit by bit; got "
            f"{result.dtype} {result.shape} and {reference.dtype} {reference.shape}."
        )
    bits = f"V{result.dtype.itemsize}"
    return float(np.mean(result.view(bits) != reference.view(bits)))


def sum_over_ranks(
    parts: Sequence[np.ndarray], n_ranks: int, algorithm: str = "ring"
) -> np.ndarray:
    """Share the parts out over ranks, add them up on each, then all-reduce.

    This is what data parallelism does with the gradients of one global batch.

    Parameters
    ----------
    parts : sequence of arrays
        The terms of the sum; rank r takes the r-th run of ``len(parts) / n_ranks`` of them.
    n_ranks : int
        Must divide the number of parts.
    algorithm : str
        Of the all-reduce.

    Returns
    -------
    numpy.ndarray
        The sum as rank 0 holds it.

    Raises
    ------
    ValueError
        If the parts do not share out evenly.
    """
    n_ranks = check_n_ranks(n_ranks)
    if len(parts) % n_ranks:
        raise ValueError(
            f"{len(parts)} parts cannot be shared out evenly over {n_ranks} ranks: "
            "choose a number of ranks that divides them."
        )
    per_rank = len(parts) // n_ranks
    local = [rank_order_sum(parts[r * per_rank : (r + 1) * per_rank]) for r in range(n_ranks)]
    return all_reduce(local, algorithm)[0]


def random_buffers(
    n_ranks: int, n_elements: int, seed: int, dtype: str = "float32"
) -> list[np.ndarray]:
    """Return one buffer of standard normal numbers per rank, the same for the same seed."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(n_elements).astype(dtype) for _ in range(n_ranks)]
