"""Figures of §1 and §7 return what commlab computes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from commlab import hardware
from commlab.budget import (
    H100_CLUSTER,
    compute_time,
    data_parallel,
    expert_parallel,
    tensor_parallel,
    training_state,
)
from commlab.figures import budget, why
from commlab.models import LLAMA3_8B, LLAMA3_405B
from tests.notebook_explorers import explorers_of

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
WHY = NOTEBOOKS / "01_why_one_gpu_is_not_enough.ipynb"
BUDGET = NOTEBOOKS / "07_communication_budget.ipynb"


def drawn_line(fig: Figure, label: str) -> np.ndarray:
    (line,) = [line for line in fig.axes[0].lines if line.get_label() == label]
    return line.get_ydata()


# ----------------------------------------------------------------- §1


@pytest.mark.parametrize("parameters", [5e8, LLAMA3_8B.parameters, LLAMA3_405B.parameters])
@pytest.mark.parametrize("memory", [16e9, 80e9, 192e9])
def test_memory_wall(parameters, memory):
    fig = Figure()
    data = why.memory_wall(fig, parameters=parameters, memory=memory)
    for place, n_ranks in enumerate(why.RANKS):
        assert data["copies"][place] == 16 * parameters
        assert data["all_shards"][place] == pytest.approx(16 * parameters / n_ranks)
        assert data["optimizer_shards"][place] == training_state(parameters, n_ranks, 1).total
    assert training_state(parameters, data["fits"], 3).total <= memory
    if data["fits"] > 1:
        assert training_state(parameters, data["fits"] // 2, 3).total > memory
    shown = drawn_line(fig, "all sharded (ZeRO-3 / FSDP)")
    np.testing.assert_array_equal(shown, data["all_shards"])
    assert fig.axes[0].get_ylim()[1] > data["copies"].max()


def test_memory_wall_that_even_1024_shards_do_not_pass():
    fig = Figure()
    assert why.memory_wall(fig, parameters=2e12, memory=16e9)["fits"] is None
    assert "still do not fit" in fig.axes[0].get_title(loc="left")


@pytest.mark.parametrize(("tokens", "mfu"), [(15e12, 0.4), (1e12, 0.2), (30e12, 0.55)])
def test_compute_wall(tokens, mfu):
    fig = Figure()
    data = why.compute_wall(fig, tokens=tokens, mfu=mfu)
    cluster = replace(H100_CLUSTER, mfu=mfu)
    for shape in why.MODELS:
        one = compute_time(shape.parameters, tokens, cluster)
        np.testing.assert_allclose(data[shape.name], one / data["gpus"], rtol=1e-12)
        np.testing.assert_array_equal(drawn_line(fig, shape.name), data[shape.name])
    assert fig.axes[0].get_ylim()[1] > data[LLAMA3_405B.name].max()


def test_link_speeds():
    fig = Figure()
    data = why.link_speeds(fig)
    rates = dict(zip(data["names"], data["rates"], strict=True))
    assert rates["NVLink, line rate"] == hardware.NVLINK
    assert rates["NVLink, usable by NCCL"] == 370e9
    assert rates["InfiniBand NDR"] == hardware.INFINIBAND
    assert [bar.get_width() for bar in fig.axes[0].patches] == list(data["rates"])


# ----------------------------------------------------------------- §7


@pytest.mark.parametrize("tokens", [1024, 32768, 65536])
@pytest.mark.parametrize("beta_inter", [6.25e9, 50e9, 400e9])
def test_data_parallel_step(tokens, beta_inter):
    fig = Figure()
    data = budget.data_parallel_step(fig, tokens=tokens, beta_inter=beta_inter)
    cluster = replace(H100_CLUSTER, beta_inter=beta_inter)
    assert data["compute"] == compute_time(LLAMA3_8B.parameters, tokens)
    for algorithm in ("hierarchical", "rails"):
        for place, n_gpus in enumerate(budget.GPUS):
            step = data_parallel(LLAMA3_8B.parameters, n_gpus, cluster, algorithm)
            assert data[algorithm][place] == step.seconds
    shown = drawn_line(fig, "all-reduce, hierarchical")
    np.testing.assert_array_equal(shown, data["hierarchical"])
    low, high = fig.axes[0].get_ylim()
    assert low < min(data["hierarchical"].min(), data["compute"])
    assert high > max(data["hierarchical"].max(), data["compute"])


@pytest.mark.parametrize(("beta_inter", "mfu"), [(50e9, 0.4), (6.25e9, 0.6), (400e9, 0.2)])
def test_paid_off_by_tokens(beta_inter, mfu):
    fig = Figure()
    data = budget.paid_off_by_tokens(fig, beta_inter=beta_inter, mfu=mfu)
    cluster = replace(H100_CLUSTER, beta_inter=beta_inter, mfu=mfu)
    phi = LLAMA3_8B.parameters
    for place, tokens in enumerate(int(count) for count in data["tokens"]):
        compute = compute_time(phi, tokens, cluster)
        inside = data_parallel(phi, 8, cluster).seconds / compute
        across = tensor_parallel(LLAMA3_8B, 8 * tokens, 8, cluster, across_nodes=True)
        experts = expert_parallel(tokens, 4096, 32, 8, cluster)
        assert data["DP, in a node"][place] == pytest.approx(inside)
        assert data["TP = 8, across nodes"][place] == pytest.approx(across.seconds / compute)
        assert data["MoE, 8 experts, in a node"][place] == pytest.approx(experts.seconds / compute)
    curves = [values for name, values in data.items() if name != "tokens"]
    low, high = fig.axes[0].get_ylim()
    assert low < min(values.min() for values in curves)
    assert high > max(values.max() for values in curves)


def test_only_data_parallelism_is_paid_off():
    """128 times the tokens: DP's share falls by 128, TP's and MoE's stay near what they were."""
    data = budget.paid_off_by_tokens(Figure())
    for name, values in data.items():
        if name.startswith("DP"):
            assert values[0] / values[-1] == pytest.approx(128)
        elif name != "tokens":
            assert values[0] / values[-1] < 1.4


# ----------------------------------------------------------------- the pages


@pytest.mark.parametrize(("path", "count"), [(WHY, 3), (BUDGET, 7)], ids=("why", "budget"))
def test_every_stop_of_a_knob_changes_the_data_of_its_explorer(path, count):
    explorers = [explorer for explorer in explorers_of(path) if explorer.knobs]
    assert len(explorers) == count
    for explorer in explorers:
        for position, (name, knob) in enumerate(explorer.knobs.items()):
            # A list of models, or the orders of three axes, has no more stops.
            assert len(knob) >= {"shape": 4, "order": 6, "gpus_per_node": 6}.get(name, 7)
            seen = []
            for stop in range(len(knob)):
                state = list(explorer.start)
                state[position] = stop
                seen.append(repr(explorer.draw(Figure(), **explorer.params(state))))
            assert len(set(seen)) == len(knob)
