"""Hardware, models, budget and tables: the figures of §0, §1 and §7, and refusals."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commlab import alpha_beta_all_gather, alpha_beta_reduce_scatter, hardware, models
from commlab.budget import (
    H100_CLUSTER,
    Cluster,
    compute_time,
    data_parallel,
    expert_parallel,
    sharded_volume,
    tensor_parallel,
    training_state,
)
from commlab.models import LLAMA3_8B, LLAMA3_70B, LLAMA3_405B, TransformerShape, training_flops
from commlab.tables import markdown_table, table
from commlab.units import GIB, MIB, TIB

# The rounded parameter counts that the lecture's figures come from.
PHI_8B = 8.03e9
PHI_70B = 70.55e9
HOUR = 3600.0
WEEK = 7 * 24 * HOUR
YEAR = 365 * 24 * HOUR


def digits(expected: float, text: str):
    """Match a number to the last digit that a figure is stated with."""
    decimals = len(text.partition(".")[2])
    return pytest.approx(expected, abs=0.5 * 10.0**-decimals)


# ----------------------------------------------------------------- the lecture's figures


@pytest.mark.parametrize(
    ("n_parameters", "unit", "text"), [(PHI_8B, GIB, "119.656"), (PHI_70B, TIB, "1.02664")]
)
def test_training_state_has_16_bytes_per_parameter(n_parameters, unit, text):
    assert training_state(n_parameters).total / unit == digits(float(text), text)


def test_compute_of_15_trillion_tokens():
    assert training_flops(PHI_8B, 15e12) == pytest.approx(7.227e23, rel=1e-12)
    seconds = compute_time(PHI_8B, 15e12)
    assert seconds / YEAR == digits(57.93, "57.93")
    assert seconds / HOUR == digits(507457, "507457")
    assert compute_time(PHI_8B, 15e12, n_gpus=1000) / WEEK == digits(3.0206, "3.0206")


def test_link_ratios():
    assert hardware.NVLINK / hardware.INFINIBAND == 9.0
    assert hardware.H100.memory_rate / hardware.NVLINK == digits(7.444, "7.444")


def test_gradients_and_compute_of_a_step():
    assert data_parallel(PHI_8B, 8).gradient_bytes / GIB == digits(14.957, "14.957")
    assert compute_time(PHI_8B, 32768) == digits(3.9908, "3.9908")


@pytest.mark.parametrize(
    ("n_gpus", "milliseconds", "share_32k", "share_4k"),
    [
        (8, "62.526", "1.567", "12.53"),
        (64, "132.858", "3.329", "26.63"),
        (1024, "143.468", "3.595", "28.76"),
    ],
)
def test_data_parallel_step(n_gpus, milliseconds, share_32k, share_4k):
    seconds = data_parallel(PHI_8B, n_gpus).seconds
    assert 1e3 * seconds == digits(float(milliseconds), milliseconds)
    assert 100 * seconds / compute_time(PHI_8B, 32768) == digits(float(share_32k), share_32k)
    assert 100 * seconds / compute_time(PHI_8B, 4096) == digits(float(share_4k), share_4k)


def test_fsdp_sends_half_as_much_again_as_ddp():
    ddp, fsdp = (sharded_volume(PHI_8B, 64, stage).total for stage in (0, 3))
    assert fsdp / ddp == pytest.approx(1.5, rel=1e-12)
    parameter_bytes = 2 * PHI_8B
    assert fsdp == pytest.approx(3 * 63 / 64 * parameter_bytes, rel=1e-12)


def test_tensor_parallel_step():
    inside = tensor_parallel(LLAMA3_8B, 32768, 8)
    across = tensor_parallel(LLAMA3_8B, 32768, 8, across_nodes=True)
    assert inside.activation_bytes == 256 * MIB
    assert inside.count == 128
    assert 1e3 * inside.seconds == digits(142.581, "142.581")
    assert 1e3 * across.seconds == digits(1211.55, "1211.55")
    # 498.851 ms is stated for the rounded 8.03e9 parameters.
    assert 1e3 * compute_time(PHI_8B, 32768, n_gpus=8) == digits(498.851, "498.851")
    assert across.seconds > across.compute_seconds > inside.seconds


def test_expert_parallel_step():
    inside = expert_parallel(8192, 4096, 32, 8)
    across = expert_parallel(8192, 4096, 32, 8, across_nodes=True)
    recomputed = expert_parallel(8192, 4096, 32, 8, across_nodes=True, passes=3)
    one_port = expert_parallel(8192, 4096, 32, 8, algorithm="pairwise")
    assert inside.bytes_per_layer == 112 * MIB
    assert 1e3 * inside.seconds_per_layer == digits(0.270979, "0.270979")
    assert 1e3 * across.seconds_per_layer == digits(2.35881, "2.35881")
    assert 1e3 * one_port.seconds_per_layer == digits(0.330979, "0.330979")
    assert 1e3 * across.seconds == digits(150.964, "150.964")
    assert 1e3 * recomputed.seconds == digits(226.446, "226.446")


def test_exercise_70b_on_eight_nodes():
    assert data_parallel(PHI_70B, 64).seconds == digits(1.16617, "1.16617")
    assert compute_time(PHI_70B, 32768) == digits(35.0624, "35.0624")


# ----------------------------------------------------------------- models


@pytest.mark.parametrize(
    ("shape", "published"),
    [
        (LLAMA3_8B, 8_030_261_248),
        (LLAMA3_70B, 70_553_706_496),
        (LLAMA3_405B, 405_853_388_800),
    ],
)
def test_counted_parameters_are_those_of_the_published_checkpoints(shape, published):
    assert shape.parameters == published


def test_parameters_of_a_shape_small_enough_to_count_by_hand():
    shape = TransformerShape("tiny", 1, 4, 2, 1, 2, 3, 5)
    query, key, value, output = 4 * 4, 4 * 2, 4 * 2, 4 * 4
    gate_up_down = 3 * 4 * 3
    norms = 3 * 4
    embedding_and_head = 2 * 5 * 4
    by_hand = query + key + value + output + gate_up_down + norms + embedding_and_head
    assert shape.parameters == by_hand


def test_training_flops_of_a_shape_are_6_phi_d():
    assert LLAMA3_8B.training_flops(1e6) == 6 * LLAMA3_8B.parameters * 1e6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": 0}, "layers is 0"),
        ({"hidden": 4096.0}, r"hidden is 4096\.0"),
        ({"vocab": True}, "vocab is True"),
        ({"kv_heads": 5}, "choose a kv_heads that divides heads"),
    ],
)
def test_a_wrong_shape_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(LLAMA3_8B, **change)


@pytest.mark.parametrize("tokens", [-1, float("nan"), float("inf")])
def test_wrong_tokens_are_refused(tokens):
    with pytest.raises(ValueError, match="tokens"):
        training_flops(1e9, tokens)


# ----------------------------------------------------------------- hardware


def numbers_of(item: object) -> set[str]:
    """Return the names of the fields that hold a number."""
    fields = dataclasses.fields(item)
    return {f.name for f in fields if isinstance(getattr(item, f.name), float | int)}


@pytest.mark.parametrize(
    "item", [*hardware.ACCELERATORS, *hardware.LINKS], ids=lambda item: item.name
)
def test_every_figure_names_a_source(item):
    assert set(item.sources) == numbers_of(item)
    assert set(item.sources.values()) <= set(hardware.SOURCES)


def test_every_source_has_a_date_and_is_used():
    used = set()
    for item in (*hardware.ACCELERATORS, *hardware.LINKS):
        used |= set(item.sources.values())
    assert used == set(hardware.SOURCES)
    for source in hardware.SOURCES.values():
        assert source.title
        assert source.url.startswith("https://")
        assert source.date


@pytest.mark.parametrize("link", hardware.LINKS, ids=lambda link: link.name)
def test_rates_are_one_directional(link):
    """The vendor's headline counts both directions; what is usable is below the line rate."""
    assert link.headline is None or link.headline == 2 * link.beta
    assert link.usable is None or 0.5 * link.beta < link.usable < link.beta


def test_the_books_links_are_those_of_the_tables():
    assert hardware.NVLINK4_H100.beta == hardware.H100.scale_up == hardware.NVLINK == 450e9
    assert hardware.INFINIBAND_NDR.beta == hardware.INFINIBAND == 50e9
    assert hardware.ALPHA == 5e-6
    # 128b/130b coding: what PCIe 5 x16 can carry is just under the printed 64 GB/s.
    assert hardware.PCIE5_X16.beta > 32e9 * 16 / 8 * 128 / 130


# ----------------------------------------------------------------- budget: what must hold


@given(
    n_parameters=st.floats(1e6, 1e13),
    n_ranks=st.integers(1, 4096),
)
def test_each_zero_stage_stores_less_and_all_stages_agree_on_one_gpu(n_parameters, n_ranks):
    totals = [training_state(n_parameters, n_ranks, stage).total for stage in range(4)]
    assert totals == sorted(totals, reverse=True)
    assert totals[0] == pytest.approx(16 * n_parameters)
    assert totals[1] == pytest.approx((4 + 12 / n_ranks) * n_parameters)
    assert totals[2] == pytest.approx((2 + 14 / n_ranks) * n_parameters)
    assert totals[3] == pytest.approx(16 / n_ranks * n_parameters)


@given(n_parameters=st.floats(1e6, 1e13), n_ranks=st.integers(1, 4096))
def test_zero_stages_1_and_2_send_what_ddp_sends(n_parameters, n_ranks):
    totals = [sharded_volume(n_parameters, n_ranks, stage).total for stage in range(3)]
    assert totals == [totals[0]] * 3
    assert totals[0] == pytest.approx(2 * (n_ranks - 1) / n_ranks * 2 * n_parameters)


def test_fsdp_variants():
    ddp = sharded_volume(PHI_8B, 8, 0).total
    kept = sharded_volume(PHI_8B, 8, 3, reshard_after_forward=False)
    fp32 = sharded_volume(PHI_8B, 8, 3, gradient_bytes=4)
    assert kept.total == ddp
    assert fp32.total / ddp == pytest.approx(2.0)


def test_volume_times_link_is_the_closed_form_without_latency():
    volume = sharded_volume(PHI_8B, 8, 3)
    nbytes, beta = 2 * PHI_8B, hardware.NVLINK
    gather = alpha_beta_all_gather(nbytes, 8, 0.0, beta)
    scatter = alpha_beta_reduce_scatter(nbytes, 8, 0.0, beta)
    assert volume.total / beta == pytest.approx(2 * gather + scatter, rel=1e-12)


def test_rails_beat_the_hierarchy_on_64_gpus():
    """The flat multi-rail ring is the faster one: the pages say so."""
    assert data_parallel(PHI_8B, 64, algorithm="rails").seconds < data_parallel(PHI_8B, 64).seconds


def test_data_parallel_on_one_gpu_sends_nothing():
    assert data_parallel(PHI_8B, 1).seconds == 0.0


def test_halving_nvlink_changes_what_depends_on_it_and_nothing_else():
    slow = dataclasses.replace(H100_CLUSTER, beta_intra=H100_CLUSTER.beta_intra / 2)
    assert data_parallel(PHI_8B, 8, slow).seconds > data_parallel(PHI_8B, 8).seconds
    assert data_parallel(PHI_8B, 64, slow).seconds > data_parallel(PHI_8B, 64).seconds
    assert tensor_parallel(LLAMA3_8B, 4096, 8, slow).seconds > (
        tensor_parallel(LLAMA3_8B, 4096, 8).seconds
    )
    across = tensor_parallel(LLAMA3_8B, 4096, 8, slow, across_nodes=True)
    assert across.seconds == tensor_parallel(LLAMA3_8B, 4096, 8, across_nodes=True).seconds
    assert compute_time(PHI_8B, 4096, slow) == compute_time(PHI_8B, 4096)


def test_tensor_parallel_grows_with_tokens_and_data_parallel_does_not():
    step = {n: tensor_parallel(LLAMA3_8B, n, 8) for n in (4096, 8192)}
    assert step[8192].activation_bytes == 2 * step[4096].activation_bytes
    assert step[8192].compute_seconds == pytest.approx(2 * step[4096].compute_seconds)
    assert "tokens" not in dataclasses.asdict(data_parallel(PHI_8B, 8))


def test_two_experts_per_token_send_twice():
    one, two = (expert_parallel(8192, 4096, 32, 8, top_k=k) for k in (1, 2))
    assert two.bytes_per_layer == 2 * one.bytes_per_layer


@pytest.mark.parametrize(
    "result",
    [
        training_state(PHI_8B),
        data_parallel(PHI_8B, 64),
        sharded_volume(PHI_8B, 64),
        tensor_parallel(LLAMA3_8B, 32768, 8),
        expert_parallel(8192, 4096, 32, 8),
    ],
    ids=lambda result: type(result).__name__,
)
def test_a_result_prints_its_assumptions(result):
    text = str(result)
    assert text.count("assuming: ") == len(result.assumptions) >= 2
    assert "iB" in text


# ----------------------------------------------------------------- budget: refusals


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: training_state(0), "n_parameters must be a number above zero"),
        (lambda: training_state("8B"), "n_parameters must be a number above zero"),
        (lambda: training_state(1e9, 0), "n_ranks must be a whole number"),
        (lambda: training_state(1e9, 8, 4), "choose 0 .* or 3"),
        (lambda: compute_time(1e9, float("nan")), "tokens must be a number above zero"),
        (lambda: compute_time(1e9, 1, n_gpus=0), "n_gpus must be a whole number"),
        (lambda: data_parallel(1e9, 12), "choose a multiple of 8"),
        (lambda: data_parallel(1e9, 8, algorithm="tree"), "choose 'hierarchical' or 'rails'"),
        (lambda: sharded_volume(1e9, 8, 3, gradient_bytes=8), r"choose 2 \(BF16\) or 4"),
        (lambda: tensor_parallel(LLAMA3_8B, 4096, 6), "choose a divisor"),
        (lambda: tensor_parallel(LLAMA3_8B, 4096, 16), "across_nodes=True"),
        (lambda: tensor_parallel(LLAMA3_8B, 0, 8), "tokens must be a number above zero"),
        (lambda: expert_parallel(8192, 4096, 32, 8, passes=4), "passes is 4"),
        (lambda: expert_parallel(8192, 4096, 32, 16), "across_nodes=True"),
        (lambda: expert_parallel(8192, 4096, 0, 8), "layers must be a whole number"),
        (lambda: expert_parallel(8192, 4096, 32, 8, algorithm="ring"), "pairwise"),
        (lambda: dataclasses.replace(H100_CLUSTER, mfu=40), "40 percent is 0.40"),
        (lambda: dataclasses.replace(H100_CLUSTER, beta_intra=0), "beta_intra"),
        (lambda: dataclasses.replace(H100_CLUSTER, alpha=-1e-6), "alpha"),
        (lambda: dataclasses.replace(H100_CLUSTER, peak_flops=0), "peak_flops"),
    ],
)
def test_bad_input_is_refused_with_the_fix(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_bandwidth_in_gigabytes_is_noticed():
    with pytest.warns(UserWarning, match="multiply by 1e9"):
        Cluster("typo", 8, 5e-6, 450.0, 50e9, 989e12, 0.4)


# ----------------------------------------------------------------- tables and imports


def test_a_table_is_its_markdown():
    shown = table(("ranks N · 卡数 N", "time"), [(2, "2.40 ms"), (8, "a|b")])
    assert repr(shown) == shown._repr_markdown_() == shown.markdown
    assert shown.markdown.splitlines() == [
        "| ranks N · 卡数 N |    time |",
        "| :--------------- | ------: |",
        "| 2                | 2.40 ms |",
        "| 8                |    a\\|b |",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((), []), "at least one column"),
        ((("a", "b"), [(1,)]), "row 1 has 1 cells but there are 2 headings"),
        ((("a", "b"), [(1, 2)], "lx"), "one letter l or r per column"),
        ((("a", "b"), [(1, "x\ny")]), "line break"),
    ],
)
def test_a_wrong_table_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        markdown_table(*arguments)


def test_the_science_loads_neither_torch_nor_matplotlib():
    code = (
        "import sys, commlab.budget, commlab.tables; "
        "print(sorted({'torch', 'matplotlib', 'IPython'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_models_are_listed():
    assert models.MODELS == (LLAMA3_8B, LLAMA3_70B, LLAMA3_405B)


def test_small_integer_types_do_not_overflow():
    plain = tensor_parallel(LLAMA3_8B, 300_000, 8).activation_bytes
    assert tensor_parallel(LLAMA3_8B, np.int32(300_000), 8).activation_bytes == plain
    assert plain == 2 * 300_000 * LLAMA3_8B.hidden
