"""Shared links: who uses which, and what sharing costs."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules import RANKS

from commlab import Schedule, Step, flat_topology, node_topology, price, ring_topology
from commlab.algorithms import REGISTRY, bidirectional_ring_all_reduce, ring_all_reduce
from commlab.shared_links import RingWires, Uplinks

ALPHA, BETA = 5e-6, 50e9


@given(n_ranks=st.integers(2, 40), data=st.data())
def test_a_message_takes_the_wires_of_the_shorter_way(n_ranks: int, data) -> None:
    src = data.draw(st.integers(0, n_ranks - 1))
    dst = data.draw(st.integers(0, n_ranks - 1).filter(lambda rank: rank != src))
    message, link = RingWires(n_ranks, BETA).routes(np.array([src]), np.array([dst]))
    assert set(message.tolist()) == {0}
    right = (dst - src) % n_ranks
    left = n_ranks - right
    if right <= left:
        assert link.tolist() == [(src + hop) % n_ranks for hop in range(right)]
    else:
        assert link.tolist() == [n_ranks + (src - 1 - hop) % n_ranks for hop in range(left)]


def test_messages_of_one_step_keep_their_own_wires() -> None:
    message, link = RingWires(6, BETA).routes(np.array([0, 5, 2]), np.array([2, 4, 5]))
    assert message.tolist() == [0, 0, 1, 2, 2, 2]
    assert link.tolist() == [0, 1, 6 + 4, 2, 3, 4]


@pytest.mark.parametrize("n_ranks", RANKS)
def test_a_ring_of_wires_gives_the_textbook_ring_its_price(n_ranks: int) -> None:
    """Neighbours only: nothing is shared. Both directions at once take half the byte time."""
    wires = ring_topology(n_ranks, ALPHA, BETA)
    flat = flat_topology(n_ranks, ALPHA, BETA)
    ring = ring_all_reduce(n_ranks)
    assert price(ring, wires, 1e9).total == pytest.approx(price(ring, flat, 1e9).total)
    both_ways = price(bidirectional_ring_all_reduce(n_ranks), wires, 1e9).total
    steps = 2 * (n_ranks - 1)
    # Two ranks are joined by two wires each way, but a message goes over one of them.
    wires_used = 1 if n_ranks == 2 else 2
    assert both_ways == pytest.approx(steps * (ALPHA + 1e9 / (n_ranks * wires_used * BETA)))


@pytest.mark.parametrize("n_ranks", [8, 16, 32])
def test_distant_partners_contend_on_a_ring_of_wires(n_ranks: int) -> None:
    """Halving-doubling sends as few bytes as a ring, but over many shared wires."""
    wires, flat = ring_topology(n_ranks, 0, BETA), flat_topology(n_ranks, 0, BETA)
    halving = REGISTRY["all_reduce", "halving_doubling"].build(n_ranks)
    assert price(halving, flat, 1e9).total == pytest.approx(
        price(ring_all_reduce(n_ranks), flat, 1e9).total
    )
    assert price(halving, wires, 1e9).total > 2 * price(halving, flat, 1e9).total


def crossing_step(n_ranks: int, pairs: list[tuple[int, int]]) -> Schedule:
    """One step in which each pair moves a chunk of its own, of share 1."""
    src, dst = zip(*pairs, strict=True)
    nothing = [[]] * n_ranks
    shares = [Fraction(1)] * len(pairs)
    return Schedule(
        "any", n_ranks, shares, nothing, nothing, [Step(src, dst, list(range(len(pairs))), 0)]
    )


@pytest.mark.parametrize("oversubscription", [1.0, 2.0, 4.0])
def test_an_oversubscribed_uplink_is_shared(oversubscription: float) -> None:
    """Four nodes, two on each leaf switch: both nodes of a switch send to the other one."""
    topology = node_topology(
        4, 1, ALPHA, 450e9, BETA, nodes_per_switch=2, oversubscription=oversubscription
    )
    across = crossing_step(4, [(0, 2), (1, 3)])
    assert price(across, topology, 1e9).total == pytest.approx(
        ALPHA + oversubscription * 1e9 / BETA
    )
    below = crossing_step(4, [(0, 1), (2, 3)])
    assert price(below, topology, 1e9).total == pytest.approx(ALPHA + 1e9 / BETA)


def test_an_uplink_is_as_wide_as_the_interfaces_below_it() -> None:
    """Two nodes a switch, each with four GPUs on two interfaces: four of them to one."""
    topology = node_topology(
        4, 4, 0, 450e9, BETA, rails=2, nodes_per_switch=2, oversubscription=2.0
    )
    assert topology.shared.beta == 4 * BETA / 2


def test_a_shared_link_pays_the_latency_of_its_messages() -> None:
    topology = node_topology(
        4, 1, 1.0, 450e9, 1e12, alpha_inter=3.0, nodes_per_switch=2, oversubscription=1e3
    )
    across = crossing_step(4, [(0, 2)])
    assert price(across, topology, 1e9).total == pytest.approx(3.0 + 1e9 / (2e12 / 1e3))
    assert price(crossing_step(4, [(0, 1)]), ring_topology(4, 2.0, 1e9), 1e9).total == 3.0


def test_both_directions_of_an_uplink_are_separate() -> None:
    topology = node_topology(4, 1, 0, 450e9, BETA, nodes_per_switch=2, oversubscription=2.0)
    swap = crossing_step(4, [(0, 2), (2, 0)])
    assert price(swap, topology, 1e9).total == pytest.approx(1e9 / BETA)


def test_a_ring_crosses_uplinks_less_than_a_bad_order_does() -> None:
    arguments = (8, 1, ALPHA, 450e9, BETA)
    network = {"nodes_per_switch": 4, "oversubscription": 4.0}
    good = price(ring_all_reduce(8), node_topology(*arguments, **network), 1e9).total
    zigzag = node_topology(*arguments, **network, rank_order=[0, 4, 1, 5, 2, 6, 3, 7])
    assert price(ring_all_reduce(8), zigzag, 1e9).total > 2 * good


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: node_topology(4, 1, ALPHA, 1e9, 1e9, nodes_per_switch=3),
            "must divide n_nodes",
        ),
        (
            lambda: node_topology(4, 1, ALPHA, 1e9, 1e9, oversubscription=2.0),
            "oversubscription needs nodes_per_switch",
        ),
        (
            lambda: node_topology(4, 1, ALPHA, 1e9, 1e9, nodes_per_switch=2, oversubscription=0.5),
            "oversubscription is a ratio, 1 or more",
        ),
        (lambda: Uplinks(np.array([0.5]), 1e9), "switch_of must give one whole number"),
        (lambda: ring_topology(4, ALPHA, 0), "beta is a bandwidth"),
    ],
)
def test_links_that_make_no_sense_are_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_links_for_another_number_of_ranks_are_refused() -> None:
    from dataclasses import replace

    with pytest.raises(ValueError, match="shared links are for 3 ranks and the topology has 4"):
        replace(flat_topology(4, ALPHA, BETA), shared=RingWires(3, BETA))
