"""Where the shards of ZeRO and FSDP lie, and which collectives keep them in step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commlab.budget.cluster import Cluster
from commlab.budget.groups import (
    Group,
    Traffic,
    all_reduce_seconds,
    check_algorithm,
    gather_seconds,
    place,
)
from commlab.budget.memory import check_stage
from commlab.checks import check_n_ranks
from commlab.models import BF16_BYTES
from commlab.setting_checks import check_flag, check_gradient_bytes, check_kind


@dataclass(frozen=True)
class Shards:
    """How the state of a data-parallel run is cut, and over which GPUs.

    Parameters
    ----------
    zero_stage : {0, 1, 2, 3}
    shard : Group
        GPUs that share one copy of what the stage cuts.
    replicas : Group
        GPUs that hold the same shard; more than one in hybrid sharding (HSDP).
    regather : Group
        GPUs of the all-gather before the backward pass; one GPU if layers are kept.
    root_resharded : bool
        Whether what lies outside the layers is gathered again too.
    gradient_bytes : {2, 4}
    n_microbatches : int
        Micro-batches of a step (gradient accumulation).
    reduce_each : bool
        Whether gradients are reduced after each micro-batch, or once.
    """

    zero_stage: int
    shard: Group
    replicas: Group
    regather: Group
    root_resharded: bool
    gradient_bytes: int
    n_microbatches: int
    reduce_each: bool

    @property
    def everyone(self) -> Group:
        """All data-parallel GPUs."""
        return Group(
            self.shard.per_node * self.replicas.per_node,
            self.shard.n_nodes * self.replicas.n_nodes,
        )


def check_shards_object(shards: Shards) -> Shards:
    """Return the shards, or say that something else was passed."""
    check_kind(shards, Shards, "shards", "commlab.budget.Plan(data=8).shards(cluster)")
    return shards


def check_reshard(reshard_after_forward: bool | int | None, n_ranks: int) -> int:
    """Return over how many GPUs a layer lies in shards between forward and backward."""
    if reshard_after_forward is None:
        return n_ranks
    if isinstance(reshard_after_forward, (bool, np.bool_)):
        return n_ranks if reshard_after_forward else 1
    size = check_n_ranks(reshard_after_forward, "reshard_after_forward")
    if size in (1, n_ranks) or n_ranks % size:
        raise ValueError(
            f"reshard_after_forward is {size}: give True, False, or a divisor of the {n_ranks} "
            "shards other than 1 and all of them."
        )
    return size


def check_shards(
    data_ranks: int,
    zero_stage: int,
    reshard_after_forward: bool | int | None,
    shard_ranks: int | None,
) -> tuple[int, int]:
    """Return the GPUs of one copy's shards, and those of the second gather.

    Raises
    ------
    ValueError
        If sizes do not divide, or if a choice is given that the stage has no use for.
    """
    check_stage(zero_stage)
    if shard_ranks is not None and zero_stage == 0:
        raise ValueError(
            f"shard_ranks is {shard_ranks!r}, but ZeRO stage 0 has no shards: leave it out, or "
            "choose a stage from 1 to 3."
        )
    if reshard_after_forward is not None and zero_stage < 3:
        raise ValueError(
            f"reshard_after_forward is {reshard_after_forward!r}, but only ZeRO stage 3 gathers "
            f"layers, and zero_stage is {zero_stage}: leave it out, or choose stage 3."
        )
    size = data_ranks if shard_ranks is None else check_n_ranks(shard_ranks, "shard_ranks")
    if data_ranks % size:
        raise ValueError(
            f"shards of {size} GPUs cannot repeat evenly over {data_ranks} data-parallel GPUs: "
            "choose a divisor."
        )
    return size, check_reshard(reshard_after_forward, size)


def make_shards(
    data_ranks: int,
    cluster: Cluster,
    zero_stage: int,
    *,
    reshard_after_forward: bool | int | None = None,
    shard_ranks: int | None = None,
    gradient_bytes: int = BF16_BYTES,
    n_microbatches: int = 1,
    reduce_each_microbatch: bool = True,
    stride: int = 1,
    n_gpus: int | None = None,
) -> Shards:
    """Place the shards of ``data_ranks`` GPUs that are ``stride`` ranks apart."""
    size, regathered = check_shards(data_ranks, zero_stage, reshard_after_forward, shard_ranks)
    everybody = data_ranks * stride if n_gpus is None else n_gpus
    reduce_each = check_flag(reduce_each_microbatch, "reduce_each_microbatch")
    return Shards(
        zero_stage=zero_stage,
        shard=place(size, cluster, stride, everybody),
        replicas=place(data_ranks // size, cluster, stride * size, everybody),
        regather=place(regathered, cluster, stride, everybody),
        root_resharded=reshard_after_forward is not None,
        gradient_bytes=check_gradient_bytes(gradient_bytes),
        n_microbatches=check_n_ranks(n_microbatches, "n_microbatches"),
        reduce_each=reduce_each and zero_stage >= 2,
    )


def state_traffic(
    layer: float,
    n_layers: int,
    root: float,
    shards: Shards,
    cluster: Cluster,
    algorithm: str = "hierarchical",
    last: float = 0.0,
) -> list[Traffic]:
    """List what keeps parameters and gradients in step.

    Parameters
    ----------
    layer, root : float
        Parameters of one layer, and of all that lies outside the layers, that one GPU works
        with (after tensor parallelism).
    n_layers : int
        Layers of this GPU.
    last : float
        Parameters in the last bucket of gradients, stages 0 to 2: at least the embedding, whose
        gradient comes when nothing is left to compute.
    """
    check_algorithm(algorithm)
    traffic: list[Traffic] = []
    passes = shards.n_microbatches
    gradient_bytes = shards.gradient_bytes
    total = n_layers * layer + root
    # Gradients that are reduced once wait for the backward pass of the last micro-batch.
    reductions = passes if shards.reduce_each else 1
    reduced = "backward" if shards.reduce_each else "last backward"

    def add(
        what: str,
        collective: str,
        nbytes: float,
        group: Group,
        count: int,
        when: str,
        last_bytes: float = 0.0,
    ) -> None:
        if group.n_ranks == 1 or nbytes == 0:
            return
        estimate = all_reduce_seconds if collective == "all-reduce" else gather_seconds
        seconds = estimate(nbytes, group, cluster, algorithm)
        last_seconds = estimate(last_bytes, group, cluster, algorithm) if last_bytes else 0.0
        traffic.append(Traffic(what, collective, nbytes, group, count, seconds, when, last_seconds))

    whole, bucket = gradient_bytes * total, gradient_bytes * last
    if shards.zero_stage == 0:
        add("gradients", "all-reduce", whole, shards.everyone, 1, reduced, bucket)
        return traffic
    if shards.zero_stage == 3:
        one, outside = BF16_BYTES * layer, BF16_BYTES * root
        root_again = shards.regather if shards.root_resharded else Group(1)
        count = passes * n_layers
        add("layers", "all-gather", one, shards.shard, count, "forward")
        add("root", "all-gather", outside, shards.shard, passes, "forward")
        add("layers", "all-gather", one, shards.regather, count, "backward")
        add("root", "all-gather", outside, root_again, passes, "backward")
        one, outside = gradient_bytes * layer, gradient_bytes * root
        count = reductions * n_layers
        add("gradients of layers", "reduce-scatter", one, shards.shard, count, reduced)
        add("gradients of root", "reduce-scatter", outside, shards.shard, reductions, reduced)
        bucket = 0.0
    else:
        add("gradients", "reduce-scatter", whole, shards.shard, reductions, reduced, bucket)
    part, bucket = whole / shards.shard.n_ranks, bucket / shards.shard.n_ranks
    what = "gradient shards of copies"
    add(what, "all-reduce", part, shards.replicas, reductions, reduced, bucket)
    if shards.zero_stage < 3:
        add("updated parameters", "all-gather", BF16_BYTES * total, shards.shard, 1, "update")
    return traffic
