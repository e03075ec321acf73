"""ZeRO and FSDP: data parallelism whose state is cut into shards.

Traps. Stage 1 and 2 gather the updated *parameters*, never optimizer states, and send what
plain data parallelism sends. Stage 3 sends 3(N−1)/N · P at most: FSDP does not reshard its
root module by default, and `reshard_after_forward` may be False or a group size. Reducing
gradients in FP32 doubles their bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from commlab.budget.cluster import H100_CLUSTER, Cluster
from commlab.budget.groups import Traffic, traffic_table
from commlab.budget.memory import check_stage
from commlab.budget.report import Report, gpus
from commlab.budget.shards import check_reshard, make_shards, state_traffic
from commlab.budget.tensor import check_shape
from commlab.checks import check_n_ranks
from commlab.models import BF16_BYTES, TransformerShape
from commlab.setting_checks import check_gradient_bytes, check_positive
from commlab.tables import Table
from commlab.units import format_bytes, format_seconds


@dataclass(frozen=True)
class StepVolume(Report):
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

    @property
    def title(self) -> str:
        """One line that names the result."""
        return f"ZeRO stage {self.zero_stage} over {gpus(self.n_ranks)}"

    @property
    def lines(self) -> dict[str, str]:
        """Each quantity by name."""
        return {
            "reduce-scatter, sent": format_bytes(self.reduce_scatter),
            "all-gather, sent": format_bytes(self.all_gather),
            "total, sent": format_bytes(self.total),
        }


def sharded_volume(
    n_parameters: float,
    n_ranks: int,
    zero_stage: int = 3,
    reshard_after_forward: bool | int = True,
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
    reshard_after_forward : bool or int
        Stage 3 only: True drops the gathered layer after the forward pass and gathers it
        again for the backward pass; False keeps it; a number of GPUs that divides N keeps
        shards of that many GPUs, and the second gather runs among those.
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
    module is not resharded by default: :func:`sharded_data_parallel` counts it apart. With
    several micro-batches it all-gathers twice for each of them and reduce-scatters once or
    for each of them, where DDP under ``no_sync()`` still all-reduces once.
    """
    phi = check_positive(n_parameters, "n_parameters")
    n_ranks = check_n_ranks(n_ranks)
    check_stage(zero_stage)
    regathered = check_reshard(reshard_after_forward, n_ranks)
    gradients = (n_ranks - 1) / n_ranks * check_gradient_bytes(gradient_bytes) * phi
    parameters = (n_ranks - 1) / n_ranks * BF16_BYTES * phi
    if zero_stage == 0:
        all_gather = gradients
        gathered = "reduced gradients"
    elif zero_stage < 3:
        all_gather = parameters
        gathered = "updated parameters"
    else:
        all_gather = parameters + (regathered - 1) / regathered * BF16_BYTES * phi
        gathered = f"parameters in forward, {_second_gather(regathered, n_ranks)}"
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


def _second_gather(regathered: int, n_ranks: int) -> str:
    if regathered == 1:
        return "kept for backward"
    if regathered == n_ranks:
        return "and again in backward"
    return f"and again in backward among {regathered} GPUs"


@dataclass(frozen=True)
class ShardedDataParallel(Report):
    """What one step of data parallelism with shards sends, and how long that takes."""

    zero_stage: int
    n_gpus: int
    traffic: tuple[Traffic, ...]
    assumptions: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Seconds of communication per step, nothing overlapped."""
        return sum(item.seconds for item in self.traffic)

    @property
    def sent(self) -> float:
        """Bytes that one GPU sends per step."""
        return sum(item.sent for item in self.traffic)

    @property
    def messages(self) -> int:
        """Collectives per step."""
        return sum(item.count for item in self.traffic)

    @property
    def title(self) -> str:
        """One line that names the result."""
        return f"ZeRO stage {self.zero_stage} on {gpus(self.n_gpus)}"

    @property
    def lines(self) -> dict[str, str]:
        """Each quantity by name."""
        each = {
            f"{item.what}, {item.when}: {item.count} x {item.collective}": format_seconds(
                item.seconds
            )
            for item in self.traffic
        }
        return {
            **each,
            "communication per step": format_seconds(self.seconds),
            "sent per step": format_bytes(self.sent),
        }

    def traffic_table(self) -> Table:
        """Return one row per kind of collective."""
        return traffic_table(self.traffic)


def sharded_data_parallel(
    shape: TransformerShape,
    n_gpus: int,
    cluster: Cluster = H100_CLUSTER,
    zero_stage: int = 3,
    *,
    reshard_after_forward: bool | int | None = None,
    shard_ranks: int | None = None,
    gradient_bytes: int = BF16_BYTES,
    n_microbatches: int = 1,
    reduce_each_microbatch: bool = True,
    algorithm: str = "hierarchical",
) -> ShardedDataParallel:
    """Estimate volume and time of ZeRO and FSDP, collective by collective.

    Parameters
    ----------
    shape : TransformerShape
        The model. Stage 3 gathers it layer by layer: each gather pays its own α.
    n_gpus : int
        Up to one node, or a whole number of nodes.
    cluster : Cluster
        Links and node size.
    zero_stage : {0, 1, 2, 3}
        As in :func:`sharded_volume`; stages 0 to 2 send everything as one bucket.
    reshard_after_forward : bool, int or None
        Stage 3: True gathers each layer again in the backward pass, False keeps it, a number
        of GPUs gathers it again among those. None, as in PyTorch: True for the layers, False
        for the root (embedding, last norm and head).
    shard_ranks : int, optional
        Hybrid sharding: the state is cut over this many neighbouring GPUs and repeated, and
        the gradient shards are all-reduced across the copies.
    gradient_bytes : {2, 4}
        Bytes per gradient on the wire.
    n_microbatches : int
        Micro-batches of a step (gradient accumulation).
    reduce_each_microbatch : bool
        Stages 2 and 3: True reduces the gradients of every micro-batch, so that only shards
        of them are kept; False once, and the whole gradient is kept meanwhile.
    algorithm : {"hierarchical", "rails"}
        For groups over several nodes, as in :func:`data_parallel`.

    Returns
    -------
    ShardedDataParallel

    Raises
    ------
    TypeError
        If shape or cluster is none.
    ValueError
        If sizes do not divide, or a choice is unknown or has no use in this stage.

    Notes
    -----
    Sources: Rajbhandari et al. (2020), "ZeRO"; Zhao et al. (2023), "PyTorch FSDP"; docstring
    of ``torch.distributed.fsdp.fully_shard``.
    """
    n_gpus = check_n_ranks(n_gpus, "n_gpus")
    check_shape(shape)
    shards = make_shards(
        n_gpus,
        cluster,
        zero_stage,
        reshard_after_forward=reshard_after_forward,
        shard_ranks=shard_ranks,
        gradient_bytes=gradient_bytes,
        n_microbatches=n_microbatches,
        reduce_each_microbatch=reduce_each_microbatch,
    )
    traffic = state_traffic(
        shape.layer_parameters,
        shape.layers,
        shape.root_parameters,
        shards,
        cluster,
        algorithm,
        last=shape.vocab * shape.hidden,
    )
    bucket = "one collective per layer" if zero_stage == 3 else "one bucket"
    return ShardedDataParallel(
        zero_stage=zero_stage,
        n_gpus=n_gpus,
        traffic=tuple(traffic),
        assumptions=(
            f"{shape.name} on {cluster.name}",
            f"{bucket}, {n_microbatches} micro-batch(es), gradients of {gradient_bytes} B",
            "no overlap, line rates",
        ),
    )
