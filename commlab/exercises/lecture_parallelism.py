"""The lecture's exercises 7, 8 and 10: FSDP, and what grows with what."""

from __future__ import annotations

from commlab.exercises import lecture_answers as answers
from commlab.exercises.code_answers import Formula
from commlab.exercises.common_mistakes import ALL_RANKS, N_NOT_N_MINUS_1
from commlab.exercises.exercise import Exercise
from commlab.exercises.numeric import Choice, Mistake, Number
from commlab.exercises.quantities import BYTES, PART, TIMES
from commlab.exercises.verdicts import Words

# ---------------------------------------------------------------------------------------
# 7

_GROWTH = Words(
    "Ask what travels: gradients and parameters, or activations of tokens?",
    "先问传的是什么：梯度和参数，还是 token 的激活值？",
)
_HIDING = Words(
    "Ask whether the next computation needs the result at once.",
    "先问紧接着的计算是不是马上要用这个结果。",
)


def _row(expected: tuple[str, str], en: str, zh: str) -> Choice:
    options = (("parameters", "tokens"), ("overlaps", "waits"))
    return Choice(expected, options, (_GROWTH, _HIDING), Words(en, zh))


_growth = answers.grows_with()

GROWS_WITH = Exercise(
    name="grows_with",
    number="7",
    title=Words("What grows with what", "哪种通信随什么增长"),
    judges={
        "data": _row(
            _growth["data"],
            "gradients, once a step, behind the backward pass.",
            "每步一次的梯度，藏在反向后面。",
        ),
        "fsdp": _row(
            _growth["fsdp"],
            "parameters and gradients, layer by layer, prefetched.",
            "逐层的参数和梯度，可以预取。",
        ),
        "tensor": _row(
            _growth["tensor"],
            "activations in the middle of every layer.",
            "每层中间的激活值。",
        ),
        "expert": _row(
            _growth["expert"],
            "tokens on their way to their experts and back.",
            "去往专家再回来的 token。",
        ),
    },
    references=dict(_growth),
    hint=Words(
        "Double the batch and leave the model: which traffic doubles? Then look at what the GPU "
        "could compute while the bytes are on their way.",
        "批加倍、模型不变：哪种通信加倍？再看字节在路上时，GPU 还有没有别的可算。",
    ),
    solution=Words(
        "What grows with the parameters and overlaps may cross nodes; what grows with the tokens "
        "and waits belongs inside a node.",
        "随参数量增长、能重叠的，可以跨节点；随 token 数增长、要等的，留在节点内。",
    ),
    shown=(answers.grows_with,),
)

# ---------------------------------------------------------------------------------------
# 8

_kept = answers.fsdp_numbers()["kept_bytes"]

FSDP_VOLUME = Exercise(
    name="fsdp_volume",
    number="8",
    title=Words("FSDP's factor of three", "FSDP 的三倍"),
    judges={
        "formula": Formula(
            answers.fsdp_volume,
            ((64, 16e9, True), (64, 16e9, False), (2, 1e9, True), (8, 1e9, False)),
            {
                "n_for_n_minus_1": (
                    lambda n, p, reshard: (3 if reshard else 2) * p,
                    N_NOT_N_MINUS_1,
                ),
                "total_for_rank": (
                    lambda n, p, reshard: (3 if reshard else 2) * (n - 1) * p,
                    ALL_RANKS,
                ),
                "reshard_ignored": (
                    lambda n, p, reshard: 3 * (n - 1) / n * p,
                    Words(
                        "What is kept need not be gathered again: the third argument makes a "
                        "difference.",
                        "留着的参数不必再 all-gather 一次：第三个参数是有影响的。",
                    ),
                ),
                "never_resharded": (
                    lambda n, p, reshard: 2 * (n - 1) / n * p,
                    Words(
                        "It is right for `reshard=False` only: what is dropped must be gathered "
                        "again.",
                        "只有 `reshard=False` 时才对：丢掉的参数要再收集一次。",
                    ),
                ),
                "reshard_swapped": (
                    lambda n, p, reshard: (2 if reshard else 3) * (n - 1) / n * p,
                    Words(
                        "It is the wrong way round: `reshard=True` drops the parameters, and must "
                        "gather them again.",
                        "两种情形弄反了：`reshard=True` 丢掉参数，要再收集一次。",
                    ),
                ),
                "all_reduced": (
                    lambda n, p, reshard: (4 if reshard else 3) * (n - 1) / n * p,
                    Words(
                        "It looks like an all-reduce of the gradients: each rank needs only its "
                        "own part, a reduce-scatter.",
                        "像是对梯度做了 all-reduce：每个 rank 只要自己那份，用 reduce-scatter。",
                    ),
                ),
            },
            Words(
                "three collectives of (N−1)/N · P, or two as in DDP.",
                "三次 (N−1)/N · P 的集合通信；留着参数就是两次，和 DDP 一样。",
            ),
        ),
        "kept_bytes": Number(
            _kept,
            BYTES,
            Words(
                "all parameters, gathered: what the saved gather is paid with.",
                "all-gather 得到的全部参数：省下那次通信的代价。",
            ),
            (
                Mistake(
                    "shard",
                    _kept / 64,
                    Words(
                        "That is the shard of one rank: after the forward pass all layers have "
                        "been gathered.",
                        "这是一个 rank 的分片：前向之后，所有层都 all-gather 过了。",
                    ),
                ),
                Mistake(
                    "wrong_precision",
                    2 * _kept,
                    Words("BF16 takes 2 bytes per parameter.", "BF16 每个参数 2 字节。"),
                ),
                Mistake(
                    "wrong_precision",
                    _kept / 2,
                    Words("BF16 takes 2 bytes per parameter.", "BF16 每个参数 2 字节。"),
                ),
            ),
        ),
    },
    references={"formula": answers.fsdp_volume, "kept_bytes": _kept},
    hint=Words(
        "Which collective comes before a layer's forward pass, before its backward pass, and after "
        "it? Each of the three moves (N−1)/N of P per rank.",
        "一层的前向之前、反向之前、反向之后各有哪种集合通信？三者每个 rank 都传 P 的 (N−1)/N。",
    ),
    solution=Words(
        "Keeping the parameters (`reshard_after_forward=False` in FSDP2) saves the second gather: "
        "the traffic of DDP. That is not yet ZeRO-2: between steps the parameters are sharded "
        "again, whereas ZeRO-2 keeps a whole copy for good and gathers only what was updated.",
        "留着参数（FSDP2 的 `reshard_after_forward=False`）省掉第二次 all-gather，通信量就和 DDP "
        "一样。这还不是 ZeRO-2：两步之间参数仍然是切开的，而 ZeRO-2 一直留着完整的一份，"
        "只 all-gather 更新过的参数。",
    ),
    shown=(answers.fsdp_volume, answers.fsdp_numbers),
)

# ---------------------------------------------------------------------------------------
# 10

_hot = answers.hot_expert()

HOT_EXPERT = Exercise(
    name="hot_expert",
    number="10",
    title=Words("A hot expert", "负载不均衡"),
    judges={
        "slowdown": Number(
            _hot["slowdown"],
            TIMES,
            Words(
                "the GPU of expert 0 receives twice as much, and all wait for it.",
                "专家 0 所在的 GPU 收到两倍的数据，大家都等它。",
            ),
            (
                Mistake(
                    "mean",
                    1,
                    Words(
                        "All tokens together are as many as before, but the busiest GPU decides.",
                        "token 总数没变，但耗时由最忙的 GPU 决定。",
                    ),
                ),
                Mistake(
                    "difference",
                    1.125,
                    Words(
                        "That adds the difference of the two shares: take their ratio.",
                        "这是把两个占比的差加了上去：要用它们的比。",
                    ),
                ),
                Mistake(
                    "both_directions",
                    4,
                    Words(
                        "Dispatch and combine both take twice as long: together they do, too.",
                        "派发和收回各慢一倍：加起来还是慢一倍。",
                    ),
                ),
                Mistake(
                    "of_others",
                    0.25 / (0.75 / 7),
                    Words(
                        "That compares expert 0 with the other experts: compare with the balanced "
                        "case.",
                        "这是专家 0 和其他专家相比：要和均衡时相比。",
                    ),
                ),
                Mistake(
                    "inverse",
                    0.5,
                    Words(
                        "A hot expert makes nothing faster: turn the ratio around.",
                        "热门专家不会让什么变快：把比值倒过来。",
                    ),
                ),
            ),
        ),
        "dropped": Number(
            _hot["dropped"],
            PART,
            Words(
                "what exceeds 1.25 times the even share finds no slot.",
                "超过均匀份额 1.25 倍的部分没有位置。",
            ),
            (
                Mistake(
                    "no_capacity_factor",
                    0.125,
                    Words(
                        "That leaves no slack: with a capacity factor of 1.25 an expert takes more "
                        "than its even share.",
                        "这没有留余量：容量因子是 1.25，专家能收的比均匀份额多。",
                    ),
                ),
                Mistake(
                    "of_expert",
                    _hot["dropped"] / 0.25,
                    Words(
                        "That is a part of expert 0's tokens: the question is about all tokens.",
                        "这是占专家 0 的 token 的比例：这里问的是占全部 token 的比例。",
                    ),
                ),
                Mistake(
                    "kept",
                    1.25 / 8,
                    Words(
                        "That is what the expert keeps: the question is what it drops.",
                        "这是专家收下的部分：这里问的是丢掉的部分。",
                    ),
                ),
            ),
        ),
    },
    references=_hot,
    hint=Words(
        "Compare what the busiest GPU receives with what it would receive if all experts had "
        "12.5 %. With a capacity factor of 1.25 an expert has room for 1.25 times that.",
        "把最忙的 GPU 收到的，和各专家都是 12.5 % 时它收到的相比。"
        "容量因子 1.25 表示专家能收下后者的 1.25 倍。",
    ),
    solution=Words(
        "The busiest GPU decides, in the all-to-all as in the computation behind it. A capacity "
        "limit caps the time and pays with dropped tokens.",
        "all-to-all 和后面的计算都由最忙的 GPU 决定。容量上限封住了时间，代价是丢掉 token。",
    ),
    shown=(answers.hot_expert,),
)
