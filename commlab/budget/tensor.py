"""Tensor parallelism: activations are summed or gathered inside every layer."""

from __future__ import annotations

from dataclasses import dataclass

from commlab.budget.cluster import H100_CLUSTER, Cluster, compute_time
from commlab.budget.groups import Group, Traffic, all_reduce_seconds, gather_seconds, one_place
from commlab.budget.report import Report, gpus
from commlab.checks import check_n_ranks
from commlab.models import BF16_BYTES, TransformerShape
from commlab.setting_checks import check_flag, check_kind, check_positive
from commlab.units import format_bytes, format_seconds


@dataclass(frozen=True)
class TensorParallel(Report):
    """The activation collectives of one tensor-parallel step.

    Attributes
    ----------
    activation_bytes : int
        S of each collective.
    count : int
        All-reduces per step; with sequence parallelism, pairs of reduce-scatter and
        all-gather, which send the same bytes. None on one GPU.
    seconds_each : float
        Seconds of one of them.
    extra : int
        All-gathers that come on top in the backward pass (sequence parallelism only).
    sequence_parallel : bool
        Whether the collectives are such pairs.
    """

    n_ranks: int
    activation_bytes: int
    count: int
    seconds_each: float
    extra: int
    compute_seconds: float
    sequence_parallel: bool
    assumptions: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Seconds of communication per step."""
        return (self.count + self.extra / 2) * self.seconds_each

    @property
    def sent(self) -> float:
        """Bytes that one GPU sends per step."""
        part = (self.n_ranks - 1) / self.n_ranks
        return (2 * self.count + self.extra) * part * self.activation_bytes

    @property
    def title(self) -> str:
        """One line that names the result."""
        return f"tensor parallelism over {gpus(self.n_ranks)}"

    @property
    def lines(self) -> dict[str, str]:
        """Each quantity by name."""
        pairs = "pairs of reduce-scatter and all-gather"
        summed = pairs if self.sequence_parallel else "all-reduces"
        return {
            "activation per collective": format_bytes(self.activation_bytes),
            f"{summed} per step": str(self.count),
            "extra all-gathers per step": str(self.extra),
            "sent per step": format_bytes(self.sent),
            "communication per step": format_seconds(self.seconds),
            "compute per step": format_seconds(self.compute_seconds),
        }


def tensor_parallel(
    shape: TransformerShape,
    tokens: int,
    n_ranks: int,
    cluster: Cluster = H100_CLUSTER,
    across_nodes: bool = False,
    sequence_parallel: bool = False,
    keep_gathered_input: bool = False,
) -> TensorParallel:
    """Estimate Megatron-style tensor parallelism of one training step.

    Parameters
    ----------
    shape : TransformerShape
        The model.
    tokens : int
        Tokens that the group processes together: each of its GPUs sees all of them.
    n_ranks : int
        GPUs that each layer is cut over; must divide the number of heads.
    cluster : Cluster
        Links, peak FLOP/s and MFU.
    across_nodes : bool
        False: the group sits in one node. True: one GPU per node, every hop at
        ``beta_inter``.
    sequence_parallel : bool
        True: between the cut matrices, each GPU keeps 1/n of the tokens. Every all-reduce
        becomes a reduce-scatter and an all-gather, which send the same bytes together.
    keep_gathered_input : bool
        Sequence parallelism only. False, as in Megatron: what was gathered before the first
        matrix of attention and MLP is dropped and gathered again in the backward pass, for
        the gradients of the weights. True: it is kept, at n times the memory.

    Returns
    -------
    TensorParallel
        Four ring all-reduces per layer (attention and MLP, forward and backward), none
        overlapped; two more all-gathers per layer with sequence parallelism.

    Raises
    ------
    TypeError
        If shape or cluster is none.
    ValueError
        If the group does not fit the heads or the node.

    Notes
    -----
    Sources: Shoeybi et al. (2019), "Megatron-LM", section 3; Korthikanti et al. (2022),
    "Reducing Activation Recomputation in Large Transformer Models", section 4.2.
    Trap: sequence parallelism saves memory, not bytes on the wire; with Megatron's extra
    all-gathers it sends more. Embedding and head are left out, and so are the copies of the
    K/V matrices that more GPUs than K/V heads need.
    """
    n_ranks = check_tensor_ranks(shape, n_ranks)
    group = one_place(n_ranks, cluster, across_nodes)
    activation = round(BF16_BYTES * check_positive(tokens, "tokens") * shape.hidden)
    sequence_parallel = check_flag(sequence_parallel, "sequence_parallel")
    keeps = check_flag(keep_gathered_input, "keep_gathered_input")
    regathered = sequence_parallel and not keeps
    # One GPU has nobody to exchange with.
    layers = shape.layers if n_ranks > 1 else 0
    where = "one GPU per node" if across_nodes else "all in one node"
    used = "reduce-scatter + all-gather" if sequence_parallel else "all-reduce"
    return TensorParallel(
        n_ranks=n_ranks,
        activation_bytes=activation,
        count=4 * layers,
        seconds_each=all_reduce_seconds(activation, group, cluster),
        extra=2 * layers if regathered else 0,
        compute_seconds=compute_time(shape.active_parameters, tokens, cluster, n_ranks),
        sequence_parallel=sequence_parallel,
        assumptions=(
            f"{shape.name}, {tokens} tokens shared by the group, BF16 activations",
            f"{where}; ring {used}, no overlap, line rates",
        ),
    )


def check_shape(shape: TransformerShape) -> TransformerShape:
    """Return the model's shape, or say that something else was passed."""
    check_kind(shape, TransformerShape, "shape", "commlab.models.LLAMA3_8B")
    return shape


def check_tensor_ranks(shape: TransformerShape, n_ranks: int) -> int:
    """Return the GPUs of a tensor-parallel group, or say what they fail to divide."""
    n_ranks = check_n_ranks(n_ranks)
    if check_shape(shape).heads % n_ranks:
        raise ValueError(
            f"{shape.name} has {shape.heads} heads, which {n_ranks} GPUs cannot share evenly: "
            "choose a divisor."
        )
    return n_ranks


def kv_heads_of_one_gpu(shape: TransformerShape, n_ranks: int) -> int:
    """Return the K/V heads on each GPU; where there are fewer than GPUs, each holds a copy."""
    if shape.kv_heads % n_ranks and n_ranks % shape.kv_heads:
        raise ValueError(
            f"{shape.name} has {shape.kv_heads} K/V heads, which {n_ranks} GPUs can neither "
            "share nor copy evenly: choose a divisor or a multiple."
        )
    return max(1, shape.kv_heads // n_ranks)


def tensor_traffic(
    tokens: float,
    hidden: int,
    layers: int,
    group: Group,
    cluster: Cluster,
    backward: bool,
    sequence_parallel: bool = False,
) -> list[Traffic]:
    """List the collectives of one pass of one micro-batch through the layers of a stage."""
    nbytes = BF16_BYTES * tokens * hidden
    when = "backward" if backward else "forward"
    half = gather_seconds(nbytes, group, cluster)
    count = 2 * layers
    if group.n_ranks == 1:
        return []
    if not sequence_parallel:
        return [Traffic("activations", "all-reduce", nbytes, group, count, 2 * half, when)]
    traffic = [
        Traffic("activations", collective, nbytes, group, count, half, when)
        for collective in ("reduce-scatter", "all-gather")
    ]
    if backward:
        again = "inputs, gathered again"
        traffic.append(Traffic(again, "all-gather", nbytes, group, count, half, when))
    return traffic
