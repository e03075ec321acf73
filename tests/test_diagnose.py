from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic_runs import (
    A100,
    FIRST_LINE,
    H100,
    REAL_LOG_FILES,
    doubling,
    line_times,
    noisy,
    run_of,
    straight_run,
)

from commlab.calibrate import Log, LogError, read_log_file
from commlab.calibrate.diagnose import NOTES, RULES, compare, copies, diagnose
from commlab.calibrate.diagnose_cluster import accelerator_named
from commlab.calibrate.fit import fit_run
from commlab.calibrate.fit_log import fit_logs
from commlab.hardware import A100 as A100_SXM
from commlab.hardware import H100 as H100_SXM
from commlab.units import GIB, KIB, MIB, format_rate

SIZES = doubling(8, 8 * GIB)


def told(run) -> dict[str, object]:
    return {remark.code: remark for remark in diagnose(fit_run(run))}


def healthy(beta=340e9, seed=0, op="all_reduce", n_ranks=32, n_nodes=4, alpha=30e-6, **fields):
    """A run of four H100 nodes with nothing odd about it."""
    fields.setdefault("hardware", H100)
    return straight_run(SIZES, alpha, beta, 0.03, seed, op, n_ranks, n_nodes=n_nodes, **fields)


def with_times(change, op="all_reduce", **fields):
    """A healthy run after ``change(sizes, seconds)`` has spoilt its times in place."""
    n_ranks = fields.setdefault("n_ranks", 32)
    times = noisy(line_times(SIZES, op, n_ranks, 30e-6, 340e9), 0.02, 5)
    change(np.array(SIZES), times)
    fields = {"n_nodes": 4, "hardware": H100, **fields}
    return run_of(SIZES, times, op, **fields)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "alltoall"])
def test_a_healthy_run_tells_nothing(op, seed):
    times = noisy(line_times(SIZES, op, 32, 30e-6, 340e9), 0.03, 50 + seed)
    fields = {} if op == "alltoall" else {"in_place": times}
    run = replace(run_of(SIZES, times, op, 32, 4, hardware=H100, **fields), average_busbw=310e9)
    assert told(run) == {}


def collapse(sizes, seconds):
    seconds[sizes >= GIB] *= np.array([1.1, 1.3, 1.6, 2.0])


def late_cliff(sizes, seconds):
    seconds[sizes >= 16 * MIB] *= 3


def slow_start(sizes, seconds):
    seconds[sizes <= 4 * KIB] *= 2


def one_slow_row(sizes, seconds):
    seconds[sizes == 16 * MIB] *= 3


def flat_times(sizes, seconds):
    """A second regime of messages, as a switch of protocol makes it: no cliff."""
    seconds[sizes >= 16 * MIB] += 30e-6


@pytest.mark.parametrize(
    ("change", "code", "n"),
    [(collapse, "bandwidth_falls", -1), (late_cliff, "cliff", 21), (slow_start, "time_falls", 9)],
)
def test_the_shape_of_the_curve_tells(change, code, n):
    remark = told(with_times(change))[code]
    size = SIZES[n]
    line = FIRST_LINE + SIZES.index(size)
    assert remark.line == line
    assert f"(line {line})" in remark.message


@pytest.mark.parametrize("change", [one_slow_row, flat_times])
def test_a_single_slow_row_and_a_switch_are_neither_cliff_nor_collapse(change):
    assert told(with_times(change)) == {}


def test_a_single_fast_row_is_no_falling_time():
    def change(sizes, seconds):
        seconds[4] *= 2

    assert told(with_times(change)) == {}


def test_in_place_times_of_another_regime_are_told():
    times = np.array([row.seconds for row in healthy().rows])
    two = times.copy()
    two[3:7] *= 3
    remark = told(with_in_place(times, two))["in_place_differs"]
    assert remark.line == FIRST_LINE + 3
    assert f"(line {FIRST_LINE + 6})" in remark.message
    one = times.copy()
    one[3] *= 6
    assert told(with_in_place(times, one)) == {}
    assert "in_place_differs" in told(with_in_place(times, times / 2))


def with_in_place(seconds, in_place):
    return run_of(SIZES, seconds, n_ranks=32, n_nodes=4, hardware=H100, in_place=in_place)


def test_the_mean_of_all_sizes_is_no_speed():
    run = healthy(average_busbw=150e9)
    remark = told(run)["average_busbw"]
    beta = format_rate(fit_run(run).beta.value)
    assert "150 GB/s" in remark.message and f"β is {beta}" in remark.message
    assert told(healthy(average_busbw=330e9)) == {}


def test_nvls_is_told_with_its_evidence():
    run = healthy(beta=480e9, n_ranks=8, n_nodes=1)
    remark = told(run)["above_line_rate"]
    assert "450 GB/s" in remark.message and "NCCL_ALGO=Ring" in remark.message
    row = next(row for row in run.rows if row.line == remark.line)
    assert 1.75 * row.nbytes / row.seconds > 450e9
    assert told(healthy(beta=420e9, n_ranks=8, n_nodes=1)) == {}
    assert told(healthy(beta=480e9, n_ranks=8, n_nodes=1, hardware=None)) == {}
    assert told(healthy(beta=480e9, n_ranks=8, n_nodes=1, hardware="NVIDIA B200")) == {}
    sent = told(healthy(beta=480e9, n_ranks=8, n_nodes=1, op="sendrecv"))["above_line_rate"]
    assert "NVLS" not in sent.message


def test_one_nic_is_told_where_a_node_has_several_gpus():
    assert "50 GB/s" in told(healthy(beta=48e9))["one_nic"].message
    assert "25 GB/s" in told(healthy(beta=24e9, hardware=A100))["one_nic"].message
    for run in (
        healthy(beta=48e9, n_ranks=4, n_nodes=4),
        healthy(beta=48e9, n_ranks=8, n_nodes=1),
        healthy(beta=48e9, op="alltoall"),
        healthy(beta=36e9, hardware=A100),
        healthy(beta=180e9),
    ):
        assert "one_nic" not in told(run)


def test_less_than_one_nic_is_told():
    assert "below_one_nic" in told(healthy(beta=10e9))
    assert "below_one_nic" in told(healthy(beta=5e9, op="alltoall"))
    for run in (
        healthy(beta=48e9),
        healthy(beta=20e9, op="alltoall"),
        healthy(beta=10e9, n_ranks=8, n_nodes=1),
        healthy(beta=10e9, hardware=None),
    ):
        assert "below_one_nic" not in told(run)


def test_two_nodes_flatter():
    run = healthy(n_ranks=16, n_nodes=2)
    (code,) = told(run)
    assert code == "two_nodes"
    # 2(m−1)/m · S over 8 GPUs of a node, m = 2, in the last row
    last = run.rows[-1]
    rate = last.nbytes / 8 / last.seconds
    assert f"{rate / 1e9:.1f} GB/s" in told(run)[code].message
    assert "0.125·S" in told(run)[code].message and "0.25·S" in told(run)[code].message
    exchange = told(healthy(n_ranks=16, n_nodes=2, op="alltoall", beta=90e9))["two_nodes"]
    assert "0.5·S" in exchange.message and "1·S" in exchange.message
    assert "two_nodes" not in told(healthy(n_ranks=2, n_nodes=2, beta=48e9))
    assert "two_nodes" not in told(healthy(n_ranks=24, n_nodes=3))


def test_one_rank_per_node_is_told():
    assert set(told(healthy(beta=48e9, n_ranks=10, n_nodes=10))) == {"one_rank_per_node"}
    assert "one_rank_per_node" not in told(healthy(n_ranks=8, n_nodes=1))
    assert "one_rank_per_node" not in told(healthy(n_ranks=8, n_nodes=None))


def codes_of(told_of_runs) -> list[tuple[int, str]]:
    return [(fit.run.n_ranks, remark.code) for fit, remark in told_of_runs]


@pytest.mark.parametrize(
    ("few", "many", "fires"),
    [
        (40e-6, 20e-6, True),  # 64 ranks quicker than 16
        (40e-6, 400e-6, True),  # ten times, a ring's would grow 63/15 = 4.2 times
        (40e-6, 160e-6, False),
        (40e-6, 60e-6, False),
        (40e-6, 38e-6, False),
    ],
)
def test_alpha_against_the_number_of_ranks(few, many, fires):
    fits = [
        fit_run(healthy(alpha=many, n_ranks=64, n_nodes=8)),
        fit_run(healthy(alpha=few, n_ranks=16, n_nodes=2)),
    ]
    assert codes_of(compare(fits)) == ([(64, "alpha_against_ranks")] if fires else [])
    other = fit_run(healthy(alpha=many, n_ranks=64, n_nodes=8, hardware=A100))
    assert compare([fits[1], other]) == []


def test_a_node_and_many_nodes_are_not_held_against_a_ring():
    node = fit_run(healthy(alpha=10e-6, n_ranks=8, n_nodes=1))
    nodes = fit_run(healthy(alpha=80e-6, n_ranks=16, n_nodes=2))
    assert compare([node, nodes]) == []


def test_copies_of_a_one_node_run_are_told_of_the_later_one():
    one, two = (fit_run(healthy(seed=seed, n_ranks=8, n_nodes=1)) for seed in range(2))
    ((fit, remark),) = copies([one, two])
    assert fit is two and remark.code == "copies" and "MPI=1" in remark.message
    other = fit_run(healthy(op="alltoall", n_ranks=8, n_nodes=1))
    nodes = [fit_run(healthy(seed=seed)) for seed in range(2)]
    assert copies([one, other]) == copies(nodes) == []
    # Through fit_logs it reaches the run, and only within one log.
    together = fit_logs([("a", Log((one.run, two.run)))])
    apart = fit_logs([("a", Log((one.run,))), ("b", Log((two.run,)))])
    codes = [[remark.code for remark in run.remarks] for run in together.runs]
    assert ["copies" in of_run for of_run in codes] == [False, True]
    assert not any(r.code == "copies" for run in apart.runs for r in run.remarks)


def test_a_run_that_cannot_be_fitted_keeps_no_other_from_its_fit():
    good, short = healthy(), run_of([8], [1e-5])
    calibration = fit_logs([("a", Log((short, good)))])
    assert [run.fit.run for run in calibration.runs] == [good]
    (refusal,) = calibration.refused
    assert (refusal.log, refusal.code, refusal.run) == ("a", "few_points", short)


@pytest.mark.parametrize(
    ("hardware", "accelerator"),
    [
        (H100, H100_SXM),
        (A100, A100_SXM),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA A100-PCIE-40GB", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA GeForce RTX 4090", None),
        (None, None),
    ],
)
def test_a_product_is_known_by_its_whole_name(hardware, accelerator):
    assert accelerator_named(hardware) is accelerator


def test_every_rule_has_a_sentence_about_itself():
    assert all(rule.__doc__ for rule in RULES)


# What each real log tells that is not said of healthy runs as well: see its INDEX.
ALARMS = {
    "12_": {"bandwidth_falls", "below_one_nic"},
    "14_": {"below_one_nic"},
    "15_": {"below_one_nic", "cliff", "time_falls"},
    "22_": {"in_place_differs"},
    "35_": {"time_falls"},
}


@pytest.mark.real_logs
def test_real_logs_give_no_false_alarm():
    for path in REAL_LOG_FILES:
        try:
            log = read_log_file(path)
        except LogError:
            continue
        fits = [fit_run(run) for run in log.runs]
        remarks = [remark for fit in fits for remark in diagnose(fit)]
        alarms = {remark.code for remark in remarks} - NOTES
        assert alarms == ALARMS.get(path.name[:3], set()), path.name
        assert compare(fits) == copies(fits) == []
        if path.name.startswith("01_"):
            assert "above_line_rate" in {remark.code for remark in remarks}
