"""All-to-all: every rank has a chunk for every other. Chunk ``from * N + to``."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from commlab.algorithms.node_size import node_shape
from commlab.checks import check_n_ranks
from commlab.schedule import COPY, Schedule, Step

# counts[i][j]: elements that rank i sends to rank j.
Counts = Sequence[Sequence[int]] | np.ndarray


def pairwise_all_to_all(n_ranks: int, counts: Counts | None = None) -> Schedule:
    """All-to-all in N-1 steps: in step s, rank r sends to ``r + s`` and receives from ``r - s``.

    Parameters
    ----------
    n_ranks : int
    counts : array_like of int, shape (N, N), optional
        Uneven splits: ``counts[i][j]`` elements go from rank i to rank j. The schedule then
        fits these counts only, and S is what the fullest rank starts or ends with.
    """
    n_ranks = check_n_ranks(n_ranks)
    r = np.arange(n_ranks)
    steps = [
        Step(src=r, dst=(r + s) % n_ranks, chunk=r * n_ranks + (r + s) % n_ranks, op=COPY)
        for s in range(1, n_ranks)
    ]
    return all_to_all_schedule(n_ranks, steps, "pairwise", counts)


def direct_all_to_all(n_ranks: int, counts: Counts | None = None) -> Schedule:
    """All-to-all in one step: every rank sends N-1 messages at once and needs N-1 ports.

    ``counts`` as in `pairwise_all_to_all`.
    """
    n_ranks = check_n_ranks(n_ranks)
    sender, receiver = np.nonzero(~np.eye(n_ranks, dtype=bool))
    steps = [Step(src=sender, dst=receiver, chunk=sender * n_ranks + receiver, op=COPY)]
    return all_to_all_schedule(n_ranks, steps if n_ranks > 1 else [], "direct", counts)


def two_level_all_to_all(
    n_ranks: int, gpus_per_node: int | None = None, counts: Counts | None = None
) -> Schedule:
    """All-to-all in two phases, for m nodes of g GPUs; rank = node * g + GPU.

    1. Inside each node, GPU i gives GPU j all that is meant for the GPUs with number j on
       any node: g - 1 steps of S/g.
    2. Between nodes, GPUs with one number exchange what their nodes have for each other:
       m - 1 steps of S/m.

    Few large messages on the network in place of N - g small ones; the bytes between nodes
    stay the same, those inside grow.

    Parameters
    ----------
    n_ranks : int
    gpus_per_node : int, optional
        g; see `usual_gpus_per_node` for the default.
    counts : array_like of int, shape (N, N), optional
        As in `pairwise_all_to_all`.
    """
    m, g = node_shape(n_ranks, gpus_per_node)
    n_ranks = m * g
    steps = []
    for s in range(1, g):
        # From GPU i of a node to GPU i + s: what goes to that GPU number, on every node.
        node, gpu, to_node = (axis.reshape(-1) for axis in np.indices((m, g, m)))
        partner = (gpu + s) % g
        chunk = (node * g + gpu) * n_ranks + to_node * g + partner
        steps.append(Step(src=node * g + gpu, dst=node * g + partner, chunk=chunk, op=COPY))
    for s in range(1, m):
        # From a GPU to its twin s nodes on: what all GPUs of this node have for it.
        node, gpu, from_gpu = (axis.reshape(-1) for axis in np.indices((m, g, g)))
        to_node = (node + s) % m
        chunk = (node * g + from_gpu) * n_ranks + to_node * g + gpu
        steps.append(Step(src=node * g + gpu, dst=to_node * g + gpu, chunk=chunk, op=COPY))
    return all_to_all_schedule(n_ranks, steps, "two_level", counts)


def all_to_all_schedule(
    n_ranks: int, steps: list[Step], name: str, counts: Counts | None = None
) -> Schedule:
    """Return an all-to-all with these steps, in equal parts or in the given counts."""
    chunks = np.arange(n_ranks * n_ranks).reshape(n_ranks, n_ranks)
    shares, flat_counts = [Fraction(1, n_ranks)] * n_ranks**2, None
    if counts is not None:
        table = _counts_table(counts, n_ranks)
        flat_counts = table.reshape(-1).tolist()
        # S is what the fullest rank holds; shares are parts of it.
        fullest = max(table.sum(axis=1).max(), table.sum(axis=0).max())
        shares = [Fraction(count, int(fullest)) for count in flat_counts]
    return Schedule(
        "all_to_all",
        n_ranks,
        shares=shares,
        starts=chunks.tolist(),
        ends=chunks.T.tolist(),
        steps=steps,
        name=name,
        counts=flat_counts,
    )


def _counts_table(counts: Counts, n_ranks: int) -> np.ndarray:
    try:
        table = np.array(counts)
    except ValueError:
        table = np.array([])
    if table.shape != (n_ranks, n_ranks) or table.dtype.kind not in "iu" or (table < 0).any():
        raise ValueError(
            f"counts must be a table of {n_ranks} by {n_ranks} whole numbers, zero or more: "
            f"counts[i][j] elements go from rank i to rank j; got {counts!r}."
        )
    if not table.any():
        raise ValueError("counts are all zero: nothing is exchanged.")
    return table
