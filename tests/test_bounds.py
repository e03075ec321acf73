"""Lower bounds: no schedule beats them, and the ones that reach them are known."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules import RANKS, all_schedules

from commlab import ScheduleError, cost, distance_from_bounds, flat_topology, price
from commlab.algorithms import REGISTRY, pairwise_all_to_all

ALPHA, BETA = 5e-6, 450e9


def ports_of(schedule) -> int:
    """The ports that the algorithm declares."""
    return REGISTRY[schedule.collective, schedule.name].ports(schedule.n_ranks)


@pytest.mark.parametrize("n_ranks", RANKS)
def test_no_schedule_beats_the_bounds(n_ranks: int) -> None:
    for schedule in all_schedules(n_ranks):
        ports = ports_of(schedule)
        distance = distance_from_bounds(schedule, ports)
        assert distance.latency_factor >= 1, schedule
        assert distance.bandwidth_factor >= 1, schedule
        topology = flat_topology(n_ranks, ALPHA, BETA, ports)
        for nbytes in (0, 1e6, 1e12):
            bound = cost.lower_bound(schedule.collective, nbytes, n_ranks, ALPHA, BETA, ports)
            assert price(schedule, topology, nbytes).total >= bound * (1 - 1e-12)


@pytest.mark.parametrize("n_ranks", RANKS)
def test_algorithms_that_reach_a_bound(n_ranks: int) -> None:
    def distance(*key: str) -> cost.Distance:
        return distance_from_bounds(REGISTRY[key].build(n_ranks))

    assert distance("all_reduce", "ring").bandwidth_factor == 1
    assert distance("all_gather", "bruck").latency_factor == 1
    assert distance("all_gather", "bruck").bandwidth_factor == 1
    assert distance("broadcast", "binomial_tree").latency_factor == 1
    assert distance("all_to_all", "bruck").latency_factor == 1
    assert distance("all_to_all", "pairwise").bandwidth_factor == 1
    if n_ranks & (n_ranks - 1) == 0:
        assert distance("all_reduce", "recursive_doubling").latency_factor == 1
        rabenseifner = distance("all_reduce", "halving_doubling")
        assert (rabenseifner.latency_factor, rabenseifner.bandwidth_factor) == (2, 1)
        assert distance("reduce_scatter", "recursive_halving").bandwidth_factor == 1


@given(n_ranks=st.integers(1, 10**6), ports=st.integers(1, 100))
def test_fewest_steps_are_the_logarithm(n_ranks: int, ports: int) -> None:
    steps = cost.least_steps(n_ranks, ports)
    assert (ports + 1) ** steps >= n_ranks
    assert steps == 0 or (ports + 1) ** (steps - 1) < n_ranks


def test_bounds_of_eight_ranks() -> None:
    assert cost.least_share("all_reduce", 8) == Fraction(7, 4)
    assert cost.least_share("all_gather", 8) == Fraction(7, 8)
    assert cost.least_share("broadcast", 8) == 1
    assert cost.least_steps(8) == 3
    assert cost.least_steps(8, ports=7) == 1
    assert cost.latency_lower_bound(8, ALPHA) == 3 * ALPHA
    sizes = np.array([0.0, 1e9])
    np.testing.assert_allclose(
        cost.lower_bound("all_reduce", sizes, 8, ALPHA, BETA), [3 * ALPHA, 1.75e9 / BETA]
    )
    for collective in cost.COLLECTIVES:
        assert cost.least_share(collective, 1) == 0


def test_a_distance_prints_both_factors() -> None:
    text = str(distance_from_bounds(REGISTRY["all_reduce", "ring"].build(8)))
    assert text == (
        "14 steps (4.67 times the fewest, 3), 1.750 S on the critical path "
        "(1.00 times the least, 1.750 S)"
    )


@pytest.mark.parametrize("alpha", [-1e-6, float("nan"), "abc"])
def test_a_latency_that_makes_no_sense_is_refused(alpha) -> None:
    with pytest.raises(ValueError, match="alpha"):
        cost.latency_lower_bound(8, alpha)
    with pytest.raises(ValueError, match="alpha"):
        cost.lower_bound("all_reduce", 1e6, 8, alpha, BETA)


def test_a_distance_is_measured_for_whole_equal_work_only() -> None:
    ring = REGISTRY["all_reduce", "ring"].build(4)
    with pytest.raises(ScheduleError):
        distance_from_bounds(replace(ring, steps=ring.steps[:2]))
    uneven = pairwise_all_to_all(3, [[1, 2, 3]] * 3)
    with pytest.raises(ValueError, match="hold for equal parts"):
        distance_from_bounds(uneven)


def test_an_unknown_collective_is_refused() -> None:
    with pytest.raises(ValueError, match="'scan' is no collective of this book; choose one of"):
        cost.least_share("scan", 4)
