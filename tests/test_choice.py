"""best_algorithm: the cheapest of the priced schedules, with reasons for those left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules import PIPELINED

from commlab import (
    Link,
    ScheduleError,
    Topology,
    best_algorithm,
    cost,
    flat_topology,
    node_topology,
    price,
    ring_topology,
)
from commlab.algorithms import REGISTRY, ring_all_reduce
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


@given(
    n_nodes=st.integers(1, 4),
    gpus_per_node=st.integers(1, 4),
    ports=st.integers(1, 3),
    betas=st.sampled_from([(1e9, 1e9), (1e9, 5e8), (5e8, 1e9)]),
    alphas=st.sampled_from([(0.0, 0.0), (1e-6, 1e-5), (1e-5, 1e-6)]),
    nbytes=st.sampled_from([0.0, 1e3, 1e6, 1e9]),
)
def test_nothing_comes_below_the_bound_on_any_nodes(
    n_nodes, gpus_per_node, ports, betas, alphas, nbytes
) -> None:
    topology = node_topology(
        n_nodes, gpus_per_node, alphas[0], *betas, alpha_inter=alphas[1], ports=ports
    )
    for collective in ("all_reduce", "all_to_all"):
        # Pipelined ones are slow to price, and far from the bounds.
        names = [name for kind, name in REGISTRY if kind == collective]
        quick = [name for name in names if (collective, name) not in PIPELINED]
        choice = best_algorithm(collective, nbytes, topology, quick)
        assert choice.best.seconds >= choice.bound * (1 - 1e-12)


@pytest.mark.parametrize(
    ("shape", "ports", "alpha", "rate"),
    [
        ((1, 4), 1, 1e-6, 3e9),  # NVLink alone
        ((4, 1), 1, 2e-6, 1e9),  # the network alone
        ((2, 2), 1, 1e-6, 3e9),  # one after the other: at best the faster one
        ((2, 2), 2, 1e-6, 4e9),  # both at once
    ],
)
def test_the_bound_counts_the_links_that_a_rank_has(shape, ports, alpha, rate) -> None:
    topology = node_topology(*shape, 1e-6, 3e9, 1e9, alpha_inter=2e-6, ports=ports)
    for nbytes in (0.0, 1e9):
        wanted = cost.lower_bound("all_reduce", nbytes, 4, alpha, rate, ports)
        assert best_algorithm("all_reduce", nbytes, topology).bound == wanted


@pytest.mark.parametrize("key", PIPELINED)
def test_the_number_of_chunks_is_the_best_of_the_formula_and_its_halvings(key) -> None:
    collective, name = key
    topology = node_topology(4, 4, 1e-6, 450e9, 50e9, rails=1, alpha_inter=1e-5)
    entry = REGISTRY[key]
    [candidate] = best_algorithm(collective, MIB, topology, [name]).candidates
    k = entry.best_options(MIB, 16, 1e-5, 50e9)["pipeline_chunks"]
    tried = []
    while k:
        priced = price(entry.build(16, pipeline_chunks=k), topology, MIB).total
        tried.append((priced, k))
        k //= 2
    assert (candidate.seconds, candidate.options["pipeline_chunks"]) == min(tried)
    assert len(tried) > 1


def test_two_level_algorithms_take_the_topologys_nodes_or_stay_out() -> None:
    def outcome(topology, name: str) -> object:
        choice = best_algorithm("all_reduce", MIB, topology)
        return choice.left_out.get(name) or next(
            candidate.options for candidate in choice.candidates if candidate.algorithm == name
        )

    machine = (ALPHA, NVLINK, INFINIBAND)
    four_of_four = node_topology(4, 4, *machine, ports=2, rails=2)
    assert outcome(four_of_four, "hierarchical") == {"gpus_per_node": 4}
    assert outcome(four_of_four, "multi_rail_ring") == {"gpus_per_node": 4, "rails": 2}
    assert outcome(flat_topology(16, ALPHA, NVLINK), "hierarchical") == {"gpus_per_node": 8}
    zigzag = node_topology(2, 4, *machine, rank_order=[0, 4, 1, 5, 2, 6, 3, 7])
    assert "numbered one after the other" in outcome(zigzag, "hierarchical")
    swapped = node_topology(2, 4, *machine, rank_order=[4, 5, 6, 7, 0, 1, 2, 3])
    assert outcome(swapped, "hierarchical") == {"gpus_per_node": 4}
    three_rails = node_topology(2, 4, *machine, ports=2, rails=3)
    assert "equally many GPUs, not 3 for 4" in outcome(three_rails, "multi_rail_ring")
    assert "two GPUs or more" in outcome(node_topology(4, 1, *machine), "hierarchical")
    link = Link(ALPHA, NVLINK)
    unequal = Topology(np.array([0, 0, 0, 1]), np.arange(4), link, link)
    assert "nodes of equal size" in outcome(unequal, "hierarchical")


def test_ports_that_are_missing_are_asked_for() -> None:
    choice = best_algorithm("all_reduce", MIB, flat_topology(6, ALPHA, NVLINK))
    assert "pass ports=2" in choice.left_out["bidirectional_ring"]


def test_a_readers_own_schedule_stands_beside_the_others() -> None:
    mine = replace(ring_all_reduce(8), name="mine")
    topology = flat_topology(8, ALPHA, NVLINK)
    choice = best_algorithm("all_reduce", GIB, topology, ("ring",), schedules=[mine])
    assert {candidate.algorithm for candidate in choice.candidates} == {"ring", "mine"}
    assert choice.candidates[0].seconds == choice.candidates[1].seconds
    with pytest.raises(ScheduleError, match="without the contributions"):
        best_algorithm("all_reduce", GIB, topology, (), [replace(mine, steps=mine.steps[:-1])])
    with pytest.raises(ValueError, match="mine is for all_reduce, not for broadcast"):
        best_algorithm("broadcast", GIB, topology, (), [mine])


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
        (("all_reduce", 1.0, "ring"), r"algorithms must be a list of names; write \['ring'\]"),
        (("all_reduce", 1.0, ()), "no algorithm for all_reduce can run here"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(arguments: tuple, message: str) -> None:
    topology = flat_topology(7, ALPHA, NVLINK)
    collective, nbytes, *rest = arguments
    with pytest.raises(ValueError, match=message):
        best_algorithm(collective, nbytes, topology, *rest)


def test_something_else_than_a_topology_is_refused() -> None:
    with pytest.raises(TypeError, match="needs a Topology, not a int"):
        best_algorithm("all_reduce", 1.0, 8)
