"""Placements, calibrated links and the answer of `commlab plan`."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from commlab.budget import H100_CLUSTER, Plan, training_step
from commlab.figures.placements import placement_height, placement_steps
from commlab.models import LLAMA3_8B, LLAMA3_405B, MIXTRAL_8X7B, TransformerShape
from commlab.planner import (
    CLUSTERS,
    MODELS,
    NoPlacementError,
    Placement,
    Request,
    as_data,
    calibrate,
    find_cluster,
    find_model,
    make_answer,
    placements,
    rank_placements,
    read_calibration,
    text_lines,
)
from commlab.planner.calibration import Interval, MeasuredRun
from commlab.units import format_bytes

TINY = TransformerShape("tiny", 4, 64, 4, 2, 16, 128, 256)
SMALL_NODES = replace(H100_CLUSTER, gpus_per_node=4, name="nodes of 4")


def run_of(op="all_gather", n_ranks=8, n_nodes=1, alpha=None, beta=400e9, spread=0.01, error=0.02):
    """A measured run whose interval is `spread` wide on either side."""
    wide = Interval(beta * (1 - spread), beta, beta * (1 + spread))
    if alpha is not None:
        alpha = Interval(alpha * (1 - spread), alpha, alpha * (1 + spread))
    return MeasuredRun(op, n_ranks, n_nodes, alpha, wide, error)


def fit_entry(**changes):
    """One run as `commlab fit --json` prints it."""
    entry = {
        "op": "all_gather",
        "n_ranks": 8,
        "n_nodes": 1,
        "rows": 20,
        "skipped": 0,
        "alpha_s": 35e-6,
        "alpha_ci": [30e-6, 40e-6],
        "beta_Bps": 362e9,
        "beta_ci": [358e9, 366e9],
        "pieces": [],
        "median_rel_err": 0.01,
        "heldout_median_rel_err": 0.02,
        "warnings": [],
    }
    return entry | changes


def write_fit(path, *entries):
    path.write_text(json.dumps({"runs": list(entries)}), encoding="utf-8")
    return path


# --- placements -----------------------------------------------------------------------------


@given(st.integers(1, 48), st.sampled_from([TINY, LLAMA3_8B, MIXTRAL_8X7B]))
def test_every_way_to_write_the_number_of_gpus_as_a_product_is_a_placement(n_gpus, shape):
    cluster = replace(H100_CLUSTER, gpus_per_node=n_gpus)
    request = Request(shape, n_gpus, 8192, cluster=cluster)
    found = list(placements(request))
    assert len(found) == len(set(found))
    expected = {
        Placement(tensor, pipeline, n_gpus // tensor // pipeline, expert)
        for tensor, pipeline in itertools.product(range(1, n_gpus + 1), repeat=2)
        for expert in range(1, 9)
        if n_gpus % (tensor * pipeline) == 0
        and pipeline <= shape.layers
        and (n_gpus // tensor // pipeline) % expert == 0
        and shape.n_experts % expert == 0
    }
    assert set(found) == expected
    assert all(one.tensor * one.pipeline * one.data == n_gpus for one in found)


@pytest.mark.parametrize("axis", ["tensor", "pipeline", "data"])
def test_a_size_that_is_asked_for_is_kept(axis):
    request = Request(LLAMA3_8B, 16, 8192, **{axis: 4})
    found = list(placements(request))
    assert found
    assert all(getattr(one, axis) == 4 for one in found)


@pytest.mark.parametrize(
    ("shape", "n_gpus", "tokens", "cluster"),
    [
        (TINY, 8, 256, SMALL_NODES),
        (LLAMA3_8B, 16, 8192, H100_CLUSTER),
        (MIXTRAL_8X7B, 8, 8192, replace(H100_CLUSTER, gpu_memory=300e9)),
    ],
)
def test_the_best_is_the_fastest_of_all_plans_that_fit(shape, n_gpus, tokens, cluster):
    sequence = min(tokens, 8192)
    request = Request(shape, n_gpus, tokens, sequence=sequence, cluster=cluster)
    fastest = None
    sizes = range(1, n_gpus + 1)
    for tensor, pipeline, expert in itertools.product(sizes, sizes, range(1, 9)):
        data, rest = divmod(n_gpus, tensor * pipeline)
        if rest or data % expert or shape.n_experts % expert:
            continue
        sequences = tokens * tensor * pipeline // sequence
        for micro_batch, stage, recompute in itertools.product(
            (1, 2, 4, 8), (0, 1, 3), ("none", "selective", "full")
        ):
            if sequences % micro_batch:
                continue
            try:
                plan = Plan(
                    data=data,
                    tensor=tensor,
                    pipeline=pipeline,
                    expert=expert,
                    sequence=sequence,
                    micro_batch=micro_batch,
                    n_microbatches=sequences // micro_batch,
                    zero_stage=stage,
                    reduce_each_microbatch=stage >= 2,
                    sequence_parallel=tensor > 1,
                    recompute=recompute,
                )
                step = training_step(shape, plan, cluster)
            except ValueError:
                continue
            if step.fits and (fastest is None or step.seconds < fastest):
                fastest = step.seconds
    best = rank_placements(request).best
    assert best is not None
    assert best.seconds == pytest.approx(fastest, rel=1e-12)


def test_a_ranking_is_in_order_and_says_why_each_other_placement_loses():
    outcomes = rank_placements(Request(LLAMA3_8B, 16, 8192)).outcomes
    runs = [outcome.step is not None for outcome in outcomes]
    assert runs == sorted(runs, reverse=True)
    seconds = [outcome.step.seconds for outcome in outcomes if outcome.step]
    assert seconds == sorted(seconds)
    assert not outcomes[0].why
    assert all(outcome.why for outcome in outcomes[1:])


def test_why_names_what_costs_most_more():
    outcomes = rank_placements(Request(LLAMA3_8B, 16, 8192)).outcomes
    best = outcomes[0].step
    words = {
        "tensor": "tensor-parallel",
        "bubble": "bubble",
        "recompute": "run again",
        "data": "gradients",
    }
    judged = [outcome for outcome in outcomes[1:] if outcome.step]
    assert len(judged) > 3
    for outcome in judged:
        more = {part: getattr(outcome.step, part) - getattr(best, part) for part in words}
        worst = max(more, key=more.get)
        assert words[worst] in outcome.why


def test_a_model_that_fits_nowhere_is_refused_with_the_nearest_placement():
    with pytest.raises(NoPlacementError, match=r"405B on 8 GPUs: none of \d+ .* does not fit"):
        make_answer(Request(LLAMA3_405B, 8, 8192))
    request = Request(LLAMA3_405B, 16, 8192)
    needs = [o.needs for o in rank_placements(request).outcomes if o.needs is not None]
    with pytest.raises(NoPlacementError, match=re.escape(format_bytes(min(needs)))):
        make_answer(request)


def test_tokens_that_make_no_whole_sequences_are_refused_with_the_cure():
    with pytest.raises(NoPlacementError, match="multiple of 8192 tokens per GPU"):
        make_answer(Request(LLAMA3_8B, 8, 10007))


def test_a_pipeline_has_no_more_microbatches_than_can_be_played_through():
    request = Request(TINY, 4, 10**9, sequence=1, cluster=SMALL_NODES, pipeline=4)
    with pytest.raises(NoPlacementError, match="of which a pipeline may have 1024"):
        make_answer(request)


def test_a_step_that_takes_for_ever_is_refused():
    cluster = replace(H100_CLUSTER, mfu=5e-324)
    with pytest.raises(ValueError, match="longer than can be computed"):
        make_answer(Request(LLAMA3_8B, 8, 8192, cluster=cluster))


def test_progress_counts_to_the_end():
    seen = []
    rank_placements(Request(TINY, 4, 256, sequence=256), lambda *done: seen.append(done))
    assert [done for done, _ in seen] == list(range(len(seen)))
    assert seen[-1] == (len(seen) - 1,) * 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n_gpus": 12}, "do not fill nodes of 8"),
        ({"n_gpus": 0}, "n_gpus"),
        ({"tokens_per_gpu": 1}, "less than one sequence"),
        ({"tensor": 3}, "do not make up 64"),
        ({"tensor": 8, "pipeline": 2, "data": 2}, "8 x 2 x 2 GPUs do not make up 64"),
        ({"zero_stage": 4}, "choose 0, 1, 2 or 3"),
        ({"recompute": "some"}, "recompute is 'some'"),
        ({"micro_batch": -1}, "micro_batch"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        Request(**({"shape": LLAMA3_8B, "n_gpus": 64, "tokens_per_gpu": 8192} | change))


# --- calibration ----------------------------------------------------------------------------


@given(st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]), st.floats(1e9, 1e12))
def test_a_run_in_one_node_gives_the_link_of_a_gpu(op, beta):
    calibrated = calibrate(H100_CLUSTER, [run_of(op, beta=beta)])
    assert calibrated.cluster.beta_inter == H100_CLUSTER.beta_inter
    line = H100_CLUSTER.beta_intra
    if op == "all_reduce" and beta > line:  # only its bytes are fewer: the link is no faster
        assert calibrated.cluster.beta_intra == calibrated.fast.beta_intra == line
        assert calibrated.slow.beta_intra == min(0.99 * beta, line)
    else:
        assert calibrated.cluster.beta_intra == beta
        assert calibrated.slow.beta_intra < beta < calibrated.fast.beta_intra


@given(st.integers(2, 64), st.integers(1, 8), st.integers(1, 8))
def test_a_run_over_nodes_gives_one_interface(n_nodes, per_node, rails):
    cluster = replace(H100_CLUSTER, rails=rails)
    run = run_of(n_ranks=n_nodes * per_node, n_nodes=n_nodes, beta=300e9)
    calibrated = calibrate(cluster, [run])
    assert calibrated.cluster.beta_inter == pytest.approx(300e9 / min(per_node, rails))
    assert calibrated.cluster.beta_intra == cluster.beta_intra


def test_alpha_is_per_message_of_a_ring(tmp_path):
    for op, messages in (("all_reduce", 14), ("all_gather", 7), ("reduce_scatter", 7)):
        path = write_fit(
            tmp_path / "fit.json", fit_entry(op=op, alpha_s=70e-6, alpha_ci=[60e-6, 80e-6])
        )
        calibrated = calibrate(H100_CLUSTER, read_calibration(path))
        assert calibrated.cluster.alpha == pytest.approx(70e-6 / messages)
        assert calibrated.fast.alpha == pytest.approx(60e-6 / messages / 1.02)
        assert calibrated.slow.alpha == pytest.approx(80e-6 / messages * 1.02)


def test_a_run_that_could_not_tell_alpha_leaves_it_and_says_so(tmp_path):
    path = write_fit(tmp_path / "fit.json", fit_entry(alpha_s=None, alpha_ci=None))
    calibrated = calibrate(H100_CLUSTER, read_calibration(path))
    assert calibrated.cluster.alpha == H100_CLUSTER.alpha
    assert any("assumed" in remark for remark in calibrated.remarks)


def test_a_run_that_could_not_tell_beta_is_left_out(tmp_path):
    path = write_fit(tmp_path / "fit.json", fit_entry(beta_Bps=None, beta_ci=None), fit_entry())
    assert len(read_calibration(path)) == 1


def test_a_gather_is_preferred_to_an_all_reduce_that_the_switches_speed_up():
    runs = [run_of("all_reduce", beta=480e9), run_of("all_gather", beta=360e9)]
    assert calibrate(H100_CLUSTER, runs).cluster.beta_intra == 360e9
    alone = calibrate(H100_CLUSTER, runs[:1])
    assert alone.cluster.beta_intra == H100_CLUSTER.beta_intra
    assert any("above the line rate" in remark for remark in alone.remarks)


def test_the_link_and_alpha_come_from_the_largest_run_of_the_preferred_collective():
    runs = [
        run_of(n_ranks=16, n_nodes=2, beta=300e9, alpha=7e-6),
        run_of(n_ranks=64, n_nodes=8, beta=200e9, alpha=9e-6),
        run_of("all_reduce", n_ranks=128, n_nodes=16, beta=100e9, alpha=3e-6),
        run_of(alpha=2e-6),
    ]
    calibrated = calibrate(H100_CLUSTER, runs)
    assert calibrated.cluster.beta_inter == 25e9
    assert calibrated.cluster.alpha == 9e-6
    assert calibrated.slow.alpha > 9e-6 > calibrated.fast.alpha
    assert "two nodes flatter" not in " ".join(calibrated.remarks)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (run_of(n_ranks=16, n_nodes=2, beta=300e9), "two nodes flatter"),
        (run_of(n_ranks=32, n_nodes=4, beta=440e9), "a lower bound"),
        (run_of("all_reduce", alpha=4e-6), "often go by a tree"),
        (replace(run_of(), hardware="NVIDIA B200"), "of NVIDIA B200, 1 node"),
    ],
)
def test_what_is_to_be_known_of_a_run_is_said(run, words):
    assert words in " ".join(calibrate(H100_CLUSTER, [run]).remarks)
    healthy = [run_of(alpha=4e-6), run_of(n_ranks=32, n_nodes=4, beta=300e9, alpha=4e-6)]
    single = run_of(n_ranks=2, n_nodes=2, beta=440e9)
    assert words not in " ".join(calibrate(H100_CLUSTER, healthy).remarks)
    assert words not in " ".join(calibrate(H100_CLUSTER, [single]).remarks)


def test_a_run_on_an_unknown_number_of_nodes_is_not_used_and_named(tmp_path):
    path = write_fit(tmp_path / "fit.json", fit_entry(n_nodes=None, n_ranks=32, beta_Bps=360e9))
    unknown = read_calibration(path)
    calibrated = calibrate(H100_CLUSTER, [*unknown, run_of("all_reduce", beta=200e9)])
    assert calibrated.cluster.beta_intra == 200e9
    assert any("all_gather on 32 ranks (give" in remark for remark in calibrated.remarks)
    with pytest.raises(ValueError, match="how many nodes"):
        calibrate(H100_CLUSTER, unknown)


def test_alpha_of_a_call_whose_messages_nobody_counted_is_not_used(tmp_path):
    path = write_fit(tmp_path / "fit.json", fit_entry(messages=None), fit_entry(messages=10))
    unknown, counted = read_calibration(path)
    assert unknown.alpha is None
    assert counted.alpha.value == pytest.approx(3.5e-6)


def test_an_interval_holds_its_value(tmp_path):
    path = write_fit(tmp_path / "fit.json", fit_entry(beta_ci=[370e9, 380e9]))
    assert read_calibration(path)[0].beta == Interval(362e9, 362e9, 380e9)


def test_without_rows_held_out_the_error_of_the_points_counts(tmp_path):
    path = write_fit(tmp_path / "fit.json", fit_entry(heldout_median_rel_err=None))
    assert read_calibration(path)[0].error == 0.01


def test_runs_of_other_collectives_are_no_calibration():
    with pytest.raises(ValueError, match="no run of all_gather"):
        calibrate(H100_CLUSTER, [run_of("sendrecv", n_ranks=2)])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no JSON file"),
        ("[]", "is no calibration"),
        ('{"runs": 3}', "is no calibration"),
        ('{"runs": [3]}', "run 1 is not as"),
        ('{"runs": [{"op": "all_reduce"}]}', "run 1 is not as"),
        ('{"error": {"code": "no_rows", "message": "no rows: run it again."}}', "no rows: run"),
    ],
)
def test_a_file_that_is_no_calibration_is_refused(tmp_path, text, words):
    path = tmp_path / "fit.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=words):
        read_calibration(path)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), "fast", True])
def test_a_rate_that_cannot_be_is_refused(tmp_path, value):
    path = write_fit(tmp_path / "fit.json", fit_entry(beta_Bps=value, beta_ci=[value, value]))
    with pytest.raises(ValueError, match="run 1 is not as"):
        read_calibration(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_ranks": 1},
        {"n_ranks": 8.0},
        {"messages": 0},
        {"beta_Bps": 10**400},
        {"n_ranks": "8", "alpha_s": None},
        {"n_nodes": 0},
        {"n_nodes": 9},
        {"heldout_median_rel_err": float("nan")},
        {"heldout_median_rel_err": -0.1},
        {"beta_ci": [0.0, 370e9]},
        {"alpha_ci": [1e-6]},
    ],
    ids=str,
)
def test_an_entry_that_cannot_be_is_refused(tmp_path, changes):
    path = write_fit(tmp_path / "fit.json", fit_entry(**changes))
    with pytest.raises(ValueError, match="run 1 is not as"):
        read_calibration(path)


def test_the_interval_holds_the_answer_and_grows_with_the_fit_error():
    request = Request(LLAMA3_8B, 16, 8192)
    widths = []
    for error in (0.0, 0.2):
        runs = [run_of(error=error), run_of(n_ranks=16, n_nodes=2, beta=300e9, error=error)]
        calibrated = calibrate(H100_CLUSTER, runs)
        answer = make_answer(request, calibrated)
        for line in answer.lines:
            if line.interval:
                assert line.interval[0] <= line.seconds <= line.interval[1]
        ends = [
            training_step(LLAMA3_8B, answer.best.plan, cluster).seconds
            for cluster in (calibrated.fast, calibrated.slow)
        ]
        assert list(answer.interval) == ends
        fast, slow = answer.interval
        widths.append(slow - fast)
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]


def test_placements_that_the_fit_cannot_tell_apart_are_named():
    # With few tokens the links decide.
    request = Request(LLAMA3_8B, 16, 1024, sequence=1024)
    vague = [run_of(spread=0.5), run_of(n_ranks=16, n_nodes=2, beta=300e9, spread=0.5)]
    answer = make_answer(request, calibrate(H100_CLUSTER, vague))
    overlap = [line.interval and line.interval[0] <= answer.interval[1] for line in answer.lines]
    assert (
        answer.undecided
        == [line for line, near in zip(answer.lines, overlap, strict=True) if near][1:]
    )
    assert any(line.interval[1] > answer.interval[1] for line in answer.undecided)
    request = Request(LLAMA3_8B, 16, 8192)
    exact = [run_of(spread=0, error=0), run_of(n_ranks=16, n_nodes=2, spread=0, error=0)]
    assert not make_answer(request, calibrate(H100_CLUSTER, exact)).undecided


# --- names and files ------------------------------------------------------------------------


def test_each_name_gives_its_model_and_cluster():
    assert all(find_model(name) is shape for name, shape in MODELS.items())
    assert all(find_cluster(name) is cluster for name, cluster in CLUSTERS.items())
    with pytest.raises(ValueError, match="there is no model and no file 'gpt-9'"):
        find_model("gpt-9")
    with pytest.raises(ValueError, match="there is no cluster 'v100'"):
        find_cluster("v100")


@pytest.mark.parametrize("shape", [LLAMA3_8B, MIXTRAL_8X7B])
def test_a_configuration_file_gives_the_shape_it_describes(tmp_path, shape):
    config = {
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "intermediate_size": shape.ffn,
        "vocab_size": shape.vocab,
    }
    if shape.n_experts > 1:
        config |= {"num_local_experts": 8, "num_experts_per_tok": 2}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    assert find_model(str(path)) == replace(shape, name=tmp_path.name)
    for missing in ("hidden_size", "vocab_size"):
        path.write_text(json.dumps({k: v for k, v in config.items() if k != missing}))
        with pytest.raises(ValueError, match=f"does not say {missing}"):
            find_model(str(path))
    path.write_text(json.dumps(config | {"hidden_size": "4096"}))
    with pytest.raises(ValueError, match="hidden is '4096'"):
        find_model(str(path))


# --- the answer -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def answer():
    runs = [run_of(), run_of(n_ranks=16, n_nodes=2, beta=300e9, alpha=6e-6)]
    return make_answer(Request(LLAMA3_8B, 16, 8192), calibrate(H100_CLUSTER, runs))


def test_the_data_adds_up(answer):
    data = json.loads(json.dumps(as_data(answer)))
    best = data["best"]
    parts = ("compute_s", "recompute_s", "tensor_s", "expert_s", "data_exposed_s", "bubble_s")
    step = answer.best
    assert best["tokens_per_second_per_gpu"] * 16 == best["tokens_per_second"]
    assert best["exposed_share"] == step.exposed
    assert best["memory"]["capacity"] == 80e9
    assert best["memory_bytes"] == step.memory.total < 80e9
    assert data["cluster"]["beta_intra_Bps"] == 400e9
    assert data["cluster"]["beta_inter_Bps"] == 300e9 / 8
    assert all(item["n_ranks"] > 1 for item in best["collectives"])
    assert sum(best[part] for part in parts) == pytest.approx(best["seconds"], rel=1e-12)
    memory = best["memory"]
    kept = ("parameters", "gradients", "optimizer", "activations", "gathered")
    assert sum(memory[part] for part in kept) == pytest.approx(memory["total"], rel=1e-12)
    assert best["tokens_per_second"] * best["seconds"] == pytest.approx(16 * 8192)
    assert len(data["placements"]) == len(answer.lines)
    for item in best["collectives"]:
        assert item["seconds"] == pytest.approx(item["count"] * item["seconds_each"])


def test_the_text_says_what_the_data_says(answer):
    text = "\n".join(text_lines(answer, top=3))
    assert "(9 more" in text or f"({len(answer.lines) - 3} more" in text
    for line in answer.lines[:3]:
        assert str(line.outcome.placement) in text
    for item in as_data(answer)["best"]["collectives"]:
        assert item["what"] in text
    assert all(remark in text for remark in answer.remarks)


def test_the_figure_draws_the_parts_of_each_step(answer):
    figure = Figure(figsize=(6.6, placement_height(len(answer.lines))))
    drawn = placement_steps(figure, answer=answer)
    for number, line in enumerate(answer.lines[: len(drawn["placements"])]):
        assert drawn["placements"][number] == str(line.outcome.placement)
        parts = (drawn[name][number] for name in ("compute", "communication", "bubble"))
        assert sum(parts) == pytest.approx(line.seconds)
    widths = [patch.get_width() for patch in figure.axes[0].patches]
    shown = answer.lines[: len(drawn["placements"])]
    assert sum(widths) == pytest.approx(sum(line.seconds for line in shown))


# --- the command ----------------------------------------------------------------------------


def test_the_command_prints_json_without_torch_or_matplotlib(tmp_path):
    calibration = write_fit(tmp_path / "fit.json", fit_entry())
    code = (
        "import sys; from commlab.cli import main; "
        "status = main(['plan', 'llama-8b', '--gpus', '8', '--json', *sys.argv[1:]]); "
        "heavy = {'torch', 'matplotlib'} & set(sys.modules); sys.exit(status or len(heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--calibration", str(calibration)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    data = json.loads(done.stdout)
    assert data["format"] == "commlab plan 1"
    assert data["cluster"]["beta_intra_Bps"] == 362e9
    assert data["best"]["seconds_interval"][0] < data["best"]["seconds_interval"][1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["llama-8b", "--gpus", "12"], "do not fill nodes"),
        (["llama-405b", "--gpus", "8"], "none of"),
        (["llama-8b", "--gpus", "8", "--cluster", "v100"], "no cluster 'v100'"),
        (["llama-8b", "--gpus", "8", "--top", "0"], "at least 1"),
        (["llama-8b", "--gpus", "8", "--calibration", "nowhere.json"], "cannot be read"),
        (["llama-8b", "--gpus", "8", "--plot", "steps.gif"], "name a file that ends in"),
        (["llama-8b", "--gpus", "8", "--plot", "no/such/steps.png"], "no folder"),
        (["llama-8b", "--gpus", "8", "--mfu", "40"], "mfu is a part"),
        (["llama-8b", "--gpus", "8", "--interfaces", "9"], "rails is 9"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_one_line(arguments, words, capsys):
    from commlab.cli import REFUSED, main

    assert main(["plan", *arguments]) == REFUSED
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("commlab plan: ")
    assert err.count("\n") == 1
    assert words in err


@pytest.mark.parametrize(
    "option", [("--alpha", "5 parsecs"), ("--beta-intra", "450"), ("--memory", "x")]
)
def test_a_figure_without_its_unit_is_refused(option, capsys):
    from commlab.cli import REFUSED, main

    with pytest.raises(SystemExit) as stop:
        main(["plan", "llama-8b", "--gpus", "8", *option])
    assert stop.value.code == REFUSED
    assert "cannot read" in capsys.readouterr().err


def test_a_rate_that_looks_like_a_slip_of_units_is_noted_in_one_line(capsys):
    from commlab.cli import DONE, main

    assert main(["plan", "llama-8b", "--gpus", "8", "--beta-inter", "50B/s", "--json"]) == DONE
    out, err = capsys.readouterr()
    assert json.loads(out)["cluster"]["beta_inter_Bps"] == 50
    assert err.startswith("commlab plan: note: beta_inter = 50.0 is below 1 MB/s")
    assert err.count("\n") == 1


def test_the_command_takes_the_links_that_are_given(tmp_path, capsys):
    from commlab.cli import DONE, main

    figure = tmp_path / "steps.png"
    arguments = ["--alpha", "7us", "--beta-intra", "200GB/s", "--beta-inter", "25 GB/s"]
    more = ["--memory", "141GB", "--mfu", "0.5", "--plot", str(figure), "--json"]
    assert main(["plan", "llama-8b", "--gpus", "16", *arguments, *more]) == DONE
    cluster = json.loads(capsys.readouterr().out)["cluster"]
    assert cluster["alpha_s"] == pytest.approx(7e-6)
    assert cluster["beta_intra_Bps"] == 200e9
    assert cluster["beta_inter_Bps"] == 25e9
    assert cluster["gpu_memory"] == 141e9
    assert cluster["mfu"] == 0.5
    assert figure.read_bytes().startswith(b"\x89PNG")
