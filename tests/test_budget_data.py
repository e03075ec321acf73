"""Data parallelism, its shards, and tensor parallelism: bytes and seconds."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commlab import alpha_beta_all_gather, alpha_beta_reduce_scatter, hardware
from commlab.budget import (
    H100_CLUSTER,
    Cluster,
    Group,
    all_reduce_seconds,
    compute_time,
    data_parallel,
    expert_parallel,
    gather_seconds,
    sharded_data_parallel,
    sharded_volume,
    tensor_parallel,
    training_state,
)
from commlab.models import LLAMA3_8B

PHI = LLAMA3_8B.parameters
LAYER, ROOT, LAYERS = LLAMA3_8B.layer_parameters, LLAMA3_8B.root_parameters, LLAMA3_8B.layers
NO_LATENCY = dataclasses.replace(H100_CLUSTER, alpha=0.0)


def sharded(n_gpus: int, cluster: Cluster = H100_CLUSTER, zero_stage: int = 3, **choices):
    return sharded_data_parallel(LLAMA3_8B, n_gpus, cluster, zero_stage, **choices)


# ----------------------------------------------------------------- data parallelism


def test_rails_beat_the_hierarchy_on_64_gpus():
    """The flat multi-rail ring is the faster one: the pages say so."""
    assert data_parallel(PHI, 64, algorithm="rails").seconds < data_parallel(PHI, 64).seconds


def test_data_parallel_on_one_gpu_sends_nothing():
    assert data_parallel(PHI, 1).seconds == 0.0


def test_fp32_gradients_take_twice_the_bytes():
    bf16, fp32 = (data_parallel(PHI, 64, NO_LATENCY, gradient_bytes=size) for size in (2, 4))
    assert fp32.gradient_bytes == 2 * bf16.gradient_bytes
    assert fp32.seconds == pytest.approx(2 * bf16.seconds)


def test_halving_nvlink_changes_what_depends_on_it_and_nothing_else():
    slow = dataclasses.replace(H100_CLUSTER, beta_intra=H100_CLUSTER.beta_intra / 2)
    assert data_parallel(PHI, 8, slow).seconds > data_parallel(PHI, 8).seconds
    assert data_parallel(PHI, 64, slow).seconds > data_parallel(PHI, 64).seconds
    assert sharded(64, slow).seconds > sharded(64).seconds
    assert tensor_parallel(LLAMA3_8B, 4096, 8, slow).seconds > (
        tensor_parallel(LLAMA3_8B, 4096, 8).seconds
    )
    across = tensor_parallel(LLAMA3_8B, 4096, 8, slow, across_nodes=True)
    assert across.seconds == tensor_parallel(LLAMA3_8B, 4096, 8, across_nodes=True).seconds
    assert compute_time(PHI, 4096, slow) == compute_time(PHI, 4096)


# ----------------------------------------------------------------- shards: volume


@given(n_parameters=st.floats(1e6, 1e13), n_ranks=st.integers(1, 4096))
def test_zero_stages_1_and_2_send_what_ddp_sends(n_parameters, n_ranks):
    totals = [sharded_volume(n_parameters, n_ranks, stage).total for stage in range(3)]
    assert totals == [totals[0]] * 3
    assert totals[0] == pytest.approx(2 * (n_ranks - 1) / n_ranks * 2 * n_parameters)
    fsdp = sharded_volume(n_parameters, n_ranks).total
    assert fsdp == pytest.approx(3 * (n_ranks - 1) / n_ranks * 2 * n_parameters)


def test_fsdp_variants():
    ddp = sharded_volume(PHI, 8, 0).total
    kept = sharded_volume(PHI, 8, 3, reshard_after_forward=False)
    fp32 = sharded_volume(PHI, 8, 3, gradient_bytes=4)
    assert kept.total == ddp
    assert fp32.total / ddp == pytest.approx(2.0)


def test_a_smaller_second_gather_sends_its_own_part():
    whole, node = (sharded_volume(PHI, 64, reshard_after_forward=size) for size in (True, 8))
    assert whole.all_gather - node.all_gather == pytest.approx((63 / 64 - 7 / 8) * 2 * PHI)


@pytest.mark.parametrize("n_gpus", [2, 8, 64])
@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("gradient_bytes", [2, 4])
def test_collective_by_collective_sends_the_same_bytes(n_gpus, stage, gradient_bytes):
    reshard = True if stage == 3 else None
    listed = sharded(
        n_gpus, zero_stage=stage, reshard_after_forward=reshard, gradient_bytes=gradient_bytes
    )
    counted = sharded_volume(PHI, n_gpus, stage, gradient_bytes=gradient_bytes)
    assert listed.sent == pytest.approx(counted.total, rel=1e-12)


@pytest.mark.parametrize("reshard", [False, 8])
def test_reshard_variants_send_the_same_bytes(reshard):
    counted = sharded_volume(PHI, 64, reshard_after_forward=reshard)
    assert sharded(64, reshard_after_forward=reshard).sent == pytest.approx(counted.total)


def test_by_default_the_root_is_not_gathered_again():
    """Trap: 3(N−1)/N·P is an upper bound."""
    default, everything = sharded(64), sharded(64, reshard_after_forward=True)
    part = 63 / 64
    assert default.sent == pytest.approx(part * 2 * (3 * LAYERS * LAYER + 2 * ROOT))
    assert everything.sent == pytest.approx(part * 2 * 3 * PHI)
    assert default.messages == 3 * LAYERS + 2


@pytest.mark.parametrize("each", [True, False])
def test_micro_batches_gather_again_and_reduce_by_choice(each):
    """Trap: with accumulation FSDP multiplies its gathers; DDP still sends once."""
    one, eight = (sharded(64, n_microbatches=n, reduce_each_microbatch=each) for n in (1, 8))
    parts = {
        collective: [
            sum(item.sent for item in step.traffic if item.collective == collective)
            for step in (one, eight)
        ]
        for collective in ("all-gather", "reduce-scatter")
    }
    assert parts["all-gather"][1] == pytest.approx(8 * parts["all-gather"][0])
    factor = 8 if each else 1
    assert parts["reduce-scatter"][1] == pytest.approx(factor * parts["reduce-scatter"][0])
    for stage in (0, 1):
        assert sharded(64, zero_stage=stage, n_microbatches=8).sent == (
            sharded(64, zero_stage=stage).sent
        )


# ----------------------------------------------------------------- shards: time


@pytest.mark.parametrize("n_gpus", [8, 64, 1024])
@pytest.mark.parametrize("algorithm", ["hierarchical", "rails"])
def test_stages_0_to_2_take_as_long_as_ddp(n_gpus, algorithm):
    """An all-reduce is a reduce-scatter and an all-gather: each half takes half."""
    expected = data_parallel(PHI, n_gpus, algorithm=algorithm).seconds
    for stage in range(3):
        step = sharded(n_gpus, zero_stage=stage, algorithm=algorithm)
        assert step.seconds == pytest.approx(expected, rel=1e-12)


def test_volume_times_link_is_the_closed_form_without_latency():
    volume = sharded_volume(PHI, 8, 3)
    nbytes, beta = 2 * PHI, hardware.NVLINK
    gather = alpha_beta_all_gather(nbytes, 8, 0.0, beta)
    scatter = alpha_beta_reduce_scatter(nbytes, 8, 0.0, beta)
    assert volume.total / beta == pytest.approx(2 * gather + scatter, rel=1e-12)
    listed = sharded(8, NO_LATENCY, reshard_after_forward=True)
    assert listed.seconds == pytest.approx(volume.total / beta, rel=1e-12)


def test_every_layer_pays_its_own_latency():
    step = sharded(8)
    bandwidth_only = sharded(8, NO_LATENCY)
    alphas = (step.seconds - bandwidth_only.seconds) / H100_CLUSTER.alpha
    assert alphas == pytest.approx((3 * LAYERS + 2) * 7, rel=1e-6)


def test_a_second_gather_in_the_node_is_faster_than_across():
    node, everywhere = (sharded(64, reshard_after_forward=size) for size in (8, True))
    (second,) = [item for item in node.traffic if item.when == "backward" and item.what == "layers"]
    assert second.group == Group(8)
    assert second.seconds_each == gather_seconds(2 * LAYER, Group(8), H100_CLUSTER)
    assert node.seconds < everywhere.seconds


def test_hybrid_sharding_keeps_gathers_in_the_node():
    step = sharded(64, shard_ranks=8)
    *inside, copies = step.traffic
    assert {item.group for item in inside} == {Group(8)}
    assert copies.collective == "all-reduce"
    assert copies.group == Group(1, 8)
    assert copies.nbytes == pytest.approx(2 * PHI / 8)
    assert copies.seconds == all_reduce_seconds(copies.nbytes, Group(1, 8), H100_CLUSTER)
    assert step.seconds < sharded(64).seconds
    # Across nodes: shards of the gradients only, where full sharding sends the parameters too.
    assert copies.sent == pytest.approx(2 * 7 / 8 * 2 * PHI / 8)


def test_hybrid_sharding_over_all_gpus_is_plain_sharding():
    assert sharded(64, shard_ranks=64).traffic == sharded(64).traffic


def test_one_gpu_has_no_traffic():
    assert sharded(1).traffic == ()
    assert sharded(1).seconds == 0


# ----------------------------------------------------------------- tensor parallelism


def test_tensor_parallel_grows_with_tokens_and_data_parallel_does_not():
    step = {n: tensor_parallel(LLAMA3_8B, n, 8) for n in (4096, 8192)}
    assert step[8192].activation_bytes == 2 * step[4096].activation_bytes
    assert step[8192].compute_seconds == pytest.approx(2 * step[4096].compute_seconds)
    assert "tokens" not in dataclasses.asdict(data_parallel(PHI, 8))


def test_across_nodes_tensor_parallelism_outlasts_compute():
    inside, across = (
        tensor_parallel(LLAMA3_8B, 32768, 8, across_nodes=there) for there in (False, True)
    )
    assert across.seconds > across.compute_seconds > inside.seconds


@pytest.mark.parametrize("across", [False, True])
def test_sequence_parallelism_sends_the_same_and_a_quarter_more_by_default(across):
    """Trap: reduce-scatter + all-gather is an all-reduce; Megatron gathers inputs again."""
    plain, default, kept = (
        tensor_parallel(LLAMA3_8B, 32768, 8, H100_CLUSTER, across, **choices)
        for choices in (
            {},
            {"sequence_parallel": True},
            {"sequence_parallel": True, "keep_gathered_input": True},
        )
    )
    assert kept.sent == plain.sent
    assert kept.seconds == plain.seconds
    assert default.sent == pytest.approx(1.25 * plain.sent)
    assert default.seconds == pytest.approx(1.25 * plain.seconds)
    assert default.extra == 2 * LAYERS


def test_small_integer_types_do_not_overflow():
    plain = tensor_parallel(LLAMA3_8B, 300_000, 8).activation_bytes
    assert tensor_parallel(LLAMA3_8B, np.int32(300_000), 8).activation_bytes == plain
    assert plain == 2 * 300_000 * LLAMA3_8B.hidden


def test_sequence_parallelism_counts_pairs_and_one_gpu_counts_nothing():
    pairs = tensor_parallel(LLAMA3_8B, 4096, 8, sequence_parallel=True).lines
    assert pairs["pairs of reduce-scatter and all-gather per step"] == str(4 * LAYERS)
    assert "all-reduces per step" not in pairs
    assert tensor_parallel(LLAMA3_8B, 4096, 8).lines["all-reduces per step"] == str(4 * LAYERS)
    alone = tensor_parallel(LLAMA3_8B, 4096, 1, sequence_parallel=True)
    assert (alone.count, alone.extra, alone.sent, alone.seconds) == (0, 0, 0, 0)


# ----------------------------------------------------------------- what results look like


@pytest.mark.parametrize(
    ("n_gpus", "rails", "algorithm", "line"),
    [
        (64, None, "rails", "flat ring over 8 rails, 8 nodes of 8"),
        (64, 4, "rails", "flat ring over 4 rails, 8 nodes of 8"),
        (64, 1, "rails", "flat ring over 1 rail, 8 nodes of 8"),
        (64, 4, "hierarchical", "hierarchical, 8 nodes of 8"),
        (8, 4, "rails", "ring in the node"),
        (1, 4, "rails", "none: one GPU has nobody to add with"),
    ],
)
def test_the_line_of_an_all_reduce_says_what_ran(n_gpus, rails, algorithm, line):
    cluster = dataclasses.replace(H100_CLUSTER, rails=rails)
    assert data_parallel(1e9, n_gpus, cluster, algorithm).lines["algorithm"] == line


def test_small_integers_of_gradient_bytes_do_not_overflow():
    small = np.uint8(4)
    assert sharded(8, gradient_bytes=small).traffic == sharded(8, gradient_bytes=4).traffic
    plain = sharded_volume(PHI, 8, gradient_bytes=4).total
    assert sharded_volume(PHI, 8, gradient_bytes=small).total == plain


@pytest.mark.parametrize(
    "result",
    [
        training_state(PHI),
        data_parallel(PHI, 64),
        sharded_volume(PHI, 64),
        sharded(64, shard_ranks=8),
        tensor_parallel(LLAMA3_8B, 32768, 8, sequence_parallel=True),
        expert_parallel(8192, 4096, 32, 8),
    ],
    ids=lambda result: type(result).__name__,
)
def test_a_result_prints_its_assumptions_and_becomes_a_table(result):
    text = str(result)
    assert text.startswith(result.title)
    assert text.count("assuming: ") == len(result.assumptions) >= 2
    assert "iB" in text
    rows = result.table().markdown.splitlines()[2:]
    assert len(rows) == len(result.lines)
    assert all(value in row for value, row in zip(result.lines.values(), rows, strict=True))


def test_traffic_is_listed_row_by_row():
    step = sharded(64)
    rows = step.traffic_table().markdown.splitlines()
    assert len(rows) == 2 + len(step.traffic)
    assert "8 nodes of 8" in rows[2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compute_time(1e9, float("nan")), "tokens must be a number above zero"),
        (lambda: compute_time(1e9, 1, n_gpus=0), "n_gpus must be a whole number"),
        (lambda: data_parallel(1e9, 12), "choose a multiple of 8"),
        (lambda: data_parallel(1e9, 8, algorithm="tree"), "choose 'hierarchical' or 'rails'"),
        (lambda: data_parallel(1e9, 8, gradient_bytes=1), r"choose 2 \(BF16\) or 4"),
        (lambda: sharded_volume(1e9, 8, 3, gradient_bytes=8), r"choose 2 \(BF16\) or 4"),
        (lambda: sharded_volume(1e9, 8, reshard_after_forward=3), "a divisor of the 8 shards"),
        (lambda: sharded_volume(1e9, 8, reshard_after_forward=8), "other than 1 and all of them"),
        (lambda: sharded_volume(1e9, 8, reshard_after_forward=1), "other than 1 and all of them"),
        (lambda: sharded(8, zero_stage=5), "zero_stage is 5"),
        (lambda: sharded(64, shard_ranks=48), "shards of 48 GPUs cannot repeat evenly"),
        (lambda: sharded(24, shard_ranks=3), "straddle nodes"),
        (lambda: sharded(8, zero_stage=0, shard_ranks=8), "stage 0 has no shards: leave it out"),
        (lambda: sharded(8, zero_stage=2, reshard_after_forward=True), "only ZeRO stage 3 gathers"),
        (lambda: sharded(8, reduce_each_microbatch="False"), "must be True or False; got 'False'"),
        (lambda: dataclasses.replace(H100_CLUSTER, alpha=np.array([1e-6, 2e-6])), "not an array"),
        (lambda: dataclasses.replace(H100_CLUSTER, beta_inter=np.full(2, 5e10)), "not an array"),
        (lambda: sharded(64, algorithm="ring"), "choose 'hierarchical' or 'rails'"),
        (lambda: tensor_parallel(LLAMA3_8B, 4096, 6), "choose a divisor"),
        (lambda: tensor_parallel(LLAMA3_8B, 4096, 16), "across_nodes=True"),
        (lambda: tensor_parallel(LLAMA3_8B, 0, 8), "tokens must be a number above zero"),
        (lambda: dataclasses.replace(H100_CLUSTER, mfu=40), "40 percent is 0.40"),
        (lambda: dataclasses.replace(H100_CLUSTER, beta_intra=0), "beta_intra"),
        (lambda: dataclasses.replace(H100_CLUSTER, alpha=-1e-6), "alpha"),
        (lambda: dataclasses.replace(H100_CLUSTER, peak_flops=0), "peak_flops"),
        (lambda: dataclasses.replace(H100_CLUSTER, gpu_memory=-1), "gpu_memory"),
        (lambda: dataclasses.replace(H100_CLUSTER, rails=0), "rails must be a whole number"),
    ],
)
def test_bad_input_is_refused_with_the_fix(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_bandwidth_in_gigabytes_is_noticed():
    with pytest.warns(UserWarning, match="multiply by 1e9"):
        Cluster("typo", 8, 5e-6, 450.0, 50e9, 989e12, 0.4)
