"""best_algorithm: the cheapest of the priced schedules, with reasons for those left out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commlab import best_algorithm, cost, flat_topology, node_topology, price, ring_topology
from commlab.algorithms import REGISTRY
from commlab.units import GIB, KIB, MIB

ALPHA, NVLINK, INFINIBAND = 5e-6, 450e9, 50e9


@given(
    collective=st.sampled_from(cost.COLLECTIVES),
    n_ranks=st.integers(1, 16),
    ports=st.integers(1, 3),
    nbytes=st.floats(0, 1e10),
)
def test_the_best_is_the_cheapest_of_all_that_can_run(
    collective: str, n_ranks: int, ports: int, nbytes: float
) -> None:
    topology = flat_topology(n_ranks, ALPHA, NVLINK, ports)
    choice = best_algorithm(collective, nbytes, topology)
    prices = [candidate.seconds for candidate in choice.candidates]
    assert prices == sorted(prices)
    assert choice.best.seconds >= choice.bound * (1 - 1e-12)
    names = {name for kind, name in REGISTRY if kind == collective}
    chosen = {candidate.algorithm for candidate in choice.candidates}
    assert chosen | set(choice.left_out) == names and not chosen & set(choice.left_out)
    for candidate in choice.candidates:
        topology.check(candidate.schedule)
        assert candidate.seconds == price(candidate.schedule, topology, nbytes).total
    for name in choice.left_out:
        entry = REGISTRY[collective, name]
        assert not entry.supports(n_ranks) or entry.ports(n_ranks) > ports


def test_small_and_large_messages_want_different_algorithms() -> None:
    topology = flat_topology(8, ALPHA, NVLINK)
    assert best_algorithm("all_reduce", KIB, topology).best.algorithm == "recursive_doubling"
    assert best_algorithm("all_reduce", GIB, topology).best.algorithm == "halving_doubling"
    assert best_algorithm("broadcast", KIB, topology).best.algorithm == "binomial_tree"
    assert best_algorithm("broadcast", GIB, topology).best.algorithm == "pipelined_chain"
    assert best_algorithm("all_to_all", KIB, topology).best.algorithm == "bruck"
    assert best_algorithm("all_to_all", GIB, topology).best.algorithm == "pairwise"


def test_on_nodes_the_rails_decide() -> None:
    nodes = node_topology(8, 8, ALPHA, NVLINK, INFINIBAND, ports=2)
    choice = best_algorithm("all_reduce", GIB, nodes)
    assert str(choice.best) == "multi_rail_ring(gpus_per_node=8, rails=8)"
    assert choice.best.seconds == pytest.approx(5.91482e-3, rel=1e-5)
    one_nic = node_topology(8, 8, ALPHA, NVLINK, INFINIBAND, ports=2, rails=1)
    options = {str(c) for c in best_algorithm("all_reduce", GIB, one_nic).candidates}
    assert "multi_rail_ring(gpus_per_node=8, rails=1)" in options


def test_where_only_neighbours_are_wired_rings_win() -> None:
    """Why libraries ship rings: on a flat network halving-doubling would be as fast."""
    choice = best_algorithm("all_reduce", 256 * MIB, ring_topology(16, ALPHA, INFINIBAND))
    assert choice.best.algorithm == "bidirectional_ring"
    assert choice.candidates[1].algorithm == "ring"


def test_ranks_out_of_order_get_no_wrong_node_size() -> None:
    shuffled = node_topology(2, 4, ALPHA, NVLINK, INFINIBAND, rank_order=[0, 4, 1, 5, 2, 6, 3, 7])
    choice = best_algorithm("all_reduce", MIB, shuffled)
    assert {} in [candidate.options for candidate in choice.candidates]
    for candidate in choice.candidates:
        assert "gpus_per_node" not in candidate.options


def test_the_choice_can_be_narrowed() -> None:
    topology = flat_topology(6, ALPHA, NVLINK)
    choice = best_algorithm("all_reduce", MIB, topology, ("ring", "naive"))
    assert [candidate.algorithm for candidate in choice.candidates] == ["ring", "naive"]
    assert str(choice) == (
        "all_reduce of 1 MiB on 6 ranks: ring, 53.9 µs\n  naive: 73.3 µs, 1.36 times as long"
    )
    assert "| ring" in str(choice.table())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("scan", 1.0), "'scan' is no collective of this book"),
        (("all_reduce", -1.0), "nbytes is a number of bytes"),
        (("all_reduce", np.ones(2)), "nbytes must be one number here"),
        (("all_reduce", 1.0, ("torus",)), "all_reduce has no algorithm 'torus'"),
        (("all_reduce", 1.0, ("hierarchical",)), "no algorithm for all_reduce can run here: hier"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(arguments: tuple, message: str) -> None:
    topology = flat_topology(7, ALPHA, NVLINK)
    collective, nbytes, *rest = arguments
    with pytest.raises(ValueError, match=message):
        best_algorithm(collective, nbytes, topology, *rest)
