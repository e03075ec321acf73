"""The lecture's exercises 1 to 3: bytes, steps and time of an all-reduce."""

from __future__ import annotations

import math
from fractions import Fraction

from commlab.exercises import lecture_answers as answers
from commlab.exercises.code_answers import Formula
from commlab.exercises.common_mistakes import ALL_RANKS, N_NOT_N_MINUS_1, ONE_PHASE
from commlab.exercises.exercise import Exercise
from commlab.exercises.numeric import Mistake, Number
from commlab.exercises.quantities import BYTES, SECONDS, TIMES
from commlab.exercises.schedule_answers import ALL_REDUCE, ScheduleJudge
from commlab.exercises.verdicts import Words
from commlab.hardware import ALPHA, NVLINK
from commlab.units import GIB

# ---------------------------------------------------------------------------------------
# 1

_volume = answers.volume()
_S = 4 * GIB

VOLUME = Exercise(
    name="volume",
    number="1",
    title=Words("Bytes of an all-reduce", "all-reduce 的通信量"),
    judges={
        "ring_bytes": Number(
            _volume["ring_bytes"],
            BYTES,
            Words("2(N−1)/N of S, below 2 S for any N.", "S 的 2(N−1)/N，N 再大也小于 2S。"),
            (
                Mistake("n_for_n_minus_1", 2 * _S, N_NOT_N_MINUS_1),
                Mistake("factor_two", _volume["ring_bytes"] / 2, ONE_PHASE),
                Mistake("total_for_rank", 16 * _volume["ring_bytes"], ALL_RANKS),
                Mistake(
                    "no_ring_factor",
                    _S,
                    Words(
                        "That is S itself: the ring's factor is missing.",
                        "这就是 S 本身：少了环的系数。",
                    ),
                ),
            ),
        ),
        "root_bytes": Number(
            _volume["root_bytes"],
            BYTES,
            Words("every other rank's whole vector.", "其他每个 rank 的整个向量。"),
            (
                Mistake("n_for_n_minus_1", 16 * _S, N_NOT_N_MINUS_1),
                Mistake(
                    "sent_too",
                    2 * _volume["root_bytes"],
                    Words(
                        "That counts what the root sends, too: the question is what it receives.",
                        "这把根收到的和发出的都算上了：这里只问收到的。",
                    ),
                ),
            ),
        ),
        "ring_seconds": Number(
            _volume["ring_seconds"],
            SECONDS,
            Words("the ring's bytes at 450 GB/s.", "环的字节数除以 450 GB/s。"),
            (
                Mistake("n_for_n_minus_1", 2 * _S / NVLINK, N_NOT_N_MINUS_1),
                Mistake("factor_two", _volume["ring_seconds"] / 2, ONE_PHASE),
            ),
        ),
        "naive_seconds": Number(
            _volume["naive_seconds"],
            SECONDS,
            Words(
                "16 times the ring's: the root is busy while all others wait.",
                "是环的 16 倍：根在忙，别人都在等。",
            ),
            (
                Mistake("n_for_n_minus_1", 2 * 16 * _S / NVLINK, N_NOT_N_MINUS_1),
                Mistake(
                    "factor_two",
                    _volume["naive_seconds"] / 2,
                    Words(
                        "Half of it is missing: the root receives, and then it sends.",
                        "少了一半：根先收，然后还要发。",
                    ),
                ),
            ),
        ),
    },
    references=_volume,
    hint=Words(
        "Each of the ring's two phases has N−1 steps, and a step moves S/N. The root of the naive "
        "scheme has one port: it takes one vector after the other. Time is bytes over β; 4 GiB "
        "is $4 \\cdot 2^{30}$ bytes, 450 GB/s is $450 \\cdot 10^9$ bytes per second.",
        "环的两个阶段各有 N−1 步，每步传 S/N。朴素方案的根只有一个端口：一个向量一个向量地收。"
        "时间是字节数除以 β；4 GiB 是 $4 \\cdot 2^{30}$ 字节，450 GB/s 是每秒 "
        "$450 \\cdot 10^9$ 字节。",
    ),
    solution=Words(
        "The ring spreads the work over all links; the naive scheme leaves it to the root alone.",
        "环把活分给了所有链路，朴素方案却让根一个人做完。",
    ),
    shown=(answers.volume,),
)

# ---------------------------------------------------------------------------------------
# 2

_uncut = answers.uncut_ring_numbers()

UNCUT_RING = Exercise(
    name="uncut_ring",
    number="2",
    title=Words("A ring without chunks", "不切块的环"),
    judges={
        "ring_steps": Number(
            _uncut["ring_steps"],
            TIMES,
            Words(
                "a chunk visits the N−1 other ranks, one a step.",
                "一块要经过另外 N−1 个 rank，一步一个。",
            ),
            (
                Mistake("n_for_n_minus_1", 16, N_NOT_N_MINUS_1),
                Mistake(
                    "both_phases",
                    30,
                    Words(
                        "That is the whole all-reduce: the question is about the reduce-scatter.",
                        "这是整个 all-reduce：这里只问 reduce-scatter。",
                    ),
                ),
                Mistake(
                    "tree_steps",
                    4,
                    Words(
                        "That is ⌈log2 N⌉, the steps of a tree: on a ring a chunk moves on by one "
                        "rank a step.",
                        "这是 ⌈log2 N⌉，树的步数：在环上，一块每步只前进一个 rank。",
                    ),
                ),
            ),
        ),
        "most_sent": Number(
            _uncut["most_sent"],
            TIMES,
            Words(
                "the vector passes each rank once to be summed and once to be copied.",
                "向量经过每个 rank 两次：一次求和，一次复制。",
            ),
            (
                Mistake("total_for_rank", 30, ALL_RANKS),
                Mistake("n_for_n_minus_1", 32, N_NOT_N_MINUS_1),
                Mistake("factor_two", 1, ONE_PHASE),
                Mistake(
                    "cut",
                    30 / 16,
                    Words("That is the ring with chunks.", "这是切了块的环。"),
                ),
            ),
        ),
        "slowdown": Number(
            _uncut["slowdown"],
            TIMES,
            Words(
                "N times: as many steps, each with all of S, while N−1 links stand idle.",
                "N 倍：步数一样多，每步却传整个 S，同时有 N−1 条链路闲着。",
            ),
            (
                Mistake(
                    "n_minus_1",
                    15,
                    Words(
                        "It looks like N−1 for N: compare the bytes of one step of each ring.",
                        "像是把 N 写成了 N−1：比较两种环每一步的字节数。",
                    ),
                ),
                Mistake(
                    "same",
                    1,
                    Words(
                        "The steps are as many, but their bytes are not.",
                        "步数一样多，每步的字节数却不同。",
                    ),
                ),
            ),
        ),
        "schedule": ScheduleJudge(
            ALL_REDUCE,
            (2, 3, 8, 16),
            Words(
                "no rank sends more than 2 S, but every step moves all of S.",
                "每个 rank 最多发 2S，但每一步都要传整个 S。",
            ),
            n_chunks=1,
            steps=lambda n: 2 * (n - 1),
            moved=lambda n: Fraction(2),
        ),
    },
    references=_uncut | {"schedule": answers.uncut_ring},
    hint=Words(
        "Follow one vector. It starts at rank 0, and rank 1 adds its own. Who sends in step 2? "
        "How many ranks send at the same time? The schedule has one chunk, number 0, of share 1.",
        "跟着一个向量走。它从 rank 0 出发，rank 1 加上自己的。第 2 步谁在发？同时有几个 rank "
        "在发？这张调度表只有一块，编号 0，`shares` 是 1。",
    ),
    solution=Words(
        "One vector travels, so one link works at a time. Each rank still sends 2 S at most: all "
        "2(N−1) messages of S together are what the links carry, not what one rank sends. What "
        "cutting gains is time: N chunks are under way at once.",
        "只有一个向量在走，所以每次只有一条链路在工作。每个 rank 仍然最多发 2S："
        "2(N−1) 条大小为 S 的消息是所有链路的总和，不是一个 rank 发的。切块换来的是时间："
        "N 块同时在路上。",
    ),
    shown=(answers.uncut_ring_numbers, answers.uncut_ring),
)

# ---------------------------------------------------------------------------------------
# 3

CROSSOVER = Exercise(
    name="crossover",
    number="3",
    title=Words("Where ring and tree meet", "环形与树形的转折点"),
    judges={
        "crossover_bytes": Number(
            answers.crossover(8, ALPHA, NVLINK),
            BYTES,
            Words("below it the tree wins, above it the ring.", "小于它时树快，大于它时环快。"),
            (
                Mistake(
                    "tree_once",
                    11 * ALPHA * NVLINK / 1.25,
                    Words(
                        "The tree is walked twice: up to reduce, down to broadcast.",
                        "树要走两遍：向上 reduce，向下 broadcast。",
                    ),
                ),
                Mistake(
                    "ring_once",
                    ALPHA * NVLINK / (6 - 7 / 8),
                    Words(
                        "The ring goes round twice: reduce-scatter and all-gather.",
                        "环要走两圈：reduce-scatter 和 all-gather。",
                    ),
                ),
                Mistake(
                    "no_latency_of_tree",
                    14 * ALPHA * NVLINK / 4.25,
                    Words("The tree's steps pay latency as well.", "树的每一步也要付延迟。"),
                ),
            ),
        ),
        "formula": Formula(
            answers.crossover,
            ((8, 5e-6, 450e9), (16, 5e-6, 50e9), (6, 1e-6, 450e9), (100, 2e-5, 25e9)),
            {
                "log_not_rounded": (
                    lambda n, alpha, beta: _crossover_of(n, alpha, beta, rounded=False),
                    Words(
                        "It is right for powers of two only: a tree of 6 ranks has ⌈log2 6⌉ = 3 "
                        "levels.",
                        "只有 N 是 2 的幂时才对：6 个 rank 的树有 ⌈log2 6⌉ = 3 层。",
                    ),
                ),
                "inverse": (
                    lambda n, alpha, beta: 1 / answers.crossover(n, alpha, beta),
                    Words("It is the inverse of the right value.", "它是正确值的倒数。"),
                ),
            },
            Words(
                "the crossover grows with αβ and nearly with N.",
                "转折点与 αβ 成正比，随 N 近乎线性地增长。",
            ),
        ),
    },
    references=answers.crossover_numbers() | {"formula": answers.crossover},
    hint=Words(
        "Write both times as latency plus bytes: 14 α and 14/8 S/β for the ring, 6 α and 6 S/β "
        "for the tree at N = 8. Set them equal and collect α on one side, S on the other.",
        "把两个时间都写成延迟加字节：N = 8 时，环是 14α 和 14/8 · S/β，树是 6α 和 6S/β。"
        "令两者相等，把 α 移到一边，S 移到另一边。",
    ),
    solution=Words(
        "The ring takes more steps and moves less in each. The crossover is where both balance.",
        "环的步数多，但每步传的少。转折点就是两者打平的地方。",
    ),
    shown=(answers.crossover,),
)


def _crossover_of(n_ranks: float, alpha: float, beta: float, rounded: bool) -> float:
    """The crossover with the number of the tree's levels rounded up, or not."""
    levels = math.ceil(math.log2(n_ranks)) if rounded else math.log2(n_ranks)
    steps = 2 * (n_ranks - 1)
    return (steps - 2 * levels) * alpha * beta / (2 * levels - steps / n_ranks)
