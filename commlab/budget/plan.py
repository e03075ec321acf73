"""What is run: how a model is cut over GPUs, and which rank sits where."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations

from commlab.budget.activations import ATTENTION, RECOMPUTE
from commlab.budget.cluster import Cluster
from commlab.budget.experts import ALL_TO_ALL
from commlab.budget.groups import Group, check_algorithm, place
from commlab.budget.pipeline_schedule import check_schedule
from commlab.budget.shards import Shards, check_shards, make_shards
from commlab.checks import check_n_ranks
from commlab.models import BF16_BYTES
from commlab.setting_checks import (
    check_choice,
    check_flag,
    check_gradient_bytes,
    check_kind,
    check_part,
)

AXES = ("tensor", "data", "pipeline")


@dataclass(frozen=True)
class Overlap:
    """How much of the computation communication may hide behind.

    Tensor- and expert-parallel collectives stand between computations and hide behind
    nothing. The rest of a pass's collectives, ``comm`` seconds in all, shows
    ``max(edge, comm − part · compute)`` seconds: what the computation cannot cover, and at
    least the edge, which has nothing to hide behind.

    Parameters
    ----------
    gradients : float
        Part of the backward pass that may hide gradients (stages 0 to 2; of the last
        micro-batch where they are reduced once). Edge: the embedding's gradient, which comes
        last of all. It is the least that a last bucket can hold: the best case of bucketing.
    prefetch : float
        Stage 3: part of each pass that may hide its gathers and reduce-scatters. Edges: the
        first gather of a pass and the last reduce-scatter have nothing to hide behind.
    update : float
        Stages 1 and 2: part of the next forward pass that may hide the gather of updated
        parameters.
    """

    gradients: float = 1.0
    prefetch: float = 1.0
    update: float = 0.0

    def __post_init__(self) -> None:
        check_part(self.gradients, "gradients")
        check_part(self.prefetch, "prefetch")
        check_part(self.update, "update")


@dataclass(frozen=True)
class Plan:
    """How a training step is spread over GPUs.

    Parameters
    ----------
    data, tensor, pipeline : int
        Sizes of the axes; their product is the number of GPUs.
    expert : int
        GPUs that experts are spread over: neighbours on the data axis, so a divisor of
        ``data``.
    sequence, micro_batch : int
        Tokens of a sequence, and sequences of a micro-batch on each data-parallel copy.
    n_microbatches : int
        Micro-batches of a step (gradient accumulation, or the pipeline's).
    zero_stage, shard_ranks, reshard_after_forward, reduce_each_microbatch, gradient_bytes
        On the data axis, as in :func:`commlab.budget.sharded_data_parallel`.
    sequence_parallel, recompute, attention
        As in :func:`commlab.budget.activation_memory`. Full recomputation runs the forward
        pass again, selective recomputation counts as free.
    schedule, n_chunks
        Of the pipeline, as in :func:`commlab.budget.pipeline_parallel`.
    order : tuple of str
        The axes from the innermost, whose neighbours are neighbouring GPUs, outwards.
    algorithm : {"hierarchical", "rails"}
        Of gradients and parameters over several nodes.
    all_to_all : {"direct", "pairwise"}
        Of the experts.
    overlap : Overlap

    Raises
    ------
    TypeError
        If ``overlap`` is no `Overlap`.
    ValueError
        If a size is out of range or does not divide another, if a choice is unknown, or if one
        is given that the ZeRO stage has no use for.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    sequence: int = 8192
    micro_batch: int = 1
    n_microbatches: int = 1
    zero_stage: int = 0
    shard_ranks: int | None = None
    reshard_after_forward: bool | int | None = None
    reduce_each_microbatch: bool = True
    gradient_bytes: int = BF16_BYTES
    sequence_parallel: bool = False
    recompute: str = "none"
    attention: str = "flash"
    schedule: str = "1f1b"
    n_chunks: int = 1
    order: tuple[str, ...] = AXES
    algorithm: str = "hierarchical"
    all_to_all: str = "direct"
    overlap: Overlap = field(default_factory=Overlap)

    def __post_init__(self) -> None:
        counts = ("data", "tensor", "pipeline", "expert", "sequence", "micro_batch")
        for name in (*counts, "n_microbatches"):
            check_n_ranks(getattr(self, name), name)
        listed = isinstance(self.order, (tuple, list))
        if not listed or tuple(self.order) not in permutations(AXES):
            raise ValueError(
                f"order is {self.order!r}: name tensor, data and pipeline once each, from the "
                "innermost axis outwards."
            )
        self._check_choices()
        if self.data % self.expert:
            raise ValueError(
                f"experts on {self.expert} GPUs do not divide the data axis of {self.data}: "
                "choose a divisor."
            )
        if self.expert > 1 and self.shard_ranks is not None:
            raise ValueError(
                "hybrid sharding of a model with spread experts is not covered: leave out "
                "shard_ranks, or set expert=1."
            )

    def _check_choices(self) -> None:
        check_shards(self.data, self.zero_stage, self.reshard_after_forward, self.shard_ranks)
        check_gradient_bytes(self.gradient_bytes)
        check_flag(self.reduce_each_microbatch, "reduce_each_microbatch")
        check_flag(self.sequence_parallel, "sequence_parallel")
        check_choice(self.recompute, RECOMPUTE, "recompute")
        check_choice(self.attention, ATTENTION, "attention")
        check_schedule(self.schedule, self.pipeline, self.n_microbatches, self.n_chunks)
        check_algorithm(self.algorithm)
        check_choice(self.all_to_all, ALL_TO_ALL, "all_to_all")
        check_kind(self.overlap, Overlap, "overlap", "commlab.budget.Overlap(gradients=0.5)")

    @property
    def n_gpus(self) -> int:
        """GPUs of the run."""
        return self.data * self.tensor * self.pipeline

    @property
    def tokens(self) -> int:
        """Tokens of a step, all data-parallel copies together."""
        return self.data * self.n_microbatches * self.micro_batch * self.sequence

    def stride(self, axis: str) -> int:
        """Return the distance in ranks of two neighbours on an axis."""
        distance = 1
        for inner in self.order[: self.order.index(axis)]:
            distance *= getattr(self, inner)
        return distance

    def group(self, axis: str, cluster: Cluster) -> Group:
        """Place the groups of an axis: "tensor", "data", "pipeline", or "expert"."""
        size, along = getattr(self, axis), "data" if axis == "expert" else axis
        return place(size, cluster, self.stride(along), self.n_gpus)

    def ranks(self, axis: str) -> list[list[int]]:
        """List the ranks of every group of an axis, in order."""
        size, along = getattr(self, axis), "data" if axis == "expert" else axis
        stride = self.stride(along)
        firsts = [rank for rank in range(self.n_gpus) if rank // stride % size == 0]
        return [[first + stride * member for member in range(size)] for first in firsts]

    def shards(self, cluster: Cluster, of_experts: bool = False) -> Shards:
        """Place the shards of the data axis; those of the experts among GPUs that share them."""
        copies = self.data // self.expert if of_experts else self.data
        return make_shards(
            copies,
            cluster,
            self.zero_stage,
            reshard_after_forward=self.reshard_after_forward,
            shard_ranks=self.shard_ranks,
            gradient_bytes=self.gradient_bytes,
            n_microbatches=self.n_microbatches,
            reduce_each_microbatch=self.reduce_each_microbatch,
            stride=self.stride("data") * (self.expert if of_experts else 1),
            n_gpus=self.n_gpus,
        )

    def __str__(self) -> str:
        sizes = [f"{axis} {getattr(self, axis)}" for axis in self.order]
        experts = f", experts over {self.expert}" if self.expert > 1 else ""
        return f"{' x '.join(sizes)}{experts}, ZeRO stage {self.zero_stage}"


def check_plan(plan: Plan) -> Plan:
    """Return the plan, or say that something else was passed."""
    check_kind(plan, Plan, "plan", "commlab.budget.Plan(data=8)")
    return plan
