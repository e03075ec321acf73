"""The figures of §2 and §5 show what the science says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from commlab.algorithms import REGISTRY
from commlab.budget import H100_CLUSTER, compute_time
from commlab.figures import style
from commlab.figures.collectives import PATTERNS, draw_traffic
from commlab.figures.data_parallel import (
    BATCH_SIZE,
    CEILING,
    FLOOR,
    GRADIENT_BYTES,
    LONGEST_STEP_SECONDS,
    MOST_TOKENS,
    N_LINKED_RANKS,
    N_STEPS,
    SEED,
    all_reduce_cost,
    draw_accumulation,
    draw_uneven_shards,
    uneven_counts,
)
from commlab.ledger import ledger
from commlab.models import LLAMA3_8B
from commlab.training import make_batches, train_data_parallel, train_single
from tests.notebook_explorers import explorers_of

PAGE = Path(__file__).resolve().parents[1] / "notebooks" / "05_data_parallelism.ipynb"
UNEVEN = [100, 60, 60, 36]
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
    @pytest.mark.parametrize(("extra", "sorted_share"), [(0, 0.5), (1, 0.0), (36, 0.0), (72, 1.0)])
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
        for extra in (1, 9, 36, 72):
            data = draw_uneven_shards(Figure(), extra=extra)
            assert data["weighted, whole run"] == "below 1e-15"
            assert float(data["mean of means, last step"]) > max(last, 5e-4)
            last = float(data["mean of means, last step"])

    def test_even_shards_are_right_however_the_data_are_split(self):
        for sorted_share in (0.0, 1.0):
            data = draw_uneven_shards(Figure(), extra=0, sorted_share=sorted_share)
            assert data["mean of means, last step"] == "below 1e-15"

    @pytest.mark.parametrize("extra", [0, 36, 72])
    def test_both_curves_lie_inside_the_axes(self, extra):
        fig = Figure()
        draw_uneven_shards(fig, extra=extra, sorted_share=1.0)
        lines = fig.axes[1].get_lines()
        assert [line.get_label() for line in lines] == ["mean of means", "weighted by samples"]
        for line in lines:
            assert len(line.get_ydata()) == N_STEPS
            assert FLOOR <= min(line.get_ydata()) <= max(line.get_ydata()) <= CEILING

    def test_shards_fill_the_batch(self):
        for extra in (0, 1, 2, 4, 9, 18, 36, 54, 72):
            counts = uneven_counts(extra)
            assert sum(counts) == BATCH_SIZE
            assert counts[0] == 64 + extra
            assert min(counts) >= 1
        assert uneven_counts(36) == UNEVEN


def spans_of(ax, colour: str) -> list[tuple[float, float]]:
    """(start, length) of all bars of one colour, by lane from bottom to top."""
    return [
        (path.get_extents().x0, path.get_extents().width)
        for bars in ax.collections
        if bars.get_facecolor()[0] == pytest.approx(to_rgba(colour))
        for path in bars.get_paths()
    ]


class TestAccumulation:
    @pytest.mark.parametrize("micro_batches", [1, 2, 3, 8, 12])
    @pytest.mark.parametrize("tokens", [8192, 32768, 98304])
    def test_lanes_hold_all_work_one_after_the_other(self, micro_batches, tokens):
        fig = Figure()
        data = draw_accumulation(fig, micro_batches=micro_batches, tokens=tokens)
        lanes, memory = fig.axes
        compute = compute_time(LLAMA3_8B.parameters, tokens, H100_CLUSTER)
        computing = spans_of(lanes, style.COMPUTE)
        communicating = spans_of(lanes, style.COMMUNICATION)
        assert len(computing) == 2 * micro_batches
        assert len(communicating) == micro_batches + 1
        assert sum(length for _, length in computing) == pytest.approx(2 * compute)
        for length in (length for _, length in communicating):
            assert length == pytest.approx(all_reduce_cost()[1])
        # The lower lane, drawn first, is no_sync.
        end_once = communicating[0][0] + communicating[0][1]
        end_each = communicating[-1][0] + communicating[-1][1]
        assert end_once == pytest.approx(data["seconds, no_sync"])
        assert end_each == pytest.approx(data["seconds, all-reduce after each"])
        assert end_each <= LONGEST_STEP_SECONDS
        (bar,) = memory.patches
        assert bar.get_width() == tokens / micro_batches <= MOST_TOKENS

    def test_bytes_follow_the_all_reduces_and_not_the_tokens(self):
        sent = 2 * (N_LINKED_RANKS - 1) * GRADIENT_BYTES / N_LINKED_RANKS
        for tokens in (8192, 98304):
            for micro_batches in (1, 5):
                data = draw_accumulation(Figure(), micro_batches=micro_batches, tokens=tokens)
                assert data["bytes sent, no_sync"] == sent
                assert data["bytes sent, all-reduce after each"] == micro_batches * sent

    def test_every_state_of_the_page_fits_the_axes(self):
        accumulation, shards = explorers_of(PAGE)
        for state in accumulation.states():
            data = accumulation.bound_draw(Figure(), **accumulation.params(state))
            assert data["seconds, all-reduce after each"] <= LONGEST_STEP_SECONDS
            assert data["tokens held at once"] <= MOST_TOKENS
        assert uneven_counts(shards.params(shards.start)["extra"]) == UNEVEN

    def test_title_says_what_was_saved(self):
        fig = Figure()
        draw_accumulation(fig, micro_batches=8)
        assert fig.get_suptitle() == "8 micro-batches: no_sync sends 26.2 GiB, not 209 GiB"
