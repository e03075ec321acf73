from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from execute_workers import N_PROCESSES, RUN_RANKS, Case, fingerprint
from hypothesis import given
from hypothesis import strategies as st
from schedules import RANKS, all_schedules, random_inputs, uneven_all_reduce

from commlab.algorithms import REGISTRY, ring_all_gather, ring_all_reduce
from commlab.algorithms.gloo import MAX_SEGMENT_BYTES, gloo_ring_all_reduce, gloo_segments
from commlab.ledger import ledger
from commlab.real import RankError, differing_from_gloo, run, run_schedule, schedules
from commlab.real.plan import RankPlan, plan_for_rank
from commlab.schedule import COPY, REDUCE, Schedule, ScheduleError, Step, verify
from commlab.simulate import simulate
from commlab.units import MIB

# ---------------------------------------------------------------------------------------
# Plans, without processes


class Rank:
    """Follows one plan as loosely as `execute_plan` may: messages move at any moment."""

    def __init__(self, plan: RankPlan, buffer: np.ndarray, wires: dict) -> None:
        self.plan, self.wires = plan, wires
        self.store = np.full(plan.n_store, -(2**40))
        position = 0
        for start, stop, _ in plan.inputs:
            self.store[start:stop] = buffer[position : position + stop - start]
            position += stop - start
        assert position == len(buffer) == plan.n_input
        self.scratch = [np.full(elements, -(2**41)) for elements in plan.slots]
        self.open_receives: dict[int, deque[int]] = defaultdict(deque)
        self.arrived: set[int] = set()
        self.step = 0
        self.started = False
        self.unsent: list = []
        self.sent: list[tuple[int, int, int]] = []

    @property
    def has_ended(self) -> bool:
        return self.step == len(self.plan.steps)

    def start_step(self) -> None:
        step = self.plan.steps[self.step]
        for number in step.posts:
            self.open_receives[self.plan.receives[number].peer].append(number)
        self.unsent = list(step.sends)
        self.started = True

    def hand_over(self) -> None:
        """Read the data of a send now, not when it was started."""
        send = self.unsent.pop()
        data = np.concatenate([self.store[start:stop] for start, stop, _ in send.spans])
        assert len(data) == send.elements > 0
        self.wires[self.plan.rank, send.peer].append(data)
        self.sent.append((self.step, send.peer, send.elements))

    def take(self, peer: int) -> None:
        """Deliver the next message of a peer to the oldest receive posted for it."""
        number = self.open_receives[peer].popleft()
        receive = self.plan.receives[number]
        data = self.wires[peer, self.plan.rank].popleft()
        assert len(data) == receive.elements
        if receive.slot is None:
            ((start, stop, op),) = receive.spans
            assert op == COPY
            self.store[start:stop] = data
        else:
            self.scratch[receive.slot][: len(data)] = data
        self.arrived.add(number)

    def end_step(self) -> None:
        for number in self.plan.steps[self.step].completes:
            receive = self.plan.receives[number]
            position = 0
            for start, stop, op in receive.spans if receive.slot is not None else ():
                part = self.scratch[receive.slot][position : position + stop - start]
                self.store[start:stop] = part + (self.store[start:stop] if op == REDUCE else 0)
                position += stop - start
        self.step, self.started = self.step + 1, False

    def possible(self) -> list:
        """What may happen next at this rank."""
        moves: list = []
        if not self.has_ended:
            if not self.started:
                moves.append(self.start_step)
            elif self.unsent:
                moves.append(self.hand_over)
            elif self.arrived.issuperset(self.plan.steps[self.step].completes):
                moves.append(self.end_step)
        for peer, waiting in self.open_receives.items():
            if waiting and self.wires[peer, self.plan.rank]:
                moves.append(lambda peer=peer: self.take(peer))
        return moves


def follow_plans(schedule: Schedule, buffers: list, counts, ahead: int, rng) -> list[Rank]:
    """Run all plans with the moves of all ranks in random order."""
    wires: dict = defaultdict(deque)
    ranks = [
        Rank(plan_for_rank(schedule, rank, counts, ahead), buffers[rank], wires)
        for rank in range(schedule.n_ranks)
    ]
    while moves := [move for rank in ranks for move in rank.possible()]:
        moves[rng.integers(len(moves))]()
    assert all(rank.has_ended for rank in ranks), "a plan hangs"
    assert not any(wires.values()), "a message was never received"
    return ranks


def check_plans(schedule: Schedule, n_elements: int, ahead: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    buffers = random_inputs(schedule, n_elements, "int64", rng)
    simulated = simulate(schedule, buffers, n_elements=n_elements)
    counts = schedule.chunk_counts(n_elements)
    ranks = follow_plans(schedule, buffers, counts, ahead, rng)
    for rank, expected in zip(ranks, simulated.buffers, strict=True):
        assert rank.store[: rank.plan.n_result].tolist() == expected.tolist()
    sent = sorted((step, r, *rest) for r, rank in enumerate(ranks) for step, *rest in rank.sent)
    assert sent == with_elements(simulated.ledger)


def with_elements(book) -> list[tuple[int, int, int, int]]:
    """Step, sender, receiver and elements of all messages that carry something."""
    return [(m.step, m.src, m.dst, m.elements) for m in book.messages if m.elements]


@pytest.mark.parametrize("n_ranks", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("ahead", [0, 1, 3, 1000])
def test_plans_in_any_order_of_events_equal_the_simulator(n_ranks, ahead):
    for seed, schedule in enumerate(all_schedules(n_ranks)):
        check_plans(schedule, 37, ahead, seed)


@st.composite
def random_schedules(draw) -> Schedule:
    """Rows that make sense; what they compute need not. All ranks start with all chunks."""
    n_ranks, n_chunks = draw(st.integers(2, 4)), draw(st.integers(1, 4))
    places = [(dst, chunk) for dst in range(n_ranks) for chunk in range(n_chunks)]
    steps = []
    for _ in range(draw(st.integers(1, 6))):
        written = draw(st.lists(st.sampled_from(places), min_size=1, max_size=8, unique=True))
        rows = [
            (
                (dst + draw(st.integers(1, n_ranks - 1))) % n_ranks,
                dst,
                chunk,
                draw(st.integers(0, 1)),
            )
            for dst, chunk in written
        ]
        steps.append(Step(*zip(*rows, strict=True)))
    everything = tuple(range(n_chunks))
    ends = [draw(st.permutations(everything)) for _ in range(n_ranks)]
    share = [Fraction(1, n_chunks)] * n_chunks
    return Schedule("x", n_ranks, share, [everything] * n_ranks, ends, steps)


@given(random_schedules(), st.integers(0, 9), st.integers(0, 4), st.integers(0, 2**32))
def test_plans_of_arbitrary_schedules_equal_the_simulator(schedule, n_elements, ahead, seed):
    check_plans(schedule, n_elements, ahead, seed)


def test_a_plan_reads_like_the_schedule():
    plan = plan_for_rank(ring_all_reduce(3), rank=1, counts=[4, 3, 3], ahead=1)
    assert (plan.n_store, plan.n_result, plan.n_input) == (10, 10, 10)
    assert [step.posts for step in plan.steps] == [(0, 1), (2,), (3,), ()]
    assert [step.completes for step in plan.steps] == [(0,), (1,), (2,), (3,)]
    assert [[(send.peer, *send.spans) for send in step.sends] for step in plan.steps] == [
        [(2, (4, 7, COPY))],
        [(2, (0, 4, COPY))],
        [(2, (7, 10, COPY))],
        [(2, (4, 7, COPY))],
    ]
    assert [(receive.spans, receive.slot) for receive in plan.receives] == [
        (((0, 4, REDUCE),), 0),
        (((7, 10, REDUCE),), 1),
        (((4, 7, COPY),), None),
        (((0, 4, COPY),), None),
    ]


def test_scratch_does_not_grow_with_the_number_of_steps():
    plan = plan_for_rank(ring_all_reduce(16), rank=0, counts=[5] * 16, ahead=2)
    assert plan.slots == (5, 5, 5)


def test_plans_refuse_nonsense():
    with pytest.raises(ValueError, match="rank must be one of the ranks 0 to 2; got 3"):
        plan_for_rank(ring_all_reduce(3), 3, [1, 1, 1])
    with pytest.raises(ValueError, match="each of the 3 chunks"):
        plan_for_rank(ring_all_reduce(3), 0, [1, 1])


# ---------------------------------------------------------------------------------------
# Real processes


def test_every_algorithm_runs_for_real_as_it_is_simulated():
    """One test, since one launch of 16 processes runs all algorithms at all N."""
    answers: dict[Case, list] = defaultdict(list)
    for process in run("execute_workers:run_all", ranks=N_PROCESSES, timeout=300):
        assert process["operations"] == ["recv_", "send"]  # no collective in disguise
        for case, bits, sent in process["answers"]:
            answers[Case(*case)].append((bits, sent))
    assert {case[:3] for case in answers} == {
        (*key, n_ranks)
        for key, entry in REGISTRY.items()
        for n_ranks in RUN_RANKS
        if entry.supports(n_ranks)
    }
    for case, by_rank in answers.items():
        check_bits_and_messages(case, by_rank)
    for n_ranks in RUN_RANKS:
        check_that_algorithms_differ(n_ranks, answers)


def check_bits_and_messages(case: Case, by_rank: list) -> None:
    """Compare what the ranks of one group answered with the simulator and its ledger."""
    assert len(by_rank) == case.n_ranks, case
    simulated = simulate(case.schedule, case.inputs(), n_elements=case.n_elements)
    bits = [bits for bits, _ in by_rank]
    assert bits == [fingerprint(buffer) for buffer in simulated.buffers], case
    sent = sorted(
        (step, rank, dst, elements)
        for rank, (_, messages) in enumerate(by_rank)
        for step, dst, elements in messages
    )
    assert sent == with_elements(simulated.ledger), case


def check_that_algorithms_differ(n_ranks: int, answers: dict[Case, list]) -> None:
    """Otherwise equal bits would say little about which algorithm ran."""
    bits = {
        case.algorithm: by_rank[0][0]
        for case, by_rank in answers.items()
        if case.n_ranks == n_ranks and case.collective == "all_reduce"
        if (case.size, case.dtype) == ("indivisible", "float32")
    }
    if n_ranks == 2:  # a + b has one order only
        assert len(set(bits.values())) == 1
    else:
        assert len({bits["naive"], bits["ring"], bits["bidirectional_ring"]}) == 3
    if n_ranks > 3:
        assert bits["binomial_tree"] not in (bits["naive"], bits["ring"])


def test_one_batch_a_step_gives_the_same():
    """The way of NCCL, here over gloo."""
    assert run("execute_small_workers:run_in_batches", ranks=4) == [len(all_schedules(4))] * 4


# ---------------------------------------------------------------------------------------
# gloo's own order of additions


def test_gloo_ring_has_the_bits_of_gloo():
    sizes = [1, 37, 1001, 4096]
    by_rank = run("execute_small_workers:compare_with_gloo", ranks=8, timeout=120, sizes=sizes)
    seen = set()
    for n_ranks, n_elements, dtype, differing in (row for answer in by_rank for row in answer):
        seen.add((n_ranks, n_elements, dtype))
        assert differing["gloo's ring"] == 0, (n_ranks, n_elements, dtype)
        for other in ("rank order", "textbook ring"):
            if n_ranks == 2:
                assert differing[other] == 0  # a + b has one order only
            elif n_elements > 1000:
                assert differing[other] > n_elements / 8, (n_ranks, n_elements, dtype)
    assert len(seen) == 7 * len(sizes) * 3 + 1


@pytest.mark.parametrize("n_ranks", [1, *RANKS])
@pytest.mark.parametrize("n_elements", [0, 1, 37, 5 * MIB + 1])
def test_gloo_ring_is_an_all_reduce_of_the_same_volume(n_ranks, n_elements):
    schedule = gloo_ring_all_reduce(n_ranks, n_elements, element_bytes=4)
    verify(schedule)
    assert sum(schedule.counts) == n_elements
    assert max(schedule.counts) * 4 <= MAX_SEGMENT_BYTES
    sent = ledger(schedule, schedule.counts).elements_sent()
    assert sum(sent) == 2 * (n_ranks - 1) * n_elements


def test_segments_of_gloo():
    # 2N segments while they are small; then as many as keep each within 1 MiB, in whole rounds.
    assert gloo_segments(4, 4096, 4) == (8, 512)
    assert gloo_segments(4, 4097, 4) == (8, 513)
    assert gloo_segments(3, 10_000_019, 4) == (39, 256_411)
    assert gloo_segments(8, 3, 2) == (16, 1)
    with pytest.raises(ValueError, match="n_elements must be whole numbers"):
        gloo_ring_all_reduce(4, 2.5)


def test_the_table_of_the_page_takes_any_type():
    none = {"rank order": 0, "textbook ring": 0, "gloo's ring": 0}
    assert differing_from_gloo(ranks=2, n_elements=8, dtypes=["float64"]) == {"float64": none}


# ---------------------------------------------------------------------------------------
# From a notebook


def test_run_schedule_gives_what_simulate_gives():
    schedule = uneven_all_reduce()
    buffers = random_inputs(schedule, 37, "float32", np.random.default_rng(0))
    real, simulated = run_schedule(schedule, buffers), simulate(schedule, buffers)
    for one, other in zip(real.buffers, simulated.buffers, strict=True):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()
    assert real.messages == simulated.ledger.messages


def test_run_schedule_converts_to_what_numpy_lacks():
    schedule = ring_all_gather(2)
    buffers = [np.array(values, dtype=np.float32) for values in ([3.0], [1.0, 1.0 + 2**-12])]
    real = run_schedule(schedule, buffers, n_elements=3, dtype="bfloat16")
    assert [buffer.tolist() for buffer in real.buffers] == [[3.0, 1.0, 1.0]] * 2


def test_a_wrong_schedule_gives_the_same_wrong_result():
    """A chunk that was never filled must not look like zeros."""
    ring = ring_all_reduce(2)
    wrong = replace(ring, starts=[[0, 1], []])
    buffers = [np.array([1.0, 2.0]), np.array([])]
    real, simulated = run_schedule(wrong, buffers), simulate(wrong, buffers)
    for one, other in zip(real.buffers, simulated.buffers, strict=True):
        assert np.isnan(one).any()
        np.testing.assert_array_equal(one, other)


def test_run_schedule_refuses_before_it_starts_anything(monkeypatch):
    monkeypatch.setattr(schedules, "run", lambda *_, **__: pytest.fail("started"))
    with pytest.raises(ValueError, match="give it 2 buffers; got 1"):
        run_schedule(ring_all_reduce(2), [np.ones(2)])
    with pytest.raises(ValueError, match="ragged"):
        run_schedule(ring_all_reduce(2), [np.ones(2), np.ones(3)])
    with pytest.raises(ScheduleError, match="names chunk 7"):
        run_schedule(replace(ring_all_reduce(2), ends=[[7]] * 2), [np.ones(2)] * 2)
    with pytest.raises(TypeError, match="a Schedule is needed"):
        run_schedule(ring_all_reduce, [np.ones(2)] * 2)


def test_an_unknown_type_is_said():
    with pytest.raises(RankError, match="'torch' has no attribute 'float99'"):
        run_schedule(ring_all_reduce(2), [np.ones(2)] * 2, dtype="float99")


@pytest.mark.parametrize("schedule", all_schedules(4), ids=repr)
def test_schedules_travel_whole(schedule):
    copy = schedules.schedule_from_plain(schedules.schedule_to_plain(schedule))
    for name in ("collective", "n_ranks", "shares", "starts", "ends", "name", "counts"):
        assert getattr(copy, name) == getattr(schedule, name)
    assert [step.transfers for step in copy.steps] == [step.transfers for step in schedule.steps]


def test_execute_says_what_is_wrong():
    first, second = run("execute_small_workers:complain", ranks=2)
    expected = [
        "the schedule has 3 ranks, but the group has 2",
        "the schedule has 2 ranks, but the group has 1",
        "the buffer is a ndarray",
        "the buffer has 2 dimensions",
        "requires a gradient",
        "collectives add numbers",
        "rank 0 starts with 3 elements, but its buffer has 2",
        "n_elements must be a whole number, zero or more; got -1",
        "pass n_elements, the elements of the full vector S",
        "names chunk 2",
        "a Schedule is needed here, not a function",
    ]
    assert len(first) == len(expected)
    for complaint, sentence in zip(first, expected, strict=True):
        assert sentence in complaint
    assert "this process is not in the given group" in second[1]


def test_a_timeout_of_the_group_is_passed_on():
    waiting, _ = run("execute_small_workers:leave_rank_0_waiting", ranks=2, patience=0.5)
    assert "Timed out" in waiting
