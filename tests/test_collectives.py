"""The six collectives on lists of arrays."""

from __future__ import annotations

import numpy as np
import pytest
from schedules import RANKS

import commlab
from commlab.algorithms import REGISTRY


def lecture_buffers(n_ranks: int = 4) -> list[np.ndarray]:
    return [np.arange(1, n_ranks + 1) + 10 * r for r in range(n_ranks)]


def test_the_lectures_example() -> None:
    buffers = lecture_buffers()
    total = [64, 68, 72, 76]
    assert [b.tolist() for b in commlab.all_reduce(buffers)] == [total] * 4
    assert [b.tolist() for b in commlab.reduce_scatter(buffers)] == [[x] for x in total]
    assert commlab.reduce(buffers, root=2)[2].tolist() == total
    assert [b.size for b in commlab.reduce(buffers, root=2)] == [0, 0, 4, 0]
    assert [b.tolist() for b in commlab.broadcast(buffers, root=1)] == [[11, 12, 13, 14]] * 4
    assert commlab.all_to_all(buffers)[1].tolist() == [2, 12, 22, 32]
    assert commlab.all_gather(buffers)[3].tolist() == np.concatenate(buffers).tolist()


@pytest.mark.parametrize("n_ranks", [1, *RANKS])
def test_all_reduce_is_reduce_scatter_then_all_gather(n_ranks: int) -> None:
    rng = np.random.default_rng(n_ranks)
    buffers = [rng.integers(0, 1000, 3 * n_ranks) for _ in range(n_ranks)]
    halves = commlab.all_gather(commlab.reduce_scatter(buffers))
    for key in REGISTRY:
        if key[0] == "all_reduce":
            for whole, two in zip(commlab.all_reduce(buffers, key[1]), halves, strict=True):
                np.testing.assert_array_equal(whole, two)


@pytest.mark.parametrize("n_ranks", RANKS)
def test_every_root(n_ranks: int) -> None:
    buffers = [np.arange(5) * (r + 1) for r in range(n_ranks)]
    for root in range(n_ranks):
        for got in commlab.broadcast(buffers, root):
            np.testing.assert_array_equal(got, buffers[root])
        np.testing.assert_array_equal(commlab.reduce(buffers, root)[root], sum(buffers))


@pytest.mark.parametrize("algorithm", ["pairwise", "direct"])
def test_all_to_all_transposes(algorithm: str) -> None:
    blocks = np.arange(5 * 5 * 2).reshape(5, 5, 2)
    got = commlab.all_to_all([row.reshape(-1) for row in blocks], algorithm)
    np.testing.assert_array_equal(np.array(got).reshape(5, 5, 2), blocks.transpose(1, 0, 2))


def test_small_integer_types_count_ranks() -> None:
    for key, entry in REGISTRY.items():
        schedule = entry.builder(np.uint8(20))
        assert schedule.n_ranks == 20, key
        commlab.verify(schedule)


def test_shapes_are_kept_where_the_collective_keeps_them() -> None:
    buffers = [np.full((2, 3), r) for r in range(4)]
    assert commlab.all_reduce(buffers)[0].shape == (2, 3)
    assert commlab.broadcast(buffers)[3].shape == (2, 3)
    assert commlab.reduce(buffers, root=1)[1].shape == (2, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: commlab.all_reduce([]), "at least one"),
        (lambda: commlab.all_reduce([np.zeros(3), np.zeros(4)]), "ragged"),
        (lambda: commlab.all_reduce([np.zeros(3), np.zeros(3, int)]), "one dtype"),
        (lambda: commlab.all_reduce([np.zeros(3)], "torus"), "choose one of: binomial_tree"),
        (lambda: commlab.broadcast([np.zeros(3)] * 2, root=2), "root must be one of"),
        (lambda: commlab.reduce([np.zeros(3)] * 2, root=-1), "root must be one of"),
        (lambda: commlab.broadcast([np.zeros(3)] * 2, root=0.5), "root must be one of"),
        (lambda: commlab.all_gather([np.zeros((2, 2))] * 2), "flatten them first"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
