"""The figures of §2 and §5 show what the science says."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from commlab.algorithms import REGISTRY
from commlab.figures.collectives import PATTERNS, draw_traffic
from commlab.figures.data_parallel import (
    BATCH_SIZE,
    CEILING,
    FLOOR,
    N_STEPS,
    SEED,
    draw_uneven_shards,
    uneven_counts,
)
from commlab.simulate import ledger
from commlab.training import make_batches, train_data_parallel, train_single

RANKS = [2, 3, 4, 5, 6, 8, 12, 16]


def drawn_traffic(pattern: str, n_ranks: int):
    fig = Figure()
    return fig, draw_traffic(fig, pattern=pattern, n_ranks=n_ranks)


class TestTraffic:
    @pytest.mark.parametrize("pattern", PATTERNS)
    @pytest.mark.parametrize("n_ranks", RANKS)
    def test_squares_and_bars_agree_with_the_ledger(self, pattern, n_ranks):
        fig, data = drawn_traffic(pattern, n_ranks)
        account = ledger(REGISTRY[PATTERNS[pattern]].build(n_ranks))
        squares, totals = fig.axes

        links = {
            (int(src), int(dst)) for line in squares.get_lines() for dst, src in line.get_xydata()
        }
        assert links == set(account.by_link)
        assert data["links in use"] == len(links)

        sent, received = (
            [right - left for (left, _), (right, _) in bars.get_segments()]
            for bars in totals.collections
        )
        np.testing.assert_allclose(sent, [float(share) for share in account.sent])
        np.testing.assert_allclose(received, [float(share) for share in account.received])
        assert max(*sent, *received) <= totals.get_xlim()[1]

    def test_area_is_what_a_link_carries(self):
        fig, data = drawn_traffic("all-reduce, ring", 8)
        (squares,) = fig.axes[0].get_lines()
        (whole,) = drawn_traffic("all-reduce, naive", 8)[0].axes[0].get_lines()
        area = squares.get_markersize() ** 2 / whole.get_markersize() ** 2
        assert area == pytest.approx(2 * 7 / 8)
        assert data["most sent [S]"] == "7/4"

    def test_a_ring_talks_to_its_right_neighbour_only(self):
        matrix = drawn_traffic("all-gather, ring", 5)[1]["sent from row to column [S]"]
        np.testing.assert_allclose(matrix, 0.8 * np.roll(np.eye(5), 1, axis=1))

    def test_all_to_all_uses_every_link_alike(self):
        matrix = drawn_traffic("all-to-all, pairwise", 6)[1]["sent from row to column [S]"]
        np.testing.assert_allclose(matrix, (1 - np.eye(6)) / 6)

    def test_title_names_the_busiest_rank(self):
        fig, _ = drawn_traffic("reduce, binomial tree", 8)
        assert "busiest rank moves 3 S" in fig.get_suptitle()


class TestUnevenShards:
    @pytest.mark.parametrize(("extra", "sorted_share"), [(0, 0.5), (1, 0.0), (36, 0.0), (128, 1.0)])
    def test_curves_are_those_of_real_ranks(self, extra, sorted_share):
        data = draw_uneven_shards(Figure(), extra=extra, sorted_share=sorted_share)
        counts = uneven_counts(extra)
        assert data["samples per rank"] == counts
        batches = make_batches(N_STEPS, BATCH_SIZE, seed=SEED, sorted_share=sorted_share)
        reference = train_single(batches)
        for name, combination in (
            ("mean of means, per step", "mean_of_means"),
            ("weighted, per step", "weighted"),
        ):
            run = train_data_parallel(batches, counts, combination=combination)
            expected = np.abs(run.history - reference).max(axis=(1, 2))
            np.testing.assert_allclose(data[name], expected, atol=1e-12)

    def test_weighting_stays_at_rounding_and_the_mean_of_means_does_not(self):
        last = 0.0
        for extra in (1, 8, 36, 128):
            data = draw_uneven_shards(Figure(), extra=extra)
            assert data["weighted, whole run"] == "below 1e-15"
            assert float(data["mean of means, last step"]) > max(last, 5e-4)
            last = float(data["mean of means, last step"])

    def test_even_shards_are_right_however_the_data_are_split(self):
        for sorted_share in (0.0, 1.0):
            data = draw_uneven_shards(Figure(), extra=0, sorted_share=sorted_share)
            assert data["mean of means, last step"] == "below 1e-15"

    @pytest.mark.parametrize("extra", [0, 36, 128])
    def test_both_curves_lie_inside_the_axes(self, extra):
        fig = Figure()
        draw_uneven_shards(fig, extra=extra, sorted_share=1.0)
        lines = fig.axes[1].get_lines()
        assert [line.get_label() for line in lines] == ["mean of means", "weighted by samples"]
        for line in lines:
            assert len(line.get_ydata()) == N_STEPS
            assert FLOOR <= min(line.get_ydata()) <= max(line.get_ydata()) <= CEILING

    def test_shards_fill_the_batch(self):
        for extra in (0, 1, 128):
            counts = uneven_counts(extra)
            assert sum(counts) == BATCH_SIZE
            assert counts[0] == 64 + extra
