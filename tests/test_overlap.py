"""Buckets as torch cuts them, timelines that obey their inequalities, searches nothing beats."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commlab
from commlab import overlap
from commlab.hardware import ALPHA, H100, INFINIBAND, NVLINK
from commlab.models import LLAMA3_8B, MODELS, TransformerShape, training_flops
from commlab.units import GIB, KIB, MIB, format_seconds

EXACT = 1e-12
SMALL = TransformerShape("small", 3, 64, 4, 2, 16, 160, 500)

gradient_sizes = st.lists(st.integers(1, 20_000), min_size=1, max_size=40)
limits = st.integers(1, 60_000)
seconds = st.floats(1e-6, 10.0)


def ring(n_ranks=8, alpha=ALPHA, beta=NVLINK):
    return partial(commlab.alpha_beta_ring_allreduce, n_ranks=n_ranks, alpha=alpha, beta=beta)


def backward_of(sizes, durations, forward=0.0):
    """A backward pass of gradients with these sizes and seconds of compute."""
    ready = np.cumsum(durations)
    gradients = tuple(
        overlap.Gradient(f"g{i}", f"layer {i // 2}", nbytes, float(at))
        for i, (nbytes, at) in enumerate(zip(sizes, ready, strict=True))
    )
    return overlap.BackwardPass("random", gradients, forward)


@st.composite
def cases(draw):
    """A random backward pass with random buckets of its bytes."""
    sizes = draw(gradient_sizes)
    durations = draw(st.lists(st.floats(0, 0.01), min_size=len(sizes), max_size=len(sizes)))
    backward = backward_of(sizes, durations, forward=draw(st.floats(0, 1.0)))
    if draw(st.booleans()):
        buckets = overlap.equal_buckets(backward.nbytes, draw(st.integers(1000, 100_000)))
    else:
        first, cap = draw(limits), draw(limits)
        buckets = overlap.ddp_buckets(sizes, first_bucket_nbytes=first, bucket_cap_nbytes=cap)
    return backward, buckets


# ---------------------------------------------------------------------------------------
# DDP's rule is torch's


def torch_buckets(sizes, bucket_limits, ready_order=None):
    """Indices of torch's own reducer, for float32 parameters of these numbers of bytes."""
    torch = pytest.importorskip("torch")
    tensors = [torch.empty(nbytes // 4) for nbytes in sizes]
    given_order = tensors if ready_order is None else [tensors[i] for i in ready_order]
    indices, _ = torch.distributed._compute_bucket_assignment_by_size(
        given_order, bucket_limits, [False] * len(sizes), ready_order or []
    )
    return indices


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=60), limits, limits)
def test_rebuilt_buckets_are_those_of_the_reducer(words, first, cap):
    ready = [4 * count for count in words]
    registered = ready[::-1]
    ready_order = list(range(len(ready)))[::-1]
    indices = torch_buckets(registered, [first, cap], ready_order)
    assert [i for bucket in indices for i in bucket] == ready_order
    ours = overlap.ddp_buckets(ready, first_bucket_nbytes=first, bucket_cap_nbytes=cap)
    assert ours == [sum(registered[i] for i in bucket) for bucket in indices]


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=60), limits, limits)
def test_buckets_cut_at_construction_are_those_of_the_reducer(words, first, cap):
    registered = [4 * count for count in words]
    indices = torch_buckets(registered, [first, cap])
    sent = [sum(registered[i] for i in bucket) for bucket in reversed(indices)]
    ours = overlap.ddp_buckets(
        registered[::-1],
        first_bucket_nbytes=first,
        bucket_cap_nbytes=cap,
        find_unused_parameters=True,
    )
    assert ours == sent


def test_the_limits_are_torchs():
    torch = pytest.importorskip("torch")
    from torch.nn.parallel import distributed

    assert torch.distributed._DEFAULT_FIRST_BUCKET_BYTES == overlap.FIRST_BUCKET
    assert distributed._DEFAULT_BUCKET_CAP_MB * MIB == overlap.BUCKET_CAP


@pytest.fixture
def group_of_one():
    """A process group of this process alone: enough to construct DDP."""
    dist = pytest.importorskip("torch").distributed
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


# Registered in this order; the gradients become ready in the opposite one.
REGISTERED = [7 * MIB, 512 * KIB, 30 * MIB, 4 * MIB, 12 * MIB, 300 * KIB, 20 * MIB, 900 * KIB]


@pytest.mark.parametrize(
    ("options", "first", "unused"),
    [
        ({}, overlap.FIRST_BUCKET, False),
        ({"bucket_cap_mb": 25}, overlap.BUCKET_CAP, False),
        ({"find_unused_parameters": True}, overlap.FIRST_BUCKET, True),
        ({"find_unused_parameters": True, "bucket_cap_mb": 25}, overlap.BUCKET_CAP, True),
    ],
    ids=["default", "cap written out", "find unused", "find unused, cap written out"],
)
@pytest.mark.filterwarnings("ignore")
def test_iterations_of_the_real_ddp(group_of_one, options, first, unused):
    torch = pytest.importorskip("torch")

    class Chain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            weights = [torch.zeros(nbytes // 4) for nbytes in REGISTERED]
            self.weights = torch.nn.ParameterList(weights)

        def forward(self, x):
            for weight in self.weights:
                x = x * weight.sum() + x
            return x

    parallel = torch.nn.parallel.DistributedDataParallel(Chain(), **options)
    for _ in range(3):
        parallel(torch.ones(1)).sum().backward()
    log = parallel._get_ddp_logging_data()
    cut = partial(
        overlap.ddp_buckets,
        REGISTERED[::-1],
        first_bucket_nbytes=first,
        find_unused_parameters=unused,
    )
    seen = [int(nbytes) for nbytes in log["bucket_sizes"].split(", ")]
    assert seen == cut(first_iteration=True)
    if unused:
        assert "rebuilt_bucket_sizes" not in log
        assert seen == cut()
    else:
        assert len(seen) == 1
        rebuilt = [int(nbytes) for nbytes in log["rebuilt_bucket_sizes"].split(", ")]
        assert rebuilt == cut()


def test_the_four_cases_of_twenty_gradients():
    sizes = [4 * MIB] * 20
    assert overlap.ddp_buckets(sizes) == [4 * MIB, 28 * MIB, 28 * MIB, 20 * MIB]
    assert overlap.ddp_buckets(sizes, first_bucket_nbytes=25 * MIB) == [
        28 * MIB,
        28 * MIB,
        24 * MIB,
    ]
    assert overlap.ddp_buckets(sizes, first_iteration=True) == [80 * MIB]
    assert overlap.ddp_buckets(sizes, find_unused_parameters=True) == [
        20 * MIB,
        28 * MIB,
        28 * MIB,
        4 * MIB,
    ]


@given(gradient_sizes, limits, limits, st.booleans())
def test_no_bucket_closes_early_or_late(sizes, first, cap, unused):
    buckets = overlap.ddp_buckets(
        sizes, first_bucket_nbytes=first, bucket_cap_nbytes=cap, find_unused_parameters=unused
    )
    assert sum(buckets) == sum(sizes)
    filled = buckets[::-1] if unused else buckets
    for limit, nbytes in zip([first] + [cap] * len(buckets), filled[:-1], strict=False):
        assert limit <= nbytes < limit + max(sizes)
    # Every cut lies between two gradients.
    assert set(np.cumsum(buckets)) <= set(np.cumsum(sizes))


@given(st.integers(1, 10**12), st.integers(1, 10**6))
def test_equal_buckets_differ_by_a_byte_at_most(total, n_buckets):
    bucket = max(total / n_buckets, total / 500, 1)
    buckets = overlap.equal_buckets(total, bucket)
    assert sum(buckets) == total
    assert len(buckets) == -(-total // math.floor(bucket))
    assert max(buckets) - min(buckets) <= 1
    assert max(buckets) <= bucket


def test_a_bucket_of_a_fraction_of_a_byte_more_holds_no_more():
    assert overlap.equal_buckets(10, 3.5) == overlap.equal_buckets(10, 3) == [2, 3, 2, 3]


# ---------------------------------------------------------------------------------------
# Backward passes


@pytest.mark.parametrize("shape", [*MODELS, SMALL], ids=lambda shape: shape.name)
@pytest.mark.parametrize("gradient_bytes", [2, 4])
def test_a_transformer_yields_all_its_gradients_and_flops(shape, gradient_bytes):
    tokens, mfu = 1000, 0.4
    backward = overlap.transformer_backward(
        shape, tokens, peak_flops=H100.bf16_flops, mfu=mfu, gradient_bytes=gradient_bytes
    )
    assert backward.nbytes == gradient_bytes * shape.parameters
    looked_up = shape.vocab * shape.hidden
    flops = training_flops(shape.parameters - looked_up, tokens)
    total = backward.forward_seconds + backward.seconds
    assert total == pytest.approx(flops / (mfu * H100.bf16_flops), rel=EXACT)
    assert backward.seconds == pytest.approx(2 * backward.forward_seconds, rel=EXACT)
    # The embedding needs no matrix product: it is ready with what comes before it.
    assert backward.gradients[-1].name == "embedding"
    assert backward.sizes[-1] == gradient_bytes * looked_up
    assert backward.ready[-1] == backward.ready[-2]
    layers = list(dict.fromkeys(gradient.layer for gradient in backward.gradients))
    expected = [f"layer {layer}" for layer in reversed(range(shape.layers))]
    assert layers == ["head", *expected, "embedding"]


def test_layers_of_a_transformer_take_equal_time():
    backward = overlap.transformer_backward(SMALL, 64, peak_flops=1e12, mfu=0.5)
    one = overlap.timeline(backward, [backward.nbytes], ring())
    lengths = {layer.name: layer.end - layer.start for layer in one.compute}
    each = 4 * SMALL.layer_parameters * 64 / 0.5e12
    for layer in range(SMALL.layers):
        assert lengths[f"layer {layer}"] == pytest.approx(each, rel=1e-9)
    assert lengths["embedding"] == 0


@given(st.integers(1, 300), st.data())
def test_uniform_gradients_come_at_a_steady_rate(n_gradients, data):
    n_layers = data.draw(st.integers(1, n_gradients))
    total = data.draw(st.integers(n_gradients, 10**9))
    backward = overlap.uniform_backward(total, 0.25, n_gradients, n_layers)
    assert backward.nbytes == total
    assert max(backward.sizes) - min(backward.sizes) <= 1
    np.testing.assert_allclose(
        backward.ready, 0.25 * np.arange(1, n_gradients + 1) / n_gradients, rtol=EXACT
    )
    layers = [gradient.layer for gradient in backward.gradients]
    assert len(set(layers)) == n_layers
    assert (layers[0], layers[-1]) == (f"layer {n_layers - 1}", "layer 0")


# ---------------------------------------------------------------------------------------
# The timeline


@given(cases(), st.integers(1, 64), st.floats(0, 1e-3), st.floats(1e6, 1e9), st.floats(1, 3))
def test_bounds_of_a_timeline(case, n_ranks, alpha, beta, slowdown):
    backward, buckets = case
    time_of = ring(n_ranks, alpha, beta)
    result = overlap.timeline(backward, buckets, time_of, slowdown=slowdown)
    each = np.array([float(time_of(nbytes)) for nbytes in buckets])
    tolerance = 1e-9 * (backward.seconds + each.sum() + 1)
    end = result.communication_end
    assert [bucket.nbytes for bucket in result.buckets] == buckets
    assert result.communication == pytest.approx(each.sum(), rel=1e-9, abs=1e-12)
    assert end >= result.backward_end + each[-1] - tolerance
    assert end >= result.buckets[0].ready + each.sum() - tolerance
    # Nothing waits longer than for all computing and all sending, one after the other.
    assert end <= slowdown * backward.seconds + each.sum() + tolerance
    assert result.exposed >= max(0.0, each[-1], each.sum() - result.backward_end) - tolerance
    assert backward.seconds <= result.backward_end + tolerance
    total = backward.forward_seconds + result.backward_end + result.exposed
    assert result.step_seconds == pytest.approx(total, rel=EXACT)
    for before, after in zip(result.buckets, result.buckets[1:], strict=False):
        assert after.start >= before.end


@given(cases(), st.floats(0, 1e-3), st.floats(1e6, 1e9))
def test_each_bucket_waits_for_the_slowest_chain_before_it(case, alpha, beta):
    # Unrolled: bucket k ends at the largest, over j up to k, of ready_j + times of j to k.
    backward, buckets = case
    result = overlap.timeline(backward, buckets, ring(8, alpha, beta))
    each = [float(ring(8, alpha, beta)(nbytes)) for nbytes in buckets]
    bytes_by_then = np.cumsum(backward.sizes)
    ready = [
        min(at for at, held in zip(backward.ready, bytes_by_then, strict=True) if held >= sent)
        for sent in np.cumsum(buckets)
    ]
    for k in range(0, len(buckets), 7):
        chains = [ready[j] + sum(each[j : k + 1]) for j in range(k + 1)]
        assert result.buckets[k].end == pytest.approx(max(chains), rel=1e-9, abs=1e-12)
        assert result.buckets[k].ready == pytest.approx(ready[k], rel=1e-9, abs=1e-12)


@given(cases(), st.floats(1e6, 1e8), st.floats(1, 4))
def test_slowed_compute_does_all_its_work(case, beta, slowdown):
    backward, buckets = case
    result = overlap.timeline(backward, buckets, ring(8, 1e-3, beta), slowdown=slowdown)
    end = result.backward_end
    beside = sum(max(min(bucket.end, end) - bucket.start, 0) for bucket in result.buckets)
    work = end - beside + beside / slowdown
    assert work == pytest.approx(backward.seconds, rel=1e-9, abs=1e-9)
    plain = overlap.timeline(backward, buckets, ring(8, 1e-3, beta))
    assert result.step_seconds >= plain.step_seconds - 1e-9


@given(gradient_sizes, seconds)
def test_one_bucket_overlaps_nothing(sizes, duration):
    backward = backward_of(sizes, [duration / len(sizes)] * len(sizes))
    one = overlap.ddp_buckets(sizes, first_iteration=True)
    for slowdown in (1.0, 2.0):
        result = overlap.timeline(backward, one, ring(), slowdown=slowdown)
        assert result.exposed == pytest.approx(float(ring()(sum(sizes))), rel=1e-6, abs=1e-12)
        assert result.backward_end == pytest.approx(backward.seconds, rel=EXACT)


@given(st.integers(1, 200), st.floats(1e-4, 1.0), st.floats(1e9, 1e12), st.integers(2, 64))
def test_without_latency_ever_smaller_buckets_only_expose_what_must_be(n, duration, beta, n_ranks):
    backward = overlap.uniform_backward(n * MIB, duration, n, 1)
    result = overlap.timeline(backward, backward.sizes, ring(n_ranks, 0, beta))
    whole = float(ring(n_ranks, 0, beta)(n * MIB))
    # The last piece, or what the network cannot carry in the time that is left for it.
    expected = max(whole / n, whole - duration * (1 - 1 / n))
    assert result.exposed == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(cases(), st.floats(1e6, 1e9), st.floats(1, 10), st.floats(1, 3))
def test_faster_networks_never_lengthen_a_step(case, beta, factor, slowdown):
    backward, buckets = case
    for slow, fast in (
        (ring(8, ALPHA, beta), ring(8, ALPHA, factor * beta)),
        (ring(8, factor * ALPHA, beta), ring(8, ALPHA, beta)),
        (ring(16, ALPHA, beta), ring(8, ALPHA, beta)),
    ):
        steps = [
            overlap.timeline(backward, buckets, time_of, slowdown=slowdown).step_seconds
            for time_of in (slow, fast)
        ]
        assert steps[1] <= steps[0] * (1 + 1e-9)


@pytest.mark.parametrize("n_buckets", [1, 2, 41, 110, 1024])
@pytest.mark.parametrize("backward", [3e-3, 12e-3, 80e-3])
def test_a_bucket_waits_for_its_gradients_and_for_the_network(n_buckets, backward):
    each = commlab.alpha_beta_ring_allreduce(GIB / n_buckets, 8, ALPHA, NVLINK)
    start, end = overlap.bucket_timeline(n_buckets, backward, each)
    ready = backward * np.arange(1, n_buckets + 1) / n_buckets
    free = np.concatenate(([0.0], end[:-1]))
    np.testing.assert_allclose(start, np.maximum(ready, free), rtol=EXACT)
    np.testing.assert_allclose(end - start, each, rtol=1e-9)
    finish = max(backward + each, backward / n_buckets + n_buckets * each)
    assert end[-1] == pytest.approx(finish, rel=1e-9)


@given(st.integers(1, 300), st.integers(1, 4), seconds, st.floats(0, 1e-3))
def test_equal_buckets_of_even_gradients_are_the_simple_timeline(n_buckets, per, duration, alpha):
    total = n_buckets * per * 4 * KIB
    backward = overlap.uniform_backward(total, duration, n_buckets * per, 1)
    buckets = overlap.equal_buckets(total, total // n_buckets)
    result = overlap.timeline(backward, buckets, ring(8, alpha))
    each = float(ring(8, alpha)(total // n_buckets))
    start, end = overlap.bucket_timeline(n_buckets, duration, each)
    np.testing.assert_allclose([bucket.start for bucket in result.buckets], start, rtol=1e-9)
    np.testing.assert_allclose([bucket.end for bucket in result.buckets], end, rtol=1e-9)


@pytest.mark.parametrize(
    "time_of",
    [
        ring(),
        lambda n: commlab.hierarchical_allreduce_time(n, 8, 8, ALPHA, NVLINK, INFINIBAND),
        lambda n: commlab.flat_ring_over_nodes_time(n, 8, 8, ALPHA, NVLINK, INFINIBAND, rails=8),
        lambda n: (
            commlab.price(
                commlab.REGISTRY["all_reduce", "ring"].build(4),
                commlab.flat_topology(4, ALPHA, NVLINK),
                n,
            ).total
        ),
    ],
    ids=["ring", "hierarchical", "rails", "price"],
)
def test_any_all_reduce_time_will_do(time_of):
    backward = overlap.transformer_backward(LLAMA3_8B, 4096, peak_flops=1e15, mfu=0.4)
    buckets = overlap.ddp_buckets(backward.sizes)
    result = overlap.timeline(backward, buckets, time_of)
    assert result.communication == pytest.approx(sum(float(time_of(n)) for n in buckets))
    # DDP leaves gradients whole, and the embedding's comes when all computing is done.
    assert result.exposed >= float(time_of(backward.sizes[-1]))


def test_the_lectures_buckets():
    whole = float(ring()(GIB))
    for size, count, ratio in ((25 * MIB, 41, 1.66), (25e6, 43, 1.69), (GIB, 1, 1.00)):
        backward = overlap.uniform_backward(GIB, 12e-3)
        result = overlap.timeline(backward, overlap.equal_buckets(GIB, size), ring())
        assert len(result.buckets) == count
        assert round(result.communication / whole, 2) == ratio


# ---------------------------------------------------------------------------------------
# The best bucket


@settings(max_examples=30)
@given(st.integers(2, 64), st.floats(1e-7, 1e-4), st.floats(1e9, 1e12), st.floats(1e-3, 1.0))
def test_no_number_of_equal_buckets_beats_the_formula(n_ranks, alpha, beta, duration):
    total = 256 * MIB
    time_of = ring(n_ranks, alpha, beta)
    best = overlap.uniform_best_bucket(total, duration, time_of)

    def finish(n_buckets):
        each = time_of(total / n_buckets)
        return np.maximum(duration + each, duration / n_buckets + n_buckets * each)

    counts = np.arange(1, 4097)
    assert finish(total / best) <= finish(counts).min() * (1 + 1e-9)
    # The curve has one valley: the best whole number is next to the formula's.
    if total / best < counts[-1]:
        at = counts[finish(counts).argmin()]
        neighbours = {math.floor(total / best), math.ceil(total / best)}
        least = min(finish(n) for n in neighbours)
        assert at in neighbours or finish(at) == pytest.approx(least, rel=1e-12)


@pytest.mark.parametrize(("duration", "expected"), [(5e-3, 87.0), (12e-3, 9.16), (40e-3, 2.0)])
def test_formula_and_search_agree_on_even_gradients(duration, expected):
    assert overlap.uniform_best_bucket(GIB, duration, ring()) / MIB == pytest.approx(
        expected, abs=0.05
    )
    # As fine as makes no difference, and every number of buckets that divides the gradients.
    backward = overlap.uniform_backward(GIB, duration, 4096, 1)
    sizes = [GIB // n for n in (2**k for k in range(11))]
    best = overlap.best_bucket(backward, ring(), rule="equal", sizes=sizes).best
    formula = overlap.uniform_best_bucket(GIB, duration, ring())
    assert best.bucket_nbytes / 2 <= formula <= 2 * best.bucket_nbytes


@settings(max_examples=25)
@given(cases(), st.sampled_from(["ddp", "equal"]), st.floats(1, 2), st.data())
def test_no_tried_size_beats_the_best(case, rule, slowdown, data):
    backward, _ = case
    sizes = data.draw(st.lists(st.integers(2000, 400_000), min_size=1, max_size=6))
    firsts = data.draw(st.lists(limits, max_size=3)) if rule == "ddp" else None
    time_of = ring(8, 1e-3, 1e6)
    found = overlap.best_bucket(
        backward, time_of, rule=rule, sizes=sizes, first_sizes=firsts, slowdown=slowdown
    )
    assert {trial.bucket_nbytes for trial in found.tried} == set(sizes)
    for trial in found.tried:
        if rule == "ddp":
            buckets = overlap.ddp_buckets(
                backward.sizes,
                first_bucket_nbytes=trial.first_bucket_nbytes,
                bucket_cap_nbytes=trial.bucket_nbytes,
            )
        else:
            buckets = overlap.equal_buckets(backward.nbytes, trial.bucket_nbytes)
        again = overlap.timeline(backward, buckets, time_of, slowdown=slowdown)
        assert (trial.n_buckets, trial.exposed) == (len(buckets), again.exposed)
        assert trial.step_seconds == again.step_seconds >= found.best.step_seconds
    assert found.timeline.step_seconds == found.best.step_seconds
    curve = {trial.bucket_nbytes: trial.step_seconds for trial in found.curve}
    for trial in found.tried:
        assert curve[trial.bucket_nbytes] <= trial.step_seconds


def test_default_sizes_reach_from_1_mib_to_one_bucket():
    backward = overlap.transformer_backward(LLAMA3_8B, 4096, peak_flops=1e15, mfu=0.4)
    found = overlap.best_bucket(backward, ring())
    sizes = sorted({trial.bucket_nbytes for trial in found.tried})
    assert (sizes[0], sizes[-1]) == (MIB, backward.nbytes)
    assert max(np.diff(np.log2(sizes))) <= 0.25 + 1e-6
    default = overlap.timeline(backward, overlap.ddp_buckets(backward.sizes), ring())
    assert found.best.step_seconds <= default.step_seconds
    # A model below 1 MiB is one bucket.
    tiny = backward_of([100, 200], [1e-3, 1e-3])
    assert [trial.n_buckets for trial in overlap.best_bucket(tiny, ring()).tried] == [1]


# ---------------------------------------------------------------------------------------
# Results print, and bad input is refused


def test_a_timeline_prints_and_tabulates():
    backward = overlap.uniform_backward(GIB, 12e-3)
    result = overlap.timeline(backward, overlap.equal_buckets(GIB, 25 * MIB), ring())
    text = str(result)
    for part in ("41 (25 MiB)", "7.05 ms", "172 µs", "assuming: all-reduces one at a time"):
        assert part in text
    assert "172 µs" in repr(result.table())
    assert len(repr(result.bucket_table()).splitlines()) == 2 + 41
    found = overlap.best_bucket(backward, ring(), sizes=[MIB, 25 * MIB], first_sizes=[MIB])
    assert "DDP's rule: best of 3 is 25 MiB, first 25 MiB" in str(found)
    assert len(repr(found.table()).splitlines()) == 2 + 2


def test_a_measured_timeline_is_one_too():
    measured = overlap.OverlapTimeline(
        "measured",
        compute=(overlap.Interval("backward", 0.0, 0.010),),
        # Two threads of a real library may send at the same time.
        buckets=(
            overlap.BucketInterval(100, 0.002, 0.003, 0.012),
            overlap.BucketInterval(300, 0.004, 0.004, 0.009),
        ),
    )
    assert measured.exposed == pytest.approx(0.002)
    assert measured.communication == pytest.approx(0.014)
    assert "2 (100 B to 300 B)" in str(measured)


BACKWARD = overlap.uniform_backward(1000, 1.0, 10, 5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: overlap.ddp_buckets([]), "empty: give the bytes of at least one"),
        (lambda: overlap.ddp_buckets([4, 0]), "whole number of bytes, 1 or more; got 0"),
        (lambda: overlap.ddp_buckets([4], bucket_cap_nbytes=2.5), "limit must be a whole number"),
        (lambda: overlap.equal_buckets(10, 0), "at least one byte; got 0"),
        (lambda: overlap.equal_buckets(1.5, 1), "nbytes must be a whole number"),
        (lambda: overlap.uniform_backward(10, 1.0, 20), "every layer needs a gradient"),
        (lambda: overlap.uniform_backward(10, 0.0, 5, 1), "seconds must be a number above zero"),
        (
            lambda: overlap.transformer_backward(SMALL, 1, peak_flops=1e12, mfu=40),
            "at most 1; got 40",
        ),
        (
            lambda: overlap.transformer_backward(
                SMALL, 1, peak_flops=1e12, mfu=0.4, gradient_bytes=3
            ),
            "choose 2",
        ),
        (lambda: overlap.BackwardPass("x", (), 0.0), "at least one gradient"),
        (lambda: backward_of([1, 1], [1.0, -0.5]), "in which they become ready"),
        (lambda: overlap.timeline(BACKWARD, [999], ring()), "no more and no less"),
        (lambda: overlap.timeline(BACKWARD, [1000, 0], ring()), "at least one byte"),
        (lambda: overlap.timeline(BACKWARD, [1000], lambda n: -1.0), "zero or more seconds"),
        (lambda: overlap.timeline(BACKWARD, [1000], ring(), slowdown=0.9), "1 or more; got 0.9"),
        (lambda: overlap.best_bucket(BACKWARD, ring(), rule="even"), "choose 'ddp' or 'equal'"),
        (lambda: overlap.best_bucket(BACKWARD, ring(), sizes=[]), "sizes is empty"),
        (
            lambda: overlap.best_bucket(BACKWARD, ring(), rule="equal", first_sizes=[1]),
            "leave out first_sizes",
        ),
        (lambda: overlap.Gradient("g", "layer", float("nan"), 1.0), "nbytes of gradient 'g'"),
        (lambda: overlap.Gradient("g", "layer", 0, 1.0), "nbytes of gradient 'g'"),
        (lambda: overlap.Gradient("g", "layer", 4, float("nan")), "ready of gradient 'g'"),
        (
            lambda: overlap.uniform_best_bucket(10, -1.0, ring()),
            "backward_seconds must be a number",
        ),
        (lambda: overlap.uniform_best_bucket(10, 0, ring()), "backward_seconds must be a number"),
        (lambda: overlap.uniform_best_bucket(0, 1.0, ring()), "nbytes must be a number above zero"),
        (lambda: overlap.timeline(BACKWARD, [1000], ring(), slowdown="2"), "1 or more; got '2'"),
        (lambda: overlap.OverlapTimeline("x", (), ()), "a layer and a bucket"),
        (
            lambda: overlap.OverlapTimeline(
                "x",
                (overlap.Interval("a", 0.0, 1.0),),
                (overlap.BucketInterval(1, 0.5, 0.4, 0.6),),
            ),
            "ready, then start, then end",
        ),
        (
            lambda: overlap.OverlapTimeline(
                "x", (overlap.Interval("a", 2.0, 1.0),), (overlap.BucketInterval(1, 0, 0, 0),)
            ),
            "must not end before it starts",
        ),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_among_equal_steps_the_fewest_buckets_win():
    """Without latency, and with all gradients there at once, every cut takes as long."""
    everything_at_once = backward_of([KIB] * 8, [1.0] + [0.0] * 7)
    found = overlap.best_bucket(
        everything_at_once, lambda nbytes: nbytes / MIB, rule="equal", sizes=[KIB, 8 * KIB, 2 * KIB]
    )
    assert len({trial.step_seconds for trial in found.tried}) == 1
    assert found.best.n_buckets == 1


def test_a_slowed_backward_pass_says_what_that_costs():
    backward = overlap.uniform_backward(GIB, 1.0)
    line = overlap.timeline(backward, overlap.ddp_buckets(backward.sizes), ring(), slowdown=1.5)
    longer = line.backward_end - backward.seconds
    assert longer > 0
    assert f"the backward pass takes {format_seconds(longer)} longer for that" in str(line)


def test_small_integers_of_gradient_bytes_do_not_overflow():
    passes = [
        overlap.transformer_backward(
            LLAMA3_8B, 100, peak_flops=1e15, mfu=0.4, gradient_bytes=gradient_bytes
        )
        for gradient_bytes in (4, np.uint8(4))
    ]
    assert passes[0].sizes == passes[1].sizes
