"""The checks of arguments: any bad value of an array is found, and nobody's array is changed."""

from __future__ import annotations

import numpy as np
import pytest

from commlab import cost
from commlab.checks import check_alpha, check_beta, check_count, check_nbytes

CHECKS = {
    "nbytes": check_nbytes,
    "alpha": check_alpha,
    "beta": check_beta,
    "n_ranks": lambda values: check_count(values, "n_ranks"),
}


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -1e6])
@pytest.mark.parametrize("place", [0, 1, 500, 999])
def test_one_bad_value_in_a_thousand_is_found(name: str, bad: float, place: int) -> None:
    values = np.full(1000, 1e7)
    values[place] = bad
    with pytest.raises(ValueError, match=name):
        CHECKS[name](values)


@pytest.mark.parametrize("name", CHECKS)
def test_the_limits_themselves(name: str) -> None:
    assert CHECKS[name](np.array([])).size == 0
    assert CHECKS[name]([1e7, 1e300]).tolist() == [1e7, 1e300]
    if name in ("nbytes", "alpha"):
        assert CHECKS[name](0) == 0
    else:
        with pytest.raises(ValueError, match=name):
            CHECKS[name](0)


@pytest.mark.parametrize("name", CHECKS)
def test_the_callers_array_is_read_and_not_changed(name: str) -> None:
    values = np.array([1e7, 2e7])
    checked = CHECKS[name](values)
    assert np.shares_memory(checked, values)
    with pytest.raises(ValueError, match="read-only"):
        checked *= 2
    values[0] = 3e7
    assert values.tolist() == [3e7, 2e7]


def test_a_closed_form_returns_an_array_of_its_own() -> None:
    sizes = np.array([1e6, 1e9])
    seconds = cost.alpha_beta_ring_allreduce(sizes, np.array([2, 4]), 0.0, 1e9)
    assert not np.shares_memory(seconds, sizes)
    seconds[0] = 0.0
