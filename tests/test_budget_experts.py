"""Experts: skew, capacity and passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commlab import alpha_beta_all_to_all
from commlab.budget import (
    H100_CLUSTER,
    Group,
    all_to_all_seconds,
    expert_loads,
    expert_parallel,
    expert_slots,
    sent_matrix,
)
from commlab.units import MIB

LAYER = {"tokens": 8192, "hidden": 4096, "layers": 32, "n_ranks": 8}


@pytest.mark.parametrize("algorithm", ["direct", "pairwise"])
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("n_ranks", [1, 2, 7, 8])
def test_balanced_experts_take_the_closed_form(algorithm, across, n_ranks):
    step = expert_parallel(8192, 4096, 32, n_ranks, H100_CLUSTER, across, algorithm=algorithm)
    beta = H100_CLUSTER.beta_inter if across else H100_CLUSTER.beta_intra
    send_buffer = 2 * 8192 * 4096
    each = alpha_beta_all_to_all(send_buffer, n_ranks, 5e-6, beta, algorithm=algorithm)
    assert step.seconds_per_layer == pytest.approx(2 * each, rel=1e-12)
    assert step.bytes_per_layer == pytest.approx(2 * (n_ranks - 1) / n_ranks * send_buffer)
    assert step.slowdown == step.byte_skew == 1.0
    assert (step.dropped, step.padded) == (0, 0)


def test_two_experts_per_token_send_twice():
    one, two = (expert_parallel(**LAYER, top_k=k) for k in (1, 2))
    assert two.bytes_per_layer == 2 * one.bytes_per_layer


def test_recomputation_runs_the_forward_exchange_again():
    """Trap: two passes or three; the figure alone does not say."""
    two, three = (expert_parallel(**LAYER, passes=passes) for passes in (2, 3))
    assert three.seconds == pytest.approx(1.5 * two.seconds)


@pytest.mark.parametrize("algorithm", ["direct", "pairwise"])
def test_a_hot_expert_slows_everybody(algorithm):
    step = expert_parallel(**LAYER, hottest_share=0.25, algorithm=algorithm)
    assert step.byte_skew == pytest.approx(2.0)
    assert step.compute_skew == pytest.approx(2.0)
    # The latency is not doubled, so that the time is a little less than doubled.
    assert 1.7 < step.slowdown < 2.0
    assert step.bytes_per_layer == pytest.approx(224 * MIB)


@given(n_experts=st.integers(2, 64), excess=st.floats(0, 1), capacity=st.floats(0.1, 4))
def test_slots_dropped_and_padded_balance(n_experts, excess, capacity):
    hottest = 1 / n_experts + excess * (1 - 1 / n_experts)
    loads = expert_loads(n_experts, min(1.0, hottest))
    assert loads.sum() == pytest.approx(1.0)
    slots, dropped, padded = expert_slots(loads, capacity)
    assert slots == pytest.approx(np.full(n_experts, capacity / n_experts))
    # Every copy has a slot or is dropped; every slot has a copy or is empty.
    assert (1 - dropped) == pytest.approx(slots.sum() * (1 - padded))
    assert 0 <= dropped < 1
    assert 0 <= padded <= 1


def test_capacity_trades_dropped_tokens_for_even_messages():
    limited = expert_parallel(**LAYER, hottest_share=0.25, capacity_factor=1.25)
    # Expert 0 has 1.25/8 slots for 0.25 of the copies.
    assert limited.dropped == pytest.approx(0.25 - 1.25 / 8)
    assert limited.padded == pytest.approx(7 * (1.25 / 8 - 0.75 / 7) / 1.25)
    assert limited.byte_skew == pytest.approx(1.25)
    # Empty slots are computed too: 1.25 times the balanced work, on each GPU.
    assert limited.compute_skew == pytest.approx(1.25)
    enough = expert_parallel(**LAYER, hottest_share=0.25, capacity_factor=2.0)
    assert enough.dropped == 0
    assert enough.byte_skew == pytest.approx(2.0)


def test_several_experts_on_a_gpu_share_its_load():
    step = expert_parallel(**LAYER, n_experts=16, hottest_share=0.25)
    rank_0 = 0.25 + 0.75 / 15
    assert step.compute_skew == pytest.approx(8 * rank_0)
    # Rank 0 receives this part of the buffers of the seven others.
    assert step.byte_skew == pytest.approx(rank_0 * 8)


@pytest.mark.parametrize("algorithm", ["direct", "pairwise"])
@pytest.mark.parametrize("group", [Group(8), Group(1, 6), Group(2, 3)])
def test_combine_takes_as_long_as_dispatch(algorithm, group):
    sent = np.random.default_rng(0).uniform(0, 1e9, (group.n_ranks, group.n_ranks))
    cluster = replace(H100_CLUSTER, gpus_per_node=group.per_node)
    there, back = (all_to_all_seconds(m, group, cluster, algorithm) for m in (sent, sent.T))
    assert there == pytest.approx(back, rel=1e-12)


def test_a_dispatch_matrix_and_its_busiest_gpu():
    matrix = sent_matrix(expert_loads(4, 0.4), 4)
    assert matrix.sum(axis=1) == pytest.approx(np.ones(4))
    assert matrix[:, 0] == pytest.approx(np.full(4, 0.4))
    no_latency = H100_CLUSTER.beta_intra
    seconds = all_to_all_seconds(matrix * no_latency, Group(4), H100_CLUSTER)
    assert seconds == pytest.approx(5e-6 + 3 * 0.4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"passes": 4}, "passes is 4"),
        ({"n_ranks": 16}, "across_nodes=True"),
        ({"layers": 0}, "layers must be a whole number"),
        ({"tokens": 0}, "tokens must be a number above zero"),
        ({"algorithm": "ring"}, "pairwise"),
        ({"n_experts": 12}, "12 experts cannot be spread evenly over 8 GPUs"),
        ({"hottest_share": 0.1}, "the hottest gets at least 1/8"),
        ({"hottest_share": 25}, "25 percent|from 0 to 1"),
        ({"n_ranks": 1, "hottest_share": 1.0}, "at least 2 experts"),
        ({"capacity_factor": 0}, "capacity_factor must be a number above zero"),
    ],
)
def test_bad_input_is_refused_with_the_fix(changes, message):
    with pytest.raises(ValueError, match=message):
        expert_parallel(**{**LAYER, **changes})
