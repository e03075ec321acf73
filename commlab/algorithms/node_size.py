"""How two-level algorithms cut N ranks into nodes."""

from __future__ import annotations

import math

from commlab.checks import check_n_ranks

# What most servers hold, and the book's own machine.
USUAL_GPUS_PER_NODE = 8


def usual_gpus_per_node(n_ranks: int) -> int:
    """Return the node size that is assumed where none is given.

    The largest proper divisor of N up to 8; the smallest one above if there is none.

    Returns
    -------
    int
        g; 1 for a prime N, which cannot be cut into equal nodes.
    """
    n_ranks = check_n_ranks(n_ranks)
    for g in range(min(USUAL_GPUS_PER_NODE, n_ranks - 1), 1, -1):
        if n_ranks % g == 0:
            return g
    for g in range(USUAL_GPUS_PER_NODE + 1, math.isqrt(n_ranks) + 1):
        if n_ranks % g == 0:
            return g
    return 1


def node_shape(n_ranks: int, gpus_per_node: int | None = None) -> tuple[int, int]:
    """Return m and g, the numbers of nodes and of GPUs per node.

    Raises
    ------
    ValueError
        If ``gpus_per_node`` does not divide ``n_ranks``.
    """
    n_ranks = check_n_ranks(n_ranks)
    if gpus_per_node is None:
        gpus_per_node = usual_gpus_per_node(n_ranks)
    gpus_per_node = check_n_ranks(gpus_per_node, "gpus_per_node")
    if n_ranks % gpus_per_node:
        raise ValueError(
            f"{n_ranks} ranks do not fill nodes of {gpus_per_node} GPUs: "
            "gpus_per_node must divide n_ranks."
        )
    return n_ranks // gpus_per_node, gpus_per_node


def can_be_cut(n_ranks: int, gpus_per_node: int | None = None, **others: object) -> bool:
    """Whether N ranks make equal nodes: of the given size, or of two GPUs or more."""
    if n_ranks < 1:
        return False
    if gpus_per_node is not None:
        return n_ranks % check_n_ranks(gpus_per_node, "gpus_per_node") == 0
    return n_ranks == 1 or usual_gpus_per_node(n_ranks) > 1
