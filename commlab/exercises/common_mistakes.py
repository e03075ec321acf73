"""Words for mistakes that several exercises of the lecture share."""

from __future__ import annotations

from commlab.exercises.verdicts import Words

N_NOT_N_MINUS_1 = Words(
    "It looks like N for N−1: nobody sends to itself.", "像是把 N−1 写成了 N：没有谁发给自己。"
)
ALL_RANKS = Words(
    "It looks like the sum over all ranks: the question is about one of them.",
    "像是所有 rank 加起来的总数：这里问的是一个 rank。",
)
ONE_PHASE = Words(
    "It looks like one phase only, or like a link whose two directions were added up.",
    "像是只算了一个阶段，或者把链路的两个方向加在了一起。",
)
