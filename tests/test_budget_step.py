"""A whole step: parts that add up, each from the function that knows it, and what must hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commlab.budget import (
    H100_CLUSTER,
    Group,
    Overlap,
    Plan,
    activation_memory,
    all_reduce_seconds,
    bubble_fraction,
    compute_time,
    data_parallel,
    expert_parallel,
    exposed_seconds,
    gather_seconds,
    parameter_share,
    place,
    sharded_data_parallel,
    simulate_pipeline,
    tensor_parallel,
    training_state,
    training_step,
)
from commlab.models import LLAMA3_8B, LLAMA3_70B, MIXTRAL_8X7B
from commlab.overlap import ddp_buckets, timeline, transformer_backward

NOTHING_HIDDEN = Overlap(gradients=0, prefetch=0, update=0)
EMBEDDING = LLAMA3_8B.vocab * LLAMA3_8B.hidden
BIG_GPU = replace(H100_CLUSTER, gpu_memory=1e13)

PLANS = [
    (LLAMA3_8B, Plan(data=8)),
    (LLAMA3_8B, Plan(data=64, zero_stage=3, n_microbatches=4)),
    (LLAMA3_8B, Plan(data=64, zero_stage=3, shard_ranks=8, recompute="full")),
    (LLAMA3_70B, Plan(data=8, tensor=8, zero_stage=1, sequence_parallel=True)),
    (
        LLAMA3_70B,
        Plan(data=4, tensor=8, pipeline=4, zero_stage=2, n_microbatches=8, recompute="full"),
    ),
    (
        LLAMA3_70B,
        Plan(data=2, tensor=4, pipeline=4, schedule="interleaved", n_chunks=5, n_microbatches=8),
    ),
    (MIXTRAL_8X7B, Plan(data=16, expert=8, zero_stage=3, n_microbatches=2)),
    (
        MIXTRAL_8X7B,
        Plan(data=16, expert=8, tensor=2, pipeline=4, n_microbatches=8, sequence_parallel=True),
    ),
]


def parts(step) -> float:
    return step.compute + step.recompute + step.tensor + step.expert + step.data + step.bubble


@pytest.mark.parametrize(("shape", "plan"), PLANS, ids=str)
def test_the_parts_add_up_to_the_step(shape, plan):
    step = training_step(shape, plan)
    assert step.seconds == parts(step)
    passes = plan.n_microbatches
    if step.timeline is not None:
        once = exposed_seconds(
            step.traffic["data"],
            plan,
            step.compute / passes / 3,
            step.compute / passes * 2 / 3 + step.recompute / passes,
        )
        after = once["last backward"] + once["update"]
        assert step.timeline.seconds + after == pytest.approx(step.seconds, rel=1e-12)
    assert step.compute == pytest.approx(
        compute_time(shape.active_parameters, plan.tokens, n_gpus=plan.n_gpus), rel=1e-12
    )
    assert step.tokens_per_second == pytest.approx(plan.tokens / step.seconds)
    assert step.mfu == pytest.approx(0.4 * step.compute / step.seconds, rel=1e-12)
    assert 0 <= step.exposed < 1
    text = str(step)
    assert text.count("assuming: ") == len(step.assumptions)
    assert "MFU of the step" in text
    n_rows = sum(len(kind) for kind in step.traffic.values())
    assert len(step.traffic_table().markdown.splitlines()) == 2 + n_rows


@pytest.mark.parametrize(("shape", "plan"), PLANS, ids=str)
def test_halving_a_link_slows_exactly_what_uses_it(shape, plan):
    base = training_step(shape, plan)
    for name, uses in (
        ("beta_intra", lambda group: group.per_node > 1),
        ("beta_inter", lambda group: group.n_nodes > 1),
    ):
        slow = training_step(
            shape, plan, replace(H100_CLUSTER, **{name: getattr(H100_CLUSTER, name) / 2})
        )
        for kind, before in base.traffic.items():
            for one, other in zip(before, slow.traffic[kind], strict=True):
                if not uses(one.group):
                    assert other.seconds == one.seconds
                elif one.collective in ("send", "all-to-all"):
                    # The slower link decides; the other one may not matter.
                    assert other.seconds >= one.seconds
                else:
                    assert other.seconds > one.seconds
        assert slow.compute == base.compute
        assert slow.memory == base.memory


# ----------------------------------------------------------------- each kind from its function


@pytest.mark.parametrize("n_gpus", [8, 64])
def test_plain_data_parallelism(n_gpus):
    step = training_step(LLAMA3_8B, Plan(data=n_gpus, overlap=NOTHING_HIDDEN))
    alone = data_parallel(LLAMA3_8B.parameters, n_gpus)
    assert step.data == alone.seconds == step.data_seconds
    assert step.seconds == pytest.approx(compute_time(LLAMA3_8B.parameters, 8192) + alone.seconds)
    assert not step.fits
    assert "has 74.5 GiB" in step.why_not
    state = training_state(LLAMA3_8B.parameters)
    assert step.memory.parameters + step.memory.gradients + step.memory.optimizer == state.total


@pytest.mark.parametrize(
    ("stage", "choices"),
    [
        *((stage, {}) for stage in range(4)),
        *((stage, {"n_microbatches": 4}) for stage in range(4)),
        *((stage, {"shard_ranks": 8}) for stage in (1, 2, 3)),
    ],
)
def test_sharded_data_parallelism(stage, choices):
    plan = Plan(data=64, zero_stage=stage, overlap=NOTHING_HIDDEN, **choices)
    step = training_step(LLAMA3_8B, plan)
    alone = sharded_data_parallel(LLAMA3_8B, 64, zero_stage=stage, **choices)
    assert step.traffic["data"] == alone.traffic
    assert step.data == pytest.approx(alone.seconds, rel=1e-12)


@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("across", [False, True])
def test_tensor_parallelism(sequence_parallel, across):
    order = ("data", "tensor", "pipeline") if across else ("tensor", "data", "pipeline")
    plan = Plan(
        data=8, tensor=8, sequence_parallel=sequence_parallel, order=order, n_microbatches=2
    )
    step = training_step(LLAMA3_8B, plan)
    alone = tensor_parallel(
        LLAMA3_8B, 2 * 8192, 8, across_nodes=across, sequence_parallel=sequence_parallel
    )
    latency = 2 * (alone.count + alone.extra / 2) * 14 * 5e-6
    once_less = latency / 2  # two micro-batches pay every α twice, the call above once
    assert step.tensor == pytest.approx(alone.seconds + once_less, rel=1e-12)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_expert_parallelism(recompute):
    plan = Plan(data=8, expert=8, recompute=recompute)
    step = training_step(MIXTRAL_8X7B, plan)
    passes = 3 if recompute == "full" else 2
    alone = expert_parallel(8192, 4096, 32, 8, passes=passes, top_k=2)
    assert step.expert == pytest.approx(alone.seconds, rel=1e-12)


def test_experts_across_nodes_use_both_links():
    plan = Plan(data=16, expert=16)
    shape = replace(MIXTRAL_8X7B, n_experts=16)
    (forward, _) = training_step(shape, plan).traffic["expert"]
    assert forward.group == Group(8, 2)
    buffer = 2 * 8192 * 4096 * 2
    assert forward.seconds_each == pytest.approx(5e-6 + buffer / 2 / 50e9)


def test_gradients_of_experts_meet_only_those_of_their_copies():
    step = training_step(MIXTRAL_8X7B, Plan(data=64, expert=8))
    dense, experts = step.traffic["data"]
    assert dense.group.n_ranks == 64
    assert experts.group.n_ranks == 8
    share = 32 * 3 * 4096 * 14336
    assert experts.nbytes == 2 * share
    assert dense.nbytes == 2 * (MIXTRAL_8X7B.parameters - 8 * share)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_pipeline_parallelism(schedule):
    plan = Plan(pipeline=8, n_microbatches=16, schedule=schedule)
    step = training_step(LLAMA3_8B, plan)
    transfer = step.traffic["pipeline"][0].seconds_each
    assert transfer == pytest.approx(5e-6 + 2 * 8192 * 4096 / 450e9)
    each = step.compute / 16
    line = simulate_pipeline(8, 16, each / 3, each * 2 / 3, transfer, schedule)
    assert step.seconds == pytest.approx(line.seconds, rel=1e-12)
    assert step.bubble / step.seconds > bubble_fraction(8, 16)
    # GPipe keeps the logits of all micro-batches: its last stage is the fullest.
    in_flight, heads, fullest = (16, 16, 7) if schedule == "gpipe" else (8, 0, 0)
    assert step.memory.stage == fullest
    activations = activation_memory(
        LLAMA3_8B, 8192, layers=4, in_flight=in_flight, head_in_flight=heads
    )
    assert step.memory.activations == activations.total


def test_memory_of_a_mixed_plan():
    plan = Plan(data=4, tensor=8, pipeline=4, zero_stage=1, n_microbatches=8)
    step = training_step(LLAMA3_70B, plan, BIG_GPU)
    assert step.fits
    assert step.why_not is None
    totals = []
    for stage in range(4):
        share = parameter_share(LLAMA3_70B, 8, 4, stage=stage)
        state = training_state(share.total, 4, 1)
        activations = activation_memory(
            LLAMA3_70B,
            8192,
            tensor_ranks=8,
            layers=20,
            in_flight=4 - stage,
            head_in_flight=stage // 3,
        )
        totals.append(state.total + activations.total)
    assert step.memory.total == pytest.approx(max(totals), rel=1e-12)
    assert step.memory.stage == totals.index(max(totals)) == 0


# ----------------------------------------------------------------- overlap


def test_gradients_hide_behind_the_stated_part_of_the_backward_pass():
    backward = 2 / 3 * compute_time(LLAMA3_8B.parameters, 1024)
    plan = Plan(data=64, sequence=1024)
    comm = data_parallel(LLAMA3_8B.parameters, 64).seconds
    last = data_parallel(EMBEDDING, 64).seconds
    for part in (0, 0.25, 0.5, 1):
        step = training_step(LLAMA3_8B, replace(plan, overlap=Overlap(gradients=part)))
        assert step.data == pytest.approx(max(last, comm - part * backward))


@pytest.mark.parametrize("shape", [LLAMA3_8B, LLAMA3_70B], ids=lambda shape: shape.name)
@pytest.mark.parametrize("n_gpus", [2, 8, 64, 1024])
def test_what_shows_of_the_gradients_is_what_their_timeline_shows(shape, n_gpus):
    """With time to hide everything else, the last bucket is left: the embedding, or little more."""
    plan = Plan(data=n_gpus, micro_batch=64)
    step = training_step(shape, plan)
    group = place(n_gpus, H100_CLUSTER)
    backward = transformer_backward(
        shape, 64 * 8192, peak_flops=H100_CLUSTER.peak_flops, mfu=H100_CLUSTER.mfu
    )
    line = timeline(
        backward,
        ddp_buckets(backward.sizes),
        lambda nbytes: all_reduce_seconds(nbytes, group, H100_CLUSTER),
    )
    assert 0 < step.data <= line.exposed <= 1.25 * step.data
    assert step.data == all_reduce_seconds(
        2 * shape.vocab * shape.hidden, group, H100_CLUSTER, plan.algorithm
    )
    assert "shown in any case: the embedding's gradient" in str(step)


@pytest.mark.parametrize(("stage", "shards"), [(0, None), (1, None), (2, None), (1, 8), (2, 8)])
def test_the_edge_of_each_stage_is_its_share_of_the_embedding(stage, shards):
    long = {"data": 64, "tensor": 1, "sequence": 65536, "overlap": Overlap(update=1)}
    step = training_step(LLAMA3_8B, Plan(zero_stage=stage, shard_ranks=shards, **long))
    last = 2 * EMBEDDING
    everyone, node = Group(8, 8), Group(8)
    if stage == 0:
        expected = all_reduce_seconds(last, everyone, H100_CLUSTER)
    elif shards is None:
        expected = gather_seconds(last, everyone, H100_CLUSTER)
    else:
        across = all_reduce_seconds(last / 8, Group(1, 8), H100_CLUSTER)
        expected = gather_seconds(last, node, H100_CLUSTER) + across
    assert step.data == pytest.approx(expected, rel=1e-12)


def test_of_a_pipeline_the_first_stage_shows_its_embedding():
    plan = Plan(data=2, tensor=8, pipeline=4, n_microbatches=8)
    step = training_step(LLAMA3_8B, plan)
    expected = all_reduce_seconds(2 * EMBEDDING / 8, Group(1, 2), H100_CLUSTER)
    assert step.data == pytest.approx(expected, rel=1e-12)


def test_one_copy_has_no_gradients_to_show():
    step = training_step(LLAMA3_8B, Plan(tensor=8))
    assert step.data == 0
    assert "shown in any case" not in str(step)


def test_prefetched_gathers_leave_their_edges():
    """With enough computation only the first gathers and the last reduce-scatter show."""
    plan = Plan(data=64, zero_stage=3, sequence=65536)
    step = training_step(LLAMA3_8B, plan)
    layer = step.traffic["data"][0].seconds_each
    assert step.data == pytest.approx(3 * layer)
    short = training_step(LLAMA3_8B, replace(plan, sequence=128))
    assert short.data > 10 * step.data


def test_updated_parameters_show_unless_told_to_hide():
    plan = Plan(data=64, zero_stage=1, sequence=32768)
    shown, hidden = (
        training_step(LLAMA3_8B, replace(plan, overlap=Overlap(update=part))) for part in (0, 1)
    )
    last = gather_seconds(2 * EMBEDDING, Group(8, 8), H100_CLUSTER)
    assert shown.data == pytest.approx(last + data_parallel(LLAMA3_8B.parameters, 64).seconds / 2)
    assert hidden.data == pytest.approx(last)


def test_gradients_reduced_once_wait_for_the_last_backward_pass():
    once = Plan(data=64, zero_stage=3, n_microbatches=8, reduce_each_microbatch=False)
    each = replace(once, reduce_each_microbatch=True)
    steps = [training_step(LLAMA3_8B, plan) for plan in (once, each)]
    assert steps[0].data_seconds < steps[1].data_seconds
    assert steps[0].memory.gradients > 50 * steps[1].memory.gradients


# ----------------------------------------------------------------- what must hold


def test_sequence_parallelism_cuts_what_experts_and_stages_exchange():
    plan = Plan(data=8, tensor=2, pipeline=2, expert=8, n_microbatches=4)
    whole, cut = (
        training_step(MIXTRAL_8X7B, replace(plan, sequence_parallel=choice)).traffic
        for choice in (False, True)
    )
    for kind in ("expert", "pipeline"):
        for one, other in zip(whole[kind], cut[kind], strict=True):
            assert one.nbytes == 2 * other.nbytes


def test_only_full_recomputation_repeats_the_collectives():
    none, selective, full = (
        training_step(
            MIXTRAL_8X7B, Plan(data=8, tensor=2, expert=4, recompute=kind, attention="scores")
        )
        for kind in ("none", "selective", "full")
    )
    assert (none.tensor, none.expert) == (selective.tensor, selective.expert)
    assert full.tensor == pytest.approx(1.5 * none.tensor)
    assert full.expert == pytest.approx(1.5 * none.expert)
    assert selective.memory.activations < none.memory.activations


def test_without_a_pipeline_no_schedule_keeps_logits():
    plan = Plan(data=8, n_microbatches=4, schedule="gpipe")
    memory = training_step(LLAMA3_8B, plan).memory
    assert memory.activations == activation_memory(LLAMA3_8B, 8192).total


def test_tensor_parallelism_across_nodes_is_slower():
    inside = Plan(data=8, tensor=8)
    across = replace(inside, order=("data", "tensor", "pipeline"))
    assert (
        training_step(LLAMA3_70B, across).seconds > 1.5 * training_step(LLAMA3_70B, inside).seconds
    )


def test_more_micro_batches_shrink_the_bubble():
    plans = [Plan(pipeline=8, n_microbatches=n) for n in (8, 16, 32, 64)]
    steps = [training_step(LLAMA3_8B, plan) for plan in plans]
    bubbles = [step.bubble / step.seconds for step in steps]
    assert bubbles == sorted(bubbles, reverse=True)


def test_full_recomputation_trades_a_third_of_compute_for_memory():
    plain, full = (
        training_step(LLAMA3_8B, Plan(data=8, recompute=kind)) for kind in ("none", "full")
    )
    assert full.recompute == pytest.approx(full.compute / 3)
    assert plain.recompute == 0
    assert full.memory.activations < plain.memory.activations / 4


def test_sharding_makes_8b_fit():
    step = training_step(LLAMA3_8B, Plan(data=64, zero_stage=3, recompute="full"))
    assert step.fits
    assert step.memory.gathered > 0
    assert "does not fit" not in str(step)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": 0}, "data must be a whole number"),
        ({"order": ("tensor", "data")}, "name tensor, data and pipeline once each"),
        ({"data": 8, "expert": 3}, "do not divide the data axis of 8"),
        ({"data": 8, "expert": 2, "zero_stage": 3, "shard_ranks": 4}, "leave out shard_ranks"),
        ({"data": 12}, "12 GPUs do not fill nodes of 8"),
        ({"tensor": 3}, "32 heads, which 3 GPUs"),
        ({"pipeline": 3}, "32 layers, which cannot be divided evenly by 3"),
        ({"pipeline": 4, "n_chunks": 2}, "'interleaved' needs 2 or more"),
        ({"data": 8, "expert": 2}, "1 experts per layer"),
        ({"zero_stage": 4}, "zero_stage is 4"),
        ({"data": 8, "zero_stage": 1, "shard_ranks": 3}, "cannot repeat evenly over 8"),
        ({"recompute": "some"}, "choose 'none', 'selective' or 'full'"),
        ({"algorithm": "tree"}, "choose 'hierarchical' or 'rails'"),
        ({"gradient_bytes": 3}, r"choose 2 \(BF16\) or 4"),
    ],
)
def test_bad_plans_are_refused_with_the_fix(changes, message):
    with pytest.raises(ValueError, match=message):
        training_step(LLAMA3_8B, Plan(**changes))


@pytest.mark.parametrize("part", [-0.1, 1.1, True, "all"])
def test_overlap_is_a_part(part):
    with pytest.raises(ValueError, match="gradients is a part, from 0 to 1"):
        Overlap(gradients=part)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("data", 2.0),
        ("n_microbatches", None),
        ("zero_stage", "3"),
        ("zero_stage", True),
        ("shard_ranks", "8"),
        ("reshard_after_forward", "False"),
        ("reduce_each_microbatch", "False"),
        ("gradient_bytes", "2"),
        ("gradient_bytes", 4.0),
        ("sequence_parallel", "no"),
        ("recompute", 7),
        ("attention", None),
        ("schedule", "bogus"),
        ("n_chunks", 0),
        ("order", None),
        ("order", "tensor"),
        ("algorithm", None),
        ("all_to_all", ["direct"]),
        ("overlap", None),
    ],
)
def test_a_plan_checks_each_of_its_fields_when_it_is_made(name, value):
    """Before anything is computed, in a sentence that names the field."""
    with pytest.raises((ValueError, TypeError), match=name):
        Plan(**{"zero_stage": 3, "data": 8, **{name: value}})


def test_what_a_stage_has_no_use_for_is_refused():
    with pytest.raises(ValueError, match="stage 0 has no shards"):
        Plan(data=8, shard_ranks=4)
    for stage in range(3):
        with pytest.raises(ValueError, match="only ZeRO stage 3 gathers"):
            Plan(data=8, zero_stage=stage, reshard_after_forward=False)
