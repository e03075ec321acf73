"""Closed forms of the algorithms that need about log2 N steps, and of their mixtures.

Conventions as in :mod:`commlab.cost.closed_forms`.
"""

from __future__ import annotations

import numpy as np

from commlab.cost.arguments import Scalars, arguments, as_seconds, ceil_log2


def alpha_beta_recursive_halving_reduce_scatter(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars
) -> Scalars:
    """Time of a recursive-halving reduce-scatter: ``log2(N) alpha + (N-1)/N S/beta``.

    For a power of two; for other N this is the time of an algorithm that takes
    ceil(log2 N) steps, as Bruck's all-gather does. S is the whole array.

    Parameters and errors as in `alpha_beta_naive_allreduce`. Source: Thakur, Rabenseifner
    and Gropp (2005).
    """
    size, n, latency, bandwidth = arguments(nbytes, n_ranks, alpha, beta)
    return as_seconds(ceil_log2(n) * latency + (n - 1) / n * size / bandwidth)


def alpha_beta_recursive_doubling_all_gather(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars
) -> Scalars:
    """Time of a recursive-doubling all-gather: ``log2(N) alpha + (N-1)/N S/beta``.

    As `alpha_beta_recursive_halving_reduce_scatter`; S is the gathered array.
    """
    return alpha_beta_recursive_halving_reduce_scatter(nbytes, n_ranks, alpha, beta)


def alpha_beta_bruck_all_gather(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars
) -> Scalars:
    """Time of Bruck's all-gather, any N: ``ceil(log2 N) alpha + (N-1)/N S/beta``.

    Parameters and errors as in `alpha_beta_naive_allreduce`. Source: Bruck et al. (1997).
    """
    return alpha_beta_recursive_halving_reduce_scatter(nbytes, n_ranks, alpha, beta)


def alpha_beta_scatter_all_gather_broadcast(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars
) -> Scalars:
    """Time of a broadcast by binomial-tree scatter and ring all-gather.

    ``(ceil(log2 N) + N - 1) alpha + 2 (N-1)/N S/beta``, for any N.

    Parameters and errors as in `alpha_beta_naive_allreduce`. Source: Thakur et al. (2005).
    """
    size, n, latency, bandwidth = arguments(nbytes, n_ranks, alpha, beta)
    return as_seconds((ceil_log2(n) + n - 1) * latency + 2 * (n - 1) / n * size / bandwidth)


def alpha_beta_bruck_all_to_all(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars
) -> Scalars:
    """Time of Bruck's all-to-all: ``ceil(log2 N) alpha + D/N S/beta``.

    D is the number of ones in the binary numbers 0 to N-1, so that D/N is (log2 N)/2 for a
    power of two: a chunk travels once for every one in the distance that it has to go.

    Parameters and errors as in `alpha_beta_naive_allreduce`. Source: Bruck et al. (1997).
    """
    size, n, latency, bandwidth = arguments(nbytes, n_ranks, alpha, beta)
    return as_seconds(ceil_log2(n) * latency + _ones_below(n) / n * size / bandwidth)


def _ones_below(n: np.ndarray) -> np.ndarray:
    """Count the ones in the binary numbers 0 to n-1."""
    whole = n.astype(np.int64)
    total = np.zeros_like(whole)
    for digit in range(int(whole.max(initial=1)).bit_length()):
        # Of each 2^(digit+1) numbers in a row, the upper half have a one there.
        in_upper_half = np.maximum((whole & ((2 << digit) - 1)) - (1 << digit), 0)
        total += ((whole >> (digit + 1)) << digit) + in_upper_half
    return total
