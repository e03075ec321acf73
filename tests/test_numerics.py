"""Order of additions and bits."""

from __future__ import annotations

import numpy as np
import pytest

from commlab.numerics import random_buffers, rank_order_sum, share_differing, sum_over_ranks


def test_share_counts_bits_not_values() -> None:
    zero = np.array([0.0, 1.0, 2.0, np.nan])
    other = np.array([-0.0, 1.0, np.nextafter(2.0, 3.0), np.nan])
    assert share_differing(zero, other) == 0.5
    assert share_differing(zero, zero.copy()) == 0.0


def test_integers_do_not_depend_on_order() -> None:
    parts = [np.arange(17) * k for k in range(12)]
    for n_ranks in (1, 2, 3, 4, 6, 12):
        np.testing.assert_array_equal(sum_over_ranks(parts, n_ranks), rank_order_sum(parts))


def test_floats_do() -> None:
    parts = random_buffers(12, 1000, seed=1)
    one_rank = sum_over_ranks(parts, 1)
    assert share_differing(one_rank, rank_order_sum(parts)) == 0.0
    for n_ranks in (2, 3, 4, 6, 12):
        assert 0.3 < share_differing(sum_over_ranks(parts, n_ranks), one_rank) < 0.95


def test_random_buffers_repeat() -> None:
    first, second = (random_buffers(3, 5, seed=4) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not np.array_equal(first[0], random_buffers(3, 5, seed=5)[0])
    assert first[0].dtype == np.float32


def test_bad_input_is_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="cannot be shared out evenly over 5 ranks"):
        sum_over_ranks([np.zeros(3)] * 12, 5)
    with pytest.raises(ValueError, match="one shape and dtype"):
        share_differing(np.zeros(3), np.zeros(3, np.float32))
