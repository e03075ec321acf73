"""Figures of §7 draw what the budget computes: memory, groups, pipelines, experts, plans."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch

from commlab.budget import (
    H100_CLUSTER,
    Plan,
    activation_memory,
    bubble_fraction,
    compute_time,
    data_parallel,
    expert_loads,
    simulate_pipeline,
    tensor_parallel,
    training_state,
    training_step,
)
from commlab.explore.render import FIGURE_RC
from commlab.figures import budget, style
from commlab.figures.budget.memory import PARTS
from commlab.figures.budget.panels import boxes
from commlab.figures.memory_bars import LONGEST
from commlab.models import LLAMA3_8B, LLAMA3_70B, LLAMA3_405B, MIXTRAL_8X7B


def drawn(draw, **params):
    with mpl.rc_context(FIGURE_RC):
        fig = Figure(figsize=style.FIGURE_SIZE)
        return fig, draw(fig, **params)


def corners(ax, colour) -> np.ndarray:
    """(left, bottom, width, height) of the boxes of one colour, row by row."""
    found = []
    for patch in ax.patches:
        if isinstance(patch, PathPatch) and patch.get_facecolor() == to_rgba(colour):
            points = patch.get_path().vertices.reshape(-1, 5, 2)
            low, high = points.min(axis=1), points.max(axis=1)
            found.append(np.concatenate([low, high - low], axis=1))
    return np.concatenate(found) if found else np.empty((0, 4))


def headline(fig: Figure) -> str:
    return fig.get_suptitle() or fig.axes[0].get_title(loc="left")


def test_boxes_of_nothing_draw_nothing():
    ax = Figure().add_subplot()
    boxes(ax, [], [], [], 1.0, style.COMPUTE)
    assert len(ax.patches) == 0


# ----------------------------------------------------------------- memory


@pytest.mark.parametrize("shape", [LLAMA3_8B, MIXTRAL_8X7B, LLAMA3_405B], ids=lambda s: s.name)
@pytest.mark.parametrize(("n_gpus", "tokens"), [(2, 0), (64, 8192), (1024, 32768)])
def test_memory_by_stage(shape, n_gpus, tokens):
    fig, data = drawn(budget.memory_by_stage, n_gpus=n_gpus, tokens=tokens, shape=shape)
    for stage in range(4):
        state = training_state(shape.parameters, n_gpus, stage)
        assert data["parameters"][stage] == pytest.approx(state.parameters)
        assert data["optimizer"][stage] == pytest.approx(state.optimizer)
        kept = activation_memory(shape, tokens).total if tokens else 0.0
        assert data["activations"][stage] == pytest.approx(kept)
        assert data["total"][stage] == pytest.approx(sum(data[name][stage] for name in PARTS))
    bars = np.array([bar.get_width() for bar in fig.axes[0].patches]).reshape(len(PARTS), 4)
    np.testing.assert_allclose(bars.sum(axis=0), np.minimum(data["total"], LONGEST))


def test_memory_names_the_first_stage_that_fits():
    fig, data = drawn(budget.memory_by_stage)
    assert data["fits"] == 2
    assert "ZeRO-2 is the first to fit" in headline(fig)
    fig, data = drawn(budget.memory_by_stage, shape=LLAMA3_70B, n_gpus=1024)
    assert data["fits"] is None
    assert "nothing fits" in headline(fig)


@pytest.mark.parametrize("n_gpus", [8, 64, 1024])
def test_more_gpus_leave_activations_and_gathered_layers_alone(n_gpus):
    data = drawn(budget.memory_by_stage, n_gpus=n_gpus)[1]
    reference = drawn(budget.memory_by_stage, n_gpus=16)[1]
    assert data["activations"] == reference["activations"]
    assert data["gathered"] == reference["gathered"]


# ----------------------------------------------------------------- tensor parallelism


@pytest.mark.parametrize("tokens", [1024, 32768])
def test_tensor_sizes_inside_and_across_nodes(tokens):
    inside = drawn(budget.tensor_parallel_size, tokens=tokens, gpus_per_node=64)[1]
    across = drawn(budget.tensor_parallel_size, tokens=tokens, gpus_per_node=1)[1]
    for place, n_ranks in enumerate(budget.TENSOR_RANKS):
        step = tensor_parallel(LLAMA3_8B, tokens, n_ranks, across_nodes=True)
        assert across["all_reduce"][place] == pytest.approx(step.seconds)
        assert across["compute"][place] == pytest.approx(step.compute_seconds)
        sharded = tensor_parallel(
            LLAMA3_8B, tokens, n_ranks, across_nodes=True, sequence_parallel=True
        )
        assert across["sequence_parallel"][place] == pytest.approx(sharded.seconds)
        if n_ranks <= 8:
            step = tensor_parallel(LLAMA3_8B, tokens, n_ranks)
            assert inside["all_reduce"][place] == pytest.approx(step.seconds)


def test_tensor_figure_says_what_the_page_says():
    fig, data = drawn(budget.tensor_parallel_size)
    assert headline(fig) == "TP = 8: 143 ms of all-reduces, 29% of compute"
    np.testing.assert_allclose(data["sequence_parallel"], 1.25 * data["all_reduce"])
    assert np.all(data["activations_sequence_parallel"][1:] < data["activations"][1:])
    time, kept = fig.axes
    np.testing.assert_array_equal(time.lines[0].get_ydata(), data["compute"])
    np.testing.assert_array_equal(time.lines[1].get_ydata(), data["all_reduce"][1:])
    np.testing.assert_array_equal(kept.lines[0].get_ydata(), data["activations"])


@pytest.mark.parametrize("tokens", [1024, 65536])
@pytest.mark.parametrize("gpus_per_node", [1, 8, 64])
def test_no_curve_of_the_tensor_figure_leaves_its_axes(tokens, gpus_per_node):
    fig, _ = drawn(budget.tensor_parallel_size, tokens=tokens, gpus_per_node=gpus_per_node)
    for ax in fig.axes:
        low, high = ax.get_ylim()
        for line in ax.lines:
            if len(line.get_ydata()) > 2:
                assert low < min(line.get_ydata())
                assert max(line.get_ydata()) < high


# ----------------------------------------------------------------- pipelines


@pytest.mark.parametrize("n_stages", [2, 5, 8])
@pytest.mark.parametrize("n_microbatches", [1, 4, 12])
def test_lanes_are_the_simulated_operations(n_stages, n_microbatches):
    fig, data = drawn(budget.pipeline_lanes, n_stages=n_stages, n_microbatches=n_microbatches)
    ax = fig.axes[0]
    for schedule, numbers in data.items():
        timeline = simulate_pipeline(n_stages, n_microbatches, 1.0, 2.0, schedule=schedule)
        assert numbers["seconds"] == timeline.seconds
        assert numbers["bubble"] == pytest.approx(bubble_fraction(n_stages, n_microbatches))
        assert numbers["in_flight"] == list(timeline.in_flight())
    both = 2 * n_stages * n_microbatches
    forward, backward = corners(ax, style.ALTERNATIVE), corners(ax, style.COMPUTE)
    assert len(forward) == len(backward) == both
    assert np.all(forward[:, 2] == 1.0)
    assert np.all(backward[:, 2] == 2.0)
    assert len(corners(ax, style.WAIT)) == 2 * n_stages
    # No two operations of a lane overlap.
    everything = np.concatenate([forward, backward])
    for lane in np.unique(everything[:, 1]):
        mine = everything[everything[:, 1] == lane]
        mine = mine[np.argsort(mine[:, 0])]
        assert np.all(mine[1:, 0] >= mine[:-1, 0] + mine[:-1, 2] - 1e-9)


def test_numbers_are_those_of_the_microbatches():
    fig, _ = drawn(budget.pipeline_lanes, n_stages=2, n_microbatches=3, numbered=True)
    written = [text.get_text() for text in fig.axes[0].texts if text.get_ha() == "center"]
    assert sorted(written) == sorted("012" * 2 * 2 * 2)


def test_interleaved_lanes_are_shorter_and_keep_more():
    _, data = drawn(budget.pipeline_lanes, schedules=("1f1b", "interleaved"))
    assert data["interleaved"]["seconds"] < data["1f1b"]["seconds"]
    assert data["interleaved"]["in_flight"][0] == 5.5 > data["1f1b"]["in_flight"][0]


def test_unknown_schedules_and_counts_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="'gpipe', '1f1b' or 'interleaved'"):
        drawn(budget.pipeline_lanes, schedules=("2f2b",))
    with pytest.raises(ValueError, match="choose a multiple"):
        drawn(budget.pipeline_lanes, n_microbatches=6, schedules=("interleaved",))


# ----------------------------------------------------------------- experts


@pytest.mark.parametrize("share", budget.HOTTEST_SHARES)
@pytest.mark.parametrize("capacity", budget.CAPACITIES)
def test_loads_of_experts_add_up(share, capacity):
    fig, data = drawn(budget.hot_expert, hottest_share=share, capacity=capacity)
    wanted = data["processed"] + data["dropped"]
    np.testing.assert_allclose(wanted, 8 * expert_loads(8, share))
    if capacity:
        np.testing.assert_allclose(data["processed"] + data["empty"], capacity)
        assert data["slowdown"] == pytest.approx(capacity)
        assert data["dropped_share"] == pytest.approx(data["dropped"].sum() / 8)
    else:
        assert data["slowdown"] == pytest.approx(8 * share)
        assert not data["dropped"].any()
    for ax, highest in (
        (fig.axes[0], (wanted + data["empty"]).max()),
        (fig.axes[1], data["compute"] + data["across"]),
    ):
        assert ax.get_ylim()[1] > highest
    blue = corners(fig.axes[0], style.ALTERNATIVE)
    np.testing.assert_allclose(blue[:, 3], data["processed"])


def test_balanced_experts_are_those_of_the_lecture():
    data = drawn(budget.hot_expert, hottest_share=0.125)[1]
    assert 1e3 * data["in_node"] == pytest.approx(0.270979, abs=5e-7)
    assert 1e3 * data["across"] == pytest.approx(2.35881, abs=5e-6)
    forward = compute_time(LLAMA3_8B.mlp_parameters, 8192) / 3
    assert data["compute"] == pytest.approx(forward)


# ----------------------------------------------------------------- plans


@pytest.mark.parametrize("order", budget.ORDERS, ids="-".join)
@pytest.mark.parametrize("sizes", budget.PLANS)
def test_plan_figure_shows_the_training_step(sizes, order):
    fig, data = drawn(budget.plan_placement, sizes=sizes, order=order)
    tensor, pipeline = sizes
    copies = 64 // (tensor * pipeline)
    plan = Plan(
        data=copies,
        tensor=tensor,
        pipeline=pipeline,
        n_microbatches=256 // copies,
        zero_stage=1,
        sequence_parallel=True,
        order=order,
    )
    step = training_step(LLAMA3_70B, plan)
    assert plan.tokens == 256 * 8192
    assert sum(data["seconds"].values()) == pytest.approx(step.seconds)
    assert data["memory"] == step.memory.total
    assert ("too much" in headline(fig)) == (not step.fits)
    nodes, bar = fig.axes
    assert bar.get_ylim()[1] > step.seconds
    for axis, colour in (("tensor", style.COMMUNICATION), ("pipeline", style.THIRD)):
        squares = corners(nodes, colour)
        ranks = (squares[:, 1] * 8 + squares[:, 0]).round().astype(int)
        assert sorted(ranks) == data["partners"][axis][1:]


def test_data_parallel_step_at_other_rates_uses_them():
    halved = drawn(budget.data_parallel_step, beta_inter=25e9)[1]
    full = drawn(budget.data_parallel_step)[1]
    for place, n_gpus in enumerate(budget.GPUS):
        slower = halved["hierarchical"][place] > full["hierarchical"][place]
        assert slower == (n_gpus > H100_CLUSTER.gpus_per_node)
    at_64 = full["hierarchical"][budget.GPUS.index(64)]
    assert at_64 == data_parallel(LLAMA3_8B.parameters, 64).seconds
