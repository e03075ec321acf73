from __future__ import annotations

from collections import defaultdict

import pytest
from schedules import RANKS

from commlab.algorithms import REGISTRY
from commlab.real import run
from commlab.real.plan import plan_for_rank


# Three need a fold, four do not; two are the plainest case of both.
@pytest.mark.parametrize("n_ranks", [pytest.param(2, marks=pytest.mark.night), 3, 4])
def test_every_algorithm_in_place_has_the_bits_of_its_schedule(n_ranks):
    by_rank = run("fast_workers:sum_by_every_algorithm", ranks=n_ranks, timeout=120)
    assert all(equal for rows in by_rank for *_, equal, _ in rows)
    # What is the same on all ranks is the result, not only its agreement with a simulation.
    assert all(rows == by_rank[0] for rows in by_rank)
    digests = defaultdict(set)
    for name, dtype, n_elements, _, digest in by_rank[0]:
        digests[dtype, n_elements].add((name, digest))
    assert len({digest for _, digest in digests["torch.int64", 1009]}) == 1
    orders = len({digest for _, digest in digests["torch.float32", 1009]})
    # Otherwise equal bits would say little about which schedule ran. a + b has one order only.
    assert orders == 1 if n_ranks == 2 else orders > 1


@pytest.mark.parametrize("n_ranks", RANKS)
def test_all_reduces_work_in_place_and_others_do_not(n_ranks):
    for (collective, _), entry in REGISTRY.items():
        if entry.supports(n_ranks):
            schedule = entry.build(n_ranks)
            counts = schedule.chunk_counts(1009).tolist()
            in_place = [plan_for_rank(schedule, r, counts).is_in_place for r in range(n_ranks)]
            if collective == "all_reduce":
                assert all(in_place)
            elif collective in ("all_gather", "reduce_scatter", "all_to_all"):
                assert not any(in_place)


def test_calibration_is_the_same_on_all_ranks_and_sums_are_right():
    by_rank = run("fast_workers:calibrate_and_sum", ranks=3, timeout=120)
    assert all(answer == by_rank[0] for answer in by_rank)
    answer = by_rank[0]
    assert answer["right"] == [True] * 5
    assert answer["alpha"] > 0
    assert answer["beta"] > 0
    assert [nbytes for nbytes, *_ in answer["decisions"]] == [4, 1024, 16384, 65536]
    for _, algorithm, ratio in answer["decisions"]:
        # What does not beat the backend is not used.
        assert ratio == 1 if algorithm == "backend" else ratio < 1


def test_the_cache_is_bounded_and_forgets_what_was_used_longest_ago():
    assert run("fast_workers:keep_few_plans", ranks=3) == [[1, 2, 2, 3, 3, 3, 3, 3]] * 3


def test_vectors_of_one_size_are_not_mistaken_for_each_other():
    sizes = [1_000, 50_000, 200_000]  # copied, kept, large
    answers = run("fast_workers:many_vectors_of_each_size", ranks=2, sizes=sizes)
    sums = [2, 4, 20, 8, 10, 15, 17]
    assert answers == [[[[[total, total] for total in sums], True]] * 3] * 2


def test_groups_and_the_programs_own_messages_are_kept_apart():
    assert run("fast_workers:two_groups_at_once", ranks=4) == [
        [11.0] * 3 + [1.0] * 3,
        [11.0] * 3 + [0.0] * 3,
        [1100.0] * 3 + [3.0] * 3,
        [1100.0] * 3 + [2.0] * 3,
    ]


def test_the_backend_does_what_it_won_and_what_was_not_measured():
    answers = run("fast_workers:by_the_backend", ranks=2)
    assert answers == [{"calls": [16, 65], "sums": [32.0, 34.0, 128.0, 130.0]}] * 2


def test_refuses_in_one_sentence():
    for answers in run("fast_workers:complain", ranks=2):
        for answer, expected in zip(
            answers,
            [
                "what is to be summed is a list",
                "the tensor is on meta",
                "the tensor is not contiguous",
                "the tensor is not contiguous",
                "the tensor requires a gradient",
                "the tensor has dtype torch.bool: convert it to one of float64, float32",
                "the tensor is sparse",
                "the group has one rank",
                "this process is not in the given group",
                "the calibration is for 3 ranks, but the group has 2",
                "the ranks were given different calibrations",
                "max_plans must be a whole number, 1 or more; got 0",
                "sizes must be one or more, of 4 bytes or more each; got [2]",
                "sizes must be one or more, of 4 bytes or more each; got []",
            ],
            strict=True,
        ):
            assert answer.startswith(expected)
            assert answer.endswith(".")
            assert "\n" not in answer
