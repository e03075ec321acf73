"""Checks of the arguments that all closed forms share, and small exact logarithms."""

from __future__ import annotations

import numpy as np

from commlab.checks import (
    check_alpha,
    check_beta,
    check_count,
    check_nbytes,
    warn_if_absurd,
)

# A closed form takes a number or an array, and gives the same.
Scalars = float | np.ndarray


def arguments(
    nbytes: object, n_ranks: object, alpha: object, beta: object
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the four arguments of a closed form on a flat network, checked."""
    return (
        check_nbytes(nbytes),
        check_count(n_ranks, "n_ranks"),
        check_alpha(alpha),
        check_beta(beta),
    )


def node_arguments(
    nbytes: object,
    n_nodes: object,
    gpus_per_node: object,
    alpha: object,
    beta_intra: object,
    beta_inter: object,
    alpha_inter: object = None,
) -> tuple[np.ndarray, ...]:
    """Return the arguments of a closed form over nodes of GPUs, checked.

    The last one is the latency between nodes: that inside a node where none is given.
    """
    latency = check_alpha(alpha)
    return (
        check_nbytes(nbytes),
        check_count(n_nodes, "n_nodes"),
        check_count(gpus_per_node, "gpus_per_node"),
        latency,
        check_beta(beta_intra, "beta_intra"),
        check_beta(beta_inter, "beta_inter"),
        latency if alpha_inter is None else check_alpha(alpha_inter, "alpha_inter"),
    )


def as_seconds(seconds: np.ndarray) -> Scalars:
    """Return a float for a single time, the array otherwise; warn of absurd times."""
    warn_if_absurd(seconds)
    return float(seconds) if np.ndim(seconds) == 0 else seconds


def ceil_log2(n: np.ndarray) -> np.ndarray:
    """Return the exact ceil(log2 n) of whole numbers: log2 of 2^k may round up just above k."""
    mantissa, exponent = np.frexp(n)
    return exponent - (mantissa == 0.5)


def largest_power_of_two(n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest power of two up to n, and 1.0 where n is not one itself."""
    mantissa, exponent = np.frexp(n)
    return np.ldexp(0.5, exponent), (mantissa != 0.5).astype(np.float64)
