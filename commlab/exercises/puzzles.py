"""The puzzles, in which the reader writes code."""

from __future__ import annotations

from fractions import Fraction

from commlab.cost import alpha_beta_broadcast
from commlab.exercises import puzzle_answers as answers
from commlab.exercises.buckets import judge_bucket
from commlab.exercises.deadlock import judge_worker
from commlab.exercises.exercise import ONE_ANSWER, Exercise
from commlab.exercises.gradients import judge_loss_factors
from commlab.exercises.placement import judge_placement
from commlab.exercises.ring_order import judge_ring_order
from commlab.exercises.schedule_answers import (
    ALL_REDUCE,
    BROADCAST,
    PriceLimit,
    ScheduleJudge,
)
from commlab.exercises.verdicts import Words
from commlab.hardware import ALPHA, NVLINK
from commlab.topology import flat_topology
from commlab.units import GIB

DEADLOCK = Exercise(
    name="deadlock",
    number="9, A",
    title=Words("Mend the deadlock", "修好死锁"),
    judges={ONE_ANSWER: judge_worker},
    references={ONE_ANSWER: answers.log_and_average},
    hint=Words(
        "Go through the function as rank 0, then as rank 1, and write down the collectives in "
        "order. Both lists must be the same. What may depend on the rank is what happens with the "
        "result.",
        "先当 rank 0，再当 rank 1，把函数走一遍，按顺序写下各自的集合通信。两张单子必须相同。"
        "可以因 rank 而异的，是拿结果做什么。",
    ),
    solution=Words(
        "The collective moves out of the `if`; only the use of its result stays in. Run `check` on "
        "this function to see it on real processes.",
        "把集合通信移出 `if`，只把对结果的使用留在里面。用 `check` 检查这个函数，"
        "就能看到它在真实进程上的运行。",
    ),
    shown=(answers.log_and_average,),
    starts_processes=True,
)

SHORT_ALL_REDUCE = Exercise(
    name="short_all_reduce",
    number="B",
    title=Words("All-reduce in few steps", "步数很少的 all-reduce"),
    judges={
        ONE_ANSWER: ScheduleJudge(
            ALL_REDUCE,
            (2, 4, 8, 16),
            Words(
                "as few steps as a tree, as few bytes as a ring.",
                "步数和树一样少，字节和环一样少。",
            ),
            steps=lambda n: 2 * (n.bit_length() - 1),
            moved=lambda n: Fraction(2 * (n - 1), n),
        )
    },
    references={ONE_ANSWER: answers.short_all_reduce},
    hint=Words(
        "A ring moves only 1/N a step. In your first step exchange **half** of the "
        "vector with one partner; after it each of you is responsible for a half. Then a quarter "
        "with another partner. After log2 N steps every rank holds one summed chunk; go back the "
        "same way. `r ^ d` is the partner at distance d.",
        "环每步只传 1/N。你可以第一步就和一个伙伴交换**一半**的向量，之后两人各负责一半；"
        "下一步和另一个伙伴交换四分之一。log2 N 步之后，每个 rank 有一块完整的和；再原路返回。"
        "`r ^ d` 是距离为 d 的伙伴。",
    ),
    solution=Words(
        "Recursive halving, then recursive doubling (Rabenseifner). In the model it beats the "
        "ring at every size; the ring's advantage is that it talks to neighbours only.",
        "先递归减半，再递归加倍（Rabenseifner）。在这个模型里，它在任何大小上都快过环；"
        "环的好处是只和邻居通信。",
    ),
    shown=(answers.short_all_reduce,),
)

FAST_BROADCAST = Exercise(
    name="fast_broadcast",
    number="C",
    title=Words("A broadcast that beats the tree", "比树快的 broadcast"),
    judges={
        ONE_ANSWER: ScheduleJudge(
            BROADCAST,
            (5, 8),
            Words(
                "at most half the tree's time: with chunks a rank receives and passes on at once.",
                "时间不到树的一半：切成块以后，一个 rank 可以边收边发。",
            ),
            limit=PriceLimit(
                lambda n: flat_topology(n, ALPHA, NVLINK),
                GIB,
                lambda n: float(alpha_beta_broadcast(GIB, n, ALPHA, NVLINK)) / 2,
                Words("half of what the tree takes", "即树的一半时间"),
            ),
        )
    },
    references={ONE_ANSWER: answers.fast_broadcast},
    hint=Words(
        "In the tree the root sends the whole vector ⌈log2 N⌉ times. How often must it send each "
        "byte at least? Cut the vector into k chunks and let rank 1 pass on chunk 0 while it "
        "receives chunk 1. `commlab.best_chain_chunks` finds a good k.",
        "在树里，根要把整个向量发 ⌈log2 N⌉ 次。每个字节至少要发几次？把向量切成 k 块，让 rank 1 "
        "在收第 1 块的同时转发第 0 块。`commlab.best_chain_chunks` 给出合适的 k。",
    ),
    solution=Words(
        "A pipelined chain: N−2+k steps of S/k. With the best k its time comes near S/β, the lower "
        "bound. Scattering first and then gathering sends about 2 S, which is not enough here.",
        "流水线式的链：N−2+k 步，每步 S/k。k 取得好，时间就接近下界 S/β。"
        "先 scatter 再 all-gather 要传约 2S，在这里还不够快。",
    ),
    shown=(answers.fast_broadcast,),
)

LOSS_FACTORS = Exercise(
    name="loss_factors",
    number="D",
    title=Words("Every token counts the same", "每个 token 一样重"),
    judges={ONE_ANSWER: judge_loss_factors},
    references={ONE_ANSWER: answers.loss_factors},
    hint=Words(
        "Write the result down: DDP gives $\\frac{1}{N} \\sum_r \\sum_m f_{rm} \\bar{g}_{rm}$, and "
        "you want $\\sum_r \\sum_m t_{rm} \\bar{g}_{rm} / \\sum t$. Compare the two.",
        "把结果写出来：DDP 给出 $\\frac{1}{N} \\sum_r \\sum_m f_{rm} \\bar{g}_{rm}$，而你要的是 "
        "$\\sum_r \\sum_m t_{rm} \\bar{g}_{rm} / \\sum t$。比较两者。",
    ),
    solution=Words(
        "The number of all tokens takes an all-reduce before the first backward pass; then each "
        "mean is scaled by its part of them, times N.",
        "全部 token 数要在第一次反向之前 all-reduce 一次；然后每个平均乘以它所占的比例，再乘 N。",
    ),
    shown=(answers.loss_factors,),
)

PLACEMENT = Exercise(
    name="placement",
    number="E",
    title=Words("Place the parallelism", "放置 TP、DP、PP"),
    judges={ONE_ANSWER: judge_placement},
    references={ONE_ANSWER: answers.place},
    hint=Words(
        "`training_plan(data, tensor, pipeline, n_sequences)` makes a plan, `training_step(shape, "
        "plan, cluster)` prices it: look at `.fits` and `.seconds`. First what fits, then the "
        "fastest of it. There are few enough products to try them all.",
        "`training_plan(data, tensor, pipeline, n_sequences)` 生成方案，"
        "`training_step(shape, plan, cluster)` 给它计价：看 `.fits` 和 `.seconds`。"
        "先看哪些放得下，再取其中最快的。乘积的可能不多，可以全部试一遍。",
    ),
    solution=Words(
        "Only tensor parallelism divides the activations: the 70B model needs 4 of it, and more "
        "costs more than it saves, most of all across nodes. The pipeline divides the parameters "
        "with little traffic, but its bubble grows as micro-batches get fewer: for the 8B model "
        "tensor 2 beats pipeline 2. No rule of thumb settles all cases, a search does.",
        "只有张量并行能切开激活值：70B 至少要切成 4 份，再多就得不偿失，跨节点时最甚。"
        "流水线切开参数，通信很少，但微批次越少，空泡占得越多：对 8B 来说，张量并行 2 "
        "胜过流水线 2。"
        "没有一条经验规则管得了所有情形，搜索可以。",
    ),
    shown=(answers.place,),
)

BUCKET_SIZE = Exercise(
    name="bucket_size",
    number="F",
    title=Words("Choose the bucket size", "选桶的大小"),
    judges={ONE_ANSWER: judge_bucket},
    references={ONE_ANSWER: answers.bucket_bytes},
    hint=Words(
        "With n buckets, `bucket_timeline(n, backward_seconds, all_reduce_time(nbytes / n))` says "
        "when each all-reduce starts and ends. The last end is what counts.",
        "有 n 个桶时，`bucket_timeline(n, backward_seconds, all_reduce_time(nbytes / n))` 给出每次 "
        "all-reduce 的开始和结束。要紧的是最后一个结束。",
    ),
    solution=Words(
        "While the network keeps up, only the last bucket shows: smaller is better, until latency "
        "makes the network fall behind. Where it cannot keep up at all, few large buckets win.",
        "只要网络跟得上，露在外面的只有最后一个桶：越小越好，直到延迟让网络跟不上。"
        "如果网络怎么都跟不上，就要少而大的桶。",
    ),
    shown=(answers.bucket_bytes,),
)

RING_ORDER = Exercise(
    name="ring_order",
    number="G",
    title=Words("The order of a ring", "环的顺序"),
    judges={ONE_ANSWER: judge_ring_order},
    references={ONE_ANSWER: answers.ring_order},
    hint=Words(
        "Count how often your ring leaves each node. Every time is one more stream through the "
        "node's only interface. How few can it be?",
        "数一数你的环离开每个节点几次。每离开一次，节点唯一的网卡上就多一股数据。最少能是几次？",
    ),
    solution=Words(
        "All ranks of a node stand next to each other in the ring. This is what NCCL's search for "
        "rings and a launcher's rank order are about.",
        "同一节点的 rank 在环里排在一起。NCCL 搜索环、启动器安排 rank 的顺序，为的就是这个。",
    ),
    shown=(answers.ring_order,),
)
