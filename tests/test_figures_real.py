from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

import commlab
from commlab.algorithms import gloo_ring_all_reduce, naive_all_reduce, ring_all_reduce
from commlab.explore.render import FIGURE_RC
from commlab.figures import style
from commlab.figures.real import (
    MOST_RANKS,
    N_ELEMENTS,
    measured_and_model,
    orders_of_addition,
    random_vectors,
)
from tests.test_figures_inside import texts_at_the_edge

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


def draw_orders(**state: int) -> tuple[Figure, dict]:
    fig = Figure()
    return fig, orders_of_addition(fig, **state)


@pytest.mark.parametrize("n_ranks", range(2, MOST_RANKS + 1))
def test_sums_are_those_of_the_simulator(n_ranks):
    vectors = list(random_vectors()[:n_ranks])
    results = {
        "rank order": commlab.simulate(naive_all_reduce(n_ranks), vectors).buffers[0],
        "textbook ring": commlab.simulate(ring_all_reduce(n_ranks), vectors).buffers[0],
        "gloo's ring": commlab.simulate(gloo_ring_all_reduce(n_ranks, N_ELEMENTS), vectors).buffers[
            0
        ],
    }
    for element in (0, 1, 511, 512, 2047, 4095):
        _, data = draw_orders(n_ranks=n_ranks, element=element)
        for name, result in results.items():
            assert data[name]["sum"] == result[element]
            assert data[name]["as_gloo"] == (result[element] == results["gloo's ring"][element])


@pytest.mark.parametrize("n_ranks", [2, 3, 8])
def test_each_rank_is_added_once_and_rings_start_at_the_chunk(n_ranks):
    for chunk in range(n_ranks):
        element = (2 * chunk + 1) * N_ELEMENTS // (2 * n_ranks)  # in the chunk's middle
        _, data = draw_orders(n_ranks=n_ranks, element=element)
        upwards = [(chunk + i) % n_ranks for i in range(n_ranks)]
        downwards = [(chunk - 1 - i) % n_ranks for i in range(n_ranks)]
        assert data["rank order"]["order"] == list(range(n_ranks))
        assert data["textbook ring"]["order"] == upwards
        assert data["gloo's ring"]["order"] == downwards


def test_two_numbers_have_one_sum_and_more_may_have_several():
    sums = {
        n_ranks: [
            len({one["sum"] for one in draw_orders(n_ranks=n_ranks, element=e)[1].values()})
            for e in range(0, N_ELEMENTS, 512)
        ]
        for n_ranks in (2, 8)
    }
    assert set(sums[2]) == {1}
    assert max(sums[8]) == 3


def test_boxes_and_title_say_what_was_found():
    fig, data = draw_orders(n_ranks=8, element=3584)
    (ax,) = fig.axes
    texts = [text.get_text() for text in ax.texts]
    for one in data.values():
        assert f"{one['sum']:.9f}".replace("-", "−") in texts
    assert sorted(text for text in texts if len(text) == 1) == sorted("01234567" * 3)
    different = len({one["sum"] for one in data.values()})
    assert f"{different} different sums" in ax.get_title(loc="left")


@pytest.mark.parametrize("n_ranks", [2, MOST_RANKS])
@pytest.mark.parametrize("element", [0, 1536, 3584])
def test_every_text_of_the_orders_is_inside(n_ranks, element, monkeypatch):
    with mpl.rc_context(FIGURE_RC):
        fig = Figure(figsize=style.FIGURE_SIZE, dpi=100)
        orders_of_addition(fig, n_ranks=n_ranks, element=element)
        assert texts_at_the_edge(fig, monkeypatch) == []
