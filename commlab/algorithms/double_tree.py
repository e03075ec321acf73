"""The double binary tree: two trees, each of which carries half of the vector.

A rank that is an inner node of one tree is a leaf of the other (for odd N, rank 0 has one
child in each). So nobody sends or receives more than two half vectors per phase, where the
inner nodes of a single tree handle two whole ones.
"""

from __future__ import annotations

import numpy as np

from commlab.algorithms.equal_chunks import equal_chunks_schedule
from commlab.algorithms.pipelined import (
    PIPELINE_CHUNKS,
    backwards,
    steps_every_second,
    without_pauses,
)
from commlab.checks import check_n_ranks
from commlab.schedule import REDUCE, Schedule, Step


def double_binary_tree_all_reduce(n_ranks: int, pipeline_chunks: int = PIPELINE_CHUNKS) -> Schedule:
    """All-reduce along two binary trees at once, each with k chunks of S/(2k).

    A pipelined reduce to the two roots, then a pipelined broadcast. The trees are NCCL's;
    the two colours of the edges decide who sends in odd and who in even steps, so that one
    port is enough.

    References
    ----------
    Sanders, Speck and Träff (2009), "Two-tree algorithms for full bandwidth broadcast,
    reduction and scan". Trees: NCCL, src/graph/trees.cc.
    """
    n_ranks = check_n_ranks(n_ranks)
    k = check_n_ranks(pipeline_chunks, "pipeline_chunks")
    parents = double_tree_parents(n_ranks)
    colours = edge_colours(parents)
    halves = []
    for tree, parent in enumerate(parents):
        child = np.flatnonzero(parent >= 0)
        last = reduction_steps_of(parent, colours[tree])[child]
        halves.append((child, parent[child], last))
    # The broadcast is the reduction backwards; both trees keep to one clock.
    longest = max((int(last.max()) for _, _, last in halves if last.size), default=0)
    broadcast = _merged(
        [steps_every_second(child, parent, longest - last, k) for child, parent, last in halves],
        k,
    )
    return equal_chunks_schedule(
        "all_reduce",
        n_ranks,
        2 * k,
        backwards(broadcast, REDUCE) + broadcast,
        "double_binary_tree",
    )


def double_tree_parents(n_ranks: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the parent of each rank in both trees, -1 for a root, two arrays of shape (N,).

    The first tree clears the lowest set bit of a rank's number and sets the next one; its
    root is rank 0 and odd ranks are its leaves. The second tree is its mirror image (even N)
    or the first tree shifted by one rank (odd N).
    """
    rank = np.arange(n_ranks)
    lowest_bit = rank & -rank
    cleared = rank ^ lowest_bit
    first = cleared | (lowest_bit << 1)
    first = np.where(first < n_ranks, first, cleared)
    first[0] = -1
    if n_ranks % 2 == 0:
        mirrored = first[::-1]
        second = np.where(mirrored >= 0, n_ranks - 1 - mirrored, -1)
    else:
        shifted = np.roll(first, 1)
        second = np.where(shifted >= 0, (shifted + 1) % n_ranks, -1)
    return first, second


def edge_colours(parents: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Colour the edges of both trees with 0 and 1, named by their child, shape (N,) each.

    Edges of one colour leave every rank at most once and enter every rank at most once. That
    is always possible: no rank has more than two parents or more than two children.
    """
    edges = [
        (tree, child)
        for tree, parent in enumerate(parents)
        for child in np.flatnonzero(parent >= 0).tolist()
    ]
    meeting: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for tree, child in edges:
        meeting.setdefault(("sends", child), []).append((tree, child))
        meeting.setdefault(("receives", int(parents[tree][child])), []).append((tree, child))
    colours = tuple(np.full(parent.size, -1) for parent in parents)
    for start in edges:
        if colours[start[0]][start[1]] >= 0:
            continue
        colours[start[0]][start[1]] = 0
        waiting = [start]
        while waiting:
            tree, child = waiting.pop()
            ends = (("sends", child), ("receives", int(parents[tree][child])))
            for other_tree, other in [edge for end in ends for edge in meeting[end]]:
                if colours[other_tree][other] < 0:
                    colours[other_tree][other] = 1 - colours[tree][child]
                    waiting.append((other_tree, other))
    return colours[0], colours[1]


def reduction_steps_of(parent: np.ndarray, colour: np.ndarray) -> np.ndarray:
    """Return the first step in which each rank sends to its parent, shape (N,).

    The earliest step of its edge's colour after the steps of its children; -1 for the root.
    """
    n_ranks = parent.size
    step = np.full(n_ranks, -1)
    for rank in _leaves_first(parent):
        if parent[rank] < 0:
            continue
        children = np.flatnonzero(parent == rank)
        earliest = int(step[children].max()) + 1 if children.size else 0
        step[rank] = earliest + (earliest + int(colour[rank])) % 2
    return step


def _leaves_first(parent: np.ndarray) -> list[int]:
    """The ranks in an order in which every child stands before its parent."""
    depth = np.zeros(parent.size, dtype=int)
    ancestor = parent.copy()
    while (ancestor >= 0).any():
        depth += ancestor >= 0
        ancestor = np.where(ancestor >= 0, parent[ancestor], -1)
    return np.argsort(-depth, kind="stable").tolist()


def _merged(halves: list[list[Step]], pipeline_chunks: int) -> list[Step]:
    """Play the steps of both trees at once; the second tree's chunks are numbered from k."""
    merged = []
    for index in range(max(len(half) for half in halves)):
        present = [(tree, half[index]) for tree, half in enumerate(halves) if index < len(half)]
        columns = {
            name: np.concatenate([getattr(step, name) for _, step in present])
            for name in ("src", "dst", "op")
        }
        chunks = [step.chunk + tree * pipeline_chunks for tree, step in present]
        merged.append(Step(**columns, chunk=np.concatenate(chunks)))
    return without_pauses(merged)
