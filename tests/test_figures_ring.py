"""Figures of section 3 return what they draw, and it is what commlab computes."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

import commlab
from commlab.algorithms import naive_all_reduce, ring_all_reduce
from commlab.figures import ring
from commlab.units import GIB


def drawn_line(fig: Figure, label: str) -> np.ndarray:
    (line,) = [line for line in fig.axes[0].lines if line.get_label() == label]
    return line.get_xydata()


@pytest.mark.parametrize("n_ranks", ring.RANKS)
def test_bytes_per_rank(n_ranks: int) -> None:
    fig = Figure()
    data = ring.draw_bytes_per_rank(fig, n_ranks)
    assert data["ring_at"] == 2 * (n_ranks - 1) / n_ranks
    assert np.all(data["ring"] < 2)
    for n, ring_share, naive_share in zip(
        data["counted_ranks"], data["counted"]["ring"], data["counted"]["naive"], strict=True
    ):
        assert ring_share == float(commlab.ledger(ring_all_reduce(n)).max_sent)
        assert naive_share == float(commlab.ledger(naive_all_reduce(n)).max_sent)
        place = list(data["ranks"]).index(n)
        assert data["ring"][place] == pytest.approx(ring_share, rel=1e-15)
        assert data["naive"][place] == naive_share
    np.testing.assert_array_equal(drawn_line(fig, "ring: every rank")[:, 1], data["ring"])
    np.testing.assert_array_equal(drawn_line(fig, "naive: rank 0")[:, 1], data["naive"])


@pytest.mark.parametrize("nbytes", [2**16, GIB, 2**34])
@pytest.mark.parametrize("alpha", [5e-7, 5e-5])
def test_time_against_ranks(nbytes: int, alpha: float) -> None:
    fig = Figure()
    data = ring.draw_time_against_ranks(fig, nbytes, alpha, 450e9)
    for place, n in enumerate(ring.RANKS):
        assert data["ring"][place] == commlab.alpha_beta_ring_allreduce(nbytes, n, alpha, 450e9)
        assert data["naive"][place] == commlab.alpha_beta_naive_allreduce(nbytes, n, alpha, 450e9)
        assert data["latency"][place] == pytest.approx(2 * (n - 1) * alpha)
    assert data["ceiling"] == 2 * nbytes / 450e9
    np.testing.assert_array_equal(drawn_line(fig, "ring")[:, 1], data["ring"])
    low, high = fig.axes[0].get_ylim()
    assert low <= data["ring"].min()
    assert data["naive"].max() <= high


@pytest.mark.parametrize("n_ranks", range(2, 17))
def test_chunks_of_rank_zero(n_ranks: int) -> None:
    data = ring.draw_chunks_of_rank_zero(Figure(), n_ranks)
    held = data["held"]
    assert held.shape == (2 * (n_ranks - 1) + 1, n_ranks)
    assert np.all(held[0] == 1)
    assert np.all(np.diff(held, axis=0) >= 0)
    # One complete chunk when the reduce-scatter is over, all at the end and not before.
    assert np.count_nonzero(held[n_ranks - 1] == n_ranks) == 1
    assert np.all(held[-1] == n_ranks)
    assert np.any(held[-2] < n_ranks)


def test_differing_shares_are_drawn_as_percent() -> None:
    fig = Figure()
    ring.draw_differing_shares(fig, {"a": 0.25, "b": 0.5}, "message")
    assert [bar.get_width() for bar in fig.axes[0].patches] == [25, 50]
