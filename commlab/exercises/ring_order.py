"""Judge of the order in which a ring visits ranks that are scattered over nodes."""

from __future__ import annotations

import numpy as np

from commlab.algorithms.ring import ring_all_reduce
from commlab.cost import price
from commlab.exercises.code_answers import call, numbers_in
from commlab.exercises.verdicts import Verdict, Words, in_code, refuse, right
from commlab.hardware import ALPHA, INFINIBAND, NVLINK
from commlab.schedule import Schedule, Step
from commlab.topology import Link, Topology
from commlab.units import GIB, format_seconds

# Node of each rank: round robin, mirrored, and as a scheduler may scatter 12 ranks over 3.
NODES = (
    [0, 1, 0, 1, 0, 1, 0, 1],
    [0, 0, 1, 1, 1, 1, 0, 0],
    [2, 0, 1, 1, 0, 2, 2, 1, 0, 0, 2, 1],
)


def ring_in_order(order: list[int]) -> Schedule:
    """Return a ring all-reduce that visits the ranks in this order."""
    seat = np.array(order)
    ring = ring_all_reduce(seat.size)
    steps = [Step(seat[step.src], seat[step.dst], step.chunk, step.op) for step in ring.steps]
    return Schedule("all_reduce", seat.size, ring.shares, ring.starts, ring.ends, steps)


def one_interface_per_node(node_of: list[int]) -> Topology:
    """Return nodes whose ranks share one network interface."""
    nodes = np.array(node_of)
    return Topology(nodes, nodes, Link(ALPHA, NVLINK), Link(ALPHA, INFINIBAND))


def judge_ring_order(answer: object) -> Verdict:
    """Judge ``ring_order(node_of)``: the ranks in the order of the ring."""
    for node_of in NODES:
        result = call(answer, list(node_of))
        n_ranks = len(node_of)
        what = Words(f"a list of all {n_ranks} ranks", f"由全部 {n_ranks} 个 rank 组成的列表")
        order = numbers_in(result, (n_ranks,), what)
        ranks = [int(rank) for rank in order]
        shown = in_code(node_of)
        if sorted(ranks) != list(range(n_ranks)) or (order != ranks).any():
            raise refuse(
                "not_a_ring",
                f"For nodes {shown}: the ring must visit each rank once; yours is "
                f"{in_code(result)}.",
                f"节点为 {shown} 时：环必须恰好经过每个 rank 一次；你的是 {in_code(result)}。",
            )
        _check_crossings(ranks, node_of)
    return right(
        "the ring enters and leaves each node once, and every interface carries one stream.",
        "环进出每个节点各一次，每块网卡上只有一股数据。",
    )


def _check_crossings(order: list[int], node_of: list[int]) -> None:
    nodes = [node_of[rank] for rank in order]
    leaving = [
        node
        for node, following in zip(nodes, nodes[1:] + nodes[:1], strict=True)
        if node != following
    ]
    most = max(leaving.count(node) for node in set(nodes))
    if most == 1:
        return
    node = max(set(nodes), key=leaving.count)
    topology = one_interface_per_node(node_of)
    yours, best = (
        price(ring_in_order(ring), topology, GIB).total
        for ring in (order, sorted(order, key=lambda rank: (node_of[rank], rank)))
    )
    shown = in_code(node_of)
    raise refuse(
        "crossings",
        f"For nodes {shown}: your ring leaves node {node} {most} times, and {most} streams share "
        f"its interface: 1 GiB takes {format_seconds(yours)}, {yours / best:.2f} times the least.",
        f"节点为 {shown} 时：你的环离开节点 {node} 共 {most} 次，{most} 股数据共用它的网卡："
        f"1 GiB 要 {format_seconds(yours)}，是最少的 {yours / best:.2f} 倍。",
    )
