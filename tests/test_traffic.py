from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from commlab.budget import expert_parallel, stage_order
from commlab.cost import least_share
from commlab.figures.overlap import lanes
from commlab.overlap import ddp_buckets
from commlab.real import run
from commlab.real.traffic import (
    DDP,
    FSDP,
    Experts,
    Pipeline,
    SentBytes,
    TensorParallel,
    count_together,
    experiments,
    measure_overlap,
    overlap,
    see_ddp_buckets,
    sent_table,
    sockets,
)
from commlab.units import MIB

TESTS = Path(__file__).parent
N = 4
# Payloads are so large that gloo's own bytes per message stay below this.
TOLERANCE = 0.02
NO_COUNT = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux counts bytes for each connection"
)

EXPERIMENTS = {
    "ddp": DDP(),
    "fsdp": FSDP(),
    "fsdp gloo": FSDP(own_reduce_scatter=False),
    "fsdp kept": FSDP(reshard_after_forward=False),
    "fsdp kept gloo": FSDP(reshard_after_forward=False, own_reduce_scatter=False),
    "fsdp half": FSDP(reshard_after_forward=2),
    "fsdp fp32": FSDP(float32_gradients=True),
    "tp": TensorParallel(),
    "tp naive": TensorParallel(plan="naive"),
    "gpipe": Pipeline("gpipe"),
    "1f1b": Pipeline("1f1b"),
    "experts": Experts(),
    "experts skewed": Experts(hottest_share=0.5),
}
UNEVEN = [100_000, 50_000, 25_000, 1]


@pytest.fixture(scope="module")
def observed() -> dict[str, list]:
    """What each rank has seen, by observation: one start of the ranks for most tests here."""
    by_rank = run(
        "traffic_workers:everything",
        ranks=N,
        timeout=120,
        steps=[(each.step, each.arguments(N)) for each in EXPERIMENTS.values()],
        counts=UNEVEN,
    )
    return {name: [seen[name] for seen in by_rank] for name in by_rank[0]}


@pytest.fixture(scope="module")
def results(observed) -> dict[str, SentBytes]:
    found = {}
    for number, (name, experiment) in enumerate(EXPERIMENTS.items()):
        answers = [steps[number] for steps in observed["steps"]]
        found[name] = experiments._result(experiment, experiment.formula(N), answers, "")
    return found


def in_units(result: SentBytes) -> float:
    return result.sent[result.busiest] / result.unit_nbytes


# ---------------------------------------------------------------------------------------
# The two ways of counting


@NO_COUNT
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_sockets_see_what_theory_says_and_what_gloo_does_instead(observed, kind):
    nbytes = 4 * 2**20
    expected = float(least_share(kind, N)) * nbytes
    if kind == "reduce_scatter":
        expected *= 2  # an all-reduce runs inside
    for seen in observed["plain"]:
        assert seen["sent"][kind] == pytest.approx(expected, rel=TOLERANCE)
        assert seen["sent"]["nothing"] < 4096


def test_the_log_knows_what_collectives_ask_for(observed):
    nbytes = 4 * 2**20
    for rank, seen in enumerate(observed["plain"]):
        asked = {kind: (phase, size, sent) for phase, kind, size, sent in seen["operations"]}
        for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
            assert asked[kind] == (kind, nbytes, least_share(kind, N) * nbytes)
        assert ("send" in asked, "receive" in asked) == (rank == 0, rank == 1)
    assert observed["plain"][0]["operations"][-1] == ["send", "send", nbytes, nbytes]
    assert observed["plain"][1]["operations"][-1] == ["send", "receive", nbytes, 0]


def test_uneven_all_to_all_keeps_the_own_part(observed):
    row = 16  # four float32
    for rank, seen in enumerate(observed["uneven"]):
        ((_, kind, nbytes, sent),) = seen["operations"]
        assert (kind, nbytes) == ("all_to_all", row * sum(UNEVEN))
        assert sent == row * (sum(UNEVEN) - UNEVEN[rank])
        if seen["sent"] is not None:
            assert seen["sent"]["step"] == pytest.approx(sent, rel=TOLERANCE)


def test_pytorchs_debug_mode_counts_the_same_calls(observed):
    for theirs, ours in observed["debug mode"]:
        assert theirs == {"_allgather_base_": 6, "_reduce_scatter_base_": 3}
        assert ours == {"all_gather": 6, "reduce_scatter": 3}


def test_the_log_refuses_what_it_cannot_count(observed):
    assert all("cannot count c10d::broadcast_" in said for said in observed["unknown"])


@pytest.mark.skipif(sys.platform != "linux", reason="needs the namespaces of Linux")
def test_sockets_agree_with_the_interface_of_a_private_network(tmp_path):
    script = """
import fcntl, json, socket, struct, sys
UP, SET_FLAGS = 1, 0x8914  # the loopback interface of a new namespace is down
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sH14x", b"lo", UP))
from commlab.real import run
seen = run("traffic_workers:interface_and_sockets", n_elements=2**21)
json.dump(seen, open(sys.argv[1], "w"))
"""
    answer = tmp_path / "seen.json"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", script, answer],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])},
        text=True,
        capture_output=True,
        timeout=60,
    )
    if "unshare failed" in done.stderr:
        pytest.skip(f"no namespaces here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    interface, at_sockets = zip(*json.loads(answer.read_text()), strict=True)
    in_all = sum(at_sockets)
    assert in_all == pytest.approx(N * 1.5 * 8 * MIB, rel=TOLERANCE)
    # The interface counts headers and acknowledgements, too.
    assert in_all < max(interface) < (1 + TOLERANCE) * in_all


def test_where_the_system_does_not_count_the_calls_are_shown(monkeypatch, tmp_path, results):
    monkeypatch.setattr(sockets, "OPEN_FILES", tmp_path / "not there")
    assert sockets.bytes_sent() is None
    counted = results["fsdp gloo"]
    blind = experiments._result(
        FSDP(own_reduce_scatter=False),
        counted.formula,
        [{"sent": None, "operations": calls} for calls in counted.operations],
        "",
    )
    assert blind.sent == blind.asked
    assert blind.ratio == 1
    assert blind.sent_in("forward") == tuple(round(f / 3) for f in counted.formula)
    assert "does not count bytes per connection" in str(blind)
    assert "does not count" not in str(counted)


# ---------------------------------------------------------------------------------------
# Against the formulas


@NO_COUNT
@pytest.mark.parametrize(
    ("name", "units"),
    [
        ("ddp", 1.5),
        ("fsdp", 2.25),
        ("fsdp gloo", 3.0),
        ("fsdp kept", 1.5),
        ("fsdp kept gloo", 2.25),
        ("fsdp half", 2.0),
        ("fsdp fp32", 3.0),
        ("tp", 6.0),
        ("tp naive", 9.0),
        ("gpipe", 16.0),
        ("1f1b", 16.0),
        ("experts", 1.5),
        ("experts skewed", 2.0),
    ],
)
def test_bytes_at_the_sockets(results, name, units):
    assert in_units(results[name]) == pytest.approx(units, rel=TOLERANCE)


@pytest.mark.parametrize("name", sorted(set(EXPERIMENTS) - {"tp naive"}))
def test_calls_ask_for_exactly_what_the_formula_says_on_every_rank(results, name):
    assert results[name].asked == pytest.approx(results[name].formula, rel=1e-12)


@NO_COUNT
@pytest.mark.parametrize(
    "name", sorted(set(EXPERIMENTS) - {"tp naive", "fsdp gloo", "fsdp kept gloo"})
)
def test_every_rank_sends_what_the_formula_says(results, name):
    np.testing.assert_allclose(results[name].sent, results[name].formula, rtol=TOLERANCE)


def test_calls_of_each_layer(results):
    layers = FSDP().n_layers
    gather, own = ("all_gather", layers), ("all_to_all", layers)

    def by_phase(name):
        calls = results[name].calls()
        return {
            phase: sorted((kind, times) for (part, kind), times in calls.items() if part == phase)
            for phase in ("forward", "backward")
        }

    assert by_phase("fsdp") == {"forward": [gather], "backward": [gather, own]}
    assert by_phase("fsdp half") == by_phase("fsdp fp32") == by_phase("fsdp")
    assert by_phase("fsdp kept") == {"forward": [gather], "backward": [own]}
    assert by_phase("fsdp gloo")["backward"] == [gather, ("reduce_scatter", layers)]

    layers = TensorParallel().n_layers
    assert by_phase("tp") == {
        "forward": [("all_reduce", 2 * layers)],
        "backward": [("all_reduce", 2 * layers)],
    }
    assert by_phase("tp naive") == {
        "forward": [("all_reduce", 2 * layers)],
        "backward": [("all_reduce", 4 * layers)],
    }


def test_own_reduce_scatter_equals_gloos(observed):
    # float64, other order of additions
    assert max(max(differences) for differences in observed["reduce-scatter"]) < 1e-14


def test_the_cut_transformer_computes_what_the_whole_one_does(results):
    # BF16 has 8 bits; sums of four parts round differently.
    for name in ("tp", "tp naive"):
        assert 0 <= max(results[name].seen["output_differs"]) < 0.05


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_pipeline_has_the_whole_models_gradients_and_the_budgets_order(results, name):
    result = results[name]
    # float64; micro-batches are added up one by one.
    assert max(result.seen["gradients_differ"]) < 1e-12
    n_microbatches = Pipeline().n_microbatches
    for stage, order in enumerate(result.seen["order"]):
        expected = stage_order(name, N, n_microbatches, stage)
        assert order == "".join("B" if each.is_backward else "F" for each in expected)
    ends, inner = result.calls(0), result.calls(1)
    assert ends == {("step", "send"): n_microbatches, ("step", "receive"): n_microbatches}
    assert inner == {kind: 2 * times for kind, times in ends.items()}


def test_tokens_come_back_from_their_experts(results):
    for name in ("experts", "experts skewed"):
        assert results[name].seen["came_back"] == [True] * N


@NO_COUNT
def test_combine_takes_as_much_longer_as_the_budget_says(results):
    skewed, even = results["experts skewed"], results["experts"]
    busiest, balanced = max(skewed.sent_in("combine")), max(even.sent_in("combine"))
    budget = expert_parallel(
        Experts().tokens, Experts().hidden, layers=1, n_ranks=N, passes=1, hottest_share=0.5
    )
    assert busiest == pytest.approx(budget.bytes_per_layer / 2, rel=TOLERANCE)
    assert busiest / balanced == pytest.approx(budget.byte_skew, rel=TOLERANCE)


def test_count_together_keeps_the_order_and_results_print_themselves(monkeypatch, observed):
    def answer(worker, ranks, timeout, steps):
        assert (worker, ranks) == (experiments.WORKER, N)
        return [[found[0], found[1]] for found in observed["steps"]]

    monkeypatch.setattr(experiments, "run", answer)
    ddp, fsdp = count_together([DDP(), FSDP()])
    assert (ddp.title, ddp.n_ranks) == ("DDP", N)
    assert "torch" in str(fsdp)
    assert "4 all_gather + 4 all_to_all" in str(fsdp)
    assert "2.25 P" in fsdp.table().markdown
    assert len(sent_table([ddp, fsdp]).markdown.splitlines()) == 4


def test_two_ranks():
    fsdp = FSDP(n_layers=2).count(ranks=2)
    assert fsdp.formula == (1.5 * fsdp.unit_nbytes,) * 2
    assert fsdp.asked == fsdp.formula
    assert fsdp.ratio == pytest.approx(1, rel=TOLERANCE)


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda: DDP().count(ranks=1), "nobody to send to"),
        (lambda: FSDP(reshard_after_forward=3).count(), "reshard_after_forward"),
        (lambda: FSDP(hidden=1022).count(), "1022 rows cannot be cut evenly over 4 ranks"),
        (lambda: TensorParallel(heads=6).count(), "6 heads"),
        (lambda: TensorParallel(hidden=100).count(), "8 heads cannot share a width of 100"),
        (lambda: TensorParallel(plan="other").count(), "plan is 'other'"),
        (lambda: Pipeline(schedule="interleaved").count(), "choose 'gpipe' or '1f1b'"),
        (lambda: Experts(hottest_share=0.3, tokens=7).count(), "7 tokens cannot be sent"),
        (lambda: see_ddp_buckets([1, 2], used_in_order=[0, 0]), "each of the 2 parameters once"),
    ],
)
def test_nonsense_is_refused_before_anything_starts(monkeypatch, ask, sentence):
    def start(*args, **kwargs):
        raise AssertionError("processes were started")

    monkeypatch.setattr(experiments, "run", start)
    monkeypatch.setattr(overlap, "run", start)
    with pytest.raises(ValueError, match=sentence):
        ask()


# ---------------------------------------------------------------------------------------
# Buckets and their timeline


def test_ddps_default_buckets_before_and_after_the_first_iteration():
    seen = see_ddp_buckets([MIB] * 20)  # 20 parameters of 4 MiB
    assert seen.first == seen.rule_first == (80 * MIB,)
    assert seen.later == seen.rule_later == tuple(size * MIB for size in (4, 28, 28, 20))
    assert "28 MiB" in str(seen)


def test_buckets_follow_the_rule_whatever_the_sizes_and_the_order():
    random = np.random.default_rng(5)
    cases = []
    for find_unused in (False, True):
        for _ in range(3):
            elements = random.integers(1, 4000, size=12).tolist()
            order = random.permutation(12).tolist()
            cases.append((elements, order, int(random.integers(4000, 40_000)), find_unused))
    by_rank = run(
        "traffic_workers:bucket_cases",
        ranks=2,
        cases=[(e, o, 3, unused, cap / MIB) for e, o, cap, unused in cases],
    )
    assert by_rank[0] == by_rank[1]
    for iterations, (elements, order, cap, find_unused) in zip(by_rank[0], cases, strict=True):
        seen = overlap._seen_buckets(iterations, elements, order, cap, find_unused)
        assert seen.first == seen.rule_first
        assert seen.later == seen.rule_later
        members = [number for bucket in seen.members for number in bucket]
        assert sorted(members) == list(range(12))
        if not find_unused:
            assert members == order[::-1]  # the order of readiness, not that of registration


def test_measured_timeline_is_of_the_models_type_and_in_order():
    hidden, n_layers = 256, 6
    many, one = measure_overlap(
        ranks=2,
        n_layers=n_layers,
        hidden=hidden,
        pause=0.05,
        bucket_caps_nbytes=(600_000, 10 * MIB),
        n_steps=1,
    )
    gradients = [4 * hidden**2] * n_layers
    limits = {"first_bucket_nbytes": 600_000, "bucket_cap_nbytes": 600_000}
    sizes = [bucket.nbytes for bucket in many.measured.buckets]
    assert sizes == ddp_buckets(gradients, **limits)
    assert [bucket.nbytes for bucket in one.measured.buckets] == [sum(gradients)]
    assert [bucket.nbytes for bucket in many.model.buckets] == sizes

    each = many.measured
    ends = [layer.end for layer in each.compute]
    assert [layer.name for layer in each.compute] == [f"layer {k}" for k in (5, 4, 3, 2, 1, 0)]
    assert [bucket.ready for bucket in each.buckets] == [ends[2], ends[5]]
    assert each.buckets[1].start >= each.buckets[0].end
    # What a hook is for: the first bucket is on its way before the last gradient is there.
    assert each.buckets[0].start < ends[-1]
    assert one.measured.buckets[0].start >= one.measured.backward_end
    drawn = draw(many.timelines)
    assert drawn["measured"]["end"] == [bucket.end for bucket in each.buckets]
    assert "torch" in str(many)


def draw(timelines):
    from matplotlib.figure import Figure

    return lanes(Figure(figsize=(6.4, 4.0)), timelines=timelines)
