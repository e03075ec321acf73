"""Two-level all-reduce over nodes of GPUs."""

from __future__ import annotations

import numpy as np

from commlab.algorithms.equal_chunks import equal_chunks_schedule
from commlab.algorithms.node_size import node_shape
from commlab.schedule import COPY, REDUCE, Schedule, Step


def hierarchical_all_reduce(n_ranks: int, gpus_per_node: int | None = None) -> Schedule:
    """All-reduce in three phases, for m nodes of g GPUs; rank = node * g + GPU.

    1. Ring reduce-scatter inside each node: GPU i owns 1/g of the node's sum.
    2. Ring all-reduce of that part across nodes, among the GPUs with the same number.
    3. Ring all-gather inside each node.

    Chunk ``part * m + piece``: g parts for the first phase, each of m pieces for the second.

    Parameters
    ----------
    n_ranks : int
        N = m g, node by node.
    gpus_per_node : int, optional
        g; see `usual_gpus_per_node` for the default.
    """
    m, g = node_shape(n_ranks, gpus_per_node)
    n_ranks = m * g
    steps = []
    for s in range(g - 1):
        steps.append(_inside(m, g, lambda gpu, s=s: gpu - s, REDUCE))
    for s in range(m - 1):
        steps.append(_across(m, g, lambda node, s=s: node - s, REDUCE))
    for s in range(m - 1):
        steps.append(_across(m, g, lambda node, s=s: node + 1 - s, COPY))
    for s in range(g - 1):
        steps.append(_inside(m, g, lambda gpu, s=s: gpu + 1 - s, COPY))
    return equal_chunks_schedule("all_reduce", n_ranks, n_ranks, steps, "hierarchical")


def _inside(m: int, g: int, part_of, op: int) -> Step:
    """Every GPU sends one whole part, m pieces in one message, to the next GPU of its node."""
    node, gpu, piece = (axis.reshape(-1) for axis in np.indices((m, g, m)))
    part = part_of(gpu) % g
    return Step(src=node * g + gpu, dst=node * g + (gpu + 1) % g, chunk=part * m + piece, op=op)


def _across(m: int, g: int, piece_of, op: int) -> Step:
    """Every GPU sends one piece of the part that it owns to its twin on the next node."""
    node, gpu = (axis.reshape(-1) for axis in np.indices((m, g)))
    owned = (gpu + 1) % g
    piece = piece_of(node) % m
    return Step(src=node * g + gpu, dst=(node + 1) % m * g + gpu, chunk=owned * m + piece, op=op)
