from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from synthetic_runs import (
    FIRST_LINE,
    REAL_LOG_FILES,
    doubling,
    line_times,
    noisy,
    run_of,
    straight_run,
)

from commlab.calibrate import LogError, read_log_file
from commlab.calibrate.bus import OPS, bus_factor
from commlab.calibrate.fit import fit_run
from commlab.calibrate.fit_intervals import student_quantile
from commlab.calibrate.fit_outliers import cold_excess, growing_median
from commlab.calibrate.fit_parameters import messages_of
from commlab.calibrate.fit_search import choose
from commlab.calibrate.fit_segments import best_chains, fit_segments
from commlab.calibrate.pieces import Piece, PiecewiseTime
from commlab.calibrate.records import Row, Run
from commlab.figures import fit as figures
from commlab.units import GIB, KIB, MIB

FULL = doubling(8, 8 * GIB)
MACHINES = [(20e-6, 370e9), (60e-6, 45e9), (800e-6, 1e9)]


def codes(fit) -> list[str]:
    return [remark.code for remark in fit.remarks]


# ---------------------------------------------------------------------------------------
# Known parameters come back


@pytest.mark.parametrize("sizes", [FULL, doubling(KIB, GIB), doubling(4, 128 * GIB)[::2]], ids=len)
@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter", "alltoall", "sendrecv"])
def test_alpha_and_beta_come_back_within_5_percent_under_3_percent_noise(op, sizes):
    for seed, (n_ranks, (alpha, beta)) in enumerate(itertools.product([2, 8, 512], MACHINES)):
        run = straight_run(sizes, alpha, beta, seed=seed, op=op, n_ranks=n_ranks)
        fit = fit_run(run)
        assert fit.alpha.value == pytest.approx(alpha, rel=0.05)
        assert fit.beta.value == pytest.approx(beta, rel=0.05)
        assert fit.alpha_per_message * fit.messages == pytest.approx(fit.alpha.value)
        assert fit.outliers == ()
        assert fit.held_out_error() < 0.04


def test_without_noise_they_come_back_as_printed():
    fit = fit_run(straight_run(FULL, noise=0.0))
    assert fit.alpha.value == pytest.approx(20e-6, rel=1e-3)
    assert fit.beta.value == pytest.approx(370e9, rel=1e-3)
    assert len(fit.model.pieces) == 1


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_a_sweep_of_large_sizes_gives_the_same_beta_and_no_alpha(seed, noise):
    whole = fit_run(straight_run(FULL, noise=noise, seed=seed))
    large = fit_run(straight_run(doubling(GIB, 16 * GIB), noise=noise, seed=100 + seed))
    assert large.beta.value == pytest.approx(whole.beta.value, rel=0.05)
    assert large.alpha is None and large.alpha_per_message is None
    assert "alpha_not_determined" in codes(large)
    assert "alpha_not_determined" not in codes(whole)


@pytest.mark.parametrize("seed", [17, 20])
def test_the_few_largest_sizes_of_a_sweep_by_steps_do_not_decide_on_beta(seed):
    fit = fit_run(straight_run([GIB * n for n in range(1, 17)], seed=seed))
    assert fit.beta.value == pytest.approx(370e9, rel=0.05)
    last = fit.model.pieces[-1]
    assert last.last >= 2 * last.first


@pytest.mark.parametrize("seed", [25, 113])
def test_an_alpha_within_the_noise_of_few_rows_does_not_move_beta(seed):
    fit = fit_run(straight_run(doubling(GIB, 8 * GIB), seed=seed))
    assert fit.alpha is None
    assert fit.beta.value == pytest.approx(370e9, rel=0.05)


def test_a_sweep_of_small_sizes_gives_alpha_and_no_beta():
    fit = fit_run(straight_run(doubling(8, 16 * KIB)))
    assert fit.alpha.value == pytest.approx(20e-6, rel=0.05)
    assert fit.beta is None
    assert "beta_not_determined" in codes(fit)


def test_intervals_hold_the_truth_as_often_as_they_say():
    sizes = doubling(8, 8 * GIB)[::2]
    held = np.zeros(2)
    n_runs = 150
    for seed in range(n_runs):
        fit = fit_run(straight_run(sizes, seed=seed))
        for n, (parameter, truth) in enumerate(((fit.alpha, 20e-6), (fit.beta, 370e9))):
            low, high = parameter.interval
            assert low < parameter.value < high
            held[n] += low <= truth <= high
    # 0.95 ± 3 standard errors of 150 draws
    assert np.all(np.abs(held / n_runs - 0.95) < 0.054)


@pytest.mark.parametrize(
    ("sizes", "name"), [(doubling(256 * MIB, GIB), "beta"), (doubling(8 * MIB, 64 * MIB), "alpha")]
)
def test_what_a_few_rows_do_not_determine_is_not_given(sizes, name):
    given = [getattr(fit_run(straight_run(sizes, seed=seed)), name) for seed in range(30)]
    known = [parameter for parameter in given if parameter is not None]
    assert 0 < len(known) < len(given)
    for parameter in known:
        low, high = parameter.interval
        assert parameter.value / 2 <= low < high <= 2 * parameter.value


def test_the_order_of_the_rows_does_not_matter():
    run = straight_run(FULL)
    turned = fit_run(Run(run.op, run.n_ranks, run.rows[::-1], 1))
    assert turned.alpha == fit_run(run).alpha and turned.beta == fit_run(run).beta


def test_the_quantiles_are_those_of_the_tables():
    for freedom, quantile in ((1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (30, 2.042)):
        assert student_quantile(freedom) == pytest.approx(quantile, rel=2e-3)


def test_alpha_of_large_messages_is_said_to_be_that():
    fit = fit_run(straight_run(doubling(32 * MIB, 16 * GIB), alpha=2e-3))
    assert fit.alpha is not None
    assert "alpha_of_large_messages" in codes(fit)


# ---------------------------------------------------------------------------------------
# Pieces


def two_regimes(seed: int, noise: float = 0.03):
    """Up to 1 MiB 20 µs and 40 GB/s, from 2 MiB on 100 µs and 350 GB/s."""
    small = line_times(FULL, "all_reduce", 8, 20e-6, 40e9)
    large = line_times(FULL, "all_reduce", 8, 100e-6, 350e9)
    times = np.where(np.array(FULL) <= MIB, small, large)
    return run_of(FULL, noisy(times, noise, seed))


@pytest.mark.parametrize("seed", range(5))
def test_a_switch_of_protocol_is_found_and_said(seed):
    fit = fit_run(two_regimes(seed))
    assert fit.alpha.value == pytest.approx(20e-6, rel=0.05)
    assert fit.beta.value == pytest.approx(350e9, rel=0.06)
    assert any(MIB < size < 2 * MIB for size in fit.model.breaks)
    assert "regimes" in codes(fit)
    assert fit.held_out_error() < 0.05


def test_one_line_is_not_cut_into_pieces():
    pieces = [len(fit_run(straight_run(FULL, seed=seed)).model.pieces) for seed in range(20)]
    assert pieces.count(1) >= 18


@settings(max_examples=60)
@example(times=[1.0, 1e-6], steps=[4] * 20)
@example(times=[1.0, 2.0, 1.0, 9.0], steps=[1] * 20)
@example(times=[2.0, 1.0, 1.0, 1.0, 1e-6], steps=[1] * 20)
@given(
    times=st.lists(st.floats(1e-6, 10.0), min_size=2, max_size=20),
    steps=st.lists(st.integers(0, 4), min_size=20, max_size=20),
)
def test_any_log_gives_a_prediction_that_grows(times, steps):
    sizes = [8 * 2 ** sum(steps[:n]) for n in range(len(times))]
    if len(set(sizes)) < 2:
        with pytest.raises(LogError, match="two unknowns"):
            fit_run(run_of(sizes, times))
        return
    fit = fit_run(run_of(sizes, times))
    breaks = np.array(fit.model.breaks)
    grid = np.sort(
        np.concatenate([[0.0], np.geomspace(1, 100 * sizes[-1], 400), breaks, breaks * (1 - 1e-9)])
    )
    predicted = fit.model.seconds(grid)
    assert np.all(np.diff(predicted) >= -1e-9 * predicted[1:])
    pieces = fit.model.pieces
    assert all(piece.alpha >= 0 and piece.per_byte >= 0 for piece in pieces)
    assert len(pieces) == 1 or all(piece.n_rows >= 3 for piece in pieces)
    assert sum(piece.n_rows for piece in pieces) == fit.used.sum()
    assert fit.used.sum() >= 2 * len(times) / 3 - 2
    assert fit.alpha is None or fit.alpha.value > 0
    assert fit.beta is None or 0 < fit.beta.value < np.inf


def test_a_line_has_the_least_squares_of_all_that_are_not_negative():
    rng = np.random.default_rng(0)
    sizes = np.sort(rng.uniform(1, 100, 7))
    seconds = rng.uniform(1, 10, 7)
    segments = fit_segments(sizes, seconds, np.arange(7), np.ones((1, 7)), np.array([2]))

    def cost(first, last, alpha, per_byte):
        rows = slice(first, last + 1)
        return np.sum(((alpha + per_byte * sizes[rows]) / seconds[rows] - 1) ** 2)

    for first, last in itertools.combinations(range(7), 2):
        alpha, per_byte = segments.alpha[0, first, last], segments.per_byte[0, first, last]
        best = cost(first, last, alpha, per_byte)
        assert segments.cost[0, first, last] == pytest.approx(best, abs=1e-9)
        for step in (-0.1, -0.01, 0.01, 0.1):
            assert cost(first, last, max(0.0, alpha + step), per_byte) >= best - 1e-9
            assert cost(first, last, alpha, max(0.0, per_byte + step / 10)) >= best - 1e-9
    assert np.isinf(segments.cost[0, 3, 3])


@pytest.mark.parametrize("n_pieces", [2, 3])
def test_the_chain_is_the_best_of_all_that_grow(n_pieces):
    rng = np.random.default_rng(n_pieces)
    sizes = 2.0 ** np.arange(9)
    fallen = 0
    for _ in range(20):
        seconds = rng.uniform(1, 4, 9) + 0.02 * sizes
        blocks = np.arange(9)
        segments = fit_segments(sizes, seconds, blocks, np.ones((1, 9)), np.array([2]))
        costs = []
        for cuts in itertools.combinations(range(1, 9), n_pieces - 1):
            firsts, lasts = (0, *cuts), (*(cut - 1 for cut in cuts), 8)
            lines = [
                (segments.alpha[0, a, b], segments.per_byte[0, a, b], segments.cost[0, a, b])
                for a, b in zip(firsts, lasts, strict=True)
            ]
            places = [np.sqrt(sizes[cut - 1] * sizes[cut]) for cut in cuts]
            grows = all(
                left[0] + left[1] * place <= right[0] + right[1] * place
                for left, right, place in zip(lines, lines[1:], places, strict=False)
            )
            fallen += not grows
            if grows:
                costs.append(sum(line[2] for line in lines))
        chain = best_chains(sizes, blocks, segments, n_pieces)[-1]
        assert chain.cost[0] == pytest.approx(min(costs, default=np.inf))
    assert fallen > 0


def test_the_model_predicts_by_the_piece_that_a_size_is_in():
    model = PiecewiseTime((Piece(0, 8, 64, 4, 1.0, 0.0), Piece(100, 128, 512, 3, 2.0, 0.5)))
    assert model.seconds([0, 99, 100, 1000]).tolist() == [1.0, 1.0, 52.0, 502.0]
    assert model.breaks == (100,)
    with pytest.raises(ValueError, match="number of bytes"):
        model.seconds(-1)


def test_more_pieces_need_a_gain_above_the_noise():
    noise = np.tile([0.02, 0.04], 15)
    other = noise[::-1] - 0.0005
    assert other.mean() < noise.mean()
    assert choose([noise, other]) == choose([other, noise]) == 0
    assert choose([noise + 0.1, noise]) == 1
    assert choose([noise, noise + 0.1]) == 0


def test_a_log_of_thousands_of_rows_is_fitted_in_blocks():
    sizes = [MIB * n for n in range(1, 3001)]
    times = line_times(sizes, "all_reduce", 8, 200e-6, 370e9)
    times[1000:] += 2e-3
    times[77] *= 5
    fit = fit_run(run_of(sizes, noisy(times, 0.03, 0)))
    assert fit.beta.value == pytest.approx(370e9, rel=0.03)
    assert 77 in np.flatnonzero(~fit.used)
    assert any(900 * MIB < size < 1100 * MIB for size in fit.model.breaks)
    assert sum(piece.n_rows for piece in fit.model.pieces) == fit.used.sum() > 2990
    assert 0.01 < fit.held_out_error() < 0.03


# ---------------------------------------------------------------------------------------
# Held-out errors are held out


def test_a_row_does_not_help_to_predict_itself():
    run = straight_run(FULL, seed=3)
    before = fit_run(run)
    for n in (0, 12, 20, len(FULL) - 1):
        rows = list(run.rows)
        rows[n] = Row(rows[n].nbytes, 1.02 * rows[n].seconds, rows[n].line)
        after = fit_run(Run(run.op, run.n_ranks, tuple(rows), 1))
        assert after.held_out[n] == before.held_out[n]
        assert after.predicted[n] != before.predicted[n]


# ---------------------------------------------------------------------------------------
# Outliers


@pytest.mark.parametrize(
    ("n", "factor"), [(12, 3.0), (20, 6.0), (12, 0.2), (28, 0.5), (3, 1.6)], ids=str
)
def test_an_outlier_is_named_and_moves_nothing(n, factor):
    times = noisy(line_times(FULL, "all_reduce", 8, 20e-6, 370e9), 0.03, 1)
    times[n] *= factor
    fit = fit_run(run_of(FULL, times))
    (outlier,) = fit.outliers
    assert outlier.row.line == FIRST_LINE + n
    assert outlier.ratio == pytest.approx(factor, rel=0.15)
    assert fit.alpha.value == pytest.approx(20e-6, rel=0.05)
    assert fit.beta.value == pytest.approx(370e9, rel=0.05)
    (remark,) = [remark for remark in fit.remarks if remark.code == "outlier"]
    assert remark.line == FIRST_LINE + n
    assert f"Line {FIRST_LINE + n}" in remark.message
    assert len(fit.rows) == len(FULL) and fit.used.sum() == len(FULL) - 1
    assert fit.held_out_error(all_rows=True) > fit.held_out_error()


@pytest.mark.parametrize("seed", [15, 128])
def test_of_neighbouring_outliers_the_right_rows_are_named(seed):
    rng = np.random.default_rng(seed)
    slow = rng.choice(len(FULL), 3, replace=False)
    times = noisy(line_times(FULL, "all_reduce", 8, 200e-6, 40e9), 0.03, seed)
    times[slow] *= rng.uniform(3, 10, 3)
    fit = fit_run(run_of(FULL, times))
    assert np.flatnonzero(~fit.used).tolist() == sorted(slow)


@pytest.mark.parametrize("factor", [1.12, 1.3])
def test_a_cold_first_row_is_named_and_moves_nothing(factor):
    times = noisy(line_times(FULL, "all_reduce", 8, 20e-6, 370e9), 0.01, 1)
    times[0] *= factor
    fit = fit_run(run_of(FULL, times))
    (outlier,) = fit.outliers
    assert (outlier.row.line, outlier.reason) == (FIRST_LINE, "cold")
    assert "cold_first_row" in codes(fit) and "outlier" not in codes(fit)
    assert cold_excess(times) == pytest.approx(factor, rel=0.03)
    assert cold_excess(times[1:]) is None
    assert cold_excess(np.array([1.3, 1.0, 1.5, 1.1])) is None  # the others scatter as much


def test_a_run_that_no_line_describes_is_said_to_be_badly_described():
    times = noisy(line_times(FULL, "all_reduce", 8, 20e-6, 370e9), 0.03, 1)
    wild = times * np.random.default_rng(0).uniform(0.5, 2, len(times))
    assert "poor_fit" in codes(fit_run(run_of(FULL, wild)))
    assert "poor_fit" not in codes(fit_run(run_of(FULL, times)))


def test_a_doubtful_row_is_no_point():
    run = straight_run(FULL)
    rows = list(run.rows)
    rows[10] = Row(rows[10].nbytes, rows[10].seconds, rows[10].line, suspect="time")
    rows[11] = Row(rows[11].nbytes, rows[11].seconds, rows[11].line, suspect="algbw")
    fit = fit_run(Run(run.op, run.n_ranks, tuple(rows), 1))
    (outlier,) = fit.outliers
    assert (outlier.row.line, outlier.reason) == (FIRST_LINE + 10, "doubtful")
    assert not fit.used[10] and fit.used[11]
    assert "doubtful_row" in codes(fit)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=12))
def test_the_growing_median_grows_and_leaves_what_grows(values):
    fitted = growing_median(np.array(values, dtype=float))
    assert np.all(np.diff(fitted) >= 0)
    assert growing_median(np.sort(values)).tolist() == sorted(values)
    # no constant is nearer
    deviation = np.abs(fitted - values).sum()
    assert all(deviation <= np.abs(np.array(values) - value).sum() for value in values)


# ---------------------------------------------------------------------------------------
# What cannot be fitted


def test_rows_of_no_bytes_are_no_points():
    fit = fit_run(
        run_of([0, 0, *FULL], [9e-6, 9e-6, *line_times(FULL, "all_reduce", 8, 2e-5, 4e11)])
    )
    assert len(fit.rows) == len(FULL)
    assert fit.alpha.value == pytest.approx(2e-5, rel=1e-3)


@pytest.mark.parametrize("sizes", [[], [0, 0, 0], [MIB], [MIB, MIB, MIB], [0, MIB]], ids=str)
def test_fewer_points_than_parameters_are_refused(sizes):
    with pytest.raises(LogError, match="two unknowns") as refusal:
        fit_run(run_of(sizes, [1e-3] * len(sizes)))
    assert refusal.value.code == "few_points"


def test_one_rank_is_refused():
    with pytest.raises(LogError, match="one rank") as refusal:
        fit_run(run_of(FULL, np.ones(len(FULL)), n_ranks=1))
    assert refusal.value.code == "one_rank"


def test_two_points_give_a_line_without_intervals():
    sizes = [8, GIB]
    fit = fit_run(run_of(sizes, line_times(sizes, "all_reduce", 8, 20e-6, 370e9)))
    assert fit.alpha.value == pytest.approx(20e-6, rel=1e-3)
    assert fit.beta.value == pytest.approx(370e9, rel=1e-3)
    assert fit.alpha.interval is None and fit.beta.interval is None
    assert fit.held_out_error() is None
    assert "two_points" in codes(fit)


def test_every_test_of_nccl_has_its_messages_or_none():
    counted = {op: messages_of(run_of([8], [1.0], op, 8))[0] for op in OPS}
    assert counted.pop("hypercube") is None
    assert counted.pop("all_reduce") == 14
    assert counted.pop("sendrecv") == 1
    assert set(counted.values()) == {7}
    assert messages_of(run_of([8], [1.0], algorithm="recursive_doubling")) == (None, None)
    assert messages_of(run_of([8], [1.0], algorithm="ring")) == (14, "ring")
    assert messages_of(run_of([8], [1.0], algorithm="backend")) == (14, "ring")


# ---------------------------------------------------------------------------------------
# Real logs


@pytest.mark.real_logs
def test_real_logs_are_predicted_on_rows_held_out():
    # Of these the INDEX says that something was wrong with the machine.
    sick = ("12_", "14_", "15_")
    n_long = 0
    for path in REAL_LOG_FILES:
        try:
            log = read_log_file(path)
        except LogError:
            continue
        for run in log.runs:
            fit = fit_run(run)
            if len(fit.rows) < 21:
                continue
            n_long += 1
            assert fit.held_out_error() <= 0.08, path.name
            if not path.name.startswith(sick):
                assert fit.held_out_error(all_rows=True) <= 0.08, path.name
                assert fit.held_out_error(all_rows=True, smallest=32 * MIB) <= 0.05, path.name
    assert n_long > 0


# ---------------------------------------------------------------------------------------
# Figures


@pytest.mark.parametrize("name", ["time_and_model", "residuals"])
def test_the_figures_draw_what_was_fitted(name):
    run = two_regimes(0)
    rows = list(run.rows)
    rows[25] = Row(rows[25].nbytes, 4 * rows[25].seconds, rows[25].line)
    fit = fit_run(Run(run.op, run.n_ranks, tuple(rows), 1))
    fig = Figure(figsize=(5.6, 3.5))
    drawn = getattr(figures, name)(fig, fit=fit)
    fig.draw_without_rendering()
    if name == "time_and_model":
        assert drawn["outliers"].tolist() == [FULL[25]]
        assert drawn["breaks"] == fit.model.breaks
        assert drawn["model"] == pytest.approx(fit.model.seconds(drawn["nbytes"]))
        assert len(drawn["nbytes"]) == fit.used.sum()
    else:
        assert drawn["nbytes"].tolist() == FULL
        assert drawn["error"] == pytest.approx(fit.predicted / fit.seconds - 1)
        assert drawn["held_out"] == pytest.approx(fit.held_out / fit.seconds - 1)
        assert FULL[25] in drawn["beyond"]
        low, high = fig.axes[0].get_ylim()
        points = [line.get_ydata() for line in fig.axes[0].lines[1:] if len(line.get_ydata()) > 2]
        assert all(low < np.min(y) and np.max(y) < high for y in points if len(y) > 2)


def test_busbw_is_that_of_the_log():
    fit = fit_run(straight_run(FULL, noise=0.0))
    row = fit.rows[-1]
    assert fit.busbw[-1] == pytest.approx(bus_factor("all_reduce", 8) * row.nbytes / row.seconds)


def test_two_large_rows_tell_no_alpha():
    sizes = doubling(32 * MIB, 64 * MIB)
    fit = fit_run(straight_run(sizes, alpha=400e-6, beta=300e9))
    assert fit.alpha is None
    assert "alpha_not_determined" in {remark.code for remark in fit.remarks}
    assert fit.beta is not None


def test_a_row_as_late_as_the_next_larger_size_is_told_from_it():
    sizes = doubling(KIB, 8 * GIB)
    late = sizes.index(64 * MIB)
    named = 0
    for seed in range(12):
        seconds = noisy(line_times(sizes, "all_reduce", 8, 32e-6, 365e9), 0.02, seed)
        seconds[late] = seconds[late + 1]
        fit = fit_run(run_of(sizes, seconds))
        assert fit.beta.value == pytest.approx(365e9, rel=0.05)
        named += [outlier.row.nbytes for outlier in fit.outliers] == [64 * MIB]
    assert named >= 11
