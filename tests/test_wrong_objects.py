"""Another kind of object than the one asked for: one sentence, wherever it is passed."""

from __future__ import annotations

import numpy as np
import pytest

from commlab import budget, overlap, training
from commlab.budget import H100_CLUSTER, Group, Plan
from commlab.models import LLAMA3_8B
from commlab.setting_checks import (
    check_choice,
    check_flag,
    check_gradient_bytes,
    check_kind,
    check_mfu,
    check_part,
    check_positive,
    check_whole_from_zero,
)

BACKWARD = overlap.uniform_backward(2**20, 1.0, 8, 4)
BATCHES = training.make_batches(2, 8, n_features=3, n_classes=2)
SENT = np.ones((2, 2))


def seconds(nbytes: float) -> float:
    return 1e-6 + nbytes / 1e9


CALLS = {
    "shape": [
        lambda x: budget.training_step(x, Plan()),
        lambda x: budget.activation_memory(x, 128),
        lambda x: budget.llama_layer_tensors(x, 128),
        lambda x: budget.head_tensors(x, 128),
        lambda x: budget.parameter_share(x),
        lambda x: budget.pipeline_parallel(x, 128, 2, 4),
        lambda x: budget.sharded_data_parallel(x, 8),
        lambda x: budget.tensor_parallel(x, 128, 8),
        lambda x: overlap.transformer_backward(x, 128, peak_flops=1e15, mfu=0.4),
    ],
    "plan": [
        lambda x: budget.training_step(LLAMA3_8B, x),
        lambda x: budget.exposed_seconds([], x, 1.0, 2.0),
    ],
    "cluster": [
        lambda x: budget.training_step(LLAMA3_8B, Plan(), x),
        lambda x: budget.compute_time(1e9, 1e3, x),
        lambda x: budget.data_parallel(1e9, 8, x),
        lambda x: budget.expert_parallel(128, 8, 2, 4, x),
        lambda x: budget.pipeline_parallel(LLAMA3_8B, 128, 2, 4, x),
        lambda x: budget.sharded_data_parallel(LLAMA3_8B, 8, x),
        lambda x: budget.tensor_parallel(LLAMA3_8B, 128, 8, x),
        lambda x: budget.place(8, x),
        lambda x: budget.all_reduce_seconds(10, Group(2), x),
        lambda x: budget.gather_seconds(10, Group(2), x),
        lambda x: budget.all_to_all_seconds(SENT, Group(2), x),
    ],
    "group": [
        lambda x: budget.all_reduce_seconds(10, x, H100_CLUSTER),
        lambda x: budget.gather_seconds(10, x, H100_CLUSTER),
        lambda x: budget.all_to_all_seconds(SENT, x, H100_CLUSTER),
    ],
    "shards": [lambda x: budget.gathered_bytes(1.0, 2, 3.0, x)],
    "overlap": [lambda x: Plan(overlap=x)],
    "backward": [
        lambda x: overlap.timeline(x, [2**20], seconds),
        lambda x: overlap.best_bucket(x, seconds),
    ],
    "all_reduce_time": [
        lambda x: overlap.timeline(BACKWARD, [2**20], x),
        lambda x: overlap.best_bucket(BACKWARD, x),
        lambda x: overlap.uniform_best_bucket(1e9, 1.0, x),
    ],
    "each of gradients": [lambda x: overlap.BackwardPass("x", (x,), 0.0)],
    "batches": [
        lambda x: training.train_single(x),
        lambda x: training.train_data_parallel(x, [4, 4]),
        lambda x: training.train_gradient_accumulation(x, [4, 4]),
        lambda x: training.train_ranks_in_micro_batches(x, [[2, 2], [2, 2]]),
    ],
    "optimizer": [
        lambda x: training.train_single(BATCHES, x),
        lambda x: training.train_data_parallel(BATCHES, [4, 4], x),
        lambda x: training.train_gradient_accumulation(BATCHES, [4, 4], x),
        lambda x: training.train_ranks_in_micro_batches(BATCHES, [[2, 2], [2, 2]], x),
    ],
}
EVERY_CALL = [(what, number) for what, calls in CALLS.items() for number in range(len(calls))]


@pytest.mark.parametrize(("what", "number"), EVERY_CALL)
@pytest.mark.parametrize("wrong", [None, "8B", 64, 0.5, np.ones(2), [], {}], ids=repr)
def test_another_object_is_refused_in_one_sentence(what, number, wrong):
    with pytest.raises(TypeError) as refused:
        CALLS[what][number](wrong)
    message = str(refused.value)
    assert message.startswith(f"{what} must be a")
    assert "for example" in message
    assert message.endswith(".")
    assert "\n" not in message


def test_swapped_arguments_are_named():
    with pytest.raises(TypeError, match=r"shape must be a TransformerShape.* of class Plan"):
        budget.training_step(Plan(), LLAMA3_8B)
    with pytest.raises(TypeError, match=r"cluster must be a Cluster.* of class Group"):
        budget.all_reduce_seconds(1e6, Group(8), Group(8))


@pytest.mark.parametrize("rule", [training.Adam, training.Momentum, training.GradientDescent])
def test_the_class_of_an_optimizer_is_not_an_optimizer(rule):
    with pytest.raises(TypeError, match=rf"the class {rule.__name__} itself"):
        training.train_single(BATCHES, rule)
    training.train_single(BATCHES, rule())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: training.GradientDescent("x"), "learning_rate must be a number above zero"),
        (lambda: training.Momentum(decay=1.5), "decay is a part, from 0 to 1"),
        (lambda: training.Momentum(learning_rate=-0.1), "learning_rate must be a number"),
        (lambda: training.Adam(decay_second=1.0), "decay_second must be below 1"),
        (lambda: training.Adam(epsilon=0.0), "epsilon must be a number above zero"),
        (lambda: training.combination_factors([-1, 3], "weighted"), r"counts\[0\] must be a whole"),
        (lambda: training.combination_factors([], "weighted"), "one number of samples per rank"),
        (lambda: training.combination_factors(None, "weighted"), "one number of samples per rank"),
        (lambda: training.combination_factors([1, 2], ["weighted"]), "combination must be"),
        (lambda: training.shard_slices("4", 4), "one number of samples per rank|whole number"),
        (lambda: training.micro_batch_factors([[1], [0]], "weighted"), r"counts\[1\]\[0\] must be"),
        (lambda: training.micro_batch_factors([[1], []], "weighted"), r"counts\[1\] is \[\]"),
        (lambda: training.max_difference(np.ones((3, 1)), np.ones(3)), r"shapes \(3, 1\) and \(3,"),
        (lambda: training.max_difference(np.ones(0), np.ones(0)), "at least one element"),
        (lambda: training.train_data_parallel(BATCHES, [8], algorithm=["ring"]), "no all-reduce"),
        (lambda: training.train_ranks_in_micro_batches(BATCHES, []), "one list per rank"),
        (lambda: training.train_ranks_in_micro_batches(BATCHES, None), "one list per rank"),
        (lambda: training.micro_batch_factors(None, "weighted"), "counts must be a list"),
        (
            lambda: training.train_ranks_in_micro_batches(BATCHES, [[4, 4]], no_sync="False"),
            "no_sync must be True or False",
        ),
        (
            lambda: training.distributed_sampler_indices(8, 2, drop_last="no"),
            "drop_last must be True or False",
        ),
        (lambda: overlap.timeline(BACKWARD, None, seconds), "buckets must be a list"),
        (lambda: overlap.timeline(BACKWARD, [2.0**20], seconds), "whole bytes"),
        (lambda: overlap.best_bucket(BACKWARD, seconds, sizes=4), "sizes must be a list"),
        (lambda: overlap.ddp_buckets("abc"), "gradient_nbytes must be a list"),
        (lambda: budget.expert_slots([[1.0]]), "one number for each expert"),
        (lambda: budget.expert_slots("even"), "loads must be a number or an array"),
        (lambda: budget.sent_matrix(np.ones(4), 0), "n_ranks must be a whole number"),
        (lambda: budget.training_state(1e9, whole_gradients="no"), "must be True or False"),
        (
            lambda: budget.all_reduce_seconds(np.ones(2), Group(2), H100_CLUSTER),
            "nbytes must be one number here",
        ),
        (lambda: check_choice("c", ("a", "b"), "letter"), "letter is 'c': choose 'a' or 'b'"),
        (lambda: check_choice(np.ones(2), ("a", "b"), "letter"), "choose 'a' or 'b'"),
        (lambda: check_flag("False", "flag"), "flag must be True or False; got 'False'"),
        (lambda: check_flag(1, "flag"), "flag must be True or False; got 1"),
        (lambda: check_positive(True, "x"), "x must be a number above zero; got True"),
        (lambda: check_positive(float("inf"), "x"), "x must be a number above zero"),
        (lambda: check_part(1.5, "x"), "40 percent is 0.40"),
        (lambda: check_mfu(40), "at most 1; got 40"),
        (lambda: check_gradient_bytes(4.0), "choose 2"),
        (lambda: check_gradient_bytes(np.array([2, 4])), "choose 2"),
        (lambda: check_whole_from_zero(-1, "x"), "x must be a whole number, 0 or more"),
    ],
)
def test_a_wrong_setting_is_refused_with_the_fix(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_numpy_settings_pass_as_pythons_own():
    assert check_flag(np.True_, "x") is True
    assert type(check_gradient_bytes(np.uint8(4))) is int
    assert check_part(np.float32(0.5), "x") == 0.5
    check_kind(H100_CLUSTER, budget.Cluster, "cluster", "H100_CLUSTER")
