"""Topologies: which link joins two ranks, and how many ports there are."""

from __future__ import annotations

import pytest
from schedules import RANKS, all_schedules

from commlab import Link, ScheduleError, Topology, flat_topology, node_topology, price
from commlab.algorithms import direct_all_to_all, ring_all_reduce


@pytest.mark.parametrize("n_ranks", RANKS)
def test_check_counts_messages_per_rank_and_direction(n_ranks: int) -> None:
    for schedule in all_schedules(n_ranks):
        if schedule.name != "direct" or n_ranks == 2:
            flat_topology(n_ranks, 5e-6, 450e9).check(schedule)
    direct = direct_all_to_all(n_ranks)
    flat_topology(n_ranks, 5e-6, 450e9, ports=n_ranks - 1).check(direct)
    if n_ranks > 2:
        short = flat_topology(n_ranks, 5e-6, 450e9, ports=n_ranks - 2)
        with pytest.raises(ScheduleError, match="step 0: rank 0 sends") as caught:
            short.check(direct)
        assert (caught.value.step, caught.value.rank) == (0, 0)


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
