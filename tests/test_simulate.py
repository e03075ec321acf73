"""Simulation against plain numpy, the ledger, and numerics."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from schedules import (
    RANKS,
    all_schedules,
    expected_outputs,
    permuted,
    random_inputs,
    uneven_all_reduce,
)

import commlab
from commlab import Schedule, Step, ledger, simulate
from commlab.algorithms import REGISTRY, naive_all_reduce, ring_all_gather, ring_all_reduce

# Sizes that divide, do not divide, are shorter than N, are one element, are empty.
SIZES = [48, 37, 5, 1, 0]


@pytest.mark.parametrize("n_ranks", [1, *RANKS])
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_integers_equal_numpy_exactly(n_ranks: int, dtype: str) -> None:
    rng = np.random.default_rng(n_ranks)
    for schedule in all_schedules(n_ranks):
        for n_elements in SIZES:
            inputs = random_inputs(schedule, n_elements, dtype, rng)
            kept = [buffer.copy() for buffer in inputs]
            outputs = simulate(schedule, inputs).buffers
            wanted = expected_outputs(schedule, n_elements, inputs)
            for rank in range(n_ranks):
                np.testing.assert_array_equal(outputs[rank], wanted[rank])
                assert outputs[rank].dtype == inputs[rank].dtype
                np.testing.assert_array_equal(inputs[rank], kept[rank])


@pytest.mark.parametrize("n_ranks", RANKS)
@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
def test_floats_equal_numpy_to_rounding(n_ranks: int, dtype: str) -> None:
    rng = np.random.default_rng(n_ranks)
    tolerance = 1e-5 if dtype == "float32" else 1e-13
    for schedule in all_schedules(n_ranks):
        inputs = random_inputs(schedule, 37, dtype, rng)
        outputs = simulate(schedule, inputs).buffers
        for got, want in zip(outputs, expected_outputs(schedule, 37, inputs), strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * n_ranks)


@pytest.mark.parametrize("n_ranks", RANKS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_all_ranks_end_bitwise_equal(n_ranks: int, dtype: str) -> None:
    rng = np.random.default_rng(7)
    for schedule in all_schedules(n_ranks):
        if schedule.collective in ("all_reduce", "all_gather", "broadcast"):
            outputs = simulate(schedule, random_inputs(schedule, 101, dtype, rng)).buffers
            assert {buffer.tobytes() for buffer in outputs} == {outputs[0].tobytes()}


def test_algorithms_add_in_different_orders() -> None:
    """Bitwise equality across ranks would say little if every algorithm gave the same bits."""
    rng = np.random.default_rng(0)
    buffers = [rng.standard_normal(4096).astype(np.float32) for _ in range(8)]
    results = {name: commlab.all_reduce(buffers, name)[0] for name in ("naive", "ring")}
    rank_order = buffers[0].copy()
    for buffer in buffers[1:]:
        rank_order += buffer
    np.testing.assert_array_equal(results["naive"], rank_order)
    share = np.mean(results["ring"] != rank_order)
    assert 0.4 < share < 0.7  # the lecture saw 52 percent on its own data


@pytest.mark.parametrize("n_ranks", RANKS)
def test_ledger_is_exact_in_shares(n_ranks: int) -> None:
    part = Fraction(n_ranks - 1, n_ranks)
    ring = ledger(ring_all_reduce(n_ranks))
    assert ring.sent == ring.received == (2 * part,) * n_ranks
    assert ring.critical == ring.max_sent == ring.max_received == 2 * part
    gathered = ledger(ring_all_gather(n_ranks))
    assert gathered.sent == gathered.received == (part,) * n_ranks
    naive = ledger(naive_all_reduce(n_ranks))
    assert naive.sent == naive.received == (Fraction(n_ranks - 1), *[Fraction(1)] * (n_ranks - 1))
    # The busiest rank is busy in one direction at a time.
    assert naive.critical == 2 * (n_ranks - 1)
    scattered = ledger(REGISTRY["reduce_scatter", "ring"].build(n_ranks))
    assert scattered.sent == (part,) * n_ranks
    for name in ("pairwise", "direct"):
        exchanged = ledger(REGISTRY["all_to_all", name].build(n_ranks))
        assert exchanged.sent == exchanged.received == (part,) * n_ranks
        assert exchanged.critical == part


@pytest.mark.parametrize("n_ranks", [1, *RANKS])
def test_ledger_equals_a_plain_loop(n_ranks: int) -> None:
    for schedule in all_schedules(n_ranks):
        counts = schedule.chunk_counts(37).tolist()
        wanted = []
        for index, step in enumerate(schedule.steps):
            packed: dict = defaultdict(lambda: [Fraction(0), 0])
            for src, dst, chunk, _ in step.transfers:
                packed[src, dst][0] += schedule.shares[chunk]
                packed[src, dst][1] += counts[chunk]
            wanted += [(index, *pair, *amounts) for pair, amounts in sorted(packed.items())]
        book = ledger(schedule, counts)
        assert list(book.messages) == wanted
        for rank in range(n_ranks):
            assert book.sent[rank] == sum(m[3] for m in wanted if m[1] == rank)
            assert book.received[rank] == sum(m[3] for m in wanted if m[2] == rank)
            assert book.elements_sent()[rank] == sum(m[4] for m in wanted if m[1] == rank)
        for pair, share in book.by_link.items():
            assert share == sum(m[3] for m in wanted if m[1:3] == pair)


def test_ledger_is_exact_beyond_64_bits() -> None:
    """300 messages of almost S, in units of S / 2^55."""
    unit = Fraction(1, 2**55)
    forth, back = Step([0], [1], [0], 0), Step([1], [0], [0], 0)
    pair = [[0, 1]] * 2
    schedule = Schedule("any", 2, [1 - unit, unit], pair, pair, [forth, back] * 300)
    book = ledger(schedule)
    assert book.sent == book.received == (300 * (1 - unit),) * 2
    assert book.critical == 600 * (1 - unit)
    assert book.by_link == {(0, 1): 300 * (1 - unit), (1, 0): 300 * (1 - unit)}


@pytest.mark.parametrize("n_ranks", RANKS)
def test_ledger_adds_up(n_ranks: int) -> None:
    for schedule in all_schedules(n_ranks):
        book = ledger(schedule)
        assert sum(book.sent) == sum(book.received) == sum(book.by_link.values())
        assert book.critical >= max(book.max_sent, book.max_received)


def test_packed_rows_are_one_message() -> None:
    book = ledger(uneven_all_reduce())
    assert [(m.src, m.dst, m.share) for m in book.messages] == [
        (0, 2, 1),
        (1, 2, 1),
        (2, 0, 1),
        (2, 1, 1),
    ]


@pytest.mark.parametrize("n_elements", SIZES)
def test_ledger_counts_the_elements_that_travelled(n_elements: int) -> None:
    buffers = [np.arange(n_elements) for _ in range(5)]
    result = simulate(ring_all_reduce(5), buffers)
    # Each rank sends every chunk but one, in each of the two phases.
    assert sum(result.ledger.elements_sent()) == 2 * 4 * n_elements


@pytest.mark.parametrize("n_ranks", RANKS)
def test_rank_numbers_do_not_matter(n_ranks: int) -> None:
    rng = np.random.default_rng(3)
    order = rng.permutation(n_ranks).tolist()
    for schedule in all_schedules(n_ranks):
        inputs = random_inputs(schedule, 37, "int64", rng)
        renamed: list = [None] * n_ranks
        for rank, new in enumerate(order):
            renamed[new] = inputs[rank]
        plain = simulate(schedule, inputs)
        moved = simulate(permuted(schedule, order), renamed)
        for rank, new in enumerate(order):
            np.testing.assert_array_equal(plain.buffers[rank], moved.buffers[new])
            assert plain.ledger.sent[rank] == moved.ledger.sent[new]


def test_explicit_counts_take_the_place_of_shares() -> None:
    schedule = replace(ring_all_reduce(3), counts=[4, 0, 1])
    buffers = [np.arange(5) * (r + 1) for r in range(3)]
    for buffer in simulate(schedule, buffers).buffers:
        np.testing.assert_array_equal(buffer, 6 * np.arange(5))
    with pytest.raises(ValueError, match="ragged"):
        simulate(schedule, [np.arange(6)] * 3)


def three_partial_starts() -> Schedule:
    """Two halves: ranks 0 to 2 hold the first, rank 3 the second; rank 0 gathers both."""
    steps = [Step([1], [0], [0], 1), Step([2], [0], [0], 1), Step([3], [0], [1], 0)]
    halves = [Fraction(1, 2)] * 2
    return Schedule("reduce", 4, halves, [[0], [0], [0], [1]], [[0, 1], [], [], []], steps)


@pytest.mark.parametrize("n_elements", range(14))
def test_the_size_of_s_follows_from_the_buffers(n_elements: int) -> None:
    schedule = three_partial_starts()
    commlab.verify(schedule)
    rng = np.random.default_rng(n_elements)
    inputs = random_inputs(schedule, n_elements, "int64", rng)
    got = simulate(schedule, inputs).buffers[0]
    np.testing.assert_array_equal(got, expected_outputs(schedule, n_elements, inputs)[0])


def test_a_doubt_about_the_size_is_asked_for() -> None:
    shares = [Fraction(1, 7), Fraction(3, 7), Fraction(1, 7), Fraction(2, 7)]
    schedule = Schedule("any", 1, shares, [[2, 3]], [[2, 3]], [])
    assert schedule.chunk_counts(3).tolist() == [0, 1, 1, 1]
    assert schedule.chunk_counts(4).tolist() == [0, 2, 0, 2]
    with pytest.raises(ValueError, match="pass n_elements"):
        simulate(schedule, [np.arange(2)])
    kept = simulate(schedule, [np.arange(2)], n_elements=3).buffers[0]
    np.testing.assert_array_equal(kept, [0, 1])


def test_the_sizes_that_fit_are_those_found_by_trying_all() -> None:
    """Random shares on random ranks; every size of S up to 80 is tried by hand."""
    rng = np.random.default_rng(0)
    outcomes = set()
    for _ in range(400):
        n_chunks, denominator = int(rng.integers(1, 6)), int(rng.integers(1, 10))
        shares = [Fraction(int(rng.integers(0, 6)), denominator) for _ in range(n_chunks)]
        chunks = [
            rng.permutation(n_chunks)[: rng.integers(0, n_chunks + 1)].tolist()
            for _ in range(rng.integers(1, 4))
        ]
        if not any(shares[chunk] for held in chunks for chunk in held):
            continue  # any size fits ranks that start with nothing
        schedule = Schedule("any", len(chunks), shares, chunks, chunks, [])

        def lengths_at(size: int, schedule: Schedule = schedule) -> list[int]:
            counts = schedule.chunk_counts(size)
            return [int(counts[list(held)].sum()) for held in schedule.starts]

        lengths = lengths_at(int(rng.integers(0, 16)))
        if rng.random() < 0.3:
            lengths[0] += 1
        fitting = {
            tuple(schedule.chunk_counts(size).tolist())
            for size in range(80)
            if lengths_at(size) == lengths
        }
        buffers = [np.arange(length) for length in lengths]
        outcomes.add(min(len(fitting), 2))
        if len(fitting) == 1:
            simulate(schedule, buffers)
        else:
            message = "ragged" if not fitting else "pass n_elements"
            with pytest.raises(ValueError, match=message):
                simulate(schedule, buffers)
    assert outcomes == {0, 1, 2}


def test_explicit_counts_need_no_rank_with_all_of_s() -> None:
    halves = [Fraction(1, 2)] * 2
    schedule = Schedule("any", 2, halves, [[0], [1]], [[0], [1]], [], counts=[5, 1])
    lengths = [buffer.size for buffer in simulate(schedule, [np.arange(5), np.arange(1)]).buffers]
    assert lengths == [5, 1]
    with pytest.raises(ValueError, match=r"needs \[5, 1\] elements"):
        simulate(schedule, [np.arange(3), np.arange(3)])


def test_the_ledger_knows_directions_and_packed_elements() -> None:
    broadcast = REGISTRY["broadcast", "binomial_tree"].build(2, root=1)
    result = simulate(broadcast, [np.zeros(0), np.ones(3)], trace=True)
    assert result.ledger.by_link == {(1, 0): 1}
    assert [sorted(held) for held in result.trace[-1]] == [[0], [0]]
    packed = simulate(uneven_all_reduce(), [np.ones(12)] * 3).ledger
    assert [message.elements for message in packed.messages] == [12] * 4


def test_trace_shows_the_lectures_numbers() -> None:
    buffers = [np.full(4, 10**r) for r in range(4)]
    trace = simulate(ring_all_reduce(4), buffers, trace=True).trace
    assert len(trace) == 7
    third = [[int(trace[3][rank][chunk][0]) for chunk in range(4)] for rank in range(4)]
    assert third[0] == [1, 1111, 1101, 1001]
    assert third[3] == [1111, 1110, 1100, 1000]
    assert all(int(trace[6][r][c][0]) == 1111 for r in range(4) for c in range(4))
    gather = simulate(ring_all_gather(3), [np.array([r]) for r in range(3)], trace=True).trace
    assert [sorted(held) for held in gather[0]] == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("buffers", "message"),
    [
        ([np.zeros(4)] * 3, "has 4 ranks, so give it 4 buffers; got 3"),
        ([np.zeros(4)] * 3 + [np.zeros(5)], r"ragged: their lengths are \[4, 4, 4, 5\]"),
        ([np.zeros(4)] * 3 + [np.zeros(4, int)], "one dtype; got rank 0 float64.*rank 3 int64"),
        ([np.zeros((2, 2))] * 4, "has 2 dimensions"),
        ([[1, 2, 3, 4]] * 4, "is a list: make it an array"),
        ([np.array(["a"] * 4)] * 4, "give integers, floats or complex"),
        ([np.zeros(4, bool)] * 4, "dtype bool"),
        ([np.ma.masked_array(np.zeros(4), [1, 0, 0, 0])] * 4, "masked"),
    ],
)
def test_bad_buffers_are_refused_in_one_sentence(buffers: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulate(ring_all_reduce(4), buffers)


def test_a_ledger_takes_the_counts_that_a_schedule_states() -> None:
    uneven = REGISTRY["all_to_all", "pairwise"].build(2, counts=[[1, 2], [3, 4]])
    assert ledger(uneven).elements_sent() == (2, 3)
    for counts in ([0.7, 1.9, 1, 1], [-5, 1, 1, 1], [1, 1]):
        with pytest.raises(ValueError, match="one whole number of elements, zero or more"):
            ledger(uneven, counts)
