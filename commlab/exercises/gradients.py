"""Judges of averaged gradients: accumulation, uneven shards, weights by tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from commlab.collectives import all_reduce
from commlab.exercises.code_answers import call, numbers_in
from commlab.exercises.verdicts import Verdict, Words, in_code, refuse, right
from commlab.training import gradient, make_batches

# Differences below this are rounding.
ROUNDING = 1e-9


def _recognised(result: np.ndarray, rivals: Mapping[str, np.ndarray]) -> str | None:
    """Name the wrong formula that a result agrees with."""
    for reason, rival in rivals.items():
        if np.allclose(result, rival, rtol=ROUNDING, atol=1e-12):
            return reason
    return None


# ---------------------------------------------------------------------------------------
# Gradient accumulation

N_SAMPLES, N_PARTS = 2048, 8


def judge_accumulation(answer: object) -> Verdict:
    """Judge ``accumulate(gradient, weights, features, labels, k)``."""
    batch = make_batches(n_steps=1, batch_size=N_SAMPLES, seed=5)
    features, labels = batch.features[0], batch.labels[0]
    weights = np.random.default_rng(5).normal(size=batch.initial_weights().shape)
    whole = gradient(weights, features, labels)
    seen: list[int] = []

    def counted(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        seen.append(len(y))
        return gradient(w, x, y)

    given = weights.copy(), features.copy(), labels.copy()
    result = call(answer, counted, *given, N_PARTS)
    mean = numbers_in(
        result, whole.shape, Words("one gradient of the weights' shape", "一个与权重同形状的梯度")
    )
    micro_batch = N_SAMPLES // N_PARTS
    if max(seen, default=0) > micro_batch:
        raise refuse(
            "memory",
            f"You asked for the gradient of {max(seen)} samples at once; memory holds the "
            f"activations of {micro_batch}.",
            f"你一次求了 {max(seen)} 个样本的梯度；显存只放得下 {micro_batch} 个样本的激活值。",
        )
    if np.allclose(mean, whole, rtol=0, atol=ROUNDING):
        return right(
            f"{len(seen)} micro-batches of {micro_batch} samples give the gradient of all "
            f"{N_SAMPLES}, up to rounding.",
            f"{len(seen)} 个微批次各 {micro_batch} 个样本，给出的就是全部 {N_SAMPLES} 个样本的"
            "梯度，只差舍入。",
        )
    told = {
        "not_divided": Words(
            "It is the sum over the micro-batches: each of their means counts for one k-th.",
            "这是各微批次之和：每个微批次的平均只占 k 分之一。",
        ),
        "last_only": Words(
            "It is the gradient of one micro-batch only: add them up.",
            "这只是一个微批次的梯度：要把它们加起来。",
        ),
        "other": Words("It is not the mean gradient of all samples.", "它不是全部样本的平均梯度。"),
    }
    part = slice(-micro_batch, None)
    rivals = {
        "not_divided": whole * N_PARTS,
        "last_only": gradient(weights, features[part], labels[part]),
    }
    reason = _recognised(mean, rivals) or "other"
    raise refuse(reason, *told[reason])


# ---------------------------------------------------------------------------------------
# Uneven shards

SHARDS = ([100, 60, 60, 36], [1, 7], [5, 5, 5])


def judge_global_mean(answer: object) -> Verdict:
    """Judge ``global_mean(gradient_sums, counts, all_reduce)``, one result for each rank."""
    rng = np.random.default_rng(6)
    for counts in SHARDS:
        sums = [n * rng.normal(size=3) + rng.normal(size=3) for n in counts]
        reduced: list[np.ndarray] = []
        given = [own.copy() for own in sums], list(counts)
        result = call(answer, *given, _all_reduce_into(reduced))
        shape = (len(counts), 3)
        got = numbers_in(
            result,
            shape,
            Words("one gradient of length 3 for each rank", "每个 rank 一个长度为 3 的梯度"),
        )
        if not reduced:
            raise refuse(
                "no_communication",
                "Ranks meet only in `all_reduce`, and your function never calls it.",
                "rank 之间只能通过 `all_reduce` 见面，而你的函数没有调用它。",
            )
        _check_mean(got, sums, counts)
        if not np.isclose(np.concatenate(reduced), sum(counts)).any():
            raise refuse(
                "counts_not_reduced",
                "The numbers are right, but `counts` was added up without `all_reduce`: in a real "
                "job rank r knows `counts[r]` only, so the counts must travel, too.",
                "数是对的，但 `counts` 没有经过 `all_reduce` 就加了起来：真正的作业里，rank r "
                "只知道 `counts[r]`，所以样本数也要传。",
            )
    return right(
        "every rank holds the mean gradient of all samples.",
        "每个 rank 都得到了全部样本的平均梯度。",
    )


def _all_reduce_into(reduced: list[np.ndarray]) -> Callable[[Sequence[object]], list[np.ndarray]]:
    """Return an all-reduce that also notes the sums which every rank has learned."""

    def noting(buffers: Sequence[object]) -> list[np.ndarray]:
        results = all_reduce([np.array(buffer, dtype=np.float64) for buffer in buffers])
        reduced.append(np.ravel(results[0]).copy())
        return results

    return noting


def _check_mean(got: np.ndarray, sums: list[np.ndarray], counts: Sequence[int]) -> None:
    total = np.sum(sums, axis=0)
    means = [own / n for own, n in zip(sums, counts, strict=True)]
    if np.allclose(got, total / sum(counts), rtol=ROUNDING, atol=1e-12):
        return
    everywhere = np.ones((len(counts), 1))
    rivals = {
        "not_divided": everywhere * total,
        "mean_of_means": everywhere * np.mean(means, axis=0),
        "divided_by_ranks": everywhere * total / len(counts),
        "divided_by_own": total / np.reshape(counts, (-1, 1)),
        "local_means": np.array(means),
    }
    told = {
        "not_divided": Words(
            "it is the sum over all samples: divide by their number.",
            "这是全部样本之和：还要除以样本数。",
        ),
        "mean_of_means": Words(
            "it is the mean of the means: a rank with few samples weighs as much as any other.",
            "这是“平均的平均”：样本少的 rank 和别的 rank 一样重。",
        ),
        "divided_by_ranks": Words(
            "the sum is divided by the number of ranks, not of samples.",
            "除数用了 rank 的个数，而不是样本数。",
        ),
        "divided_by_own": Words(
            "every rank divides by its own count, though the sum is over all samples.",
            "这里各 rank 除以了自己的样本数，而分子是全部样本之和。",
        ),
        "local_means": Words(
            "every rank has its own mean only: each needs the sum of all counts.",
            "每个 rank 只有自己的平均：大家都需要样本数的总和。",
        ),
        "other": Words("it is not the mean over all samples.", "它不是全部样本的平均。"),
    }
    reason = _recognised(got, rivals) or "other"
    shown = in_code(list(counts))
    raise refuse(
        reason,
        f"With {shown} samples: {told[reason].en}",
        f"样本数为 {shown} 时：{told[reason].zh}",
    )


# ---------------------------------------------------------------------------------------
# Tokens of micro-batches on ranks

TOKENS = ([[900, 100], [300, 700]], [[512, 64, 8], [128, 128, 128], [1, 2, 1000]], [[4], [12]])


def judge_loss_factors(answer: object) -> Verdict:
    """Judge ``loss_factors(tokens)``: a factor for the mean loss of each micro-batch."""
    for tokens in TOKENS:
        table = np.array(tokens, dtype=np.float64)
        n_ranks, n_micro = table.shape
        result = call(answer, [list(row) for row in tokens])
        got = numbers_in(
            result,
            table.shape,
            Words("a list of lists shaped like `tokens`", "与 `tokens` 同形状的嵌套列表"),
        )
        wanted = n_ranks * table / table.sum()
        if np.allclose(got, wanted, rtol=ROUNDING):
            continue
        even = np.ones_like(table)
        rivals = {
            "even": even / n_micro,
            "ranks_forgotten": table / table.sum(),
            "even_ranks": table / table.sum(axis=1, keepdims=True),
            "micro_batches_counted": n_ranks * n_micro * table / table.sum(),
            "tokens": table,
        }
        reason = _recognised(got, rivals) or "other"
        shown = in_code(tokens)
        raise refuse(
            reason,
            f"With {shown} tokens: {_FACTORS[reason].en}",
            f"token 数为 {shown} 时：{_FACTORS[reason].zh}",
        )
    return right(
        "after accumulation and DDP's mean every token counts the same.",
        "累积并经 DDP 取平均之后，每个 token 的分量都相同。",
    )


_FACTORS = {
    "even": Words(
        "every micro-batch counts the same, so a token of a short one counts more.",
        "每个微批次一样重，于是短微批次里的 token 更重。",
    ),
    "ranks_forgotten": Words(
        "the weights are right, but DDP divides by N once more: the result is N times too small.",
        "权重对了，但 DDP 还要再除以 N：结果小了 N 倍。",
    ),
    "even_ranks": Words(
        "tokens count the same within a rank, and ranks count the same whatever their tokens.",
        "同一个 rank 里的 token 一样重，但各 rank 不论有多少 token 都一样重。",
    ),
    "micro_batches_counted": Words(
        "accumulation adds up and does not average: the number of micro-batches is one too many.",
        "累积是相加，不取平均：多乘了微批次的个数。",
    ),
    "tokens": Words(
        "these are sums and no mean: divide by all tokens.",
        "这是求和而不是平均：要除以全部 token 数。",
    ),
    "other": Words("the tokens do not count the same.", "各 token 的分量不相同。"),
}
