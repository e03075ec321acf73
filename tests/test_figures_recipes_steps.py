"""The explorers of §1 on precision and optimizer, and of §2 on one collective's steps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from matplotlib.figure import Figure

from commlab.algorithms import REGISTRY
from commlab.budget import training_state
from commlab.figures.collective_steps import MOST_MOVED, MOST_STEPS, N_RANKS, draw_collective
from commlab.figures.collectives import PATTERNS
from commlab.figures.memory_bars import LONGEST
from commlab.figures.recipes import RECIPES, state_by_recipe
from commlab.hardware import H100
from commlab.ledger import ledger
from commlab.models import LLAMA3_8B


@pytest.mark.parametrize(("parameters", "n_gpus"), [(5e8, 1), (LLAMA3_8B.parameters, 2), (4e11, 1)])
def test_bars_of_the_recipes_are_their_bytes(parameters, n_gpus):
    fig = Figure()
    data = state_by_recipe(fig, parameters=parameters, n_gpus=n_gpus)
    ends = np.zeros(len(RECIPES))
    for bars in fig.axes[0].containers:
        for row, bar in enumerate(bars):
            assert bar.get_x() == pytest.approx(ends[row])
            ends[row] += bar.get_width()
    for end, recipe, total in zip(ends, RECIPES.values(), data["totals"], strict=True):
        assert total == pytest.approx(recipe.total * parameters / n_gpus)
        assert end == pytest.approx(min(total, LONGEST))
    fitting = [total <= H100.memory_bytes for total in data["totals"]]
    assert data["fits"] == [name for name, fits in zip(RECIPES, fitting, strict=True) if fits]


def test_mixed_adam_is_the_training_state_of_the_book():
    for name, gradient_bytes in (("Adam, mixed", 2), ("same, FP32 gradients", 4)):
        one = training_state(1, gradient_bytes=gradient_bytes)
        recipe = RECIPES[name]
        assert (recipe.parameter, recipe.gradient) == (one.parameters, one.gradients)
        assert recipe.master_copy == one.master_copy
        assert recipe.moments == one.first_moment + one.second_moment
    assert RECIPES["Adam, all FP32"].total == RECIPES["Adam, mixed"].total


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_last_step_is_the_ledger_and_each_step_moves_something(pattern):
    schedule = REGISTRY[PATTERNS[pattern]].build(N_RANKS)
    account = ledger(schedule)
    steps = [draw_collective(Figure(), pattern, step) for step in range(MOST_STEPS + 1)]
    assert steps[0]["sent"].sum() == 0
    for here, there in itertools.pairwise(steps):
        assert (there["sent"].sum() > here["sent"].sum()) == (not here["done"])
    np.testing.assert_allclose(steps[-1]["sent"], [float(share) for share in account.sent])
    np.testing.assert_allclose(steps[-1]["received"], [float(share) for share in account.received])
    assert steps[-1]["done"]
    assert max(*account.sent, *account.received) <= MOST_MOVED
    for rank, chunks in enumerate(schedule.ends):
        assert np.all(steps[-1]["held"][rank][list(chunks)] > 0)


def test_cells_show_the_values_of_the_page():
    def shown(pattern, step):
        fig = Figure()
        draw_collective(fig, pattern, step)
        return [text.get_text() for text in fig.axes[0].texts]

    assert shown("broadcast, binomial tree", 0) == ["1 2 3 4"]
    assert shown("broadcast, binomial tree", 2) == ["1 2 3 4"] * 4
    assert shown("all-gather, ring", 3) == ["1", "11", "21", "31"] * 4
    assert shown("all-reduce, ring", 6) == ["64", "68", "72", "76"] * 4


def test_half_a_ring_all_reduce_has_the_sums_of_a_reduce_scatter():
    """What §2 says: the owners are shifted by one chunk."""
    half = draw_collective(Figure(), "all-reduce, ring", 3)["held"]
    scattered = draw_collective(Figure(), "reduce-scatter, ring", 3)["held"]
    complete = [np.flatnonzero(held == N_RANKS).tolist() for held in half]
    assert complete == [[(rank + 1) % N_RANKS] for rank in range(N_RANKS)]
    assert [np.flatnonzero(held == N_RANKS).tolist() for held in scattered] == [
        [rank] for rank in range(N_RANKS)
    ]
