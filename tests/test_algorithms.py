"""What the builders of algorithms promise beyond a right result."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commlab import ledger, verify
from commlab.algorithms import REGISTRY, find_algorithm, pairwise_all_to_all, usual_gpus_per_node
from commlab.algorithms.double_tree import double_tree_parents, edge_colours

# The tree drawn in NCCL's src/graph/trees.cc for 14 ranks: the parent of each rank.
NCCL_TREE_14 = [-1, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8, 12]


def test_the_first_tree_is_nccls() -> None:
    first, _ = double_tree_parents(14)
    assert first.tolist() == NCCL_TREE_14


def test_the_second_tree_is_mirrored_for_even_and_shifted_for_odd_n() -> None:
    first, second = double_tree_parents(14)
    for rank, parent in enumerate(first):
        assert second[13 - rank] == (13 - parent if parent >= 0 else -1)
    first, second = double_tree_parents(13)
    for rank, parent in enumerate(first):
        assert second[(rank + 1) % 13] == ((parent + 1) % 13 if parent >= 0 else -1)


@given(n_ranks=st.integers(2, 300))
def test_both_trees_span_and_their_colours_never_collide(n_ranks: int) -> None:
    parents = double_tree_parents(n_ranks)
    inner = [set(parent[parent >= 0].tolist()) for parent in parents]
    both = inner[0] & inner[1]
    assert both == set() if n_ranks % 2 == 0 else both <= {0}
    for parent in parents:
        rank = np.arange(n_ranks)
        for _ in range(n_ranks.bit_length()):
            rank = np.where(parent[rank] >= 0, parent[rank], rank)
        assert len(set(rank.tolist())) == 1, "every rank reaches the one root in log N hops"
    colours = edge_colours(parents)
    for colour in (0, 1):
        ends: list[tuple[str, int]] = []
        for parent, colour_of in zip(parents, colours, strict=True):
            child = np.flatnonzero(colour_of == colour)
            ends += [("sends", rank) for rank in child.tolist()]
            ends += [("receives", rank) for rank in parent[child].tolist()]
        assert len(ends) == len(set(ends))


@pytest.mark.parametrize(
    ("n_ranks", "gpus_per_node"),
    [(1, 1), (4, 2), (6, 3), (8, 4), (16, 8), (24, 8), (35, 7), (121, 11), (187, 11), (13, 1)],
)
def test_usual_node_sizes(n_ranks: int, gpus_per_node: int) -> None:
    assert usual_gpus_per_node(n_ranks) == gpus_per_node


def test_s_of_an_uneven_all_to_all_is_the_fullest_ranks() -> None:
    """Rank 1 only receives, ten elements; nobody sends more than five."""
    counts = [[0, 5, 0], [0, 0, 0], [0, 5, 0]]
    schedule = pairwise_all_to_all(3, counts)
    verify(schedule)
    assert ledger(schedule).max_received == 1
    assert ledger(schedule).max_sent == Fraction(1, 2)
    assert ledger(schedule).elements_sent() == (5, 0, 5)


@pytest.mark.parametrize("key", sorted(REGISTRY))
def test_no_algorithm_supports_less_than_one_rank(key: tuple[str, str]) -> None:
    assert not REGISTRY[key].supports(0)


def test_names_that_do_not_exist_are_refused_with_those_that_do() -> None:
    with pytest.raises(ValueError, match="all_gather has no algorithm 'x'; choose one of: bruck"):
        find_algorithm("all_gather", "x")
    with pytest.raises(ValueError, match="'scan' is no collective of this book; choose one of"):
        find_algorithm("scan", "ring")


def test_a_node_size_that_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match="got 14 ranks, gpus_per_node=4"):
        REGISTRY["all_reduce", "hierarchical"].build(14, gpus_per_node=4)
