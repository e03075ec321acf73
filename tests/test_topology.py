"""Topologies: which link joins two ranks, and how many ports there are."""

from __future__ import annotations

from fractions import Fraction

import pytest
from schedules import RANKS

from commlab import (
    Link,
    Schedule,
    ScheduleError,
    Step,
    Topology,
    flat_topology,
    ledger,
    node_topology,
    price,
)
from commlab.algorithms import REGISTRY, direct_all_to_all, ring_all_reduce


@pytest.mark.parametrize("n_ranks", RANKS)
def test_every_algorithm_needs_the_ports_that_it_declares(n_ranks: int) -> None:
    for key, entry in REGISTRY.items():
        if not entry.supports(n_ranks):
            continue
        schedule, ports = entry.build(n_ranks), entry.ports(n_ranks)
        flat_topology(n_ranks, 5e-6, 450e9, ports).check(schedule)
        if ports > 1:
            with pytest.raises(ScheduleError, match="messages at once") as caught:
                flat_topology(n_ranks, 5e-6, 450e9, ports - 1).check(schedule)
            assert (caught.value.step, caught.value.rank) == (0, 0), key


def test_too_few_ports_are_paid_in_latency() -> None:
    direct = direct_all_to_all(5)
    for ports, messages in ((1, 4), (2, 2), (3, 2), (4, 1)):
        topology = flat_topology(5, 1e-3, 1e9, ports=ports)
        assert price(direct, topology, 0).total == pytest.approx(messages * 1e-3)


def test_ranks_sit_on_nodes_and_interfaces() -> None:
    topology = node_topology(2, 4, 5e-6, 450e9, 50e9, rails=2)
    assert topology.node_of.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert topology.nic_of.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("node_of", "nic_of", "message"),
    [
        ([0, 0, 1, 1], [0, 0, 0, 0], "belongs to one node"),
        ([0, 0, 1, 1], [-1, 0, 1, 2], "nic_of must give one whole number, zero or more"),
        ([0.0, 0.5], [0, 1], "node_of must give one whole number"),
        ([0, 0], [0], "one entry for each rank"),
    ],
)
def test_a_topology_that_makes_no_sense_is_refused(node_of, nic_of, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Topology(node_of, nic_of, Link(5e-6, 450e9), Link(5e-6, 50e9))


def one_step(n_ranks: int, *transfers: tuple[int, int]) -> Schedule:
    """One step in which each pair (src, dst) moves a chunk of its own, of share 1."""
    sources, targets = zip(*transfers, strict=True)
    chunks = list(range(len(transfers)))
    shares = [Fraction(1)] * len(transfers)
    nothing = [[]] * n_ranks
    return Schedule("any", n_ranks, shares, nothing, nothing, [Step(sources, targets, chunks, 0)])


def test_the_receiver_counts_too() -> None:
    incast = one_step(4, (1, 0), (2, 0), (3, 0))
    topology = flat_topology(4, 1e-3, 1e9)
    with pytest.raises(ScheduleError, match="rank 0 receives 3 messages at once"):
        topology.check(incast)
    assert price(incast, topology, 1e9).total == pytest.approx(3 * 1e-3 + 3)
    flat_topology(4, 1e-3, 1e9, ports=3).check(incast)
    assert price(incast, flat_topology(4, 1e-3, 1e9, ports=3), 1e9).total == pytest.approx(3.001)


def test_the_busiest_shared_interface_sets_the_time() -> None:
    """Two messages leave node 0 through one interface, one leaves node 1 through its own."""
    step = one_step(6, (0, 2), (1, 3), (2, 4))
    shared = node_topology(3, 2, 0.5, 1e15, 1e9, rails=1)
    assert price(step, shared, 1e9).total == pytest.approx(0.5 + 2)
    own = node_topology(3, 2, 0.5, 1e15, 1e9, rails=2)
    assert price(step, own, 1e9).total == pytest.approx(0.5 + 1)


@pytest.mark.parametrize(
    ("ports", "seconds"),
    [
        # Inside 0.1 + 1 s, between 0.2 + 10 s: one port sends them in turn, two at once.
        (1, 2 * 0.2 + 1 + 10),
        (2, max(0.1 + 1, 0.2 + 10)),
    ],
)
def test_both_kinds_of_link_in_one_step(ports: int, seconds: float) -> None:
    step = one_step(4, (0, 1), (0, 2))
    topology = node_topology(2, 2, 0.1, 1e9, 1e8, alpha_inter=0.2, ports=ports)
    assert price(step, topology, 1e9).total == pytest.approx(seconds)


@pytest.mark.parametrize("ports", range(1, 5))
def test_equal_links_in_turn_cost_what_a_flat_network_costs(ports: int) -> None:
    direct = direct_all_to_all(6)
    flat = price(direct, flat_topology(6, 1e-3, 1e9, ports=ports), 1e9).total
    nodes = price(direct, node_topology(3, 2, 1e-3, 1e9, 1e9, ports=ports), 1e9).total
    assert nodes == pytest.approx(flat)


@pytest.mark.parametrize("row", [([0], [5], [0], [0]), ([0], [1], [-1], [0]), ([0], [0], [0], [0])])
def test_rows_that_make_no_sense_are_not_priced(row: tuple) -> None:
    bad = Schedule("any", 2, [Fraction(1)], [[0]] * 2, [[0]] * 2, [Step(*row)])
    topology = flat_topology(2, 0, 1e9)
    for read in (lambda: price(bad, topology, 1), lambda: ledger(bad), lambda: topology.check(bad)):
        with pytest.raises(ScheduleError, match=r"does not exist|sends to itself"):
            read()


def test_one_node_has_no_traffic_between_nodes() -> None:
    ring = ring_all_reduce(4)
    inside = price(ring, node_topology(1, 4, 5e-6, 450e9, 1e6), 1e9).total
    assert inside == price(ring, flat_topology(4, 5e-6, 450e9), 1e9).total


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: flat_topology(0, 5e-6, 450e9), "n_ranks must be a whole number"),
        (lambda: flat_topology(4, -1, 450e9), "alpha is a time"),
        (lambda: flat_topology(4, 5e-6, 0), "beta is a bandwidth"),
        (lambda: flat_topology(4, 5e-6, 1e9, ports=0), "ports must be a whole number"),
        (lambda: node_topology(2, 4, 5e-6, 1e9, 1e9, rails=5), "cannot exceed gpus_per_node"),
        (lambda: node_topology(2, 2, 5e-6, 1e9, 1e9, rank_order=[0, 1, 2, 2]), "0 to 3 once"),
        (lambda: node_topology(2, 2, 5e-6, 1e9, 1e9, rank_order=[0, 1, 2, 3, 3]), "0 to 3 once"),
        (lambda: node_topology(2, 2, 5e-6, 1e9, 1e9, rank_order=3), "0 to 3 once"),
        (lambda: Topology([0], [0], None, None), "inside must be a Link"),
        (
            lambda: price(ring_all_reduce(4), flat_topology(5, 5e-6, 1e9), 1),
            "for 4 ranks and the topology has 5",
        ),
        (
            lambda: price(ring_all_reduce(4), flat_topology(4, 5e-6, 1e9), -1),
            "zero or more",
        ),
        (
            lambda: price(ring_all_reduce(4), flat_topology(4, 5e-6, 1e9), [1, 2]),
            "nbytes must be one number here",
        ),
        (lambda: flat_topology(4, 5e-6, [1e9, 2e9]), "beta must be one number here"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
