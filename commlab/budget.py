"""A communication budget: what a training step stores, computes and sends.

Estimates on purpose. Every result carries its assumptions and prints them; times come from
the closed forms of :mod:`commlab.cost`, memory and FLOPs from counting. Nothing here
overlaps communication with computation, and links run at line rate: a time is neither an
upper nor a lower bound.

Sizes are bytes, times seconds, rates bytes/s in one direction. BF16 takes 2 bytes.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass

from commlab.checks import check_alpha, check_beta, check_n_ranks
from commlab.cost import (
    alpha_beta_all_to_all,
    alpha_beta_ring_allreduce,
    flat_ring_over_nodes_time,
    hierarchical_allreduce_time,
)
from commlab.hardware import ALPHA, H100, INFINIBAND, NVLINK
from commlab.models import TransformerShape, training_flops
from commlab.units import format_bytes, format_seconds

BF16_BYTES = 2
FP32_BYTES = 4
MFU = 0.40
"""Model FLOPs utilisation: here the part of the peak that the computation alone reaches."""


def _check_positive(value: float, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} must be a number above zero; got {value!r}.")
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{name} must be a number above zero; got {value!r}.")
    return float(value)


@dataclass(frozen=True)
class Cluster:
    """The machine that a budget is made for.

    Parameters
    ----------
    name : str
        Printed with results.
    gpus_per_node : int
        GPUs that share the fast link.
    alpha : float
        Seconds per message.
    beta_intra, beta_inter : float
        Bytes/s per GPU in one direction, inside a node and between nodes.
    peak_flops : float
        Dense BF16 FLOP/s of one GPU.
    mfu : float
        Part of the peak that the computation alone reaches, above 0 and at most 1.

    Raises
    ------
    ValueError
        If a figure is out of range; a ``beta`` below 1 MB/s gives a warning.
    """

    name: str
    gpus_per_node: int
    alpha: float
    beta_intra: float
    beta_inter: float
    peak_flops: float
    mfu: float

    def __post_init__(self) -> None:
        check_n_ranks(self.gpus_per_node, "gpus_per_node")
        check_alpha(self.alpha)
        check_beta(self.beta_intra, "beta_intra")
        check_beta(self.beta_inter, "beta_inter")
        _check_positive(self.peak_flops, "peak_flops")
        if not _check_positive(self.mfu, "mfu") <= 1:
            raise ValueError(
                f"mfu is a part of the peak, above 0 and at most 1; got {self.mfu!r}. "
                "40 percent is 0.40."
            )


H100_CLUSTER = Cluster(
    name="H100 nodes of 8, NVLink 4, one NDR InfiniBand port per GPU",
    gpus_per_node=8,
    alpha=ALPHA,
    beta_intra=NVLINK,
    beta_inter=INFINIBAND,
    peak_flops=H100.bf16_flops,
    mfu=MFU,
)


@dataclass(frozen=True)
class TrainingState:
    """Bytes that one GPU keeps between steps, by kind.

    Mixed-precision Adam: BF16 parameters and gradients, an FP32 copy of the parameters that
    the optimizer updates, and its two FP32 moments: 2 + 2 + 4 + 4 + 4 = 16 B per parameter.
    """

    parameters: float
    gradients: float
    master_copy: float
    first_moment: float
    second_moment: float
    assumptions: tuple[str, ...]

    @property
    def optimizer(self) -> float:
        """Bytes of what only the optimizer reads: master copy and moments."""
        return self.master_copy + self.first_moment + self.second_moment

    @property
    def total(self) -> float:
        """All bytes."""
        return self.parameters + self.gradients + self.optimizer

    def __str__(self) -> str:
        lines = {
            "parameters, BF16": self.parameters,
            "gradients, BF16": self.gradients,
            "master copy, FP32": self.master_copy,
            "Adam first moment, FP32": self.first_moment,
            "Adam second moment, FP32": self.second_moment,
            "total": self.total,
        }
        texts = {name: format_bytes(nbytes) for name, nbytes in lines.items()}
        return _report("training state on one GPU", texts, self.assumptions)


def training_state(n_parameters: float, n_ranks: int = 1, zero_stage: int = 0) -> TrainingState:
    """Count the bytes of training state on one GPU.

    Parameters
    ----------
    n_parameters : float
        Parameters Φ of the whole model.
    n_ranks : int
        GPUs N that share the state.
    zero_stage : {0, 1, 2, 3}
        What is cut into N shards: 0 nothing (plain data parallelism), 1 the optimizer's
        part, 2 the gradients too, 3 the parameters too (FSDP).

    Returns
    -------
    TrainingState
        Bytes on each GPU.

    Raises
    ------
    ValueError
        If a count is out of range or the stage is unknown.

    Notes
    -----
    Source: Rajbhandari et al. (2020), "ZeRO: Memory Optimizations Toward Training Trillion
    Parameter Models", section 3.1 and figure 1.
    """
    phi = _check_positive(n_parameters, "n_parameters")
    n_ranks = check_n_ranks(n_ranks)
    _check_stage(zero_stage)

    def shard(nbytes: float, from_stage: int) -> float:
        return nbytes / n_ranks if zero_stage >= from_stage else nbytes

    return TrainingState(
        parameters=shard(BF16_BYTES * phi, 3),
        gradients=shard(BF16_BYTES * phi, 2),
        master_copy=shard(FP32_BYTES * phi, 1),
        first_moment=shard(FP32_BYTES * phi, 1),
        second_moment=shard(FP32_BYTES * phi, 1),
        assumptions=(
            "mixed-precision Adam, 16 B per parameter",
            f"ZeRO stage {zero_stage} over {_gpus(n_ranks)}",
            "state only: activations, buffers and gathered layers come on top, and "
            "N does not divide them",
        ),
    )


def compute_time(
    n_parameters: float, tokens: float, cluster: Cluster = H100_CLUSTER, n_gpus: int = 1
) -> float:
    """Estimate the seconds that ``n_gpus`` compute on ``tokens`` tokens together.

    Parameters
    ----------
    n_parameters : float
        Parameters Φ that act on each token.
    tokens : float
        Tokens D that the GPUs process together.
    cluster : Cluster
        Peak FLOP/s and MFU.
    n_gpus : int
        GPUs that share the work evenly.

    Returns
    -------
    float
        6ΦD / (n_gpus · MFU · peak), in seconds.

    Raises
    ------
    ValueError
        If a count is not above zero.

    Notes
    -----
    The MFU stands for the efficiency of the computation alone. A measured MFU is taken over
    the whole step, exposed communication included: set beside a communication time, it would
    count that twice.
    """
    flops = training_flops(
        _check_positive(n_parameters, "n_parameters"), _check_positive(tokens, "tokens")
    )
    return flops / (check_n_ranks(n_gpus, "n_gpus") * cluster.mfu * cluster.peak_flops)


@dataclass(frozen=True)
class DataParallel:
    """The gradient all-reduce of one data-parallel step."""

    n_gpus: int
    gradient_bytes: float
    algorithm: str
    seconds: float
    assumptions: tuple[str, ...]

    def __str__(self) -> str:
        texts = {
            "gradients": format_bytes(self.gradient_bytes),
            "algorithm": self.algorithm,
            "all-reduce": format_seconds(self.seconds),
        }
        return _report(f"data parallelism on {_gpus(self.n_gpus)}", texts, self.assumptions)


def data_parallel(
    n_parameters: float,
    n_gpus: int,
    cluster: Cluster = H100_CLUSTER,
    algorithm: str = "hierarchical",
) -> DataParallel:
    """Estimate the all-reduce of the BF16 gradients.

    Parameters
    ----------
    n_parameters : float
        Parameters Φ that each GPU has a gradient for.
    n_gpus : int
        Up to one node, or a whole number of nodes.
    cluster : Cluster
        Links and node size.
    algorithm : {"hierarchical", "rails"}
        Beyond one node: the three-step hierarchical all-reduce, or the flat ring over as
        many rails as a node has GPUs, like NCCL's Ring. Inside one node: a ring.

    Returns
    -------
    DataParallel
        Bytes and seconds per step, nothing overlapped.

    Raises
    ------
    ValueError
        If ``n_gpus`` does not fill whole nodes, or the algorithm is unknown.
    """
    nbytes = BF16_BYTES * _check_positive(n_parameters, "n_parameters")
    n_gpus = check_n_ranks(n_gpus, "n_gpus")
    per_node = cluster.gpus_per_node
    if algorithm not in ("hierarchical", "rails"):
        raise ValueError(f"algorithm is {algorithm!r}: choose 'hierarchical' or 'rails'.")
    if n_gpus <= per_node:
        used = "ring in the node"
        seconds = alpha_beta_ring_allreduce(nbytes, n_gpus, cluster.alpha, cluster.beta_intra)
    else:
        if n_gpus % per_node:
            raise ValueError(
                f"{n_gpus} GPUs do not fill nodes of {per_node}: choose a multiple of {per_node}."
            )
        nodes = n_gpus // per_node
        links = (nodes, per_node, cluster.alpha, cluster.beta_intra, cluster.beta_inter)
        if algorithm == "hierarchical":
            used = f"hierarchical, {nodes} nodes of {per_node}"
            seconds = hierarchical_allreduce_time(nbytes, *links)
        else:
            used = f"flat ring over {per_node} rails, {nodes} nodes of {per_node}"
            seconds = flat_ring_over_nodes_time(nbytes, *links, rails=per_node)
    return DataParallel(
        n_gpus=n_gpus,
        gradient_bytes=nbytes,
        algorithm=used,
        seconds=float(seconds),
        assumptions=(
            cluster.name,
            "one bucket, no overlap with the backward pass, line rates",
        ),
    )


@dataclass(frozen=True)
class StepVolume:
    """Bytes that one GPU sends in a step to keep parameters and gradients in step."""

    n_ranks: int
    zero_stage: int
    reduce_scatter: float
    all_gather: float
    assumptions: tuple[str, ...]

    @property
    def total(self) -> float:
        """All bytes sent."""
        return self.reduce_scatter + self.all_gather

    def __str__(self) -> str:
        texts = {
            "reduce-scatter, sent": format_bytes(self.reduce_scatter),
            "all-gather, sent": format_bytes(self.all_gather),
            "total, sent": format_bytes(self.total),
        }
        title = f"ZeRO stage {self.zero_stage} over {_gpus(self.n_ranks)}"
        return _report(title, texts, self.assumptions)


def sharded_volume(
    n_parameters: float,
    n_ranks: int,
    zero_stage: int = 3,
    reshard_after_forward: bool = True,
    gradient_bytes: int = BF16_BYTES,
) -> StepVolume:
    """Count what one GPU sends per step under data parallelism with or without shards.

    Parameters
    ----------
    n_parameters : float
        Parameters Φ of the whole model.
    n_ranks : int
        GPUs N.
    zero_stage : {0, 1, 2, 3}
        0 is DDP: an all-reduce, counted as reduce-scatter and all-gather of the gradients.
        1 and 2 reduce-scatter the gradients and all-gather the updated parameters.
        3 (FSDP) all-gathers the parameters before use instead.
    reshard_after_forward : bool
        Stage 3 only: True drops the gathered layer after the forward pass and gathers it
        again for the backward pass; False keeps it.
    gradient_bytes : {2, 4}
        Bytes per gradient on the wire: 2 for BF16, 4 where the reduction runs in FP32.

    Returns
    -------
    StepVolume
        Bytes sent by each GPU. It receives as many.

    Raises
    ------
    ValueError
        If a count is out of range or the stage is unknown.

    Notes
    -----
    With all in BF16, P = 2Φ bytes: stages 0 to 2 send 2(N−1)/N · P, stage 3 sends
    3(N−1)/N · P. For one micro-batch per step that is an upper bound for FSDP, whose root
    module is not resharded by default. With several micro-batches it all-gathers twice for
    each of them and reduce-scatters once or for each of them, where DDP under ``no_sync()``
    still all-reduces once.
    """
    phi = _check_positive(n_parameters, "n_parameters")
    n_ranks = check_n_ranks(n_ranks)
    _check_stage(zero_stage)
    if gradient_bytes not in (BF16_BYTES, FP32_BYTES):
        raise ValueError(f"gradient_bytes is {gradient_bytes!r}: choose 2 (BF16) or 4 (FP32).")
    part = (n_ranks - 1) / n_ranks
    gradients = part * gradient_bytes * phi
    parameters = part * BF16_BYTES * phi
    if zero_stage == 0:
        all_gather = gradients
        gathered = "reduced gradients"
    elif zero_stage < 3:
        all_gather = parameters
        gathered = "updated parameters"
    elif reshard_after_forward:
        all_gather = 2 * parameters
        gathered = "parameters, in forward and again in backward"
    else:
        all_gather = parameters
        gathered = "parameters, kept from forward to backward"
    return StepVolume(
        n_ranks=n_ranks,
        zero_stage=zero_stage,
        reduce_scatter=gradients,
        all_gather=all_gather,
        assumptions=(
            f"reduce-scatter of gradients, {gradient_bytes} B each",
            f"all-gather of {gathered}",
            "ring or any other algorithm that sends the least",
        ),
    )


@dataclass(frozen=True)
class TensorParallel:
    """The activation all-reduces of one tensor-parallel step."""

    n_ranks: int
    activation_bytes: int
    count: int
    seconds_each: float
    compute_seconds: float
    assumptions: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Seconds of communication per step."""
        return self.count * self.seconds_each

    def __str__(self) -> str:
        texts = {
            "activation per all-reduce": format_bytes(self.activation_bytes),
            "all-reduces per step": str(self.count),
            "communication per step": format_seconds(self.seconds),
            "compute per step": format_seconds(self.compute_seconds),
        }
        return _report(f"tensor parallelism over {_gpus(self.n_ranks)}", texts, self.assumptions)


def tensor_parallel(
    shape: TransformerShape,
    tokens: int,
    n_ranks: int,
    cluster: Cluster = H100_CLUSTER,
    across_nodes: bool = False,
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

    Returns
    -------
    TensorParallel
        Four ring all-reduces per layer (attention and MLP, forward and backward), none
        overlapped.

    Raises
    ------
    ValueError
        If the group does not fit the heads or the node.

    Notes
    -----
    Source: Shoeybi et al. (2019), "Megatron-LM", section 3. Embedding and head are left out,
    and so are the copies of the K/V matrices that more GPUs than K/V heads need.
    """
    n_ranks = check_n_ranks(n_ranks)
    if shape.heads % n_ranks:
        raise ValueError(
            f"{shape.name} has {shape.heads} heads, which {n_ranks} GPUs cannot share evenly: "
            "choose a divisor."
        )
    beta = _link(n_ranks, cluster, across_nodes)
    activation = round(BF16_BYTES * _check_positive(tokens, "tokens") * shape.hidden)
    seconds_each = alpha_beta_ring_allreduce(activation, n_ranks, cluster.alpha, beta)
    where = "one GPU per node" if across_nodes else "all in one node"
    return TensorParallel(
        n_ranks=n_ranks,
        activation_bytes=activation,
        count=4 * shape.layers,
        seconds_each=float(seconds_each),
        compute_seconds=compute_time(shape.parameters, tokens, cluster, n_ranks),
        assumptions=(
            f"{shape.name}, {tokens} tokens shared by the group, BF16 activations",
            f"{where}; ring all-reduce, no overlap, line rates",
        ),
    )


@dataclass(frozen=True)
class ExpertParallel:
    """The all-to-alls of one step of a mixture of experts."""

    n_ranks: int
    layers: int
    passes: int
    bytes_per_layer: float
    seconds_per_layer: float
    assumptions: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Seconds of communication per step."""
        return self.layers * self.passes * self.seconds_per_layer

    def __str__(self) -> str:
        texts = {
            "sent per layer and pass": format_bytes(self.bytes_per_layer),
            "time per layer and pass": format_seconds(self.seconds_per_layer),
            f"{self.layers} layers x {self.passes} passes": format_seconds(self.seconds),
        }
        return _report(f"experts on {_gpus(self.n_ranks)}", texts, self.assumptions)


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
        GPUs that the experts are spread over, evenly loaded.
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

    Returns
    -------
    ExpertParallel
        Two all-to-alls per layer and pass, none overlapped.

    Raises
    ------
    ValueError
        If a count is out of range.
    """
    per_gpu = _check_positive(tokens, "tokens") * _check_positive(hidden, "hidden")
    layers = check_n_ranks(layers, "layers")
    top_k = check_n_ranks(top_k, "top_k")
    n_ranks = check_n_ranks(n_ranks)
    if passes not in (1, 2, 3):
        raise ValueError(
            f"passes is {passes!r}: choose 1 (forward), 2 (forward and backward) or "
            "3 (with the forward recomputed)."
        )
    beta = _link(n_ranks, cluster, across_nodes)
    send_buffer = BF16_BYTES * per_gpu * top_k
    each = alpha_beta_all_to_all(send_buffer, n_ranks, cluster.alpha, beta, algorithm=algorithm)
    where = "one GPU per node" if across_nodes else "all in one node"
    return ExpertParallel(
        n_ranks=n_ranks,
        layers=layers,
        passes=passes,
        bytes_per_layer=2 * (n_ranks - 1) / n_ranks * send_buffer,
        seconds_per_layer=2 * float(each),
        assumptions=(
            f"{tokens} tokens per GPU, top-{top_k}, BF16, every expert equally loaded",
            f"{where}; {algorithm} all-to-all, dispatch and combine, no overlap, line rates",
        ),
    )


def _link(n_ranks: int, cluster: Cluster, across_nodes: bool) -> float:
    """Bytes/s of the link that a group of ``n_ranks`` uses."""
    if across_nodes:
        return cluster.beta_inter
    if n_ranks > cluster.gpus_per_node:
        raise ValueError(
            f"{n_ranks} GPUs do not fit in a node of {cluster.gpus_per_node}: take fewer, or "
            "say across_nodes=True."
        )
    return cluster.beta_intra


def _check_stage(zero_stage: int) -> None:
    if zero_stage not in (0, 1, 2, 3):
        raise ValueError(
            f"zero_stage is {zero_stage!r}: choose 0 (nothing sharded), 1 (optimizer), "
            "2 (and gradients) or 3 (and parameters: FSDP)."
        )


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _report(title: str, lines: dict[str, str], assumptions: tuple[str, ...]) -> str:
    width = max(len(name) for name in lines)
    body = [f"  {name:<{width}}  {text}" for name, text in lines.items()]
    notes = [f"  assuming: {note}" for note in assumptions]
    return "\n".join([title, *body, *notes])
