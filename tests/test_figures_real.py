from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

import commlab
from commlab.figures.real import measured_and_model

SIZES = [2.0**power for power in range(10, 27, 2)]
ALPHA, BETA = 150e-6, 1.5e9


def draw(**changes: object) -> tuple[Figure, dict]:
    times = commlab.alpha_beta_ring_allreduce(np.array(SIZES), 4, ALPHA, BETA)
    arguments = {
        "nbytes": SIZES,
        "low": times / 2,
        "median": times,
        "high": times * 2,
        "n_ranks": 4,
        "alpha": ALPHA,
        "beta": BETA,
    }
    fig = Figure()
    return fig, measured_and_model(fig, **(arguments | changes))


def test_right_alpha_and_beta_leave_no_error():
    fig, data = draw()
    assert data["worst_error"] == pytest.approx(0, abs=1e-12)
    assert "0%" in fig.axes[0].get_title(loc="left")


def test_alpha_moves_small_sizes_and_beta_large_ones():
    _, wrong_alpha = draw(alpha=2 * ALPHA)
    assert wrong_alpha["error"][0] == pytest.approx(1, abs=0.01)
    assert wrong_alpha["error"][-1] == pytest.approx(0, abs=0.02)
    _, wrong_beta = draw(beta=BETA / 2)
    assert wrong_beta["error"][0] == pytest.approx(0, abs=0.01)
    assert wrong_beta["error"][-1] == pytest.approx(1, abs=0.02)


def test_points_and_spread_are_those_that_were_given():
    fig, data = draw()
    (line, points) = fig.axes[0].get_lines()
    assert points.get_xdata().tolist() == SIZES
    assert points.get_ydata() == pytest.approx(data["median"])
    (spread,) = fig.axes[0].collections
    for segment, median in zip(spread.get_segments(), data["median"], strict=True):
        assert segment[:, 1] == pytest.approx([median / 2, median * 2])
    assert len(line.get_xdata()) <= 100
