"""Closed forms of the alpha-beta model on a flat network.

Everywhere: `alpha` in seconds per message, `beta` in bytes per second in one direction,
sizes in bytes. The closed forms broadcast over numpy arrays and return a float where every
argument is a number. One rank has nobody to talk to: its time is 0.
"""

from __future__ import annotations

import numpy as np

from commlab.checks import check_alpha, check_beta, check_n_ranks, check_nbytes, only_one
from commlab.cost.arguments import Scalars, arguments, as_seconds, ceil_log2, largest_power_of_two
from commlab.cost.latency_optimal import alpha_beta_bruck_all_to_all


def alpha_beta_naive_allreduce(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars
) -> Scalars:
    """Time of an all-reduce through rank 0, which receives and sends one vector at a time.

    ``2 (N-1) (alpha + S/beta)``

    Parameters
    ----------
    nbytes : float or array
        S, the bytes that each rank holds.
    n_ranks : int or array
    alpha : float or array
        Seconds per message.
    beta : float or array
        Bytes per second, one direction.

    Returns
    -------
    float or array
        Seconds.

    Raises
    ------
    ValueError
        If an argument is not finite, N < 1, S or alpha below 0, or beta not above 0.
    """
    size, n, latency, bandwidth = arguments(nbytes, n_ranks, alpha, beta)
    return as_seconds(2 * (n - 1) * (latency + size / bandwidth))


def alpha_beta_ring_allreduce(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars
) -> Scalars:
    """Time of a ring all-reduce.

    ``2 (N-1) (alpha + S/(N beta))``: 2(N-1) steps, each with one message of S/N bytes.

    Parameters and errors as in `alpha_beta_naive_allreduce`.

    References
    ----------
    Patarasuk and Yuan (2009), "Bandwidth Optimal All-reduce Algorithms for Clusters of
    Workstations".
    """
    size, n, latency, bandwidth = arguments(nbytes, n_ranks, alpha, beta)
    return as_seconds(2 * (n - 1) * (latency + size / (n * bandwidth)))


def alpha_beta_tree_allreduce(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars
) -> Scalars:
    """Time of a binomial-tree reduce followed by a binomial-tree broadcast.

    ``2 ceil(log2 N) (alpha + S/beta)``: few steps, each with the whole vector. Real
    libraries pipeline their trees and do better.

    Parameters and errors as in `alpha_beta_naive_allreduce`.

    References
    ----------
    Thakur, Rabenseifner and Gropp (2005), "Optimization of Collective Communication
    Operations in MPICH".
    """
    size, n, latency, bandwidth = arguments(nbytes, n_ranks, alpha, beta)
    return as_seconds(2 * ceil_log2(n) * (latency + size / bandwidth))


def alpha_beta_recursive_doubling_allreduce(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars
) -> Scalars:
    """Time of a recursive-doubling all-reduce.

    ``(log2 p + 2 f) (alpha + S/beta)`` with p the largest power of two up to N, and f = 1
    where N is not a power of two (one step folds the surplus ranks in, one hands the result
    back), else 0.

    Parameters and errors as in `alpha_beta_naive_allreduce`. Source: Thakur et al. (2005).
    """
    size, n, latency, bandwidth = arguments(nbytes, n_ranks, alpha, beta)
    power, folded = largest_power_of_two(n)
    return as_seconds((np.log2(power) + 2 * folded) * (latency + size / bandwidth))


def alpha_beta_halving_doubling_allreduce(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars, fold: str = "whole"
) -> Scalars:
    """Time of Rabenseifner's all-reduce: recursive halving, then recursive doubling.

    ``2 log2 p alpha + 2 (p-1)/p S/beta``, and ``2 (alpha + S/beta)`` more where N is not a
    power of two; p as in `alpha_beta_recursive_doubling_allreduce`. With ``fold="halves"``
    the fold takes three steps, ``3 alpha + 2 S/beta``.

    Parameters and errors as in `alpha_beta_naive_allreduce`. Source: Thakur et al. (2005).
    """
    size, n, latency, bandwidth = arguments(nbytes, n_ranks, alpha, beta)
    power, folded = largest_power_of_two(n)
    core = 2 * np.log2(power) * latency + 2 * (power - 1) / power * size / bandwidth
    if fold not in ("whole", "halves"):
        raise ValueError(f"fold must be 'whole' or 'halves'; got {fold!r}.")
    fold_steps = 2 if fold == "whole" else 3
    return as_seconds(core + folded * (fold_steps * latency + 2 * size / bandwidth))


def alpha_beta_reduce_scatter(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars
) -> Scalars:
    """Time of a ring reduce-scatter: ``(N-1) (alpha + S/(N beta))``; S is the whole array.

    Parameters and errors as in `alpha_beta_naive_allreduce`.
    """
    size, n, latency, bandwidth = arguments(nbytes, n_ranks, alpha, beta)
    return as_seconds((n - 1) * (latency + size / (n * bandwidth)))


def alpha_beta_all_gather(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars
) -> Scalars:
    """Time of a ring all-gather: ``(N-1) (alpha + S/(N beta))``; S is the gathered array.

    Parameters and errors as in `alpha_beta_naive_allreduce`.
    """
    return alpha_beta_reduce_scatter(nbytes, n_ranks, alpha, beta)


def alpha_beta_broadcast(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars
) -> Scalars:
    """Time of a binomial-tree broadcast (or reduce): ``ceil(log2 N) (alpha + S/beta)``.

    Parameters and errors as in `alpha_beta_naive_allreduce`.
    """
    size, n, latency, bandwidth = arguments(nbytes, n_ranks, alpha, beta)
    return as_seconds(ceil_log2(n) * (latency + size / bandwidth))


def alpha_beta_all_to_all(
    nbytes: Scalars,
    n_ranks: Scalars,
    alpha: Scalars,
    beta: Scalars,
    algorithm: str = "pairwise",
) -> Scalars:
    """Time of an all-to-all in which each rank's S bytes go to N ranks in equal parts.

    "pairwise" talks to one partner after the other: ``(N-1) (alpha + S/(N beta))``.
    "direct" sends to all at once and assumes N-1 ports, which share the rank's bandwidth:
    ``alpha + (N-1)/N S/beta``. "bruck": see `alpha_beta_bruck_all_to_all`.

    Parameters and errors as in `alpha_beta_naive_allreduce`.
    """
    size, n, latency, bandwidth = arguments(nbytes, n_ranks, alpha, beta)
    per_partner = size / (n * bandwidth)
    if algorithm == "pairwise":
        return as_seconds((n - 1) * (latency + per_partner))
    if algorithm == "direct":
        return as_seconds(np.where(n > 1, latency, 0.0) + (n - 1) * per_partner)
    if algorithm == "bruck":
        return alpha_beta_bruck_all_to_all(nbytes, n_ranks, alpha, beta)
    raise ValueError(f"algorithm must be 'pairwise', 'direct' or 'bruck'; got {algorithm!r}.")


def bucketed_allreduce_time(
    nbytes: Scalars, bucket_nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars
) -> Scalars:
    """Time of all ring all-reduces, one after the other, of a gradient cut into buckets.

    ``ceil(S/b) 2 (N-1) alpha + 2 (N-1)/N S/beta``: the last bucket may be smaller. Nothing
    is said of what hides behind the backward pass.

    Parameters
    ----------
    nbytes : float or array
        S, the bytes of the whole gradient.
    bucket_nbytes : float or array
        b, the bytes of one bucket, above zero.
    n_ranks, alpha, beta
        As in `alpha_beta_ring_allreduce`.
    """
    size, n, latency, bandwidth = arguments(nbytes, n_ranks, alpha, beta)
    bucket = check_nbytes(bucket_nbytes, "bucket_nbytes")
    if np.any(bucket <= 0):
        raise ValueError(f"bucket_nbytes must be above zero; got {bucket_nbytes!r}.")
    n_buckets = np.ceil(size / bucket)
    return as_seconds(2 * (n - 1) * (n_buckets * latency + size / (n * bandwidth)))


def ring_tree_crossover(n_ranks: int, alpha: float, beta: float) -> float:
    """Message size at which ring and binomial-tree all-reduce take the same time.

    Below it the tree is faster, above it the ring.

    Returns
    -------
    float
        Bytes. ``(N - 1 - d) alpha beta / (d - (N-1)/N)`` with d = ceil(log2 N); 0 where the
        ring is never slower (N = 2 and 3, where both take the same number of steps).

    Raises
    ------
    ValueError
        For one rank, where both take no time.
    """
    n = check_n_ranks(n_ranks)
    if n == 1:
        raise ValueError("one rank communicates nothing: ring and tree cross for 2 ranks or more.")
    latency = only_one(check_alpha(alpha), "alpha")
    bandwidth = only_one(check_beta(beta), "beta")
    depth = float(ceil_log2(np.asarray(float(n))))
    return (n - 1 - depth) * latency * bandwidth / (depth - (n - 1) / n)
