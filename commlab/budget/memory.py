"""What one GPU keeps between steps, and what each kind of parallelism divides.

Trap: ZeRO divides parameters, gradients and optimizer state. It does not divide activations,
the layers that are gathered at the moment, or buffers.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass

from commlab.budget.report import Report, gpus
from commlab.budget.tensor import check_tensor_ranks, kv_heads_of_one_gpu
from commlab.checks import check_n_ranks, check_rank
from commlab.models import BF16_BYTES, FP32_BYTES, TransformerShape
from commlab.setting_checks import check_flag, check_gradient_bytes, check_positive
from commlab.units import format_bytes

STAGES = (0, 1, 2, 3)


@dataclass(frozen=True)
class TrainingState(Report):
    """Bytes that one GPU keeps between steps, by kind.

    Mixed-precision Adam: BF16 parameters and gradients, an FP32 copy of the parameters that
    the optimizer updates, and its two FP32 moments: 2 + 2 + 4 + 4 + 4 = 16 B per parameter.
    """

    parameters: float
    gradients: float
    master_copy: float
    first_moment: float
    second_moment: float
    gradient_format: str
    assumptions: tuple[str, ...]

    @property
    def optimizer(self) -> float:
        """Bytes of what only the optimizer reads: master copy and moments."""
        return self.master_copy + self.first_moment + self.second_moment

    @property
    def total(self) -> float:
        """All bytes."""
        return self.parameters + self.gradients + self.optimizer

    @property
    def title(self) -> str:
        """One line that names the result."""
        return "training state on one GPU"

    @property
    def lines(self) -> dict[str, str]:
        """Each quantity by name."""
        parts = {
            "parameters, BF16": self.parameters,
            f"gradients, {self.gradient_format}": self.gradients,
            "master copy, FP32": self.master_copy,
            "Adam first moment, FP32": self.first_moment,
            "Adam second moment, FP32": self.second_moment,
            "total": self.total,
        }
        return {name: format_bytes(nbytes) for name, nbytes in parts.items()}


def training_state(
    n_parameters: float,
    n_ranks: int = 1,
    zero_stage: int = 0,
    gradient_bytes: int = BF16_BYTES,
    whole_gradients: bool = False,
) -> TrainingState:
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
    gradient_bytes : {2, 4}
        Bytes of a stored gradient: 4 where gradients are accumulated in FP32.
    whole_gradients : bool
        True: gradients accumulate over micro-batches before they are reduced, so that each
        GPU keeps them whole even in stages 2 and 3.

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
    phi = check_positive(n_parameters, "n_parameters")
    n_ranks = check_n_ranks(n_ranks)
    check_stage(zero_stage)

    def shard(nbytes: float, from_stage: int) -> float:
        return nbytes / n_ranks if zero_stage >= from_stage else nbytes

    whole_gradients = check_flag(whole_gradients, "whole_gradients")
    gradients = check_gradient_bytes(gradient_bytes) * phi
    per_parameter = BF16_BYTES + gradient_bytes + 3 * FP32_BYTES
    return TrainingState(
        parameters=shard(BF16_BYTES * phi, 3),
        gradients=gradients if whole_gradients else shard(gradients, 2),
        master_copy=shard(FP32_BYTES * phi, 1),
        first_moment=shard(FP32_BYTES * phi, 1),
        second_moment=shard(FP32_BYTES * phi, 1),
        gradient_format="BF16" if gradient_bytes == BF16_BYTES else "FP32",
        assumptions=(
            f"mixed-precision Adam, {per_parameter} B per parameter",
            f"ZeRO stage {zero_stage} over {gpus(n_ranks)}",
            "state only: activations, buffers and gathered layers come on top, and "
            "N does not divide them",
        ),
    )


def check_stage(zero_stage: int) -> int:
    """Return the ZeRO stage, or say which there are."""
    whole = isinstance(zero_stage, numbers.Integral) and not isinstance(zero_stage, bool)
    if not whole or zero_stage not in STAGES:
        raise ValueError(
            f"zero_stage is {zero_stage!r}: choose 0 (nothing sharded), 1 (optimizer), "
            "2 (and gradients) or 3 (and parameters: FSDP)."
        )
    return int(zero_stage)


@dataclass(frozen=True)
class ParameterShare(Report):
    """Parameters that one GPU works with under tensor, pipeline and expert parallelism.

    Attributes
    ----------
    layers : int
        Layers of the GPU's stage.
    attention, norms, router, experts : float
        Parameters per layer: cut attention matrices, whole norms, whole router, and the cut
        matrices of the GPU's experts (of the one MLP in a dense model).
    embedding, head : float
        The GPU's rows of the embedding (first stage) and of the head with the whole last
        norm (last stage); 0 on other stages.
    """

    layers: int
    attention: float
    norms: float
    router: float
    experts: float
    embedding: float
    head: float
    assumptions: tuple[str, ...]

    @property
    def layer(self) -> float:
        """Parameters of one layer."""
        return self.attention + self.norms + self.router + self.experts

    @property
    def root(self) -> float:
        """Parameters outside the layers."""
        return self.embedding + self.head

    @property
    def total(self) -> float:
        """All parameters."""
        return self.layers * self.layer + self.root

    @property
    def title(self) -> str:
        """One line that names the result."""
        return "parameters on one GPU"

    @property
    def lines(self) -> dict[str, str]:
        """Each quantity by name."""
        parts = {
            "attention, per layer": self.attention,
            "norms, per layer": self.norms,
            "router, per layer": self.router,
            "MLP or experts, per layer": self.experts,
            "embedding": self.embedding,
            "head and last norm": self.head,
            "total": self.total,
        }
        counts = {name: f"{count:,.0f}" for name, count in parts.items()}
        return {"layers": str(self.layers), **counts}


def parameter_share(
    shape: TransformerShape,
    tensor: int = 1,
    n_stages: int = 1,
    expert: int = 1,
    stage: int = 0,
) -> ParameterShare:
    """Count the parameters that one GPU works with.

    Parameters
    ----------
    shape : TransformerShape
        The model.
    tensor : int
        GPUs that each matrix is cut over. Norms and router stay whole on each of them; K/V
        heads are copied where there are fewer of them than GPUs.
    n_stages : int
        Pipeline stages, with equally many layers each.
    expert : int
        GPUs that the experts of a layer are spread over.
    stage : int
        Stage of the GPU; the embedding lies on the first, the head on the last.

    Returns
    -------
    ParameterShare

    Raises
    ------
    TypeError
        If the shape is none.
    ValueError
        If heads, K/V heads, MLP, vocabulary, layers or experts cannot be divided evenly.
    """
    tensor = check_tensor_ranks(shape, tensor)
    n_stages, expert = check_n_ranks(n_stages, "n_stages"), check_n_ranks(expert, "expert")
    stage = check_rank(stage, n_stages, "stage")
    divided = (
        (shape.ffn, tensor, "inner columns of the MLP"),
        (shape.vocab, tensor, "rows of the vocabulary"),
        (shape.layers, n_stages, "layers"),
        (shape.n_experts, expert, "experts per layer"),
    )
    for count, parts, what in divided:
        if count % parts:
            raise ValueError(
                f"{shape.name} has {count} {what}, which cannot be divided evenly by {parts}: "
                "choose a divisor."
            )
    heads = shape.heads // tensor + kv_heads_of_one_gpu(shape, tensor)
    columns = 2 * heads * shape.head_dim
    vocabulary = shape.vocab // tensor * shape.hidden
    return ParameterShare(
        layers=shape.layers // n_stages,
        attention=shape.hidden * columns,
        norms=2 * shape.hidden,
        router=shape.router_parameters,
        experts=shape.n_experts // expert * shape.mlp_parameters / tensor,
        embedding=vocabulary if stage == 0 else 0,
        head=vocabulary + shape.hidden if stage == n_stages - 1 else 0,
        assumptions=(
            f"{shape.name}, stage {stage} of {n_stages}, tensor {tensor}, expert {expert}",
            "norms and router whole on every GPU; embedding and head not tied",
        ),
    )
