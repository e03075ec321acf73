"""Data parallelism on a list of ranks: equal to one big batch where it should be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DistributedSampler

from commlab.algorithms import REGISTRY
from commlab.simulate import ledger
from commlab.training import (
    combination_factors,
    distributed_sampler_indices,
    even_counts,
    gradient,
    make_batches,
    max_difference,
    mean_loss,
    shard_slices,
    train_data_parallel,
    train_gradient_accumulation,
    train_single,
)

# Weights stay near 1, so this is some ten units in the last place.
ROUNDING = 2e-15
UNEVEN = [100, 60, 60, 36]


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

    def test_repeats_from_the_start(self):
        assert distributed_sampler_indices(10, 4) == [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]]

    def test_refuses_counts_that_are_none(self):
        with pytest.raises(ValueError, match="n_samples"):
            distributed_sampler_indices(-1, 4)
        with pytest.raises(ValueError, match="n_ranks"):
            distributed_sampler_indices(10, 0)
