"""Data parallelism on a list of ranks: equal to one big batch where it should be."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DistributedSampler

from commlab.algorithms import REGISTRY
from commlab.collectives import all_reduce
from commlab.ledger import ledger
from commlab.real import run
from commlab.training import (
    SGD,
    Adam,
    GradientDescent,
    Momentum,
    combination_factors,
    distributed_sampler_indices,
    even_counts,
    gradient,
    make_batches,
    max_difference,
    mean_loss,
    micro_batch_factors,
    sample_losses,
    shard_slices,
    train_data_parallel,
    train_gradient_accumulation,
    train_ranks_in_micro_batches,
    train_single,
)
from tests import ddp_workers

# Weights stay near 1, so this is some ten units in the last place.
ROUNDING = 2e-15
UNEVEN = [100, 60, 60, 36]
OPTIMIZERS = [SGD, Momentum(), Adam()]


def name_of(optimizer) -> str:
    return type(optimizer).__name__


@pytest.fixture(scope="module")
def batches():
    return make_batches(n_steps=50, batch_size=256, seed=0)


@pytest.fixture(scope="module")
def reference(batches):
    return train_single(batches)


def random_problem(seed: int = 3):
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(5, 3))
    return weights, rng.normal(size=(7, 5)), rng.integers(0, 3, size=7)


class TestGradient:
    def test_equals_the_slope_of_the_loss(self):
        weights, features, labels = random_problem()
        slope = np.empty_like(weights)
        for place in np.ndindex(weights.shape):
            nudge = np.zeros_like(weights)
            nudge[place] = 1e-6
            above = mean_loss(weights + nudge, features, labels)
            below = mean_loss(weights - nudge, features, labels)
            slope[place] = (above - below) / 2e-6
        np.testing.assert_allclose(gradient(weights, features, labels), slope, atol=1e-8)

    def test_of_the_sum_is_n_times_that_of_the_mean(self):
        weights, features, labels = random_problem()
        total = gradient(weights, features, labels, reduction="sum")
        np.testing.assert_allclose(total, 7 * gradient(weights, features, labels), rtol=1e-13)

    def test_survives_large_logits(self):
        weights, features, labels = random_problem()
        assert np.isfinite(gradient(1e4 * weights, features, labels)).all()
        assert np.isfinite(mean_loss(1e4 * weights, features, labels))

    def test_refuses_an_empty_shard_and_an_unknown_reduction(self):
        weights, features, labels = random_problem()
        with pytest.raises(ValueError, match="0 samples"):
            gradient(weights, features[:0], labels[:0])
        with pytest.raises(ValueError, match="'mean' or 'sum', got 'max'"):
            gradient(weights, features, labels, reduction="max")

    def test_loss_is_the_mean_of_the_samples(self):
        weights, features, labels = random_problem()
        alone = [mean_loss(weights, features[i : i + 1], labels[i : i + 1]) for i in range(7)]
        np.testing.assert_allclose(sample_losses(weights, features, labels), alone, rtol=1e-13)

    def test_loss_of_zero_weights_is_log_of_the_classes(self):
        weights, features, labels = random_problem()
        assert mean_loss(0 * weights, features, labels) == pytest.approx(np.log(3))


class TestBatches:
    def test_follow_the_seed(self):
        first, again, other = (make_batches(2, 8, seed=seed) for seed in (1, 1, 2))
        np.testing.assert_array_equal(first.features, again.features)
        np.testing.assert_array_equal(first.labels, again.labels)
        assert not np.array_equal(first.features, other.features)

    @pytest.mark.parametrize("sorted_share", [0.3, 1.0])
    def test_sorting_moves_samples_and_keeps_them_with_their_labels(self, sorted_share):
        plain = make_batches(3, 64, seed=0)
        moved = make_batches(3, 64, seed=0, sorted_share=sorted_share)
        assert not np.array_equal(plain.labels, moved.labels)
        for step in range(3):
            before, after = (
                sorted(zip(b.features[step].tolist(), b.labels[step].tolist(), strict=True))
                for b in (plain, moved)
            )
            assert before == after

    def test_the_sorted_places_are_random_ones(self):
        plain = make_batches(20, 64, seed=0)
        moved = make_batches(20, 64, seed=0, sorted_share=0.5)
        changed = np.flatnonzero((plain.labels != moved.labels).any(axis=0))
        assert changed.min() < 16
        assert changed.max() >= 48
        assert not np.array_equal(plain.labels[:, 32:], moved.labels[:, 32:])

    def test_all_sorted_means_labels_in_order(self):
        labels = make_batches(3, 64, seed=0, sorted_share=1.0).labels
        assert (np.diff(labels, axis=1) >= 0).all()

    def test_can_be_learned(self, batches, reference):
        features, labels = batches.features[0], batches.labels[0]
        start = mean_loss(batches.initial_weights(), features, labels)
        assert mean_loss(reference[-1], features, labels) < 0.7 * start

    @pytest.mark.parametrize("wrong", [{"n_steps": 0}, {"batch_size": -4}, {"n_classes": 2.5}])
    def test_refuse_sizes_that_are_no_counts(self, wrong):
        arguments = {"n_steps": 2, "batch_size": 8, **wrong}
        with pytest.raises(ValueError, match=next(iter(wrong))):
            make_batches(**arguments)

    def test_refuse_a_share_above_one(self):
        with pytest.raises(ValueError, match="sorted_share"):
            make_batches(2, 8, sorted_share=50)

    @pytest.mark.parametrize("seed", [None, -1, 1.5, "0"])
    def test_refuse_seeds_that_repeat_nothing(self, seed):
        with pytest.raises(ValueError, match="seed must be a whole number, 0 or more"):
            make_batches(2, 8, seed=seed)


class TestDataParallel:
    @pytest.mark.parametrize("algorithm", ["ring", "naive", "binomial_tree"])
    @pytest.mark.parametrize("n_ranks", [1, 2, 3, 4, 8])
    def test_equals_one_big_batch(self, batches, reference, algorithm, n_ranks):
        counts = even_counts(256, n_ranks)
        run = train_data_parallel(batches, counts, algorithm=algorithm)
        assert max_difference(run.history, reference) < ROUNDING

    def test_all_ranks_agree_in_every_bit(self, batches):
        run = train_data_parallel(batches, UNEVEN)
        assert len({weights.tobytes() for weights in run.weights}) == 1
        assert run.history[-1].tobytes() == run.weights[0].tobytes()

    def test_mean_of_means_is_right_for_even_shards_only(self, batches, reference):
        even = train_data_parallel(batches, [64] * 4, combination="mean_of_means")
        assert max_difference(even.weights[0], reference[-1]) < ROUNDING
        uneven = train_data_parallel(batches, UNEVEN, combination="mean_of_means")
        assert 5e-3 < max_difference(uneven.weights[0], reference[-1]) < 1e-1

    def test_weighting_is_right_for_uneven_shards(self, batches, reference):
        run = train_data_parallel(batches, UNEVEN, combination="weighted")
        assert max_difference(run.weights[0], reference[-1]) < ROUNDING

    @pytest.mark.parametrize("n_ranks", [2, 4, 8, 16])
    def test_bytes_follow_the_parameters_and_not_the_batch(self, n_ranks):
        for batch_size in (16, 64, 1024):
            batches = make_batches(1, batch_size, n_features=32, n_classes=8)
            run = train_data_parallel(batches, even_counts(batch_size, n_ranks))
            nbytes = batches.initial_weights().nbytes
            assert run.sent_per_step == [2 * (n_ranks - 1) * nbytes // n_ranks] * n_ranks

    def test_bytes_follow_the_schedule(self):
        batches = make_batches(1, 8, n_features=32, n_classes=8)
        run = train_data_parallel(batches, [2] * 4, algorithm="naive")
        shares = ledger(REGISTRY["all_reduce", "naive"].build(4)).sent
        nbytes = batches.initial_weights().nbytes
        assert run.sent_per_step == [int(share * nbytes) for share in shares]

    def test_refuses_shards_that_do_not_fill_the_batch(self, batches):
        with pytest.raises(ValueError, match="hold 255 samples, but the batch has 256"):
            train_data_parallel(batches, [100, 60, 60, 35])

    def test_names_the_algorithms_there_are(self, batches):
        with pytest.raises(ValueError, match=r"'rign'.*ring"):
            train_data_parallel(batches, [128, 128], algorithm="rign")

    def test_another_algorithm_and_another_n_change_the_last_bits(self, batches):
        ring = train_data_parallel(batches, [64] * 4).weights[0]
        tree = train_data_parallel(batches, [64] * 4, algorithm="binomial_tree").weights[0]
        eight = train_data_parallel(batches, [32] * 8).weights[0]
        for other in (tree, eight):
            assert other.tobytes() != ring.tobytes()
            assert max_difference(other, ring) < ROUNDING

    def test_error_of_the_mean_of_means_is_what_the_factors_say(self, batches):
        """One step from zero: the sum over ranks of (1/N - n_r/B) times the local gradient."""
        first = make_batches(n_steps=1, batch_size=256, seed=0)
        start, x, y = first.initial_weights(), first.features[0], first.labels[0]
        expected = sum(
            (1 / 4 - count / 256) * gradient(start, x[shard], y[shard])
            for count, shard in zip(UNEVEN, shard_slices(UNEVEN, 256), strict=True)
        )
        plain = train_data_parallel(first, UNEVEN, combination="mean_of_means").weights[0]
        error = (train_single(first)[0] - plain) / SGD.learning_rate
        np.testing.assert_allclose(error, expected, atol=1e-14)


class TestOptimizers:
    @pytest.mark.parametrize(
        ("ours", "make_theirs"),
        [
            (GradientDescent(0.3), lambda p: torch.optim.SGD(p, lr=0.3)),
            (Momentum(0.1, 0.8), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8)),
            (
                Adam(0.02, 0.8, 0.95, 1e-6),
                lambda p: torch.optim.Adam(p, lr=0.02, betas=(0.8, 0.95), eps=1e-6),
            ),
        ],
        ids=["sgd", "momentum", "adam"],
    )
    def test_step_as_in_pytorch(self, ours, make_theirs):
        rng = np.random.default_rng(1)
        weights = rng.normal(size=(4, 3))
        theirs = torch.tensor(weights, requires_grad=True)
        optimizer = make_theirs([theirs])
        state = ours.start(weights)
        for _ in range(20):
            slope = rng.normal(size=(4, 3))
            theirs.grad = torch.tensor(slope)
            optimizer.step()
            weights, state = ours.step(weights, slope, state)
            np.testing.assert_allclose(weights, theirs.detach().numpy(), rtol=1e-12)

    @pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=name_of)
    def test_change_neither_gradient_nor_state(self, optimizer):
        weights, slope = np.ones((2, 2)), np.full((2, 2), 0.5)
        state = optimizer.start(weights)
        before = [weights.copy(), slope.copy(), *(array.copy() for array in state)]
        optimizer.step(weights, slope, state)
        for now, then in zip([weights, slope, *state], before, strict=True):
            np.testing.assert_array_equal(now, then)

    @pytest.mark.parametrize("counts", [[64] * 4, UNEVEN], ids=str)
    @pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=name_of)
    def test_all_equal_one_big_batch(self, batches, optimizer, counts):
        whole = train_single(batches, optimizer)
        run = train_data_parallel(batches, counts, optimizer)
        in_pieces = train_gradient_accumulation(batches, counts, optimizer)
        assert max_difference(run.history, whole) < ROUNDING
        assert max_difference(in_pieces, whole) < ROUNDING

    @pytest.mark.parametrize("optimizer", [Momentum(), Adam()], ids=name_of)
    def test_states_agree_in_every_bit_and_cost_no_bytes(self, batches, optimizer):
        run = train_data_parallel(batches, UNEVEN, optimizer)
        states = [tuple(array.tobytes() for array in state) for state in run.states]
        assert len(states[0]) == {"Momentum": 1, "Adam": 3}[name_of(optimizer)]
        assert len(set(states)) == 1
        assert np.abs(run.states[0][0]).max() > 0
        assert run.sent_per_step == train_data_parallel(batches, UNEVEN).sent_per_step


class TestSumLoss:
    @pytest.mark.parametrize("n_ranks", [2, 4, 8])
    def test_plain_mean_divides_the_learning_rate_by_n(self, batches, n_ranks):
        descent = GradientDescent(SGD.learning_rate / 256)
        counts = even_counts(256, n_ranks)
        averaged = train_data_parallel(
            batches, counts, descent, combination="mean_of_means", reduction="sum"
        )
        slower = replace(descent, learning_rate=descent.learning_rate / n_ranks)
        expected = train_single(batches, slower, reduction="sum")
        assert max_difference(averaged.history, expected) < ROUNDING
        assert max_difference(expected, train_single(batches, descent, reduction="sum")) > 0.1

    def test_adding_is_right_for_any_counts(self, batches):
        for optimizer in (GradientDescent(SGD.learning_rate / 256), Adam()):
            whole = train_single(batches, optimizer, reduction="sum")
            for counts in ([64] * 4, UNEVEN):
                added = train_data_parallel(batches, counts, optimizer, reduction="sum")
                assert max_difference(added.history, whole) < 2 * ROUNDING

    def test_adam_hides_the_factor(self, batches):
        whole = train_single(batches, Adam(), reduction="sum")
        averaged = train_data_parallel(
            batches, [64] * 4, Adam(), combination="mean_of_means", reduction="sum"
        )
        assert ROUNDING < max_difference(averaged.history, whole) < 1e-6

    def test_of_the_whole_batch_is_the_mean_times_its_size(self, batches):
        by_sum = train_single(batches, GradientDescent(SGD.learning_rate / 256), "sum")
        assert max_difference(by_sum, train_single(batches)) < ROUNDING


class TestGradientAccumulation:
    def test_equals_one_big_batch_and_data_parallel(self, batches, reference):
        accumulated = train_gradient_accumulation(batches, [64] * 4)
        assert max_difference(accumulated, reference) < ROUNDING
        parallel = train_data_parallel(batches, [64] * 4)
        assert max_difference(accumulated, parallel.history) < ROUNDING

    def test_is_wrong_by_as_much_as_data_parallel_is(self, batches):
        accumulated = train_gradient_accumulation(batches, UNEVEN, combination="mean_of_means")
        parallel = train_data_parallel(batches, UNEVEN, combination="mean_of_means")
        assert max_difference(accumulated, parallel.history) < ROUNDING


# Tokens that count in 4 micro-batches: first two on rank 0, the others on rank 1.
TOKENS = [[115, 21], [71, 49]]


MICRO_OF_4 = [[70, 30], [20, 40], [5, 55], [1, 35]]


class TestRanksInMicroBatches:
    @pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=name_of)
    @pytest.mark.parametrize("no_sync", [True, False])
    @pytest.mark.parametrize("counts", [[[64, 64], [64, 64]], TOKENS, [[32] * 8], [[64]] * 4])
    def test_equal_one_big_batch(self, batches, optimizer, no_sync, counts):
        run = train_ranks_in_micro_batches(batches, counts, optimizer, no_sync=no_sync)
        assert max_difference(run.history, train_single(batches, optimizer)) < ROUNDING
        assert len({weights.tobytes() for weights in run.weights}) == 1

    @pytest.mark.parametrize("n_ranks", [2, 3, 4, 8])
    @pytest.mark.parametrize("n_micro", [1, 2, 5])
    def test_no_sync_sends_once_a_step(self, n_ranks, n_micro):
        batches = make_batches(2, 3 * n_ranks * n_micro, n_features=24)
        counts = [[3] * n_micro] * n_ranks
        once = train_ranks_in_micro_batches(batches, counts).sent_per_step
        every = train_ranks_in_micro_batches(batches, counts, no_sync=False).sent_per_step
        nbytes = batches.initial_weights().nbytes
        assert once == [2 * (n_ranks - 1) * nbytes // n_ranks] * n_ranks
        assert every == [n_micro * sent for sent in once]

    @pytest.mark.parametrize("no_sync", [True, False])
    @pytest.mark.parametrize("combination", ["weighted_per_rank", "mean_of_means"])
    def test_other_weights_are_wrong_if_tokens_differ(self, batches, combination, no_sync):
        run = train_ranks_in_micro_batches(
            batches, TOKENS, combination=combination, no_sync=no_sync
        )
        assert 1e-3 < max_difference(run.weights[0], train_single(batches)[-1]) < 1e-1

    def test_weights_per_rank_are_right_if_ranks_have_equally_many(self, batches):
        counts = [[100, 28], [65, 63]]
        run = train_ranks_in_micro_batches(batches, counts, combination="weighted_per_rank")
        assert max_difference(run.history, train_single(batches)) < ROUNDING

    def test_factors_add_up_to_one(self):
        for combination in ("weighted", "weighted_per_rank", "mean_of_means"):
            factors = micro_batch_factors(TOKENS, combination)
            assert sum(map(sum, factors)) == pytest.approx(1)
        assert micro_batch_factors(TOKENS, "weighted")[0] == [115 / 256, 21 / 256]
        assert micro_batch_factors(TOKENS, "weighted_per_rank")[0] == [115 / 272, 21 / 272]
        assert micro_batch_factors(TOKENS, "mean_of_means")[0] == [0.25, 0.25]
        with pytest.raises(ValueError, match="'weighted_per_rank'"):
            micro_batch_factors(TOKENS, "by token")

    def test_refuses_ranks_that_would_miss_an_all_reduce(self, batches):
        with pytest.raises(ValueError, match=r"\[2, 1\] micro-batches"):
            train_ranks_in_micro_batches(batches, [[64, 64], [128]])

    @pytest.mark.parametrize("counts", [[], [128, 128], [[200, 50]]])
    def test_refuses_counts_that_fit_no_batch(self, batches, counts):
        with pytest.raises(ValueError, match=r"counts|samples"):
            train_ranks_in_micro_batches(batches, counts)


@pytest.fixture(scope="module")
def real():
    """What 4 processes with DDP end with, by way of training."""
    return run(ddp_workers.all_ways, ranks=4, counts=UNEVEN, micro_counts=MICRO_OF_4)


@pytest.fixture(scope="module")
def short():
    """The batches that those processes train on."""
    return make_batches(n_steps=10, batch_size=256, seed=0)


class TestRealDDP:
    """What the page says of DDP, seen in 4 processes."""

    def test_ranks_agree_in_every_bit(self, real):
        for way in ("plain", "scaled", "sum", "synced each time", "no_sync"):
            assert all(one[way] == real[0][way] for one in real)

    def test_averages_plainly(self, real, short):
        ours = train_data_parallel(short, UNEVEN, combination="mean_of_means").weights[0]
        assert max_difference(np.array(real[0]["plain"]), ours) < ROUNDING

    def test_is_right_if_each_rank_scales_its_mean_loss(self, real, short):
        assert max_difference(np.array(real[0]["scaled"]), train_single(short)[-1]) < ROUNDING

    def test_divides_sum_losses_by_n(self, real, short):
        slow = GradientDescent(SGD.learning_rate / 256 / 4)
        expected = train_single(short, slow, reduction="sum")[-1]
        assert max_difference(np.array(real[0]["sum"]), expected) < ROUNDING

    @pytest.mark.parametrize("way", ["synced each time", "no_sync"])
    def test_accumulates_right_with_and_without_no_sync(self, real, short, way):
        assert max_difference(np.array(real[0][way]), train_single(short)[-1]) < ROUNDING

    def test_no_sync_counts_in_the_forward_pass(self, real):
        local = [1.0, 2.0, 3.0, 4.0]
        for around, expected in (
            ("", [2.5] * 4),
            ("forward and backward", local),
            ("forward", local),
            ("backward", [2.5] * 4),
        ):
            assert [one["gradients"][around] for one in real] == expected, around


class TestDivideFirst:
    @pytest.mark.parametrize(("dtype", "huge"), [("float32", 3e38), ("float16", 4e4)])
    def test_keeps_large_gradients_finite(self, dtype, huge):
        gradients = [np.array([huge], dtype=dtype) for _ in range(4)]
        n_ranks = np.array(4, dtype=dtype)
        with np.errstate(over="ignore"):
            assert np.isinf(all_reduce(gradients)[0] / n_ranks).all()
        assert all_reduce([local / n_ranks for local in gradients])[0] == gradients[0]

    def test_loses_tiny_ones(self):
        smallest = np.finfo(np.float16).smallest_subnormal
        gradients = [np.array([smallest]) for _ in range(4)]
        n_ranks = np.float16(4)
        assert all_reduce(gradients)[0] / n_ranks == gradients[0]
        assert all_reduce([local / n_ranks for local in gradients])[0] == 0


class TestShards:
    def test_cover_the_batch_in_order(self):
        slices = shard_slices(UNEVEN, 256)
        covered = [place for shard in slices for place in range(256)[shard]]
        assert covered == list(range(256))
        assert [len(range(256)[shard]) for shard in slices] == UNEVEN

    @given(st.integers(1, 300), st.integers(1, 40))
    def test_even_counts_differ_by_one_at_most(self, n_samples, n_parts):
        if n_samples < n_parts:
            with pytest.raises(ValueError, match="do not fill"):
                even_counts(n_samples, n_parts)
            return
        counts = even_counts(n_samples, n_parts)
        assert sum(counts) == n_samples
        assert max(counts) - min(counts) <= 1
        assert counts == sorted(counts, reverse=True)

    @pytest.mark.parametrize("counts", [[], [4, 0], [5, -1], [2.5, 1.5]])
    def test_refuse_counts_that_are_none(self, counts):
        with pytest.raises(ValueError, match="counts"):
            shard_slices(counts, 4)

    def test_factors_add_up_to_one(self):
        weighted = combination_factors(UNEVEN, "weighted")
        assert weighted == [100 / 256, 60 / 256, 60 / 256, 36 / 256]
        assert combination_factors(UNEVEN, "mean_of_means") == [0.25] * 4
        assert combination_factors(UNEVEN, "mean_of_means", "sum") == [0.25] * 4
        assert combination_factors(UNEVEN, "weighted", "sum") == [1.0] * 4
        with pytest.raises(ValueError, match="'weighted' or 'mean_of_means'"):
            combination_factors(UNEVEN, "average")


class TestDistributedSampler:
    @pytest.mark.parametrize("drop_last", [False, True])
    def test_mirrors_pytorch(self, drop_last):
        for n_samples in range(0, 30):
            for n_ranks in range(1, 9):
                expected = [
                    list(
                        DistributedSampler(
                            range(n_samples),
                            num_replicas=n_ranks,
                            rank=rank,
                            shuffle=False,
                            drop_last=drop_last,
                        )
                    )
                    for rank in range(n_ranks)
                ]
                ours = distributed_sampler_indices(n_samples, n_ranks, drop_last)
                assert ours == expected, (n_samples, n_ranks)

    def test_repeats_less_than_one_sample_per_rank(self):
        for n_samples in range(1, 60):
            for n_ranks in range(1, 17):
                visited = list(chain(*distributed_sampler_indices(n_samples, n_ranks)))
                kept = list(chain(*distributed_sampler_indices(n_samples, n_ranks, True)))
                assert 0 <= len(visited) - n_samples < n_ranks
                assert 0 <= n_samples - len(kept) < n_ranks
                assert set(visited) == set(range(n_samples))
                assert len(set(kept)) == len(kept)

    def test_repeats_from_the_start(self):
        assert distributed_sampler_indices(10, 4) == [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]]

    def test_refuses_counts_that_are_none(self):
        with pytest.raises(ValueError, match="n_samples"):
            distributed_sampler_indices(-1, 4)
        with pytest.raises(ValueError, match="n_ranks"):
            distributed_sampler_indices(10, 0)
