"""The lecture's exercises 4 to 6: data parallelism of a large model, in time, and uneven."""

from __future__ import annotations

from commlab.cost import (
    alpha_beta_ring_allreduce,
    flat_ring_over_nodes_time,
    hierarchical_allreduce_time,
)
from commlab.exercises import lecture_answers as answers
from commlab.exercises.exercise import ONE_ANSWER, Exercise
from commlab.exercises.gradients import judge_accumulation, judge_global_mean
from commlab.exercises.numeric import Mistake, Number
from commlab.exercises.quantities import PART, SECONDS, TIMES
from commlab.exercises.verdicts import Words
from commlab.hardware import ALPHA, INFINIBAND, NVLINK
from commlab.models import BF16_BYTES, LLAMA3_70B

# ---------------------------------------------------------------------------------------
# 4

_70b = answers.llama_70b()
_70B_BYTES = BF16_BYTES * LLAMA3_70B.parameters

LLAMA_70B = Exercise(
    name="llama_70b",
    number="4",
    title=Words("Data parallelism of a large model", "大模型的数据并行"),
    judges={
        "all_reduce_seconds": Number(
            _70b["all_reduce_seconds"],
            SECONDS,
            Words(
                "about half inside the nodes, half between them.",
                "约一半在节点内，一半在节点之间。",
            ),
            (
                Mistake(
                    "flat_ring",
                    float(flat_ring_over_nodes_time(_70B_BYTES, 8, 8, ALPHA, NVLINK, INFINIBAND)),
                    Words(
                        "That is one flat ring over all GPUs: every step waits for InfiniBand.",
                        "这是所有 GPU 连成的平环：每一步都在等 InfiniBand。",
                    ),
                ),
                Mistake(
                    "only_between",
                    float(alpha_beta_ring_allreduce(_70B_BYTES / 8, 8, ALPHA, INFINIBAND)),
                    Words(
                        "That is the part between the nodes only: before and after it, each node "
                        "has work inside.",
                        "这只是节点之间的那一段：它前后，节点内还各有一段。",
                    ),
                ),
                Mistake(
                    "links_swapped",
                    float(hierarchical_allreduce_time(_70B_BYTES, 8, 8, ALPHA, INFINIBAND, NVLINK)),
                    Words(
                        "The links are swapped: NVLink is inside a node, InfiniBand between nodes.",
                        "两种链路弄反了：NVLink 在节点内，InfiniBand 在节点之间。",
                    ),
                ),
                Mistake(
                    "wrong_precision",
                    2 * _70b["all_reduce_seconds"],
                    Words(
                        "It is off by a factor of 2: BF16 takes 2 bytes per parameter, not 4.",
                        "差了 2 倍：BF16 每个参数 2 字节，不是 4 字节。",
                    ),
                ),
                Mistake(
                    "wrong_precision",
                    _70b["all_reduce_seconds"] / 2,
                    Words(
                        "It is off by a factor of 2: BF16 takes 2 bytes per parameter, not 1.",
                        "差了 2 倍：BF16 每个参数 2 字节，不是 1 字节。",
                    ),
                ),
            ),
        ),
        "compute_seconds": Number(
            _70b["compute_seconds"],
            SECONDS,
            Words(
                "6 FLOPs per parameter and token, at 40 % of the peak.",
                "每个参数、每个 token 6 次浮点运算，按峰值的 40 % 算。",
            ),
            (
                Mistake(
                    "no_mfu",
                    0.4 * _70b["compute_seconds"],
                    Words(
                        "It looks like the full peak: the MFU is missing.",
                        "像是按满峰值算的：漏了 MFU。",
                    ),
                ),
                Mistake(
                    "forward_only",
                    _70b["compute_seconds"] / 3,
                    Words(
                        "It looks like the forward pass only: the backward pass takes twice as "
                        "much again.",
                        "像是只算了前向：反向还要两倍于它的计算。",
                    ),
                ),
                Mistake(
                    "split_tokens",
                    _70b["compute_seconds"] / 64,
                    Words(
                        "It is divided by 64: the tokens are already those of one GPU.",
                        "多除了 64：题目给的已经是一块 GPU 的 token 数。",
                    ),
                ),
            ),
        ),
        "communication_part": Number(
            _70b["communication_part"],
            PART,
            Words(
                "little, as long as each GPU has so many tokens.",
                "很小，只要每块 GPU 有这么多 token。",
            ),
            (
                Mistake(
                    "of_both",
                    _70b["communication_part"] / (1 + _70b["communication_part"]),
                    Words(
                        "That is the part of communication and compute together: the question is "
                        "communication over compute.",
                        "这是占“通信加计算”的比例：这里问的是通信除以计算。",
                    ),
                ),
                Mistake(
                    "inverse",
                    1 / _70b["communication_part"],
                    Words(
                        "It is upside down: communication over compute.",
                        "分子分母颠倒了：是通信除以计算。",
                    ),
                ),
            ),
        ),
    },
    references=_70b,
    hint=Words(
        "`commlab.hierarchical_allreduce_time(nbytes, n_nodes, gpus_per_node, alpha, beta_intra, "
        "beta_inter)` gives the first, with 2 bytes for each of `LLAMA3_70B.parameters`. Training "
        "costs 6ΦD FLOPs; the peak is `commlab.hardware.H100.bf16_flops`.",
        "第一问用 `commlab.hierarchical_allreduce_time(nbytes, n_nodes, gpus_per_node, alpha, "
        "beta_intra, beta_inter)`，每个参数 2 字节，参数量是 `LLAMA3_70B.parameters`。训练要 6ΦD "
        "次浮点运算；峰值是 `commlab.hardware.H100.bf16_flops`。",
    ),
    solution=Words(
        "Communication is no problem here. Memory is: no GPU holds the training state of a 70B "
        "model, so it must be sharded or cut as well.",
        "这里通信不成问题，成问题的是显存：没有一块 GPU 放得下 70B 模型的训练状态，"
        "所以还要分片或者切开模型。",
    ),
    shown=(answers.llama_70b,),
)

# ---------------------------------------------------------------------------------------
# 5 and 6

ACCUMULATION = Exercise(
    name="accumulation",
    number="5",
    title=Words("The price of accumulation", "梯度累积的代价"),
    judges={
        "samples_in_memory": Number(
            256,
            TIMES,
            Words(
                "as on each of 8 ranks; parameters and optimizer state are there once anyway.",
                "和 8 个 rank 时每个 rank 一样；参数和优化器状态本来就只有一份。",
            ),
            (
                Mistake(
                    "whole_batch",
                    2048,
                    Words(
                        "That is the whole batch: only one micro-batch is in memory at a time.",
                        "这是整个批：显存里一次只有一个微批次。",
                    ),
                ),
                Mistake(
                    "cut_again",
                    32,
                    Words(
                        "That cuts a rank's share once more: the micro-batch is what one of the 8 "
                        "ranks would have had.",
                        "这把一个 rank 的那份又切了一次：微批次就是 8 个 rank 里每个 rank 的那份。",
                    ),
                ),
            ),
        ),
        "time_factor": Number(
            8,
            TIMES,
            Words("the 8 parts follow one another.", "8 份一个接一个地算。"),
            (
                Mistake(
                    "inverse",
                    1 / 8,
                    Words("Faster? One rank does it all.", "更快？活都是一个 rank 干的。"),
                ),
                Mistake(
                    "same",
                    1,
                    Words(
                        "One rank does the work of 8, one part after the other.",
                        "一个 rank 要干 8 个 rank 的活，一份接一份。",
                    ),
                ),
            ),
        ),
        "code": judge_accumulation,
    },
    references=answers.accumulation_numbers() | {"code": answers.accumulate},
    hint=Words(
        "`np.split(features, k)` cuts a batch into k equal parts. The mean over all samples is the "
        "mean of k means only because the parts are equal.",
        "`np.split(features, k)` 把一个批切成 k 等份。全部样本的平均等于 k 个平均的平均，"
        "只因为各份一样大。",
    ),
    solution=Words(
        "Divide every micro-batch's gradient by k, add, and update once. Memory is paid with time.",
        "每个微批次的梯度除以 k，加起来，最后更新一次。用时间换显存。",
    ),
    shown=(answers.accumulate,),
)

UNEVEN_SHARDS = Exercise(
    name="uneven_shards",
    number="6",
    title=Words("Uneven shards done right", "不均匀分片的正确做法"),
    judges={ONE_ANSWER: judge_global_mean},
    references={ONE_ANSWER: answers.global_mean},
    hint=Words(
        "All-reduce only sums. Which two sums does every rank need? One buffer can carry both: "
        "`np.append(gradient_sum, count)`.",
        "all-reduce 只会求和。每个 rank 需要哪两个和？一个缓冲区可以装下两者："
        "`np.append(gradient_sum, count)`。",
    ),
    solution=Words(
        "Sum gradients and counts, and divide afterwards. Averages of averages weigh ranks, sums "
        "weigh samples.",
        "对梯度和样本数求和，最后再相除。“平均的平均”按 rank 加权，求和按样本加权。",
    ),
    shown=(answers.global_mean,),
)
