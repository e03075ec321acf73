"""Groups of GPUs on nodes, and how long a collective of such a group takes.

While one group communicates, all others of its kind do the same: every GPU of a node sends at
once, and each has its share of the node's network interfaces (:attr:`Cluster.beta_out`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from commlab.budget.cluster import Cluster, check_cluster
from commlab.budget.report import gpus
from commlab.checks import check_n_ranks, check_nbytes, only_one
from commlab.cost import flat_ring_over_nodes_time, hierarchical_allreduce_time
from commlab.setting_checks import check_choice, check_flag, check_kind
from commlab.tables import Table, table
from commlab.units import format_bytes, format_seconds

ALGORITHMS = ("hierarchical", "rails")


@dataclass(frozen=True)
class Group:
    """GPUs that communicate with each other, and how they sit on the nodes.

    Parameters
    ----------
    per_node : int
        Members on each node.
    n_nodes : int
        Nodes that the group covers.
    """

    per_node: int
    n_nodes: int = 1

    def __post_init__(self) -> None:
        check_n_ranks(self.per_node, "per_node")
        check_n_ranks(self.n_nodes, "n_nodes")

    @property
    def n_ranks(self) -> int:
        """GPUs of the group."""
        return self.per_node * self.n_nodes

    def __str__(self) -> str:
        if self.n_ranks == 1:
            return "1 GPU"
        if self.n_nodes == 1:
            return f"{gpus(self.per_node)} of one node"
        if self.per_node == 1:
            return f"{gpus(self.n_nodes)}, one per node"
        return f"{self.n_nodes} nodes of {self.per_node}"


def place(n_ranks: int, cluster: Cluster, stride: int = 1, n_gpus: int | None = None) -> Group:
    """Place a group whose members are ``stride`` ranks apart on nodes that fill up in order.

    Parameters
    ----------
    n_ranks : int
        GPUs of the group.
    cluster : Cluster
        Node size.
    stride : int
        Distance of two neighbours of the group: the product of the axes inside it.
    n_gpus : int, optional
        GPUs of the whole run; the group alone unless given.

    Returns
    -------
    Group

    Raises
    ------
    TypeError
        If the cluster is none.
    ValueError
        If a count is below 1, if the run does not fill its nodes, or if some groups of this
        kind would cross a node boundary and others not.
    """
    n_ranks, stride = check_n_ranks(n_ranks), check_n_ranks(stride, "stride")
    n_gpus = n_ranks * stride if n_gpus is None else check_n_ranks(n_gpus, "n_gpus")
    per_node = check_cluster(cluster).gpus_per_node
    if n_gpus > per_node and n_gpus % per_node:
        raise ValueError(
            f"{n_gpus} GPUs do not fill nodes of {per_node}: choose a multiple of {per_node}."
        )
    span = n_ranks * stride
    if n_ranks == 1 or n_gpus <= per_node or per_node % span == 0:
        return Group(n_ranks)
    if stride >= per_node:
        return Group(1, n_ranks)
    if per_node % stride == 0 and span % per_node == 0:
        return Group(per_node // stride, span // per_node)
    raise ValueError(
        f"groups of {n_ranks} GPUs, {stride} apart, straddle nodes of {per_node} unevenly: choose "
        f"sizes that divide {per_node} or are multiples of it."
    )


def one_place(n_ranks: int, cluster: Cluster, across_nodes: bool) -> Group:
    """Return a group that sits in one node, or with one GPU on each node."""
    n_ranks = check_n_ranks(n_ranks)
    if check_flag(across_nodes, "across_nodes"):
        return Group(1, n_ranks)
    if n_ranks > check_cluster(cluster).gpus_per_node:
        raise ValueError(
            f"{n_ranks} GPUs do not fit in a node of {cluster.gpus_per_node}: take fewer, or "
            "say across_nodes=True."
        )
    return Group(n_ranks)


def all_reduce_seconds(
    nbytes: float, group: Group, cluster: Cluster, algorithm: str = "hierarchical"
) -> float:
    """Estimate an all-reduce of a group, on line rates.

    Parameters
    ----------
    nbytes : float
        S, the bytes of the full vector.
    group : Group
    cluster : Cluster
    algorithm : {"hierarchical", "rails"}
        For a group over several nodes: the three-step hierarchical all-reduce, or the flat
        ring over the network interfaces of all its members, like NCCL's Ring. Inside a node,
        or with one GPU per node, both are a ring.

    Returns
    -------
    float
        Seconds.

    Raises
    ------
    TypeError
        If group or cluster is none.
    ValueError
        If the algorithm is unknown.
    """
    check_algorithm(algorithm)
    nodes, members = check_group(group).n_nodes, group.per_node
    check_cluster(cluster)
    nbytes = only_one(check_nbytes(nbytes), "nbytes")
    links = (nodes, members, cluster.alpha, cluster.beta_intra, cluster.beta_out)
    if algorithm == "hierarchical":
        return float(hierarchical_allreduce_time(nbytes, *links))
    return float(flat_ring_over_nodes_time(nbytes, *links, rails=members))


def gather_seconds(
    nbytes: float, group: Group, cluster: Cluster, algorithm: str = "hierarchical"
) -> float:
    """Estimate an all-gather to, or a reduce-scatter of, ``nbytes``: half an all-reduce."""
    return all_reduce_seconds(nbytes, group, cluster, algorithm) / 2


def check_algorithm(algorithm: str) -> str:
    """Return the algorithm of an all-reduce over nodes, or say which there are."""
    return check_choice(algorithm, ALGORITHMS, "algorithm")


def check_group(group: Group) -> Group:
    """Return the group, or say that something else was passed."""
    check_kind(group, Group, "group", "commlab.budget.place(64, cluster)")
    return group


@dataclass(frozen=True)
class Traffic:
    """One kind of message exchange of a training step.

    Parameters
    ----------
    what : str
        What is sent, and when.
    collective : {"all-reduce", "reduce-scatter", "all-gather", "all-to-all", "send"}
    nbytes : float
        S: the full vector (all-reduce, and the whole array of reduce-scatter and
        all-gather), one GPU's send buffer (all-to-all), or the message (send).
    group : Group
        Who takes part.
    count : int
        Times per step.
    seconds_each : float
        Seconds of one of them.
    when : {"forward", "backward", "last backward", "update"}
        The part of the step that it belongs to: of every micro-batch, of the last one, or
        after the optimizer.
    last_seconds : float
        Seconds that its last piece takes, where it is sent in pieces of which the last one is
        ready only when the pass is over.
    """

    what: str
    collective: str
    nbytes: float
    group: Group
    count: int
    seconds_each: float
    when: str
    last_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds per step, if nothing overlaps."""
        return self.count * self.seconds_each

    @property
    def sent(self) -> float:
        """Bytes that one GPU sends per step."""
        if self.collective == "send":
            return self.count * self.nbytes
        n_ranks = self.group.n_ranks
        halves = 2 if self.collective == "all-reduce" else 1
        return self.count * halves * (n_ranks - 1) / n_ranks * self.nbytes


def traffic_table(traffic: Sequence[Traffic]) -> Table:
    """Return one row per kind of exchange: what, how often, how large, where, how long."""
    headers = (
        "what · 内容",
        "when · 何时",
        "collective · 通信",
        "group · 组",
        "times · 次数",
        "each · 每次",
        "time each · 每次耗时",
        "time · 合计",
    )
    rows = [
        (
            item.what,
            item.when,
            item.collective,
            str(item.group),
            item.count,
            format_bytes(item.nbytes),
            format_seconds(item.seconds_each),
            format_seconds(item.seconds),
        )
        for item in traffic
    ]
    return table(headers, rows, align="llllrrrr")
