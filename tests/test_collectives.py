"""The six collectives on lists of arrays."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from schedules import ALGORITHMS, RANKS

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


def reference(collective: str, buffers: list[np.ndarray], root: int) -> list[np.ndarray]:
    """What a collective means, in plain numpy, without schedules or chunks."""
    n_ranks = len(buffers)
    total = np.sum(buffers, axis=0)
    nothing = buffers[0][:0]
    if collective == "broadcast":
        return [buffers[root]] * n_ranks
    if collective == "reduce":
        return [total if rank == root else nothing for rank in range(n_ranks)]
    if collective == "all_reduce":
        return [total] * n_ranks
    if collective == "all_gather":
        return [np.concatenate(buffers)] * n_ranks
    bounds = [rank * total.size // n_ranks for rank in range(n_ranks + 1)]
    parts = [slice(*pair) for pair in pairwise(bounds)]
    if collective == "reduce_scatter":
        return [total[part] for part in parts]
    assert collective == "all_to_all"
    return [np.concatenate([buffer[part] for buffer in buffers]) for part in parts]


@pytest.mark.parametrize("n_ranks", [1, *RANKS])
@pytest.mark.parametrize("key", ALGORITHMS)
def test_every_algorithm_means_what_numpy_says(key: tuple[str, str], n_ranks: int) -> None:
    collective, algorithm = key
    call = getattr(commlab, collective)
    rng = np.random.default_rng(n_ranks)
    # Lengths that divide by N, that do not, and that leave chunks without an element.
    for length in (3 * n_ranks, 3 * n_ranks + 1, n_ranks - 1):
        buffers = [rng.integers(0, 1000, length) for _ in range(n_ranks)]
        roots = range(n_ranks) if collective in ("broadcast", "reduce") else [0]
        for root in roots:
            options = {"root": root} if collective in ("broadcast", "reduce") else {}
            if not REGISTRY[key].supports(n_ranks):
                with pytest.raises(ValueError, match=f"needs .*; got {n_ranks} ranks"):
                    call(buffers, algorithm=algorithm, **options)
                continue
            results = call(buffers, algorithm=algorithm, **options)
            for got, wanted in zip(results, reference(collective, buffers, root), strict=True):
                np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("n_ranks", RANKS)
@pytest.mark.parametrize("algorithm", ["pairwise", "direct", "two_level"])
def test_uneven_splits(n_ranks: int, algorithm: str) -> None:
    rng = np.random.default_rng(n_ranks)
    splits = rng.integers(0, 4, (n_ranks, n_ranks))
    splits[0, 0] += 1
    pieces = [[rng.integers(0, 99, count) for count in row] for row in splits]
    buffers = [np.concatenate(row) for row in pieces]
    if not REGISTRY["all_to_all", algorithm].supports(n_ranks):
        with pytest.raises(ValueError, match="fills nodes of equal size"):
            commlab.all_to_all(buffers, algorithm, splits)
        return
    results = commlab.all_to_all(buffers, algorithm, splits)
    for receiver, got in enumerate(results):
        wanted = np.concatenate([pieces[sender][receiver] for sender in range(n_ranks)])
        np.testing.assert_array_equal(got, wanted)


def test_small_integers_count_elements() -> None:
    splits = np.array([[200, 100], [200, 100]], np.uint8)
    results = commlab.all_to_all([np.arange(300)] * 2, splits=splits)
    assert [result.size for result in results] == [400, 200]


def test_what_numpy_would_strip_is_refused() -> None:
    masked = np.ma.array([1, 2, 3], mask=[0, 1, 0])
    with pytest.raises(ValueError, match="the buffer of rank 1 is masked"):
        commlab.all_reduce([np.zeros(3), masked])
    with pytest.raises(ValueError, match="rank 0 is masked"):
        commlab.all_to_all([masked] * 2, splits=[[1, 2]] * 2)
    tensor = pytest.importorskip("torch").zeros(3)
    with pytest.raises(ValueError, match="rank 0 is a torch tensor: pass"):
        commlab.all_reduce([tensor] * 2)


def test_options_reach_the_algorithm() -> None:
    buffers = [np.arange(8) * (rank + 1) for rank in range(8)]
    total = np.sum(buffers, axis=0)
    for gpus_per_node in (1, 2, 4, 8):
        for got in commlab.all_reduce(buffers, "hierarchical", gpus_per_node=gpus_per_node):
            np.testing.assert_array_equal(got, total)
    for got in commlab.all_reduce(buffers, "double_binary_tree", pipeline_chunks=3):
        np.testing.assert_array_equal(got, total)
    shifted = commlab.reduce_scatter(buffers, owner_shift=1)
    assert [got.tolist() for got in shifted] == [[total[(r + 1) % 8]] for r in range(8)]


def test_small_integer_types_count_ranks() -> None:
    for key, entry in REGISTRY.items():
        schedule = entry.builder(np.uint8(16))
        assert schedule.n_ranks == 16, key
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
        (
            lambda: commlab.all_reduce([np.zeros(3)], "torus"),
            "choose one of: bidirectional_",
        ),
        (lambda: commlab.broadcast([np.zeros(3)] * 2, root=2), "root must be one of"),
        (lambda: commlab.reduce([np.zeros(3)] * 2, root=-1), "root must be one of"),
        (lambda: commlab.broadcast([np.zeros(3)] * 2, root=0.5), "root must be one of"),
        (lambda: commlab.all_gather([np.zeros((2, 2))] * 2), "flatten them first"),
        (
            lambda: commlab.all_reduce([np.zeros(3)] * 4, "ring", pipeline_chunks=2),
            "takes no option 'pipeline_chunks'; its options: none",
        ),
        (
            lambda: commlab.all_reduce([np.zeros(3)] * 4, "hierarchical", gpus_per_node=3),
            "needs a number of ranks that fills nodes",
        ),
        (
            lambda: commlab.all_reduce([np.zeros(3)] * 4, "pipelined_chain", pipeline_chunks=0),
            "pipeline_chunks must be a whole number, 1 or more",
        ),
        (
            lambda: commlab.all_reduce([np.zeros(3)] * 8, "multi_rail_ring", rails=3),
            "3 rails do not serve 4 GPUs evenly",
        ),
        (
            lambda: commlab.all_to_all([np.zeros(3)] * 2, splits=[[1, 2], [1, 1]]),
            "rank 1 passes an array of shape .* add up to 2",
        ),
        (
            lambda: commlab.all_to_all([np.zeros(3)] * 2, splits=[[1, 2], [1, -1]]),
            "counts must be a table of 2 by 2 whole numbers",
        ),
        (
            lambda: commlab.all_to_all([np.zeros(0)] * 2, splits=[[0, 0], [0, 0]]),
            "nothing is exchanged",
        ),
        (
            lambda: commlab.all_to_all([np.zeros(3)] * 2, "bruck", splits=[[1, 2], [1, 2]]),
            "takes no option 'counts'",
        ),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
