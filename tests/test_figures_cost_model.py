"""The figures of §4 return what they draw, and what they draw is what commlab computes."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

import commlab
from commlab.algorithms import REGISTRY, hierarchical_all_reduce
from commlab.figures import cost_model, style
from commlab.hardware import ALPHA, INFINIBAND, NVLINK
from commlab.units import GIB, KIB, MIB

FLAT = {"alpha": ALPHA, "beta": NVLINK}
NODES = {"alpha": ALPHA, "beta_intra": NVLINK, "beta_inter": INFINIBAND}
EXACT = 1e-12


def drawn(draw, **params):
    """Draw on a fresh figure; return it with the data."""
    fig = Figure(figsize=style.FIGURE_SIZE)
    return fig, draw(fig, **params)


def curve(fig, label):
    """The drawn points of the curve with this label."""
    (line,) = [line for line in fig.axes[0].lines if line.get_label() == label]
    return np.asarray(line.get_xdata()), np.asarray(line.get_ydata())


def marker(fig):
    """The point at which the one dot stands."""
    (dot,) = [line for line in fig.axes[0].lines if line.get_marker() == "o"]
    return float(dot.get_xdata()[0]), float(dot.get_ydata()[0])


def markers(fig):
    return [line for line in fig.axes[0].lines if line.get_marker() == "o"]


def bars(collection):
    """Left end and width of each bar of a row."""
    boxes = [path.get_extents() for path in collection.get_paths()]
    return np.array([(box.x0, box.width) for box in boxes])


def test_message_time_is_latency_plus_transfer():
    fig, data = drawn(cost_model.message_time, **FLAT)
    np.testing.assert_allclose(data["seconds"], ALPHA + data["nbytes"] / NVLINK, rtol=EXACT)
    x, y = curve(fig, "α + n / β")
    np.testing.assert_array_equal(x, data["nbytes"])
    np.testing.assert_array_equal(y, data["seconds"])


def test_message_marker_stands_where_both_costs_are_equal():
    fig, data = drawn(cost_model.message_time, **FLAT)
    assert data["half_size"] / NVLINK == pytest.approx(ALPHA, rel=EXACT)
    assert marker(fig) == (data["half_size"], data["half_seconds"])
    assert data["half_seconds"] == pytest.approx(2 * ALPHA, rel=EXACT)


@pytest.mark.parametrize("nbytes", [16 * KIB, 16 * MIB, GIB])
def test_step_timelines_add_up_to_the_closed_forms(nbytes):
    fig, data = drawn(cost_model.step_timelines, nbytes=nbytes, n_ranks=8, **FLAT)
    assert {name: len(steps) for name, steps in data["by_step"].items()} == {
        "ring": 14,
        "binomial_tree": 6,
        "naive": 14,
    }
    longest = max(data["totals"].values())
    # Three collections a row: the latencies, the bytes, the lines between steps.
    rows = [fig.axes[0].collections[i : i + 2] for i in (0, 3, 6)]
    for name, (latency, moving) in zip(data["names"], rows, strict=True):
        closed = REGISTRY["all_reduce", name].closed_form(nbytes, 8, ALPHA, NVLINK)
        assert data["totals"][name] == pytest.approx(closed, rel=EXACT)
        assert data["by_step"][name].sum() == pytest.approx(closed, rel=EXACT)
        np.testing.assert_allclose(bars(latency)[:, 1] * longest, ALPHA, rtol=1e-9)
        widths = (bars(latency)[:, 1] + bars(moving)[:, 1]) * longest
        np.testing.assert_allclose(widths, data["by_step"][name], rtol=1e-9)


def test_step_timelines_name_the_fastest():
    small, _ = drawn(cost_model.step_timelines, nbytes=16 * KIB, n_ranks=8, **FLAT)
    large, _ = drawn(cost_model.step_timelines, nbytes=16 * MIB, n_ranks=8, **FLAT)
    assert "the tree" in small.axes[0].get_title(loc="left")
    assert "the ring" in large.axes[0].get_title(loc="left")


@pytest.mark.parametrize("n_ranks", [4, 5, 8, 64, 256])
@pytest.mark.parametrize("beta", [NVLINK, INFINIBAND])
def test_ring_and_tree_cross_at_the_marker(n_ranks, beta):
    fig, data = drawn(cost_model.ring_vs_tree, n_ranks=n_ranks, alpha=ALPHA, beta=beta)
    for label, key, closed_form in (
        ("ring", "ring", commlab.alpha_beta_ring_allreduce),
        ("binomial tree", "tree", commlab.alpha_beta_tree_allreduce),
    ):
        x, y = curve(fig, label)
        np.testing.assert_array_equal(y, data[key])
        np.testing.assert_allclose(y, closed_form(x, n_ranks, ALPHA, beta), rtol=EXACT)
    x, y = marker(fig)
    assert (x, y) == (data["crossover"], data["crossover_seconds"])
    ring = commlab.alpha_beta_ring_allreduce(x, n_ranks, ALPHA, beta)
    tree = commlab.alpha_beta_tree_allreduce(x, n_ranks, ALPHA, beta)
    assert ring == pytest.approx(tree, rel=EXACT)
    assert y == pytest.approx(ring, rel=EXACT)
    below, above = data["nbytes"] < x, data["nbytes"] > x
    assert (data["tree"] < data["ring"])[below].all()
    assert (data["ring"] < data["tree"])[above].all()


@pytest.mark.parametrize("n_ranks", [2, 3])
def test_two_and_three_ranks_have_no_crossover(n_ranks):
    fig, data = drawn(cost_model.ring_vs_tree, n_ranks=n_ranks, **FLAT)
    assert data["crossover"] == 0
    assert markers(fig) == []
    assert (data["ring"] <= data["tree"]).all()


def test_crossover_of_eight_ranks_as_in_the_lecture():
    _, data = drawn(cost_model.ring_vs_tree, n_ranks=8, **FLAT)
    assert data["crossover"] / MIB == pytest.approx(4.03909, abs=5e-6)
    assert data["crossover_seconds"] * 1e6 == pytest.approx(86.4706, abs=5e-5)


@pytest.mark.parametrize("n_ranks", [2, 8, 1024])
def test_half_of_the_bandwidth_is_reached_at_the_marker(n_ranks):
    fig, data = drawn(cost_model.effective_bandwidth, n_ranks=n_ranks, **FLAT)
    seconds = commlab.alpha_beta_ring_allreduce(data["nbytes"], n_ranks, ALPHA, NVLINK)
    np.testing.assert_allclose(data["algbw"], data["nbytes"] / seconds, rtol=EXACT)
    factor = 2 * (n_ranks - 1) / n_ranks
    np.testing.assert_allclose(data["busbw"], factor * data["algbw"], rtol=EXACT)
    np.testing.assert_array_equal(curve(fig, "busbw")[1], data["busbw"])
    np.testing.assert_array_equal(curve(fig, "algbw")[1], data["algbw"])
    x, y = marker(fig)
    assert x == pytest.approx(n_ranks * ALPHA * NVLINK, rel=EXACT)
    assert y == pytest.approx(NVLINK / 2, rel=EXACT)
    assert (data["busbw"] < NVLINK).all()
    assert (np.diff(data["busbw"]) > 0).all()


def test_hierarchy_diagram_joins_rows_then_columns_then_rows():
    fig, data = drawn(cost_model.hierarchy_diagram, n_nodes=3, gpus_per_node=4)
    inside, across, again = data["groups"]
    everyone = {(node, gpu) for node in range(3) for gpu in range(4)}
    for groups in data["groups"]:
        members = [member for group in groups for member in group]
        assert len(members) == 12
        assert set(members) == everyone
    assert all(len({node for node, _ in group}) == 1 for group in inside)
    assert all(len({gpu for _, gpu in group}) == 1 for group in across)
    assert again == inside
    for ax, groups in zip(fig.axes, data["groups"], strict=True):
        dots = [line for line in ax.lines if line.get_marker() == "s"]
        drawn_groups = [list(zip(dot.get_ydata(), dot.get_xdata(), strict=True)) for dot in dots]
        assert drawn_groups == groups


@pytest.mark.parametrize(("n_nodes", "gpus_per_node"), [(2, 8), (8, 8), (32, 4)])
def test_hierarchical_and_rails_cross_at_the_marker(n_nodes, gpus_per_node):
    cluster = (n_nodes, gpus_per_node, ALPHA, NVLINK, INFINIBAND)
    fig, data = drawn(
        cost_model.hierarchical_vs_flat, n_nodes=n_nodes, gpus_per_node=gpus_per_node, **NODES
    )
    x, y = marker(fig)
    assert x == data["crossover"]
    two_level = commlab.hierarchical_allreduce_time(x, *cluster)
    rails = commlab.flat_ring_over_nodes_time(x, *cluster, rails=gpus_per_node)
    assert two_level == pytest.approx(rails, rel=1e-9)
    assert y == pytest.approx(two_level, rel=EXACT)
    below = data["nbytes"] < x
    np.testing.assert_array_equal(data["hierarchical"] < data["multi_rail_ring"], below)


def test_hierarchical_curves_are_the_closed_forms():
    cluster = (8, 8, ALPHA, NVLINK, INFINIBAND)
    fig, data = drawn(cost_model.hierarchical_vs_flat, n_nodes=8, gpus_per_node=8, **NODES)
    sizes = data["nbytes"]
    for label, key, seconds in (
        (
            "flat ring, 1 NIC at a time",
            "one_nic_ring",
            commlab.flat_ring_over_nodes_time(sizes, *cluster, rails=1),
        ),
        (
            "flat rings over all rails",
            "multi_rail_ring",
            commlab.flat_ring_over_nodes_time(sizes, *cluster, rails=8),
        ),
        ("hierarchical", "hierarchical", commlab.hierarchical_allreduce_time(sizes, *cluster)),
    ):
        np.testing.assert_array_equal(data[key], seconds)
        np.testing.assert_array_equal(curve(fig, label)[1], seconds)
    np.testing.assert_allclose(
        data["speedup"], data["one_nic_ring"] / data["hierarchical"], rtol=EXACT
    )


def test_one_node_has_nothing_to_cross():
    cluster = (1, 8, ALPHA, NVLINK, INFINIBAND)
    assert commlab.hierarchical_ring_crossover(*cluster) is None


def test_three_ways_as_in_the_lecture():
    _, data = drawn(cost_model.three_ways_over_nodes, rails=8, **NODES)
    assert data["one_nic_ring"] * 1e3 == pytest.approx(42.9086, abs=5e-5)
    assert data["hierarchical"] * 1e3 == pytest.approx(9.01328, abs=5e-6)
    assert data["multi_rail_ring"] * 1e3 == pytest.approx(5.91482, abs=5e-6)
    assert data["one_nic_ring"] / data["hierarchical"] == pytest.approx(4.76059, abs=5e-6)


@pytest.mark.parametrize("rails", range(1, 9))
def test_three_ways_equal_the_price_of_the_schedules(rails):
    _, data = drawn(cost_model.three_ways_over_nodes, rails=rails, **NODES)
    topology = commlab.node_topology(8, 8, ALPHA, NVLINK, INFINIBAND, rails=rails)
    two_level = commlab.price(hierarchical_all_reduce(64, 8), topology, GIB)
    ring = commlab.price(REGISTRY["all_reduce", "ring"].build(64), topology, GIB)
    assert data["hierarchical"] == pytest.approx(two_level.total, rel=EXACT)
    assert data["one_nic_ring"] == pytest.approx(ring.total, rel=EXACT)
    by_phase = np.split(two_level.by_step, [7, 21])
    assert data["phases"] == pytest.approx([steps.sum() for steps in by_phase], rel=EXACT)


def test_three_ways_bars_have_the_lengths_of_the_times():
    fig, data = drawn(cost_model.three_ways_over_nodes, rails=8, **NODES)
    longest = data["one_nic_ring"]
    widths = [bars(row)[0, 1] * longest for row in fig.axes[0].collections]
    expected = [data["one_nic_ring"], *data["phases"], data["multi_rail_ring"]]
    assert widths == pytest.approx(expected)
    lefts = [bars(row)[0, 0] * longest for row in fig.axes[0].collections[1:4]]
    assert lefts == pytest.approx([0, data["phases"][0], sum(data["phases"][:2])], abs=1e-9)


@pytest.mark.parametrize("n_ranks", [4, 8, 16, 64])
def test_doubling_wins_everywhere_for_powers_of_two(n_ranks):
    fig, data = drawn(cost_model.distance_to_best, n_ranks=n_ranks, **FLAT)
    assert data["winners"] == ["recursive doubling", "halving-doubling"]
    for name in ("ring", "binomial tree"):
        assert (data["ratios"][name] > 1).all()
        np.testing.assert_array_equal(curve(fig, name)[1], data["ratios"][name])


@pytest.mark.parametrize("n_ranks", [6, 12, 48])
def test_the_ring_wins_large_messages_for_other_numbers(n_ranks):
    _, data = drawn(cost_model.distance_to_best, n_ranks=n_ranks, **FLAT)
    assert data["winners"][0] == "recursive doubling"
    assert data["winners"][-1] == "ring"
    assert data["ratios"]["ring"][-1] == 1
    assert data["ratios"]["halving-doubling"][-1] > 1.9


def test_ratios_are_times_over_the_fastest():
    _, data = drawn(cost_model.distance_to_best, n_ranks=16, **FLAT)
    best = np.min(list(data["ratios"].values()), axis=0)
    np.testing.assert_array_equal(best, np.ones_like(best))
    sizes = (data["nbytes"], 16, ALPHA, NVLINK)
    ring_to_tree = commlab.alpha_beta_ring_allreduce(*sizes) / commlab.alpha_beta_tree_allreduce(
        *sizes
    )
    shown = data["ratios"]["ring"] / data["ratios"]["binomial tree"]
    np.testing.assert_allclose(shown, ring_to_tree, rtol=EXACT)


def test_titles_state_the_message():
    fig, _ = drawn(cost_model.ring_vs_tree, n_ranks=8, **FLAT)
    assert "4.04 MiB" in fig.axes[0].get_title(loc="left")
    fig, _ = drawn(cost_model.three_ways_over_nodes, rails=8, **NODES)
    assert "4.76 times" in fig.axes[0].get_title(loc="left")
