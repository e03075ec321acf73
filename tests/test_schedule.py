"""The Schedule, and verify: it accepts exactly what computes the right thing."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules import (
    RANKS,
    all_schedules,
    expected_outputs,
    permuted,
    random_inputs,
    uneven_all_reduce,
    with_steps,
)

from commlab import (
    COPY,
    REDUCE,
    Schedule,
    ScheduleError,
    Step,
    held_contributions,
    simulate,
    verify,
)
from commlab.algorithms import (
    naive_all_reduce,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
)


@pytest.mark.parametrize("n_ranks", [1, *RANKS])
def test_every_algorithm_is_accepted(n_ranks: int) -> None:
    for schedule in all_schedules(n_ranks):
        verify(schedule)


@pytest.mark.parametrize("n_ranks", RANKS)
@pytest.mark.parametrize("owner_shift", [0, 1, 3])
def test_reduce_scatter_owner_is_a_parameter(n_ranks: int, owner_shift: int) -> None:
    schedule = ring_reduce_scatter(n_ranks, owner_shift)
    verify(schedule)
    assert schedule.ends[0] == (owner_shift % n_ranks,)


def _mutate(schedule: Schedule, kind: str, data: st.DataObject) -> Schedule:
    """Change one thing of a schedule."""
    steps = [step.transfers for step in schedule.steps]
    index = data.draw(st.integers(0, len(steps) - 1), label="step")
    row = data.draw(st.integers(0, len(steps[index]) - 1), label="row")
    transfer = steps[index][row]
    if kind == "drop a row":
        del steps[index][row]
    elif kind == "repeat a row later":
        where = data.draw(st.integers(index + 1, len(steps)), label="where")
        steps.insert(where, [transfer])
    elif kind == "repeat a row at once":
        steps[index].append(transfer)
    elif kind == "swap the operation":
        steps[index][row] = transfer._replace(op=REDUCE if transfer.op == COPY else COPY)
    elif kind == "move the chunk":
        chunk = data.draw(st.integers(0, schedule.n_chunks - 1), label="chunk")
        steps[index][row] = transfer._replace(chunk=chunk)
    elif kind == "move the receiver":
        rank = data.draw(st.integers(0, schedule.n_ranks - 1), label="receiver")
        steps[index][row] = transfer._replace(dst=rank)
    elif kind == "swap two steps":
        other = data.draw(st.integers(0, len(steps) - 1), label="other step")
        steps[index], steps[other] = steps[other], steps[index]
    columns = [tuple(zip(*rows, strict=True)) if rows else ((),) * 4 for rows in steps]
    return with_steps(schedule, [Step(*(list(column) for column in rows)) for rows in columns])


MUTATIONS = [
    "drop a row",
    "repeat a row later",
    "repeat a row at once",
    "swap the operation",
    "move the chunk",
    "move the receiver",
    "swap two steps",
]


def _simulation_is_right(schedule: Schedule, seed: int) -> bool:
    n_elements = 4 * schedule.n_chunks
    rng = np.random.default_rng(seed)
    inputs = random_inputs(schedule, n_elements, "int64", rng)
    try:
        outputs = simulate(schedule, inputs).buffers
    except ScheduleError:
        return False
    wanted = expected_outputs(schedule, n_elements, inputs)
    return all(np.array_equal(got, want) for got, want in zip(outputs, wanted, strict=True))


def _is_accepted(schedule: Schedule) -> bool:
    try:
        verify(schedule)
    except ScheduleError:
        return False
    return True


@pytest.mark.parametrize("kind", MUTATIONS)
@given(n_ranks=st.integers(2, 9), data=st.data())
def test_a_mutant_is_accepted_exactly_when_its_simulation_is_right(
    kind: str, n_ranks: int, data: st.DataObject
) -> None:
    schedule = data.draw(st.sampled_from(all_schedules(n_ranks)))
    mutant = _mutate(schedule, kind, data)
    assert _is_accepted(mutant) == _simulation_is_right(mutant, seed=1)


def test_mutation_finds_both_verdicts() -> None:
    """The equivalence above would be empty if every mutant were refused."""
    ring = ring_all_reduce(4)
    harmless = with_steps(ring, [*ring.steps, ring.steps[-1]])  # repeat the last copies
    harmful = with_steps(ring, [*ring.steps, ring.steps[0]])  # add once more
    assert _is_accepted(harmless) and _simulation_is_right(harmless, seed=2)
    assert not _is_accepted(harmful) and not _simulation_is_right(harmful, seed=2)


def test_a_doubled_contribution_is_named_where_it_happened() -> None:
    ring = ring_all_reduce(4)
    doubled = with_steps(ring, [ring.steps[0], *ring.steps])
    with pytest.raises(ScheduleError, match=r"step 1: rank 0 adds to its chunk 3") as caught:
        verify(doubled)
    assert (caught.value.step, caught.value.rank, caught.value.chunk) == (1, 0, 3)


def test_a_lost_contribution_is_named_where_it_happened() -> None:
    ring = ring_all_reduce(3)
    first = ring.steps[0]
    overwrites = Step(first.src, first.dst, first.chunk, [COPY, REDUCE, REDUCE])
    with pytest.raises(ScheduleError, match="loses contributions") as caught:
        verify(with_steps(ring, [overwrites, *ring.steps[1:]]))
    assert (caught.value.step, caught.value.rank, caught.value.chunk) == (0, 1, 0)


def test_a_missing_contribution_is_named_with_its_ranks() -> None:
    two = Schedule("all_reduce", 2, [Fraction(1)], [[0]] * 2, [[0]] * 2, [Step([0], [1], [0], 1)])
    with pytest.raises(ScheduleError, match=r"rank 0 ends with chunk 0 without.*ranks 1") as caught:
        verify(two)
    assert (caught.value.rank, caught.value.chunk) == (0, 0)


def test_reading_a_chunk_that_was_never_filled_is_refused() -> None:
    gather = ring_all_gather(3)
    with pytest.raises(ScheduleError, match=r"step 0: .*never filled") as caught:
        verify(with_steps(gather, [gather.steps[1], gather.steps[0]]))
    assert caught.value.step == 0


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (([0], [1], [7], [0]), "chunk 7 does not exist"),
        (([5], [1], [0], [0]), "rank 5 does not exist"),
        (([0], [1], [0], [4]), "operation 4 does not exist"),
        (([1], [1], [0], [0]), "sends to itself"),
        (([0, 2], [1, 1], [0, 0], [1, 1]), "two rows write the same chunk"),
    ],
)
def test_rows_that_make_no_sense_are_refused(row: tuple, message: str) -> None:
    schedule = with_steps(uneven_all_reduce(), [Step(*row)])
    with pytest.raises(ScheduleError, match=message) as caught:
        verify(schedule)
    assert caught.value.step == 0
    with pytest.raises(ScheduleError, match=message):
        simulate(schedule, [np.zeros(6)] * 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_ranks": 0}, "n_ranks must be a whole number, 1 or more"),
        ({"n_ranks": 2.5}, "n_ranks must be a whole number"),
        ({"shares": [0.25, 0.75]}, r"Fraction\(1, 4\), not 0.25"),
        ({"shares": [Fraction(-1), Fraction(2)]}, "zero or more"),
        ({"starts": [[0, 1]]}, "starts must list the chunks of each of the 2 ranks"),
        ({"starts": [[0, 0.9]] * 2}, "starts of rank 0 must be a list of whole numbers"),
        ({"ends": [[0, 1], None]}, "ends of rank 1 must be a list of whole numbers"),
        ({"counts": [3]}, "one whole number of elements"),
        ({"counts": [1.9, 1]}, "one whole number of elements"),
        ({"steps": [(0, 1, 0, 0)]}, r"step 0 is a tuple: write Step\(src, dst, chunk, op\)"),
    ],
)
def test_a_schedule_refuses_bad_arguments(change: dict, message: str) -> None:
    good = {
        "collective": "all_reduce",
        "n_ranks": 2,
        "shares": [Fraction(1, 2)] * 2,
        "starts": [[0, 1]] * 2,
        "ends": [[0, 1]] * 2,
        "steps": [],
    }
    Schedule(**good)
    with pytest.raises(ValueError, match=message):
        Schedule(**{**good, **change})


def test_a_step_refuses_columns_of_different_lengths() -> None:
    with pytest.raises(ScheduleError, match="src 2, dst 3"):
        Step([0, 1], [1, 2, 0], [0, 0, 0], COPY)
    with pytest.raises(ScheduleError, match="whole numbers"):
        Step([0.5], [1], [0], COPY)


@pytest.mark.parametrize("value", [256, -256, 2**32, 2**40])
def test_numbers_do_not_wrap_around(value: int) -> None:
    """256 is 0 in eight bits: it must not pass for a copy."""
    for column in range(4):
        row = [[0], [1], [0], [0]]
        row[column] = [value]
        with pytest.raises(ScheduleError, match=r"far too large|does not exist"):
            verify(with_steps(uneven_all_reduce(), [Step(*row)]))


def test_shares_must_add_up_to_the_full_vector() -> None:
    half = Schedule(
        "all_reduce", 2, [Fraction(1, 2)], [[0]] * 2, [[0]] * 2,
        [Step([0], [1], [0], REDUCE), Step([1], [0], [0], COPY)],
    )  # fmt: skip
    with pytest.raises(ScheduleError, match="the fullest rank starts with 1/2 of S"):
        verify(half)
    nothing = Schedule("all_reduce", 2, [Fraction(1)], [[0]] * 2, [[]] * 2, [])
    with pytest.raises(ScheduleError, match="no rank ends with a chunk"):
        verify(nothing)


def test_starts_may_be_the_rows_of_an_array() -> None:
    blocks = np.arange(9).reshape(3, 3)
    schedule = Schedule("all_to_all", 3, [Fraction(1, 3)] * 9, blocks, blocks.T, [])
    assert schedule.starts == ((0, 1, 2), (3, 4, 5), (6, 7, 8))
    assert schedule.ends == ((0, 3, 6), (1, 4, 7), (2, 5, 8))


def test_an_uneven_all_to_all_may_fill_one_rank_beyond_s() -> None:
    """A hot expert: both ranks send 3/4 of their S to rank 1."""
    quarter = Fraction(1, 4)
    shares = [quarter, 3 * quarter, quarter, 3 * quarter]
    steps = [Step([0, 1], [1, 0], [1, 2], COPY)]
    verify(Schedule("all_to_all", 2, shares, [[0, 1], [2, 3]], [[0, 2], [1, 3]], steps))


def test_a_fault_is_healed_by_a_good_copy() -> None:
    """Rank 1 adds its own value twice, then is overwritten by the right sum."""
    steps = [
        Step([1], [0], [0], REDUCE),
        Step([0], [1], [0], REDUCE),  # rank 1 now counts itself twice
        Step([0], [1], [0], COPY),
    ]
    one = [Fraction(1)]
    verify(Schedule("all_reduce", 2, one, [[0]] * 2, [[0]] * 2, steps))
    with pytest.raises(ScheduleError, match=r"step 1: rank 1 adds to its chunk 0"):
        verify(Schedule("all_reduce", 2, one, [[0]] * 2, [[0]] * 2, steps[:2]))


@pytest.mark.parametrize("n_ranks", [66, 130])
def test_ranks_beyond_the_first_64_are_followed(n_ranks: int) -> None:
    last = n_ranks - 1
    naive = naive_all_reduce(n_ranks)
    gathering = naive.steps[:last]  # the last of them brings the last rank's contribution
    verify(naive)
    again = with_steps(naive, [*gathering, gathering[-1], *naive.steps[last:]])
    with pytest.raises(ScheduleError, match=f"step {last}: rank 0 adds to its chunk 0"):
        verify(again)
    missing = with_steps(naive, [*gathering[:-1], *naive.steps[last:]])
    with pytest.raises(ScheduleError, match=f"without the contributions of ranks {last}"):
        verify(missing)


def test_a_loss_is_blamed_on_the_copy_that_lost_it() -> None:
    """Rank 1's value was safe in rank 0 when it was overwritten; that of rank 2 was not."""
    steps = [
        Step([1], [0], [0], REDUCE),
        Step([2], [1], [0], COPY),
        Step([0], [1], [0], COPY),
        Step([0], [2], [0], COPY),
    ]
    with pytest.raises(ScheduleError, match="ranks 2") as caught:
        verify(Schedule("all_reduce", 3, [Fraction(1)], [[0]] * 3, [[0]] * 3, steps))
    assert (caught.value.step, caught.value.rank) == (2, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"starts": [[0, 0, 1], [0, 1, 2], [0, 1, 2]]}, "starts of rank 0 names a chunk twice"),
        ({"starts": [[0, 1, 3], [0, 1, 2], [0, 1, 2]]}, "starts of rank 0 names chunk 3"),
        ({"ends": [[0, 1, 2], [0, -1, 2], [0, 1, 2]]}, "ends of rank 1 names chunk -1"),
        ({"steps": [Step([0], [1], [-1], COPY)]}, "chunk -1 does not exist"),
        ({"steps": [Step([-1], [1], [0], COPY)]}, "rank -1 does not exist"),
    ],
)
def test_chunks_and_ranks_that_do_not_exist_are_refused(change: dict, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        verify(replace(uneven_all_reduce(), **change))


def test_what_is_no_schedule_is_refused() -> None:
    with pytest.raises(TypeError, match="not a function: build one"):
        verify(ring_all_reduce)
    with pytest.raises(TypeError, match="not a list"):
        simulate([np.zeros(3)], ring_all_reduce(3))


def test_ends_with_a_chunk_that_nobody_has() -> None:
    schedule = Schedule("x", 2, [Fraction(1)] * 2, [[0], []], [[0], [1]], [])
    with pytest.raises(ScheduleError, match="rank 1 must end with chunk 1, but no rank starts"):
        verify(schedule)


def test_steps_cannot_be_changed() -> None:
    step = ring_all_reduce(4).steps[0]
    with pytest.raises(ValueError, match="read-only"):
        step.src[0] = 3


def test_chunk_bounds_follow_from_the_shares() -> None:
    assert ring_all_reduce(4).chunk_counts(10).tolist() == [2, 3, 2, 3]
    assert ring_all_reduce(4).chunk_counts(2).tolist() == [0, 1, 0, 1]
    assert uneven_all_reduce().chunk_counts(12).tolist() == [2, 6, 4]


@pytest.mark.parametrize("n_ranks", RANKS)
def test_chunk_counts_cover_the_vector_and_differ_by_one(n_ranks: int) -> None:
    for n_elements in range(40):
        counts = ring_all_reduce(n_ranks).chunk_counts(n_elements)
        assert counts.sum() == n_elements
        assert counts.max() - counts.min() <= 1


def test_held_contributions_follow_the_lectures_trace() -> None:
    """Chunks start at 10^r; a digit 1 tells whose contribution is in (lecture, section 3.2)."""
    states = list(held_contributions(ring_all_reduce(4)))
    assert len(states) == 7
    powers = 10 ** np.arange(4)
    numbers = [(state * powers).sum(axis=2).tolist() for state in states]
    assert numbers[1][0] == [1, 1, 1, 1001]
    assert numbers[3] == [
        [1, 1111, 1101, 1001],
        [11, 10, 1111, 1011],
        [111, 110, 100, 1111],
        [1111, 1110, 1100, 1000],
    ]
    assert numbers[6] == [[1111] * 4] * 4


@given(n_ranks=st.integers(2, 16), seed=st.integers(0, 999))
def test_verify_does_not_depend_on_rank_numbers(n_ranks: int, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(n_ranks).tolist()
    for schedule in all_schedules(n_ranks):
        verify(permuted(schedule, order))
