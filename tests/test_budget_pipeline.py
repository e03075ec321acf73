"""Pipelines: the simulated schedules against the closed forms, and against their own rules."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from commlab.budget import (
    H100_CLUSTER,
    PipelineTimeline,
    bubble_fraction,
    pipeline_parallel,
    simulate_pipeline,
    stage_order,
)
from commlab.budget.pipeline_schedule import SCHEDULES
from commlab.models import LLAMA3_8B, LLAMA3_70B
from commlab.units import MIB

STAGES = range(1, 9)
MICROBATCHES = range(1, 17)
# Binary fractions: the simulator's sums are exact.
FORWARD, BACKWARD = 0.375, 0.8125


def assert_sound(
    line: PipelineTimeline, n_microbatches: int, transfer: float = 0.0, n_chunks: int = 1
) -> None:
    """Every operation once, none overlapping on a stage, none before its input has arrived."""
    p = line.n_stages
    when = {}
    for row in range(line.start.size):
        part = line.chunk[row] * p + line.stage[row]
        key = (int(line.microbatch[row]), int(part), bool(line.is_backward[row]))
        assert key not in when
        when[key] = (line.start[row], line.end[row])
    last = p * n_chunks - 1
    everything = itertools.product(range(n_microbatches), range(last + 1), (False, True))
    assert set(when) == set(everything)
    for (microbatch, part, is_backward), (start, _) in when.items():
        if is_backward:
            assert start >= when[microbatch, part, False][1]
        neighbour = part + 1 if is_backward else part - 1
        if 0 <= neighbour <= last:
            delay = transfer if p > 1 else 0.0
            assert start >= when[microbatch, neighbour, is_backward][1] + delay
    for stage in range(p):
        mine = line.stage == stage
        order = np.argsort(line.start[mine])
        assert np.all(line.start[mine][order][1:] >= line.end[mine][order][:-1])


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_simulated_bubble_is_the_closed_form(schedule):
    for p, n in itertools.product(STAGES, MICROBATCHES):
        line = simulate_pipeline(p, n, FORWARD, BACKWARD, schedule=schedule)
        assert_sound(line, n)
        assert line.seconds == (n + p - 1) * (FORWARD + BACKWARD)
        assert line.bubble_fraction == pytest.approx(bubble_fraction(p, n), abs=1e-15)
        assert bubble_fraction(p, n) == (p - 1) / (n + p - 1)


@pytest.mark.parametrize("n_chunks", [2, 4])
def test_interleaving_divides_the_bubble(n_chunks):
    for p, turns in itertools.product(STAGES, (1, 2, 3)):
        n = p * turns
        line = simulate_pipeline(p, n, FORWARD, BACKWARD, 0.0, "interleaved", n_chunks)
        assert_sound(line, n, n_chunks=n_chunks)
        assert line.seconds == (n + (p - 1) / n_chunks) * (FORWARD + BACKWARD)
        assert line.bubble_fraction == pytest.approx(bubble_fraction(p, n, n_chunks), abs=1e-15)


def test_activations_in_flight():
    """GPipe keeps all micro-batches, 1F1B at most as many as stages remain."""
    for p, n in itertools.product(STAGES, MICROBATCHES):
        gpipe = simulate_pipeline(p, n, FORWARD, BACKWARD, schedule="gpipe").in_flight()
        assert gpipe.tolist() == [n] * p
        one = simulate_pipeline(p, n, FORWARD, BACKWARD, schedule="1f1b").in_flight()
        assert one.tolist() == [min(n, p - stage) for stage in range(p)]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
@pytest.mark.parametrize("transfer", [0.0625, 0.5, 3.0])
def test_transfers_delay_but_never_break_the_order(schedule, transfer):
    n_chunks = 2 if schedule == "interleaved" else 1
    for p, turns in itertools.product(STAGES, (1, 2, 3)):
        n = p * turns
        line = simulate_pipeline(p, n, FORWARD, BACKWARD, transfer, schedule, n_chunks)
        assert_sound(line, n, transfer, n_chunks)
        free = simulate_pipeline(p, n, FORWARD, BACKWARD, 0.0, schedule, n_chunks)
        delay = line.seconds - free.seconds
        # One micro-batch's way there and back is on the critical path.
        assert delay >= 2 * (p - 1) * transfer
        if schedule == "gpipe":
            assert delay == 2 * (p - 1) * transfer


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("seed", range(5))
def test_uneven_stages_wait_for_the_slowest(schedule, seed):
    rng = np.random.default_rng(seed)
    p, n = 5, 12
    forward, backward = rng.uniform(0.5, 2, p), rng.uniform(1, 3, p)
    line = simulate_pipeline(p, n, forward, backward, schedule=schedule)
    assert_sound(line, n)
    slowest = n * (forward + backward).max()
    assert slowest <= line.seconds
    even = simulate_pipeline(p, n, forward.max(), backward.max(), schedule=schedule)
    assert line.seconds <= even.seconds


def test_a_pipelined_step_of_8b():
    step = pipeline_parallel(LLAMA3_8B, 8192, 8, 16)
    assert step.transfer_bytes == 64 * MIB
    assert step.transfer_seconds == pytest.approx(5e-6 + 64 * MIB / 50e9)
    assert step.sent == 2 * 16 * 64 * MIB
    assert step.in_flight == (8, 7, 6, 5, 4, 3, 2, 1)
    one_gpu = 6 * LLAMA3_8B.parameters * 16 * 8192 / (0.4 * 989e12)
    assert step.compute_seconds == pytest.approx(one_gpu / 8)
    assert step.bubble_fraction > bubble_fraction(8, 16)
    assert step.seconds == pytest.approx(step.compute_seconds / (1 - step.bubble_fraction))
    inside = pipeline_parallel(LLAMA3_8B, 8192, 8, 16, across_nodes=False)
    assert bubble_fraction(8, 16) < inside.bubble_fraction < step.bubble_fraction


def test_interleaving_sends_more_and_keeps_more():
    plain = pipeline_parallel(LLAMA3_70B, 4096, 4, 8)
    interleaved = pipeline_parallel(LLAMA3_70B, 4096, 4, 8, schedule="interleaved", n_chunks=5)
    assert interleaved.sent == 5 * plain.sent
    assert interleaved.bubble_fraction < plain.bubble_fraction
    assert interleaved.in_flight[0] > plain.in_flight[0]


@pytest.mark.parametrize("n_stages", [1, 2, 4, 8])
@pytest.mark.parametrize("n_chunks", [1, 2, 4])
def test_the_busiest_stage_sends_what_its_operations_send(n_stages, n_chunks):
    """Counted: an operation sends if the next one, or the one before, lies on another stage."""
    schedule = "interleaved" if n_chunks > 1 else "1f1b"
    step = pipeline_parallel(LLAMA3_8B, 64, n_stages, 8, schedule=schedule, n_chunks=n_chunks)
    last = n_stages * n_chunks - 1
    sent = [0] * n_stages
    line = step.timeline
    for stage, chunk, is_backward in zip(line.stage, line.chunk, line.is_backward, strict=True):
        part = chunk * n_stages + stage
        receiver = part - 1 if is_backward else part + 1
        sent[stage] += int(n_stages > 1 and 0 <= receiver <= last)
    assert step.transfers == max(sent)
    assert f"{step.sent / MIB:g} MiB" in step.lines["sent per step, busiest stage"] or not step.sent


@pytest.mark.parametrize("rails", range(1, 9))
def test_stages_of_a_node_share_its_interfaces(rails):
    cluster = replace(H100_CLUSTER, rails=rails)
    step = pipeline_parallel(LLAMA3_8B, 8192, 4, 8, cluster)
    shared = math.ceil(8 / rails)
    assert step.transfer_seconds == pytest.approx(5e-6 + 64 * MIB * shared / 50e9)
    inside = pipeline_parallel(LLAMA3_8B, 8192, 4, 8, cluster, across_nodes=False)
    assert inside.transfer_seconds == pytest.approx(5e-6 + 64 * MIB / 450e9)


def test_nothing_waits_where_nothing_takes_time():
    line = simulate_pipeline(4, 8, 0.0, 0.0)
    assert (line.seconds, line.bubble_fraction) == (0, 0)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_order_of_a_stage_has_each_operation_once(schedule):
    n_chunks = 2 if schedule == "interleaved" else 1
    for n_stages, turns in itertools.product((1, 2, 3), (1, 2, 3)):
        n = n_stages * turns
        everything = list(itertools.product(range(n), range(n_chunks), (False, True)))
        for stage in range(n_stages):
            order = stage_order(schedule, n_stages, n, stage, n_chunks)
            assert sorted(order) == sorted(everything)


def test_one_stage_sends_nothing():
    step = pipeline_parallel(LLAMA3_8B, 4096, 1, 4)
    assert (step.sent, step.bubble_fraction, step.transfer_seconds) == (0, 0, 0)


def test_a_step_prints_itself():
    step = pipeline_parallel(LLAMA3_8B, 8192, 4, 8, schedule="gpipe")
    text = str(step)
    assert text.startswith("gpipe: 4 stages, 8 micro-batches")
    assert "8, 8, 8, 8" in text
    assert text.count("assuming: ") == 3
    assert len(step.table().markdown.splitlines()) == 2 + len(step.lines)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: simulate_pipeline(0, 4, 1, 2), "n_stages must be a whole number"),
        (lambda: simulate_pipeline(4, 0, 1, 2), "n_microbatches must be a whole number"),
        (lambda: simulate_pipeline(4, 4, -1, 2), "forward_seconds must be seconds"),
        (lambda: simulate_pipeline(4, 4, [1, 2], 2), "one for each of the 4 stages"),
        (lambda: simulate_pipeline(4, 4, 1, 2, float("nan")), "transfer_seconds must be seconds"),
        (lambda: simulate_pipeline(4, 4, 1, 2, schedule="2f2b"), "choose 'gpipe', '1f1b' or"),
        (lambda: simulate_pipeline(4, 4, 1, 2, 0, "1f1b", 2), "'interleaved' needs 2 or more"),
        (lambda: simulate_pipeline(4, 4, 1, 2, 0, "interleaved"), "'interleaved' needs 2 or more"),
        (lambda: simulate_pipeline(4, 6, 1, 2, 0, "interleaved", 2), "choose a multiple"),
        (lambda: pipeline_parallel(LLAMA3_8B, 8192, 5, 4), "32 layers, which cannot be divided"),
        (lambda: pipeline_parallel(LLAMA3_8B, 0, 4, 4, H100_CLUSTER), "tokens must be a number"),
        (lambda: simulate_pipeline(2, 4, 1, 2, [1, 2]), "transfer_seconds must be one number"),
        (lambda: simulate_pipeline(2, 4, "slow", 2), "forward_seconds must be seconds"),
        (lambda: stage_order("foo", 2, 4, 0), "choose 'gpipe', '1f1b' or 'interleaved'"),
        (lambda: stage_order("1f1b", 2, 4, 9), "stage must be one of the ranks 0 to 1"),
        (lambda: stage_order("1f1b", 2, -1, 0), "n_microbatches must be a whole number"),
        (lambda: stage_order("1f1b", 2.0, 4, 0), "n_stages must be a whole number"),
        (lambda: stage_order("interleaved", 2, 3, 0, 2), "choose a multiple"),
        (lambda: bubble_fraction(4, 0), "n_microbatches must be a whole number"),
    ],
)
def test_bad_input_is_refused_with_the_fix(call, message):
    with pytest.raises(ValueError, match=message):
        call()
