"""Memory of one GPU in a training step: state, activations and gathered layers."""

from __future__ import annotations

from dataclasses import dataclass

from commlab.budget.activations import activation_memory
from commlab.budget.cluster import Cluster
from commlab.budget.memory import ParameterShare, TrainingState, training_state
from commlab.budget.plan import Plan
from commlab.budget.report import Report
from commlab.budget.shards import Shards, check_shards_object
from commlab.models import BF16_BYTES, TransformerShape
from commlab.units import format_bytes


@dataclass(frozen=True)
class StepMemory(Report):
    """Bytes on one GPU of the fullest pipeline stage."""

    stage: int
    parameters: float
    gradients: float
    optimizer: float
    activations: float
    gathered: float
    capacity: float
    assumptions: tuple[str, ...]

    @property
    def total(self) -> float:
        """All bytes."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.gathered

    @property
    def fits(self) -> bool:
        """Whether a GPU has that much memory."""
        return self.total <= self.capacity

    @property
    def why_not(self) -> str | None:
        """Why the step does not fit and what helps; None if it fits."""
        if self.fits:
            return None
        return (
            f"a GPU of stage {self.stage} needs {format_bytes(self.total)} but has "
            f"{format_bytes(self.capacity)}: shard more state (a higher ZeRO stage, more GPUs), "
            "cut the layers (tensor, pipeline), or keep fewer activations (recompute, a smaller "
            "micro-batch)."
        )

    @property
    def title(self) -> str:
        """One line that names the result."""
        return f"memory of one GPU, stage {self.stage}"

    @property
    def lines(self) -> dict[str, str]:
        """Each quantity by name."""
        parts = {
            "parameters": self.parameters,
            "gradients": self.gradients,
            "optimizer": self.optimizer,
            "activations": self.activations,
            "gathered layers": self.gathered,
            "total": self.total,
            "memory of the GPU": self.capacity,
        }
        return {name: format_bytes(nbytes) for name, nbytes in parts.items()}


def gathered_bytes(layer: float, n_layers: int, root: float, shards: Shards) -> float:
    """Count what ZeRO-3 holds whole while it computes, beyond its shards.

    Parameters
    ----------
    layer, root : float
        Parameters of one layer, and outside the layers, that one GPU works with.
    n_layers : int
        Layers of the GPU.
    shards : Shards
        Stages below 3 gather nothing.

    Returns
    -------
    float
        Bytes: the layer in use and the one gathered ahead; the root and its gradient, from
        its first use to the end of the backward pass; one layer's gradient before it is
        reduced; and what `reshard_after_forward` keeps between the passes.
    """
    if check_shards_object(shards).zero_stage < 3 or shards.shard.n_ranks == 1:
        return 0.0
    in_use = BF16_BYTES * (min(2, n_layers) * layer + root)
    gradients = shards.gradient_bytes * (layer + root) if shards.reduce_each else 0.0
    size = shards.regather.n_ranks
    if size == 1:
        return BF16_BYTES * (n_layers * layer + root) + gradients
    kept = 0.0 if size == shards.shard.n_ranks else BF16_BYTES * n_layers * layer / size
    return in_use + gradients + kept


def step_memory(
    shape: TransformerShape,
    plan: Plan,
    cluster: Cluster,
    shares: list[ParameterShare],
    in_flight: list[float],
) -> StepMemory:
    """Count the memory of every pipeline stage and return the fullest.

    Parameters
    ----------
    shares : list of ParameterShare
        Parameters of one GPU of each stage.
    in_flight : list of float
        Micro-batches whose activations each stage keeps at once.
    """
    stages = [
        _one_stage(shape, plan, cluster, stage, share, in_flight[stage])
        for stage, share in enumerate(shares)
    ]
    return max(stages, key=lambda memory: memory.total)


def _one_stage(
    shape: TransformerShape,
    plan: Plan,
    cluster: Cluster,
    stage: int,
    share: ParameterShare,
    in_flight: float,
) -> StepMemory:
    shards, expert_shards = plan.shards(cluster), plan.shards(cluster, of_experts=True)
    experts = share.layers * share.experts
    states = [
        _state(share.total - experts, shards),
        _state(experts, expert_shards),
    ]
    activations = activation_memory(
        shape,
        plan.sequence,
        plan.micro_batch,
        tensor_ranks=plan.tensor,
        sequence_parallel=plan.sequence_parallel,
        recompute=plan.recompute,
        attention=plan.attention,
        layers=share.layers,
        in_flight=in_flight,
        head_in_flight=_heads_in_flight(plan) if share.head else 0,
    )
    dense = share.layer - share.experts
    gathered = gathered_bytes(dense, share.layers, share.root, shards)
    gathered += gathered_bytes(share.experts, share.layers, 0.0, expert_shards)
    return StepMemory(
        stage=stage,
        parameters=sum(state.parameters for state in states),
        gradients=sum(state.gradients for state in states),
        optimizer=sum(state.optimizer for state in states),
        activations=activations.total,
        gathered=gathered,
        capacity=cluster.gpu_memory,
        assumptions=(
            *activations.assumptions,
            "one layer gathered ahead; no communication buffers, fragmentation or CUDA context",
        ),
    )


def _heads_in_flight(plan: Plan) -> int:
    """Micro-batches whose logits are kept: only GPipe runs all forward passes first."""
    return plan.n_microbatches if plan.pipeline > 1 and plan.schedule == "gpipe" else 1


def _state(n_parameters: float, shards: Shards) -> TrainingState:
    return training_state(
        n_parameters,
        shards.shard.n_ranks,
        shards.zero_stage,
        gradient_bytes=shards.gradient_bytes,
        whole_gradients=shards.zero_stage >= 2 and not shards.reduce_each,
    )
