"""Wrong answers to every exercise, as readers give them, with the reason that a checker names."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from commlab import COPY, REDUCE, REGISTRY, Schedule, Step
from commlab.exercises import EXERCISES
from commlab.units import GIB, MIB

RIGHT = {name: exercise.references for name, exercise in EXERCISES.items()}


def schedule_of(collective: str, name: str, **options: int):
    """A builder from the registry: its own schedule, whatever it costs."""
    return lambda n_ranks: REGISTRY[collective, name].build(n_ranks, **options)


# ---------------------------------------------------------------------------------------
# Schedules


def keeps_adding(n_ranks):
    """Everybody passes the whole vector on in every step: contributions come twice."""
    r = np.arange(n_ranks)
    steps = [Step(r, (r + 1) % n_ranks, 0 * r, REDUCE) for _ in range(n_ranks - 1)]
    every = [[0]] * n_ranks
    return Schedule("all_reduce", n_ranks, [Fraction(1)], every, every, steps)


def sums_only(n_ranks):
    """Walks around once: the sum is never handed out."""
    steps = [Step([r], [r + 1], [0], REDUCE) for r in range(n_ranks - 1)]
    every = [[0]] * n_ranks
    return Schedule("all_reduce", n_ranks, [Fraction(1)], every, every, steps)


def promises_nothing(n_ranks):
    """Passes verify, since nobody is to end with anything."""
    nothing = [[]] * n_ranks
    return Schedule("all_reduce", n_ranks, [Fraction(1)], [[0]] * n_ranks, nothing, [])


def promises_little(n_ranks):
    """A vector of half the size."""
    every = [[0]] * n_ranks
    good = EXERCISES["uncut_ring"].references["schedule"](n_ranks)
    return Schedule("all_reduce", n_ranks, [Fraction(1, 2)], every, every, good.steps)


def all_at_once(n_ranks):
    """Everybody sends to everybody in one step: too many ports."""
    pairs = [(a, b) for a in range(n_ranks) for b in range(n_ranks) if a != b]
    gather = [Step([a], [b], [0], REDUCE) for a, b in pairs if b == 0]
    spread = Step([0] * (n_ranks - 1), range(1, n_ranks), [0] * (n_ranks - 1), COPY)
    every = [[0]] * n_ranks
    return Schedule("all_reduce", n_ranks, [Fraction(1)], every, every, [*gather, spread])


def always_eight(n_ranks):
    return REGISTRY["all_reduce", "ring"].build(8)


def everybody_starts(n_ranks):
    every = [[0]] * n_ranks
    return Schedule("broadcast", n_ranks, [Fraction(1)], every, every, [])


def forwards_what_it_lacks(n_ranks):
    """Every rank sends in the first step, though only rank 0 holds anything."""
    ranks = list(range(n_ranks - 1))
    steps = [Step(ranks, [r + 1 for r in ranks], [0] * len(ranks), COPY)]
    starts = [[0]] + [[]] * (n_ranks - 1)
    return Schedule("broadcast", n_ranks, [Fraction(1)], starts, [[0]] * n_ranks, steps)


def root_sends_all(n_ranks):
    steps = [Step([0], [r], [0], COPY) for r in range(1, n_ranks)]
    starts = [[0]] + [[]] * (n_ranks - 1)
    return Schedule("broadcast", n_ranks, [Fraction(1)], starts, [[0]] * n_ranks, steps)


# ---------------------------------------------------------------------------------------
# Gradients and weights


def accumulates_sums(gradient, weights, features, labels, k):
    return sum(
        gradient(weights, x, y)
        for x, y in zip(np.split(features, k), np.split(labels, k), strict=True)
    )


def takes_the_whole_batch(gradient, weights, features, labels, k):
    return gradient(weights, features, labels)


def keeps_the_last(gradient, weights, features, labels, k):
    return gradient(weights, features[-256:], labels[-256:])


def forgets_a_part(gradient, weights, features, labels, k):
    parts = list(zip(np.split(features, k), np.split(labels, k), strict=True))[1:]
    return sum(gradient(weights, x, y) for x, y in parts) / k


def mean_of_means(gradient_sums, counts, all_reduce):
    means = [g / n for g, n in zip(gradient_sums, counts, strict=True)]
    return [total / len(counts) for total in all_reduce(means)]


def only_sums(gradient_sums, counts, all_reduce):
    return all_reduce(gradient_sums)


def divides_by_ranks(gradient_sums, counts, all_reduce):
    return [total / len(counts) for total in all_reduce(gradient_sums)]


def sums_counts_by_hand(gradient_sums, counts, all_reduce):
    """Right as well, but a rank knows its own count only."""
    return [total / sum(counts) for total in all_reduce(gradient_sums)]


def divides_by_its_own_count(gradient_sums, counts, all_reduce):
    return [total / n for total, n in zip(all_reduce(gradient_sums), counts, strict=True)]


def reads_other_ranks(gradient_sums, counts, all_reduce):
    """Right, but no rank can look into the others' memory."""
    return [sum(gradient_sums) / sum(counts)] * len(counts)


# ---------------------------------------------------------------------------------------
# Placements, buckets, rings


def one_placement(data, tensor, pipeline):
    return lambda shape, n_gpus, n_sequences, cluster: {
        "data": data,
        "tensor": tensor,
        "pipeline": pipeline,
    }


def tensor_everywhere(shape, n_gpus, n_sequences, cluster):
    return {"data": n_gpus // 16, "tensor": 16, "pipeline": 1}


def mutates_and_returns_nodes(node_of):
    """Makes all ranks of one node, in the caller's list, so that any order would do."""
    n = len(node_of)
    node_of[:] = [0] * n
    return list(range(n))


def mutates_tokens(tokens):
    for row in tokens:
        row[:] = [1] * len(row)
    return [[1 / len(row)] * len(row) for row in tokens]


WRONG = {
    ("volume", "ring_bytes"): [
        ("8 GiB", "n_for_n_minus_1"),
        ("3.75 GiB", "factor_two"),
        (120 * GIB, "total_for_rank"),
        ("4 GiB", "no_ring_factor"),
        ("7.5 GB", "binary_prefix"),
        (60 * GIB, "bits_for_bytes"),
        ("17.9 ms", "unit"),
        ("7.5", "no_unit"),
        (7.5, "bare_number"),
        ("7.5 Gib", "unit"),
    ],
    ("volume", "root_bytes"): [
        ("64 GiB", "n_for_n_minus_1"),
        ("120 GiB", "sent_too"),
        ("60 GB", "binary_prefix"),
    ],
    ("volume", "ring_seconds"): [
        ("8.95 ms", "factor_two"),
        ("16.67 ms", "binary_prefix"),
        (17.9, "unit_prefix"),
        ("19.09 ms", "n_for_n_minus_1"),
        ("143.2 ms", "bits_for_bytes"),
    ],
    ("volume", "naive_seconds"): [
        ("143.2 ms", "factor_two"),
        ("305.4 ms", "n_for_n_minus_1"),
        ("286 µs", "unit_prefix"),
    ],
    ("uncut_ring", "ring_steps"): [(16, "n_for_n_minus_1"), (30, "both_phases"), (4, "tree_steps")],
    ("uncut_ring", "most_sent"): [
        (30, "total_for_rank"),
        (32, "n_for_n_minus_1"),
        (1, "factor_two"),
        (1.875, "cut"),
    ],
    ("uncut_ring", "slowdown"): [(15, "n_minus_1"), (1, "same"), (2, "too_small")],
    ("uncut_ring", "schedule"): [
        (keeps_adding, "meaning"),
        (sums_only, "meaning"),
        (promises_nothing, "promise"),
        (promises_little, "promise"),
        (all_at_once, "ports"),
        (always_eight, "n_ranks"),
        (schedule_of("all_reduce", "naive"), "bytes"),
        (schedule_of("all_reduce", "ring"), "chunks"),
    ],
    ("crossover", "crossover_bytes"): [
        (11 * 5e-6 * 450e9 / 1.25, "tree_once"),
        (5e-6 * 450e9 / 5.125, "ring_once"),
        ("4.235 MiB", "binary_prefix"),
        (14 * 5e-6 * 450e9 / 4.25, "no_latency_of_tree"),
    ],
    ("crossover", "formula"): [
        (
            lambda n, a, b: (
                (2 * (n - 1) - 2 * np.log2(n)) * a * b / (2 * np.log2(n) - 2 * (n - 1) / n)
            ),
            "log_not_rounded",
        ),
        (lambda n, a, b: 8 * a * b / 4.25, "value"),
        (lambda n, a, b: 1 / RIGHT["crossover"]["formula"](n, a, b), "inverse"),
        (lambda n, a, b: "4 MiB", "result_type"),
        (lambda n: n, "raised"),
    ],
    ("llama_70b", "all_reduce_seconds"): [
        ("5.556 s", "flat_ring"),
        ("2.3324 s", "wrong_precision"),
        ("0.5831 s", "wrong_precision"),
        ("1.166 ms", "unit_prefix"),
        ("0.62 s", "only_between"),
        ("5.012 s", "links_swapped"),
    ],
    ("llama_70b", "compute_seconds"): [
        ("14.026 s", "no_mfu"),
        ("11.688 s", "forward_only"),
        ("0.5479 s", "split_tokens"),
    ],
    ("llama_70b", "communication_part"): [
        ("3.219 %", "of_both"),
        (30.065, "inverse"),
        (3.326, "percent"),
        (3.3, "percent"),
    ],
    ("accumulation", "samples_in_memory"): [
        (2048, "whole_batch"),
        (32, "cut_again"),
        (512, "too_large"),
        (255, "too_small"),
    ],
    ("accumulation", "time_factor"): [(1 / 8, "inverse"), (1, "same"), (16, "too_large")],
    ("accumulation", "code"): [
        (accumulates_sums, "not_divided"),
        (takes_the_whole_batch, "memory"),
        (keeps_the_last, "last_only"),
        (forgets_a_part, "other"),
        (lambda gradient, weights, features, labels, k: 0.0, "result_type"),
    ],
    ("uneven_shards", ""): [
        (mean_of_means, "mean_of_means"),
        (only_sums, "not_divided"),
        (divides_by_ranks, "divided_by_ranks"),
        (reads_other_ranks, "no_communication"),
        (sums_counts_by_hand, "counts_not_reduced"),
        (divides_by_its_own_count, "divided_by_own"),
        (lambda sums, counts, all_reduce: None, "nothing"),
        (lambda sums, counts, all_reduce: all_reduce(sums)[9], "raised"),
    ],
    ("grows_with", "data"): [
        (("tokens", "overlaps"), "not_tokens"),
        (("parameters", "waits"), "not_waits"),
        ("parameters", "type"),
    ],
    ("grows_with", "fsdp"): [
        (("tokens", "overlaps"), "not_tokens"),
        (("parameters", "waits"), "not_waits"),
        (("parameters", True), "type"),
    ],
    ("grows_with", "tensor"): [
        (("parameters", "waits"), "not_parameters"),
        (("tokens", "overlaps"), "not_overlaps"),
        (("token", "waits"), "type"),
    ],
    ("grows_with", "expert"): [
        (("parameters", "waits"), "not_parameters"),
        (("tokens", "overlaps"), "not_overlaps"),
        (("tokens", "waits", "all"), "type"),
    ],
    ("fsdp_volume", "formula"): [
        (lambda n, p, reshard: (3 if reshard else 2) * p, "n_for_n_minus_1"),
        (lambda n, p, reshard: (3 if reshard else 2) * (n - 1) * p, "total_for_rank"),
        (lambda n, p, reshard: 3 * (n - 1) / n * p, "reshard_ignored"),
        (lambda n, p, reshard: 2 * (n - 1) / n * p, "never_resharded"),
        (lambda n, p, reshard: (2 if reshard else 3) * (n - 1) / n * p, "reshard_swapped"),
        (lambda n, p, reshard: (4 if reshard else 3) * (n - 1) / n * p, "all_reduced"),
        (lambda n, p, reshard: p / n, "value"),
    ],
    ("fsdp_volume", "kept_bytes"): [
        ("239.3 MiB", "shard"),
        ("29.92 GiB", "wrong_precision"),
        ("7.5 GiB", "wrong_precision"),
        ("14.96 GB", "binary_prefix"),
    ],
    ("hot_expert", "slowdown"): [
        (1, "mean"),
        (1.125, "difference"),
        (0.5, "inverse"),
        (4, "both_directions"),
        (2.333, "of_others"),
    ],
    ("hot_expert", "dropped"): [
        ("12.5 %", "no_capacity_factor"),
        ("37.5 %", "of_expert"),
        (0.15625, "kept"),
        (9.375, "percent"),
        (0, "too_small"),
    ],
    ("short_all_reduce", ""): [
        (schedule_of("all_reduce", "ring"), "steps"),
        (schedule_of("all_reduce", "recursive_doubling"), "bytes"),
        (keeps_adding, "meaning"),
        (promises_nothing, "promise"),
        (always_eight, "n_ranks"),
        (all_at_once, "ports"),
        (lambda n_ranks: [1, 2], "type"),
    ],
    ("fast_broadcast", ""): [
        (schedule_of("broadcast", "binomial_tree"), "slow"),
        (schedule_of("broadcast", "scatter_all_gather"), "slow"),
        (schedule_of("broadcast", "pipelined_chain", pipeline_chunks=2), "slow"),
        (root_sends_all, "slow"),
        (everybody_starts, "promise"),
        (forwards_what_it_lacks, "meaning"),
    ],
    ("loss_factors", ""): [
        (lambda tokens: [[1 / len(row) for _ in row] for row in tokens], "even"),
        (
            lambda tokens: [[t / sum(map(sum, tokens)) for t in row] for row in tokens],
            "ranks_forgotten",
        ),
        (lambda tokens: [[t / sum(row) for t in row] for row in tokens], "even_ranks"),
        (lambda tokens: tokens, "tokens"),
        (mutates_tokens, "even"),
        (lambda tokens: 1.0, "result_type"),
    ],
    ("placement", ""): [
        (one_placement(64, 1, 1), "memory"),
        (one_placement(1, 64, 1), "slow_tensor"),
        (tensor_everywhere, "slow_tensor"),
        (one_placement(2, 1, 32), "indivisible"),
        (one_placement(8, 8, 8), "product"),
        (one_placement(0, 8, 8), "result_type"),
        (lambda *given: (2, 4, 8), "result_type"),
    ],
    ("bucket_size", ""): [
        (lambda nbytes, seconds, time: nbytes, "bucket_too_large"),
        (lambda nbytes, seconds, time: 25 * MIB, "bucket_too_large"),
        (lambda nbytes, seconds, time: 1 * MIB, "bucket_too_small"),
        (lambda nbytes, seconds, time: 8 * MIB, "bucket_too_small"),
        (lambda nbytes, seconds, time: 25, "range"),
        (lambda nbytes, seconds, time: "25 MiB", "result_type"),
    ],
    ("ring_order", ""): [
        (lambda node_of: list(range(len(node_of))), "crossings"),
        (
            lambda node_of: list(range(0, len(node_of), 2)) + list(range(1, len(node_of), 2)),
            "crossings",
        ),
        (lambda node_of: [0] * len(node_of), "not_a_ring"),
        (lambda node_of: [0, 1], "result_type"),
        (mutates_and_returns_nodes, "crossings"),
    ],
}
