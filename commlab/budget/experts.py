"""Expert parallelism: tokens travel to their experts and back, in two all-to-alls per layer.

Trap. "Forward and backward" are two passes; 32 layers across nodes then take 151 ms in this
book's example. Where the forward pass is recomputed in the backward pass, its all-to-alls run
again: three passes, 226 ms. Say which one is meant.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass

import numpy as np

from commlab.budget.cluster import H100_CLUSTER, Cluster, check_cluster
from commlab.budget.groups import Group, check_group, one_place
from commlab.budget.report import Report, gpus
from commlab.checks import check_n_ranks, check_nbytes
from commlab.models import BF16_BYTES
from commlab.setting_checks import check_choice, check_part, check_positive
from commlab.units import format_bytes, format_seconds

ALL_TO_ALL = ("direct", "pairwise")


@dataclass(frozen=True)
class ExpertParallel(Report):
    """The all-to-alls of one step of a mixture of experts.

    Attributes
    ----------
    bytes_per_layer : float
        Bytes that the busiest GPU sends, or receives if that is more, in dispatch and combine
        of one layer and pass.
    seconds_per_layer : float
        Seconds of both.
    balanced_bytes, balanced_seconds : float
        The same with every expert equally loaded and no capacity limit.
    dropped : float
        Part of the tokens' copies that find no slot at their expert.
    padded : float
        Part of the slots that travel empty.
    compute_skew : float
        Work of the busiest GPU's experts over that of a balanced layer without a limit. Slots
        are computed whether full or empty: a capacity factor of 1.25 gives all GPUs 1.25.
    """

    n_ranks: int
    layers: int
    passes: int
    bytes_per_layer: float
    seconds_per_layer: float
    balanced_bytes: float
    balanced_seconds: float
    dropped: float
    padded: float
    compute_skew: float
    assumptions: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Seconds of communication per step."""
        return self.layers * self.passes * self.seconds_per_layer

    @property
    def byte_skew(self) -> float:
        """Bytes of the busiest GPU over those of a balanced layer; the slowdown at α = 0."""
        return self.bytes_per_layer / self.balanced_bytes if self.balanced_bytes else 1.0

    @property
    def slowdown(self) -> float:
        """Time of the all-to-alls over the balanced time."""
        return self.seconds_per_layer / self.balanced_seconds if self.balanced_seconds else 1.0

    @property
    def title(self) -> str:
        """One line that names the result."""
        return f"experts on {gpus(self.n_ranks)}"

    @property
    def lines(self) -> dict[str, str]:
        """Each quantity by name."""
        return {
            "busiest GPU, per layer and pass": format_bytes(self.bytes_per_layer),
            "time per layer and pass": format_seconds(self.seconds_per_layer),
            "slower than balanced": f"{self.slowdown:.3g} x",
            "dropped tokens": f"{self.dropped:.1%}",
            "empty slots sent": f"{self.padded:.1%}",
            f"{self.layers} layers x {self.passes} passes": format_seconds(self.seconds),
        }


def expert_parallel(
    tokens: int,
    hidden: int,
    layers: int,
    n_ranks: int,
    cluster: Cluster = H100_CLUSTER,
    across_nodes: bool = False,
    passes: int = 2,
    top_k: int = 1,
    algorithm: str = "direct",
    *,
    n_experts: int | None = None,
    hottest_share: float | None = None,
    capacity_factor: float | None = None,
) -> ExpertParallel:
    """Estimate the dispatch and combine all-to-alls of an MoE step.

    Parameters
    ----------
    tokens : int
        Tokens per GPU.
    hidden : int
        Width of the residual stream.
    layers : int
        MoE layers.
    n_ranks : int
        GPUs that the experts are spread over.
    cluster : Cluster
        Links.
    across_nodes : bool
        False: all in one node. True: one GPU per node, every message at ``beta_inter``.
    passes : {1, 2, 3}
        How often a step runs through the layers: 1 forward only, 2 forward and backward,
        3 with the forward recomputed in the backward pass (activation checkpointing).
    top_k : int
        Experts per token.
    algorithm : {"direct", "pairwise"}
        One α per all-to-all with N−1 ports at once, or N−1 rounds through one port.
    n_experts : int, optional
        Experts per layer, a multiple of ``n_ranks``; one per GPU unless given.
    hottest_share : float, optional
        Part of the tokens' copies that expert 0 gets, on every GPU alike; the others share
        the rest evenly. All are equally loaded unless given.
    capacity_factor : float, optional
        Each GPU sends every expert exactly this many times the balanced number of tokens:
        surplus tokens are dropped, missing ones padded. No limit unless given.

    Returns
    -------
    ExpertParallel
        Two all-to-alls per layer and pass, none overlapped.

    Raises
    ------
    TypeError
        If the cluster is none.
    ValueError
        If a count is out of range.

    Notes
    -----
    Sources: Lepikhin et al. (2020), "GShard"; Fedus et al. (2021), "Switch Transformers",
    section 2.2 (capacity factor).
    """
    per_gpu = check_positive(tokens, "tokens") * check_positive(hidden, "hidden")
    layers, top_k = check_n_ranks(layers, "layers"), check_n_ranks(top_k, "top_k")
    group = one_place(n_ranks, cluster, across_nodes)
    if not isinstance(passes, numbers.Integral) or passes not in (1, 2, 3):
        raise ValueError(
            f"passes is {passes!r}: choose 1 (forward), 2 (forward and backward) or "
            "3 (with the forward recomputed)."
        )
    loads = expert_loads(n_ranks if n_experts is None else n_experts, hottest_share)
    slots, dropped, padded = expert_slots(loads, capacity_factor)
    send_buffer = BF16_BYTES * per_gpu * top_k
    sent = send_buffer * sent_matrix(slots, group.n_ranks)
    even = send_buffer * sent_matrix(expert_loads(group.n_ranks), group.n_ranks)
    # Combine sends the transposed matrix, which takes as long.
    seconds, balanced = (
        2 * all_to_all_seconds(matrix, group, cluster, algorithm) for matrix in (sent, even)
    )
    where = "one GPU per node" if across_nodes else "all in one node"
    return ExpertParallel(
        n_ranks=group.n_ranks,
        layers=layers,
        passes=passes,
        bytes_per_layer=2 * _busiest(sent),
        seconds_per_layer=seconds,
        balanced_bytes=2 * _busiest(even),
        balanced_seconds=balanced,
        dropped=dropped,
        padded=padded,
        compute_skew=float(slots.reshape(group.n_ranks, -1).sum(axis=1).max()) * group.n_ranks,
        assumptions=(
            f"{tokens} tokens per GPU, top-{top_k}, BF16, {_loaded(hottest_share)}, "
            f"{_limited(capacity_factor)}",
            f"{where}; {algorithm} all-to-all, dispatch and combine, no overlap, line rates",
        ),
    )


def expert_loads(n_experts: int, hottest_share: float | None = None) -> np.ndarray:
    """Return the part of all tokens' copies that each expert gets.

    Parameters
    ----------
    n_experts : int
    hottest_share : float, optional
        Part of expert 0, at least 1/n_experts; the others share the rest evenly.

    Returns
    -------
    numpy.ndarray, shape (n_experts,)
        Sums to 1.
    """
    n_experts = check_n_ranks(n_experts, "n_experts")
    even = np.full(n_experts, 1 / n_experts)
    if hottest_share is None:
        return even
    if check_part(hottest_share, "hottest_share") < even[0] or n_experts == 1:
        raise ValueError(
            f"hottest_share is {hottest_share!r}, but with {n_experts} experts the hottest gets "
            f"at least 1/{n_experts}: give a larger part, and at least 2 experts."
        )
    loads = np.full(n_experts, (1 - hottest_share) / (n_experts - 1))
    loads[0] = hottest_share
    return loads


def expert_slots(
    loads: np.ndarray, capacity_factor: float | None = None
) -> tuple[np.ndarray, float, float]:
    """Return what each expert is sent under a capacity limit, what is dropped, what is empty.

    Parameters
    ----------
    loads : numpy.ndarray, shape (n_experts,)
        Parts of all tokens' copies.
    capacity_factor : float, optional
        Slots of an expert, in units of the balanced load.

    Returns
    -------
    slots : numpy.ndarray, shape (n_experts,)
        Slots per copy, equal for all experts where there is a limit.
    dropped, padded : float
        Part of the copies without a slot, and part of the slots without a copy.
    """
    loads = _check_parts(loads, "loads")
    if capacity_factor is None:
        return loads, 0.0, 0.0
    slots = np.full(loads.size, check_positive(capacity_factor, "capacity_factor") / loads.size)
    dropped = float(np.maximum(loads - slots, 0).sum())
    padded = float(np.maximum(slots - loads, 0).sum() / slots.sum())
    return slots, dropped, padded


def sent_matrix(slots: np.ndarray, n_ranks: int) -> np.ndarray:
    """Return what rank i sends to rank j in a dispatch, in units of one GPU's send buffer.

    Parameters
    ----------
    slots : numpy.ndarray, shape (n_experts,)
        What each expert is sent; rank j holds the j-th n_experts / n_ranks of them.
    n_ranks : int

    Returns
    -------
    numpy.ndarray, shape (n_ranks, n_ranks)
        The diagonal stays on the GPU. Combine sends the transpose.
    """
    slots = _check_parts(slots, "slots")
    if slots.size % check_n_ranks(n_ranks):
        raise ValueError(
            f"{slots.size} experts cannot be spread evenly over {n_ranks} GPUs: choose a multiple."
        )
    to_rank = slots.reshape(n_ranks, -1).sum(axis=1)
    return np.tile(to_rank, (n_ranks, 1))


def all_to_all_seconds(
    sent: np.ndarray, group: Group, cluster: Cluster, algorithm: str = "direct"
) -> float:
    """Estimate an all-to-all whose messages may differ in size.

    Parameters
    ----------
    sent : numpy.ndarray, shape (n_ranks, n_ranks)
        Bytes from rank i to rank j; the diagonal does not travel.
    group : Group
        The ranks on their nodes, node by node.
    cluster : Cluster
    algorithm : {"direct", "pairwise"}
        "direct" sends all messages at once through N−1 ports: one α, and the busiest sender
        or receiver decides. "pairwise" runs N−1 steps with one partner each, and each step
        takes as long as its largest message.

    Returns
    -------
    float
        Seconds, lock-step. The transposed matrix takes as long.

    Raises
    ------
    TypeError
        If group or cluster is none.
    ValueError
        If the algorithm is unknown, or the matrix is not that of the group.
    """
    check_choice(algorithm, ALL_TO_ALL, "algorithm")
    check_cluster(cluster)
    n_ranks = check_group(group).n_ranks
    if np.shape(sent) != (n_ranks, n_ranks):
        raise ValueError(
            f"sent has shape {np.shape(sent)}: give the bytes from each of the {n_ranks} ranks to "
            "each other, as a square."
        )
    node = np.arange(n_ranks) // group.per_node
    crosses = node[:, None] != node[None, :]
    travels = np.where(np.eye(n_ranks, dtype=bool), 0.0, sent)
    if not travels.any():
        return 0.0
    if algorithm == "pairwise":
        each = travels / np.where(crosses, cluster.beta_out, cluster.beta_intra)
        ranks = np.arange(n_ranks)
        steps = [each[ranks, (ranks + step) % n_ranks].max() for step in range(1, n_ranks)]
        return (n_ranks - 1) * cluster.alpha + float(sum(steps))
    inside = np.where(crosses, 0.0, travels) / cluster.beta_intra
    outside = np.where(crosses, travels, 0.0) / cluster.beta_out
    busiest = max(part.sum(axis=axis).max() for part in (inside, outside) for axis in (0, 1))
    return cluster.alpha + float(busiest)


def _check_parts(values: np.ndarray, what: str) -> np.ndarray:
    """Return one part for each expert, or say that they must be numbers from 0 up."""
    parts = check_nbytes(values, what)
    if parts.ndim != 1 or parts.size == 0:
        raise ValueError(f"{what} must hold one number for each expert; got {values!r}.")
    return parts


def _busiest(sent: np.ndarray) -> float:
    """Bytes of the busiest sender or receiver."""
    travels = sent - np.diag(np.diag(sent))
    return float(max(travels.sum(axis=0).max(), travels.sum(axis=1).max()))


def _loaded(hottest_share: float | None) -> str:
    if hottest_share is None:
        return "every expert equally loaded"
    return f"expert 0 gets {hottest_share:.1%} of the copies"


def _limited(capacity_factor: float | None) -> str:
    return "no capacity limit" if capacity_factor is None else f"capacity {capacity_factor:g}"
