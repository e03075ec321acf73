"""Closed forms, the price of schedules, and that the two agree."""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules import ALGORITHMS, PIPELINED, RANKS, all_schedules, anonymous, permuted

import commlab
from commlab import cost, flat_topology, node_topology, price
from commlab.algorithms import (
    REGISTRY,
    hierarchical_all_reduce,
    multi_rail_ring_all_reduce,
    pairwise_all_to_all,
    ring_all_reduce,
    two_level_all_to_all,
)
from commlab.algorithms.doubling import FOLDS
from commlab.cost import prices
from commlab.shared_links import RingWires, Uplinks
from commlab.topology import Link, Topology
from commlab.units import GIB, MIB

ALPHA, NVLINK, INFINIBAND = 5e-6, 450e9, 50e9

FOUR_ARGUMENTS = [
    cost.alpha_beta_naive_allreduce,
    cost.alpha_beta_ring_allreduce,
    cost.alpha_beta_tree_allreduce,
    cost.alpha_beta_recursive_doubling_allreduce,
    cost.alpha_beta_halving_doubling_allreduce,
    cost.alpha_beta_reduce_scatter,
    cost.alpha_beta_all_gather,
    cost.alpha_beta_broadcast,
    cost.alpha_beta_all_to_all,
    cost.alpha_beta_bruck_all_gather,
    cost.alpha_beta_bruck_all_to_all,
    cost.alpha_beta_recursive_doubling_all_gather,
    cost.alpha_beta_recursive_halving_reduce_scatter,
    cost.alpha_beta_scatter_all_gather_broadcast,
    cost.in_network_allreduce_time,
    *(
        partial(form, pipeline_chunks=4)
        for form in (
            cost.alpha_beta_pipelined_chain_broadcast,
            cost.alpha_beta_pipelined_chain_allreduce,
            cost.alpha_beta_pipelined_binary_tree_allreduce,
            cost.alpha_beta_double_binary_tree_allreduce,
        )
    ),
]


@pytest.mark.parametrize("n_ranks", [1, *RANKS])
@pytest.mark.parametrize("key", ALGORITHMS)
def test_price_against_the_closed_form(key: tuple[str, str], n_ranks: int) -> None:
    """Equal to 1e-12 where the entry says exact; else never above the bound, and near it."""
    entry = REGISTRY[key]
    if not entry.supports(n_ranks):
        with pytest.raises(ValueError, match=entry.requirement):
            entry.build(n_ranks)
        return
    choices: list[dict[str, object]] = [{}]
    if "pipeline_chunks" in entry.options:
        choices += [{"pipeline_chunks": k} for k in (1, 2, 3, 5, 16)]
    if "gpus_per_node" in entry.options:
        choices += [{"gpus_per_node": g} for g in range(1, n_ranks + 1) if n_ranks % g == 0]
    if "fold" in entry.options:
        choices += [{"fold": fold} for fold in FOLDS]
    for options in choices:
        schedule = entry.build(n_ranks, **options)
        priced_options = {name: options[name] for name in entry.priced_options if name in options}
        for nbytes in (0, 1, 1000, 16 * MIB, 1e10):
            for alpha, beta in ((ALPHA, NVLINK), (0, 1e9), (1e-3, 1e12)):
                topology = flat_topology(n_ranks, alpha, beta, ports=entry.ports(n_ranks))
                topology.check(schedule)
                formula = entry.closed_form(nbytes, n_ranks, alpha, beta, **priced_options)
                priced = price(schedule, topology, nbytes).total
                if entry.exact:
                    assert priced == pytest.approx(formula, rel=1e-12, abs=0)
                else:
                    assert formula * (0.5 - 1e-12) <= priced <= formula * (1 + 1e-12)


@pytest.mark.parametrize("rows", [1, 20])
def test_the_price_does_not_depend_on_the_batches(monkeypatch, rows) -> None:
    """Steps are priced many at once; one at a time gives the same, to the last bit."""
    node_of = np.arange(6) // 2
    for shared in (None, RingWires(6, 2e9), Uplinks(node_of, 3e9)):
        topology = Topology(node_of, node_of, Link(ALPHA, NVLINK), Link(1e-5, 5e9), 1, shared)
        for schedule in all_schedules(6):
            together = price(schedule, topology, 1e6).by_step
            monkeypatch.setattr(prices, "ROWS_PER_BATCH", rows)
            assert price(schedule, topology, 1e6).by_step.tolist() == together.tolist()
            monkeypatch.undo()


@pytest.mark.parametrize("key", [key for key in ALGORITHMS if not REGISTRY[key].exact])
@pytest.mark.parametrize("pipeline_chunks", [1, 2, 3, 8])
def test_bounds_of_pipelined_trees_are_reached(key, pipeline_chunks: int) -> None:
    """A bound that no N reaches would be a careless bound."""
    entry = REGISTRY[key]
    slack = []
    for n_ranks in range(3, 65):
        steps = len(entry.build(n_ranks, pipeline_chunks=pipeline_chunks).steps)
        slack.append(entry.closed_form(0, n_ranks, 1.0, 1e9, pipeline_chunks) - steps)
    assert min(slack) == 0


@given(
    n_ranks=st.integers(2, 64),
    nbytes=st.floats(1, 1e11),
    alpha=st.floats(1e-7, 1e-3),
    beta=st.floats(1e8, 1e13),
)
@pytest.mark.parametrize("key", PIPELINED)
def test_no_other_number_of_chunks_is_better(key, n_ranks, nbytes, alpha, beta) -> None:
    entry = REGISTRY[key]
    arguments = (nbytes, n_ranks, alpha, beta)
    best = entry.best_options(*arguments)["pipeline_chunks"]
    tried = np.arange(1, min(cost.MOST_CHUNKS, int(nbytes)) + 1)
    times = entry.closed_form(*arguments, tried)
    assert entry.closed_form(*arguments, best) <= times.min() * (1 + 1e-12)


@given(n_ranks=st.integers(3, 200), nbytes=st.floats(1e6, 1e12), beta=st.floats(1e8, 1e13))
def test_a_pipelined_chain_at_its_best(n_ranks: int, nbytes: float, beta: float) -> None:
    """With k = sqrt((N-2) S / (alpha beta)) the chain takes (sqrt((N-2) a) + sqrt(S/b))^2."""
    moving = nbytes / beta
    alpha = (n_ranks - 2) * moving / 100**2  # so that the best k is exactly 100
    best = cost.best_chain_chunks(nbytes, n_ranks, alpha, beta)
    assert abs(best - 100) <= 1
    seconds = cost.alpha_beta_pipelined_chain_broadcast(nbytes, n_ranks, alpha, beta, best)
    ideal = (np.sqrt((n_ranks - 2) * alpha) + np.sqrt(moving)) ** 2
    assert seconds == pytest.approx(ideal, rel=1e-3)
    assert seconds >= ideal * (1 - 1e-12)


@pytest.mark.parametrize("n_ranks", RANKS)
def test_ones_of_binary_numbers_are_counted(n_ranks: int) -> None:
    ones = sum(number.bit_count() for number in range(n_ranks))
    moved = cost.alpha_beta_bruck_all_to_all(1e9, n_ranks, 0, 1e9)
    assert moved == pytest.approx(ones / n_ranks, rel=1e-14)
    assert commlab.ledger(REGISTRY["all_to_all", "bruck"].build(n_ranks)).max_sent == Fraction(
        ones, n_ranks
    )


@pytest.mark.parametrize("n_nodes", range(1, 5))
@pytest.mark.parametrize("gpus_per_node", range(1, 9))
def test_hierarchical_price_equals_the_closed_form(n_nodes: int, gpus_per_node: int) -> None:
    schedule = hierarchical_all_reduce(n_nodes * gpus_per_node, gpus_per_node)
    commlab.verify(schedule)
    topology = node_topology(n_nodes, gpus_per_node, ALPHA, NVLINK, INFINIBAND)
    topology.check(schedule)
    formula = commlab.hierarchical_allreduce_time(
        GIB, n_nodes, gpus_per_node, ALPHA, NVLINK, INFINIBAND
    )
    assert price(schedule, topology, GIB).total == pytest.approx(formula, rel=1e-12, abs=0)


@pytest.mark.parametrize("n_nodes", range(2, 5))
@pytest.mark.parametrize("gpus_per_node", [2, 4, 6, 8])
def test_fewer_rails_are_a_slower_network_to_the_hierarchical_scheme(
    n_nodes: int, gpus_per_node: int
) -> None:
    """R interfaces for g GPUs that all talk at once: each GPU gets R/g of one."""
    schedule = hierarchical_all_reduce(n_nodes * gpus_per_node, gpus_per_node)
    for rails in (r for r in range(1, gpus_per_node + 1) if gpus_per_node % r == 0):
        cluster = (n_nodes, gpus_per_node, ALPHA, NVLINK)
        priced = price(schedule, node_topology(*cluster, INFINIBAND, rails=rails), GIB).total
        share = INFINIBAND * rails / gpus_per_node
        formula = commlab.hierarchical_allreduce_time(GIB, *cluster, share)
        assert priced == pytest.approx(formula, rel=1e-12)


@pytest.mark.parametrize("n_nodes", range(1, 5))
@pytest.mark.parametrize("gpus_per_node", range(1, 5))
@pytest.mark.parametrize("name", ["pairwise", "direct", "two_level", "bruck"])
def test_bytes_of_an_all_to_all_between_nodes(n_nodes: int, gpus_per_node: int, name: str) -> None:
    """(N-g)/N S per rank leave the node however one regroups inside; Bruck adds detours."""
    n_ranks = n_nodes * gpus_per_node
    entry = REGISTRY["all_to_all", name]
    options = {"gpus_per_node": gpus_per_node} if "gpus_per_node" in entry.options else {}
    left: list[Fraction] = [Fraction(0)] * n_ranks
    for message in commlab.ledger(entry.build(n_ranks, **options)).messages:
        if message.src // gpus_per_node != message.dst // gpus_per_node:
            left[message.src] += message.share
    direct = Fraction(n_ranks - gpus_per_node, n_ranks)
    if name == "bruck":
        assert sum(left) >= n_ranks * direct
    else:
        assert set(left) == {direct}


@pytest.mark.parametrize("n_nodes", range(1, 5))
@pytest.mark.parametrize("gpus_per_node", [1, 2, 4])
def test_flat_ring_over_nodes_price_equals_the_closed_form(
    n_nodes: int, gpus_per_node: int
) -> None:
    schedule = ring_all_reduce(n_nodes * gpus_per_node)
    topology = node_topology(n_nodes, gpus_per_node, ALPHA, NVLINK, INFINIBAND)
    formula = commlab.flat_ring_over_nodes_time(
        GIB, n_nodes, gpus_per_node, ALPHA, NVLINK, INFINIBAND
    )
    assert price(schedule, topology, GIB).total == pytest.approx(formula, rel=1e-12, abs=0)


@pytest.mark.parametrize("n_nodes", range(1, 5))
@pytest.mark.parametrize("gpus_per_node", range(1, 9))
def test_two_level_all_to_all_price_equals_the_closed_form(
    n_nodes: int, gpus_per_node: int
) -> None:
    schedule = two_level_all_to_all(n_nodes * gpus_per_node, gpus_per_node)
    topology = node_topology(n_nodes, gpus_per_node, ALPHA, NVLINK, INFINIBAND)
    topology.check(schedule)
    formula = cost.two_level_all_to_all_time(GIB, n_nodes, gpus_per_node, ALPHA, NVLINK, INFINIBAND)
    assert price(schedule, topology, GIB).total == pytest.approx(formula, rel=1e-12, abs=0)


@pytest.mark.parametrize("n_nodes", range(1, 5))
@pytest.mark.parametrize("gpus_per_node", [1, 2, 3, 4, 8])
def test_multi_rail_ring_price_equals_the_closed_form(n_nodes: int, gpus_per_node: int) -> None:
    n_ranks = n_nodes * gpus_per_node
    for rails in (r for r in range(1, gpus_per_node + 1) if gpus_per_node % r == 0):
        schedule = multi_rail_ring_all_reduce(n_ranks, gpus_per_node, rails)
        # Wide and narrow network interfaces: either kind of link may be the narrow place.
        for inter in (INFINIBAND, NVLINK):
            cluster = (n_nodes, gpus_per_node, ALPHA, NVLINK, inter)
            topology = node_topology(*cluster, rails=rails, ports=2)
            topology.check(schedule)
            formula = cost.multi_rail_ring_time(GIB, *cluster, rails)
            priced = price(schedule, topology, GIB).total
            assert priced == pytest.approx(formula, rel=1e-12, abs=0)
            assert priced <= commlab.flat_ring_over_nodes_time(GIB, *cluster, rails) * (1 + 1e-12)


@pytest.mark.parametrize("alpha_inter", [ALPHA / 5, ALPHA * 5])
@pytest.mark.parametrize(("n_nodes", "gpus_per_node"), [(1, 4), (4, 1), (2, 4), (3, 2)])
def test_a_latency_of_its_own_between_nodes(n_nodes, gpus_per_node, alpha_inter) -> None:
    cluster = (n_nodes, gpus_per_node, ALPHA, NVLINK, INFINIBAND)
    n_ranks = n_nodes * gpus_per_node
    topology = node_topology(*cluster, alpha_inter=alpha_inter, ports=2)
    cases = [
        (hierarchical_all_reduce(n_ranks, gpus_per_node), commlab.hierarchical_allreduce_time),
        (two_level_all_to_all(n_ranks, gpus_per_node), cost.two_level_all_to_all_time),
        (ring_all_reduce(n_ranks), commlab.flat_ring_over_nodes_time),
        (
            multi_rail_ring_all_reduce(n_ranks, gpus_per_node),
            partial(cost.multi_rail_ring_time, rails=gpus_per_node),
        ),
    ]
    for nbytes in (0, MIB):
        for schedule, closed_form in cases:
            formula = closed_form(nbytes, *cluster, alpha_inter=alpha_inter)
            priced = price(schedule, topology, nbytes).total
            assert priced == pytest.approx(formula, rel=1e-12), schedule


@pytest.mark.parametrize("beta_intra", [100e9, 450e9])
def test_the_crossover_of_hierarchy_and_rails_is_that_of_their_schedules(beta_intra) -> None:
    """Also where NVLink is the narrow place: 8 interfaces of 50 GB/s against 100 GB/s."""
    cluster = (2, 8, ALPHA, beta_intra, INFINIBAND)
    size = commlab.hierarchical_ring_crossover(*cluster)
    topology = node_topology(*cluster, ports=2)
    levels = price(hierarchical_all_reduce(16, 8), topology, size).total
    rails = price(multi_rail_ring_all_reduce(16, 8), topology, size).total
    assert levels == pytest.approx(rails, rel=1e-9)


def test_empty_messages_are_not_sent() -> None:
    """Only rank 0 has something for rank 1: one latency, though there are three steps."""
    counts = np.zeros((4, 4), dtype=int)
    counts[0, 1] = 10
    topology = flat_topology(4, ALPHA, NVLINK)
    assert price(pairwise_all_to_all(4, counts), topology, 0).total == ALPHA


def test_a_price_says_its_time_and_steps() -> None:
    priced = price(ring_all_reduce(4), flat_topology(4, ALPHA, NVLINK), 16 * MIB)
    assert repr(priced) == "Price(85.9 µs in 6 steps)"


def test_chunks_at_the_edges() -> None:
    assert cost.best_chain_chunks(1e9, 2, 0, NVLINK) == 1  # nothing to fill
    assert cost.best_chain_chunks(1e9, 8, 0, NVLINK) == cost.MOST_CHUNKS == 1024
    assert cost.best_chain_chunks(1e12, 64, ALPHA, NVLINK) == 1024
    assert cost.best_chain_chunks(8, 64, 0, NVLINK) == 8  # no more chunks than bytes
    assert cost.best_double_tree_chunks(1e9, 1, ALPHA, NVLINK) == 1
    assert cost.best_chain_chunks(1e9, 8, 5e-324, NVLINK) == 1024


def test_one_nic_at_a_time_and_all_rails() -> None:
    """The lecture's 42.9 ms and the 5.91 ms of rings over all rails, both as schedules."""
    nodes = node_topology(8, 8, ALPHA, NVLINK, INFINIBAND, ports=2)
    one = price(ring_all_reduce(64), nodes, GIB).total
    rails = price(multi_rail_ring_all_reduce(64, 8), nodes, GIB).total
    assert one == pytest.approx(42.9086e-3, rel=1e-5)
    assert rails == pytest.approx(5.91482e-3, rel=1e-5)
    cluster = (8, 8, ALPHA, NVLINK, INFINIBAND)
    assert rails == pytest.approx(commlab.flat_ring_over_nodes_time(GIB, *cluster, 8), rel=1e-12)


@pytest.mark.parametrize("n_ranks", RANKS)
def test_a_switch_that_adds_beats_every_schedule_for_large_messages(n_ranks: int) -> None:
    """In-network reduction moves S + S/N per rank: below the bound for ranks that add."""
    inside = cost.in_network_allreduce_time(1e12, n_ranks, ALPHA, NVLINK)
    bound = cost.bandwidth_lower_bound("all_reduce", 1e12, n_ranks, NVLINK)
    assert (inside < bound) == (n_ranks > 3)
    assert inside == pytest.approx(2 * ALPHA + (n_ranks + 1) / n_ranks * 1e12 / NVLINK)


@pytest.mark.parametrize("n_ranks", RANKS)
def test_price_is_blind_to_names_and_rank_numbers(n_ranks: int) -> None:
    topology = flat_topology(n_ranks, ALPHA, NVLINK, ports=2)
    order = np.random.default_rng(n_ranks).permutation(n_ranks).tolist()
    for schedule in all_schedules(n_ranks):
        plain = price(schedule, topology, 12345)
        np.testing.assert_array_equal(
            plain.by_step, price(anonymous(schedule), topology, 12345).by_step
        )
        np.testing.assert_array_equal(
            plain.by_step, price(permuted(schedule, order), topology, 12345).by_step
        )


@pytest.mark.parametrize("n_ranks", RANKS)
def test_price_charges_for_the_busiest_rank(n_ranks: int) -> None:
    """Without latency and with enough ports the price is the ledger's critical share."""
    topology = flat_topology(n_ranks, 0, 1e9)
    for schedule in all_schedules(n_ranks):
        assert price(schedule, topology, 1e9).total == pytest.approx(
            float(commlab.ledger(schedule).critical), rel=1e-12
        )


def test_a_shared_interface_is_shared() -> None:
    """Two GPUs of a node that share one network interface take twice as long across."""
    schedule = hierarchical_all_reduce(4, 2)
    own = price(schedule, node_topology(2, 2, 0, 1e15, 1e9, rails=2), 1e9)
    shared = price(schedule, node_topology(2, 2, 0, 1e15, 1e9, rails=1), 1e9)
    across = slice(1, 3)
    np.testing.assert_allclose(shared.by_step[across], 2 * own.by_step[across], rtol=1e-12)
    np.testing.assert_allclose(shared.by_step[[0, 3]], own.by_step[[0, 3]], rtol=1e-12)


def test_a_badly_ordered_ring_is_slower() -> None:
    ring = ring_all_reduce(8)
    good = node_topology(2, 4, ALPHA, NVLINK, INFINIBAND, rails=1)
    zigzag = node_topology(
        2, 4, ALPHA, NVLINK, INFINIBAND, rails=1, rank_order=[0, 4, 1, 5, 2, 6, 3, 7]
    )
    assert price(ring, zigzag, GIB).total > 3 * price(ring, good, GIB).total


def test_a_change_of_one_bandwidth_changes_what_depends_on_it() -> None:
    arguments = (GIB, 8, 8, ALPHA)
    slower_inside = commlab.hierarchical_allreduce_time(*arguments, NVLINK / 2, INFINIBAND)
    plain = commlab.hierarchical_allreduce_time(*arguments, NVLINK, INFINIBAND)
    assert slower_inside > plain
    flat = commlab.flat_ring_over_nodes_time(*arguments, NVLINK, INFINIBAND)
    assert flat == commlab.flat_ring_over_nodes_time(*arguments, NVLINK / 2, INFINIBAND)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (commlab.alpha_beta_ring_allreduce(GIB, 2, ALPHA, NVLINK), 2.39609e-3),
        (commlab.alpha_beta_ring_allreduce(GIB, 8, ALPHA, NVLINK), 4.24566e-3),
        (commlab.alpha_beta_ring_allreduce(GIB, 256, ALPHA, NVLINK), 7.30354e-3),
        (commlab.alpha_beta_naive_allreduce(GIB, 256, 0, NVLINK), 1.21691),
        (commlab.alpha_beta_naive_allreduce(GIB, 256, ALPHA, NVLINK), 1.21946),
        (commlab.alpha_beta_ring_allreduce(0, 256, ALPHA, NVLINK), 2.55e-3),
        (commlab.alpha_beta_ring_allreduce(16 * MIB, 4, ALPHA, NVLINK), 85.9241e-6),
        (commlab.flat_ring_over_nodes_time(GIB, 8, 8, ALPHA, NVLINK, INFINIBAND), 42.9086e-3),
        (commlab.flat_ring_over_nodes_time(GIB, 8, 8, ALPHA, NVLINK, INFINIBAND, 8), 5.91482e-3),
        (commlab.hierarchical_allreduce_time(GIB, 8, 8, ALPHA, NVLINK, INFINIBAND), 9.01328e-3),
        (
            commlab.hierarchical_allreduce_time(70.55e9 * 2, 8, 8, ALPHA, NVLINK, INFINIBAND),
            1.16617,
        ),
    ],
)
def test_the_lectures_figures(seconds: float, expected: float) -> None:
    assert seconds == pytest.approx(expected, rel=1e-5)


def test_buckets_of_the_lecture() -> None:
    whole = commlab.alpha_beta_ring_allreduce(GIB, 8, ALPHA, NVLINK)
    assert commlab.bucketed_allreduce_time(
        GIB, 25 * MIB, 8, ALPHA, NVLINK
    ) / whole == pytest.approx(1.6595, abs=5e-5)
    assert commlab.bucketed_allreduce_time(GIB, 25e6, 8, ALPHA, NVLINK) / whole == pytest.approx(
        1.6925, abs=5e-5
    )
    assert commlab.bucketed_allreduce_time(GIB, GIB, 8, ALPHA, NVLINK) == whole


@given(
    n_ranks=st.integers(2, 2000),
    alpha=st.floats(1e-9, 1e-3),
    beta=st.floats(1e7, 1e13),
)
def test_ring_and_tree_are_equal_at_their_crossover(
    n_ranks: int, alpha: float, beta: float
) -> None:
    size = commlab.ring_tree_crossover(n_ranks, alpha, beta)
    ring = commlab.alpha_beta_ring_allreduce(size, n_ranks, alpha, beta)
    tree = commlab.alpha_beta_tree_allreduce(size, n_ranks, alpha, beta)
    assert ring == pytest.approx(tree, rel=1e-9)
    if n_ranks > 3:
        assert commlab.alpha_beta_tree_allreduce(size / 2, n_ranks, alpha, beta) < (
            commlab.alpha_beta_ring_allreduce(size / 2, n_ranks, alpha, beta)
        )


def test_crossover_of_the_lecture() -> None:
    size = commlab.ring_tree_crossover(8, ALPHA, NVLINK)
    assert size / MIB == pytest.approx(4.03909, rel=1e-5)
    assert commlab.alpha_beta_tree_allreduce(size, 8, ALPHA, NVLINK) == pytest.approx(
        86.4706e-6, rel=1e-5
    )
    assert commlab.ring_tree_crossover(2, ALPHA, NVLINK) == 0
    with pytest.raises(ValueError, match="one rank"):
        commlab.ring_tree_crossover(1, ALPHA, NVLINK)


@pytest.mark.parametrize("n_ranks", [4, 8, 16, 64])
def test_the_flat_model_prefers_doubling(n_ranks: int) -> None:
    """At these N, ring and tree are beaten at every size (the page of section 4 says so)."""
    sizes = np.logspace(0, 12, 200)
    ring = commlab.alpha_beta_ring_allreduce(sizes, n_ranks, ALPHA, NVLINK)
    tree = commlab.alpha_beta_tree_allreduce(sizes, n_ranks, ALPHA, NVLINK)
    doubling = np.minimum(
        commlab.alpha_beta_recursive_doubling_allreduce(sizes, n_ranks, ALPHA, NVLINK),
        commlab.alpha_beta_halving_doubling_allreduce(sizes, n_ranks, ALPHA, NVLINK),
    )
    assert np.all(doubling < np.minimum(ring, tree))


@pytest.mark.parametrize("form", FOUR_ARGUMENTS)
def test_closed_forms_broadcast_and_return_floats_for_scalars(form) -> None:
    sizes = np.array([[0.0], [1e6], [1e9]])
    ranks = np.array([1, 2, 3, 8])
    table = form(sizes, ranks, ALPHA, NVLINK)
    assert table.shape == (3, 4)
    assert np.all(table[:, 0] == 0)  # one rank has nobody to talk to
    for i, j in np.ndindex(3, 4):
        single = form(float(sizes[i, 0]), int(ranks[j]), ALPHA, NVLINK)
        assert isinstance(single, float)
        assert single == table[i, j]


@pytest.mark.parametrize("n_ranks", [2**k for k in range(1, 40)])
def test_ceil_log2_is_exact_around_powers_of_two(n_ranks: int) -> None:
    depth = n_ranks.bit_length() - 1
    for n, steps in ((n_ranks, depth), (n_ranks + 1, depth + 1)):
        assert cost.alpha_beta_broadcast(0, n, 1.0, 1e9) == steps


@pytest.mark.parametrize("form", FOUR_ARGUMENTS)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 4, ALPHA, NVLINK), "nbytes is a number of bytes, zero or more"),
        ((float("nan"), 4, ALPHA, NVLINK), "nbytes"),
        ((1e6, 0, ALPHA, NVLINK), "n_ranks must be whole numbers, 1 or more"),
        ((1e6, 2.5, ALPHA, NVLINK), "n_ranks must be whole numbers"),
        ((1e6, 4, -ALPHA, NVLINK), "alpha is a time in seconds per message, zero or more"),
        ((1e6, 4, float("nan"), NVLINK), "alpha"),
        ((1e6, 4, ALPHA, 0), "beta is a bandwidth in bytes per second, above zero"),
        ((1e6, 4, ALPHA, -1e9), "beta"),
        ((1e6, 4, ALPHA, float("inf")), "beta"),
        (("64 MiB", 4, ALPHA, NVLINK), "nbytes must be a number"),
        (("1000", 4, ALPHA, NVLINK), "nbytes must be a number"),
        (([[1], [1, 2]], 4, ALPHA, NVLINK), "nbytes must be a number"),
        ((1e6, True, ALPHA, NVLINK), "n_ranks must be a number"),
        ((1e6, 4, ALPHA, 10**400), "beta must be a number"),
    ],
)
def test_bad_arguments_are_refused_in_one_sentence(form, arguments, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        form(*arguments)


def test_a_bandwidth_in_gigabytes_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="if GB/s were meant, multiply by 1e9"):
        commlab.alpha_beta_ring_allreduce(1e6, 4, ALPHA, 450)
    with pytest.warns(UserWarning, match="if GB/s were meant"):
        flat_topology(4, ALPHA, 450)


def test_a_time_above_a_year_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="above a year"):
        commlab.alpha_beta_ring_allreduce(1e15, 4, ALPHA, 1e6)
    with pytest.warns(UserWarning, match="above a year"):
        price(ring_all_reduce(4), flat_topology(4, 0, 1e6), 1e15)


def test_ordinary_arguments_are_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        commlab.alpha_beta_ring_allreduce(GIB, 1024, ALPHA, 1e6)


def test_the_year_is_that_of_the_whole_schedule() -> None:
    """Six steps of two months each."""
    size = 4 * 61 * 24 * 3600 * 1e6
    with pytest.warns(UserWarning, match="above a year"):
        price(ring_all_reduce(4), flat_topology(4, 0, 1e6), size)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        price(ring_all_reduce(4), flat_topology(4, 0, 1e6), 0.9 * size)


def test_no_bytes_need_no_bucket() -> None:
    assert commlab.bucketed_allreduce_time(0, MIB, 8, ALPHA, NVLINK) == 0


def test_rails_faster_than_the_node_leave_the_node_in_charge() -> None:
    assert commlab.flat_ring_over_nodes_time(
        GIB, 8, 8, ALPHA, NVLINK, INFINIBAND * 8, 8
    ) == commlab.alpha_beta_ring_allreduce(GIB, 64, ALPHA, NVLINK)


def test_price_follows_explicit_counts() -> None:
    """Chunks of 4, 0 and 1 elements: each step lasts as long as its largest message."""
    schedule = replace(ring_all_reduce(3), counts=[4, 0, 1])
    assert schedule.shares == (Fraction(4, 5), 0, Fraction(1, 5))
    commlab.verify(schedule)
    by_step = price(schedule, flat_topology(3, 0, 1e9), 5e9).by_step
    np.testing.assert_allclose(by_step, [4, 4, 4, 4])


def test_other_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="bucket_nbytes must be above zero"):
        commlab.bucketed_allreduce_time(GIB, 0, 8, ALPHA, NVLINK)
    with pytest.raises(ValueError, match="'pairwise', 'direct' or 'bruck'"):
        commlab.alpha_beta_all_to_all(GIB, 8, ALPHA, NVLINK, algorithm="ring")
    with pytest.raises(ValueError, match="rails"):
        commlab.flat_ring_over_nodes_time(GIB, 8, 8, ALPHA, NVLINK, INFINIBAND, rails=0)
    with pytest.raises(ValueError, match="cannot exceed gpus_per_node"):
        commlab.flat_ring_over_nodes_time(GIB, 8, 8, ALPHA, NVLINK, INFINIBAND, rails=9)
    with pytest.raises(ValueError, match="n_nodes must be a whole number"):
        commlab.hierarchical_ring_crossover(np.array([2, 4]), 8, ALPHA, NVLINK, INFINIBAND)
    with pytest.raises(ValueError, match="alpha must be one number"):
        commlab.hierarchical_ring_crossover(4, 8, [1e-6, 5e-6], NVLINK, INFINIBAND)
    with pytest.raises(TypeError, match="needs a Topology, not a int"):
        price(ring_all_reduce(4), 3, GIB)
    with pytest.raises(TypeError, match="a Schedule is needed here, not a function"):
        price(ring_all_reduce, flat_topology(4, ALPHA, NVLINK), GIB)


@pytest.mark.parametrize("n_ranks", [0, -1, 2.5, True, "4"])
def test_builders_refuse_bad_rank_counts(n_ranks) -> None:
    for entry in REGISTRY.values():
        with pytest.raises(ValueError, match="n_ranks must be a whole number, 1 or more"):
            entry.build(n_ranks)


def test_a_ring_of_1024_ranks_fits_in_memory() -> None:
    """Built, verified and priced in a fresh process, whose peak memory is read."""
    code = """
import pathlib, resource
import commlab
from commlab.algorithms import ring_all_reduce
schedule = ring_all_reduce(1024)
commlab.verify(schedule)
topology = commlab.flat_topology(1024, 5e-6, 450e9)
formula = commlab.alpha_beta_ring_allreduce(2**30, 1024, 5e-6, 450e9)
total = commlab.price(schedule, topology, 2**30).total
assert abs(total - formula) < 1e-12 * formula
status = pathlib.Path("/proc/self/status")
if status.exists():  # Linux, where getrusage would tell the parent's peak if that is higher
    peak = dict(line.split(":") for line in status.read_text().splitlines())["VmHWM"]
    print(1024 * int(peak.split()[0]))
else:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 250e6
