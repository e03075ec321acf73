"""Closed forms of pipelined algorithms, and the number of chunks that suits them best.

Conventions as in :mod:`commlab.cost.closed_forms`; `pipeline_chunks` is k.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from commlab.checks import (
    check_alpha,
    check_beta,
    check_count,
    check_n_ranks,
    check_nbytes,
    only_one,
)
from commlab.cost.arguments import Scalars, arguments, as_seconds, ceil_log2, largest_power_of_two

MOST_CHUNKS = 1024
"""The largest k that is proposed: more make schedules slow to build and messages tiny."""


def alpha_beta_pipelined_chain_broadcast(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars, pipeline_chunks: Scalars
) -> Scalars:
    """Time of a broadcast (or reduce) along a chain: ``(N-2+k) (alpha + S/(k beta))``.

    With the best k it is ``(sqrt((N-2) alpha) + sqrt(S/beta))**2``.

    Parameters
    ----------
    nbytes, n_ranks, alpha, beta
        As in `alpha_beta_naive_allreduce`.
    pipeline_chunks : int or array
        k, the chunks that follow each other.

    Returns
    -------
    float or array
        Seconds.
    """
    size, n, latency, bandwidth = arguments(nbytes, n_ranks, alpha, beta)
    k = check_count(pipeline_chunks, "pipeline_chunks")
    steps = np.where(n > 1, n - 2 + k, 0)
    return as_seconds(steps * (latency + size / (k * bandwidth)))


def alpha_beta_pipelined_chain_allreduce(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars, pipeline_chunks: Scalars
) -> Scalars:
    """Time of a pipelined chain reduce, then broadcast: ``2 (N-2+k) (alpha + S/(k beta))``.

    Parameters as in `alpha_beta_pipelined_chain_broadcast`.
    """
    one_way = alpha_beta_pipelined_chain_broadcast(nbytes, n_ranks, alpha, beta, pipeline_chunks)
    return 2 * one_way


def alpha_beta_pipelined_binary_tree_allreduce(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars, pipeline_chunks: Scalars
) -> Scalars:
    """Bound on the time of a pipelined reduce and broadcast along one complete binary tree.

    ``2 (2h + 2(k-1)) (alpha + S/(k beta))`` with h = floor(log2 N): with one port a rank
    serves its two children in turn, so every level and every chunk costs two steps, and the
    bytes take ``4 S/beta``. The tree whose last level is not full may need fewer steps.

    Parameters as in `alpha_beta_pipelined_chain_broadcast`. Source: derived here.
    """
    size, n, latency, bandwidth = arguments(nbytes, n_ranks, alpha, beta)
    k = check_count(pipeline_chunks, "pipeline_chunks")
    power, _ = largest_power_of_two(n)
    steps = np.where(n > 1, 2 * (2 * np.log2(power) + 2 * (k - 1)), 0)
    return as_seconds(steps * (latency + size / (k * bandwidth)))


def alpha_beta_double_binary_tree_allreduce(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars, pipeline_chunks: Scalars
) -> Scalars:
    """Bound on the time of an all-reduce along two binary trees with one port per rank.

    ``2 (2 ceil(log2 N) + 2(k-1)) (alpha + S/(2k beta))``: each tree moves half the vector in
    k chunks, one every two steps. For many chunks the bytes take ``2 S/beta``, a ring's time
    for many ranks, with a latency that grows with log N.

    Parameters as in `alpha_beta_pipelined_chain_broadcast`.

    References
    ----------
    Sanders, Speck and Träff (2009), "Two-tree algorithms for full bandwidth broadcast,
    reduction and scan", for the bytes and the order of the latency; the constant of the
    latency is derived here, for NCCL's trees and edges of two colours.
    """
    size, n, latency, bandwidth = arguments(nbytes, n_ranks, alpha, beta)
    k = check_count(pipeline_chunks, "pipeline_chunks")
    steps = np.where(n > 1, 2 * (2 * ceil_log2(n) + 2 * (k - 1)), 0)
    return as_seconds(steps * (latency + size / (2 * k * bandwidth)))


def best_chain_chunks(nbytes: float, n_ranks: int, alpha: float, beta: float) -> int:
    """Return the k that makes a pipelined chain fastest.

    ``sqrt((N-2) S / (alpha beta))``, rounded to the better whole number; at least 1, at most
    `MOST_CHUNKS`, and no more than S has bytes.
    """
    return _best_whole(
        nbytes, n_ranks, alpha, beta, lambda n: n - 2, alpha_beta_pipelined_chain_broadcast
    )


def best_binary_tree_chunks(nbytes: float, n_ranks: int, alpha: float, beta: float) -> int:
    """Return the k with which the bound of one pipelined binary tree is least.

    ``sqrt((h-1) S / (alpha beta))`` with h = floor(log2 N); limits as in `best_chain_chunks`.
    """
    return _best_whole(
        nbytes,
        n_ranks,
        alpha,
        beta,
        lambda n: math.floor(math.log2(n)) - 1,
        alpha_beta_pipelined_binary_tree_allreduce,
    )


def best_double_tree_chunks(nbytes: float, n_ranks: int, alpha: float, beta: float) -> int:
    """Return the k, per tree, with which the bound of the double binary tree is least.

    ``sqrt((ceil(log2 N) - 1) S / (2 alpha beta))``; limits as in `best_chain_chunks`.
    """
    return _best_whole(
        nbytes,
        n_ranks,
        alpha,
        beta,
        lambda n: ((n - 1).bit_length() - 1) / 2,
        alpha_beta_double_binary_tree_allreduce,
    )


def _best_whole(
    nbytes: float,
    n_ranks: int,
    alpha: float,
    beta: float,
    fill_steps: Callable[[int], float],
    time: Callable[..., Scalars],
) -> int:
    """Try the whole numbers on both sides of sqrt(fill_steps * S / (alpha beta))."""
    size = only_one(check_nbytes(nbytes), "nbytes")
    latency = only_one(check_alpha(alpha), "alpha")
    bandwidth = only_one(check_beta(beta), "beta")
    n_ranks = check_n_ranks(n_ranks)
    most = max(1, min(MOST_CHUNKS, math.floor(size)))
    filling = fill_steps(n_ranks) * size / bandwidth if n_ranks > 1 else 0.0
    if filling <= 0:
        return 1
    if latency <= filling / most**2:
        return most
    exact = math.sqrt(filling / latency)
    candidates = {min(most, max(1, k)) for k in (math.floor(exact), math.ceil(exact))}
    return min(sorted(candidates), key=lambda k: time(size, n_ranks, latency, bandwidth, k))
