"""Activations that the forward pass keeps for the backward pass, tensor by tensor.

Every byte count is the sum of a list of stored tensors, so that a reader can check it. Two
lists exist: the GPT layer of the paper whose closed form this reproduces, and the Llama layer
of this book, counted as plain PyTorch stores it.

Source: Korthikanti et al. (2022), "Reducing Activation Recomputation in Large Transformer
Models", sections 4 and 5: s·b·h·(34 + 5·a·s/h) bytes for a GPT layer with s tokens in a
sequence, b sequences, width h and a heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from commlab.budget.report import Report
from commlab.budget.tensor import check_shape, check_tensor_ranks, kv_heads_of_one_gpu
from commlab.checks import check_n_ranks
from commlab.models import BF16_BYTES, FP32_BYTES, TransformerShape
from commlab.setting_checks import (
    check_choice,
    check_flag,
    check_positive,
    check_whole_from_zero,
)
from commlab.tables import Table, table
from commlab.units import format_bytes

RECOMPUTE = ("none", "selective", "full")
ATTENTION = ("flash", "scores")


@dataclass(frozen=True)
class StoredTensor:
    """A tensor that the forward pass of one layer keeps for the backward pass.

    Parameters
    ----------
    name : str
    nbytes : float
        Bytes on one GPU without tensor parallelism.
    cut_by : {"tensor", "sequence"}
        "tensor": tensor parallelism divides it. "sequence": only sequence parallelism does.
    recomputed_from : {"selective", "full", ""}
        The mildest recomputation that does not keep it; empty for the layer's input.
    most_parts : int, optional
        Parts that it can be cut into, where there are fewer than GPUs may ask for: K and V
        have one per K/V head, and further GPUs hold copies.
    """

    name: str
    nbytes: float
    cut_by: str
    recomputed_from: str = "full"
    most_parts: int | None = None

    def kept(self, recompute: str) -> bool:
        """Whether the tensor is kept under this recomputation."""
        if self.recomputed_from == "":
            return True
        return RECOMPUTE.index(recompute) < RECOMPUTE.index(self.recomputed_from)

    def on_one_gpu(self, tensor_ranks: int, sequence_parallel: bool) -> float:
        """Bytes on one GPU of a tensor-parallel group."""
        if self.cut_by != "tensor" and not sequence_parallel:
            return self.nbytes
        parts = tensor_ranks if self.most_parts is None else min(tensor_ranks, self.most_parts)
        return self.nbytes / parts

    @property
    def cut(self) -> str:
        """What cuts it, and into how many parts at most."""
        return self.cut_by if self.most_parts is None else f"{self.cut_by}, ≤ {self.most_parts}"


def gpt_layer_tensors(
    hidden: int, heads: int, sequence: int, micro_batch: int = 1
) -> tuple[StoredTensor, ...]:
    """List what a GPT layer of the paper stores: dropout, GeLU, 4·h wide MLP, whole scores.

    Parameters
    ----------
    hidden, heads : int
        Width h and number of heads a.
    sequence, micro_batch : int
        Tokens of a sequence s, and sequences b.

    Returns
    -------
    tuple of StoredTensor
        Their sum is ``s b h (34 + 5 a s / h)``; masks take one byte.
    """
    rows = check_n_ranks(sequence, "sequence") * check_n_ranks(micro_batch, "micro_batch")
    wide = rows * check_n_ranks(hidden, "hidden")
    scores = rows * sequence * check_n_ranks(heads, "heads")
    return (
        StoredTensor("input of the first norm", 2 * wide, "sequence", ""),
        StoredTensor("input of Q, K and V", 2 * wide, "sequence"),
        StoredTensor("Q and K", 4 * wide, "tensor"),
        StoredTensor("softmax output", 2 * scores, "tensor", "selective"),
        StoredTensor("mask of the softmax dropout", scores, "tensor", "selective"),
        StoredTensor("output of the softmax dropout", 2 * scores, "tensor", "selective"),
        StoredTensor("V", 2 * wide, "tensor"),
        StoredTensor("input of the output matrix", 2 * wide, "tensor"),
        StoredTensor("mask of the attention dropout", wide, "sequence"),
        StoredTensor("input of the second norm", 2 * wide, "sequence"),
        StoredTensor("input of the first MLP matrix", 2 * wide, "sequence"),
        StoredTensor("input of GeLU", 8 * wide, "tensor"),
        StoredTensor("input of the second MLP matrix", 8 * wide, "tensor"),
        StoredTensor("mask of the MLP dropout", wide, "sequence"),
    )


def llama_layer_tensors(
    shape: TransformerShape, sequence: int, micro_batch: int = 1, attention: str = "flash"
) -> tuple[StoredTensor, ...]:
    """List what a Llama layer stores: RMSNorm, grouped K/V, SwiGLU, no dropout, BF16.

    Parameters
    ----------
    shape : TransformerShape
        The model; the experts of a mixture store their part of the tokens.
    sequence, micro_batch : int
        Tokens of a sequence s, and sequences b.
    attention : {"flash", "scores"}
        Flash attention keeps one FP32 number per head and token instead of the scores.

    Returns
    -------
    tuple of StoredTensor

    Notes
    -----
    The cosines and sines of the rotary embedding are shared by all layers and left out. A
    fused SwiGLU kernel would not store SiLU(gate). Experts are taken as equally loaded.
    """
    check_choice(attention, ATTENTION, "attention")
    check_shape(shape)
    tokens = check_n_ranks(sequence, "sequence") * check_n_ranks(micro_batch, "micro_batch")
    wide = BF16_BYTES * tokens * shape.hidden
    query = BF16_BYTES * tokens * shape.heads * shape.head_dim
    key = BF16_BYTES * tokens * shape.kv_heads * shape.head_dim
    routed = tokens * shape.experts_per_token
    inner = BF16_BYTES * routed * shape.ffn
    if attention == "flash":
        core = ("log-sum-exp of the scores, FP32", FP32_BYTES * tokens * shape.heads, "full")
    else:
        core = ("softmax output", BF16_BYTES * tokens * sequence * shape.heads, "selective")
    tensors = [
        StoredTensor("input of the first norm", wide, "sequence", ""),
        StoredTensor("1 / RMS of both norms, FP32", 2 * FP32_BYTES * tokens, "sequence"),
        StoredTensor("input of Q, K and V", wide, "sequence"),
        StoredTensor("Q", query, "tensor"),
        StoredTensor("K", key, "tensor", most_parts=shape.kv_heads),
        StoredTensor("V", key, "tensor", most_parts=shape.kv_heads),
        StoredTensor(core[0], core[1], "tensor", core[2]),
        StoredTensor("input of the output matrix", query, "tensor"),
        StoredTensor("input of the second norm", wide, "sequence"),
        StoredTensor("input of gate and up", wide, "sequence"),
        StoredTensor("gate", inner, "tensor"),
        StoredTensor("SiLU(gate)", inner, "tensor"),
        StoredTensor("up", inner, "tensor"),
        StoredTensor("input of down", inner, "tensor"),
    ]
    if shape.n_experts > 1:
        copies = BF16_BYTES * routed * shape.hidden
        scores = FP32_BYTES * tokens * shape.n_experts
        tensors += [
            StoredTensor("router probabilities, FP32", scores, "sequence"),
            StoredTensor("tokens sent to experts", copies, "sequence"),
            StoredTensor("outputs of experts", copies, "sequence"),
        ]
    return tuple(tensors)


def head_tensors(
    shape: TransformerShape, sequence: int, micro_batch: int = 1
) -> tuple[StoredTensor, ...]:
    """List what the last norm, the head and the loss store: logits in FP32."""
    check_shape(shape)
    tokens = check_n_ranks(sequence, "sequence") * check_n_ranks(micro_batch, "micro_batch")
    wide = BF16_BYTES * tokens * shape.hidden
    logits = FP32_BYTES * tokens * shape.vocab
    return (
        StoredTensor("input of the last norm", wide, "sequence"),
        StoredTensor("input of the head", wide, "sequence"),
        StoredTensor("log-softmax of the logits, FP32", logits, "tensor"),
    )


def kept_bytes(
    tensors: Sequence[StoredTensor],
    tensor_ranks: int = 1,
    sequence_parallel: bool = False,
    recompute: str = "none",
) -> float:
    """Sum what one GPU keeps of a list of tensors.

    Parameters
    ----------
    tensors : sequence of StoredTensor
    tensor_ranks : int
        GPUs of the tensor-parallel group.
    sequence_parallel : bool
        Whether the tensors between the cut matrices are cut too.
    recompute : {"none", "selective", "full"}
        "selective" recomputes the scores, "full" keeps the layer's input only.

    Returns
    -------
    float
        Bytes.

    Raises
    ------
    ValueError
        If the recomputation is unknown.
    """
    check_choice(recompute, RECOMPUTE, "recompute")
    check_flag(sequence_parallel, "sequence_parallel")
    ranks = check_n_ranks(tensor_ranks, "tensor_ranks")
    kept = [tensor for tensor in tensors if tensor.kept(recompute)]
    return sum(tensor.on_one_gpu(ranks, sequence_parallel) for tensor in kept)


@dataclass(frozen=True)
class Activations(Report):
    """Activations on one GPU, in bytes.

    Attributes
    ----------
    layer : float
        Kept by one layer for one micro-batch.
    layers : int
        Layers of the GPU.
    in_flight : float
        Micro-batches whose activations are kept at once.
    head : float
        Kept by head and loss, for all micro-batches; 0 where the head is elsewhere.
    working : float
        What recomputation rebuilds of one layer while its backward pass runs.
    tensors : tuple of StoredTensor
        The list of one layer, before any division.
    """

    layer: float
    layers: int
    in_flight: float
    head: float
    working: float
    tensors: tuple[StoredTensor, ...]
    assumptions: tuple[str, ...]

    @property
    def total(self) -> float:
        """All bytes."""
        return self.layers * self.in_flight * self.layer + self.head + self.working

    @property
    def title(self) -> str:
        """One line that names the result."""
        return "activations on one GPU"

    @property
    def lines(self) -> dict[str, str]:
        """Each quantity by name."""
        return {
            "per layer and micro-batch": format_bytes(self.layer),
            "layers": str(self.layers),
            "micro-batches in flight": f"{self.in_flight:g}",
            "head and loss": format_bytes(self.head),
            "one layer while recomputed": format_bytes(self.working),
            "total": format_bytes(self.total),
        }

    def tensor_table(self) -> Table:
        """Return the stored tensors of one layer, undivided."""
        headers = ("stored tensor · 保存的张量", "bytes · 字节", "cut by · 切分方式")
        rows = [(item.name, format_bytes(item.nbytes), item.cut) for item in self.tensors]
        return table(headers, rows, align="lrl")


def activation_memory(
    shape: TransformerShape,
    sequence: int,
    micro_batch: int = 1,
    *,
    tensor_ranks: int = 1,
    sequence_parallel: bool = False,
    recompute: str = "none",
    attention: str = "flash",
    layers: int | None = None,
    in_flight: float = 1,
    head_in_flight: int = 1,
) -> Activations:
    """Count the activations that one GPU keeps from forward to backward.

    Parameters
    ----------
    shape : TransformerShape
        The model.
    sequence, micro_batch : int
        Tokens of a sequence, and sequences that one GPU (or tensor-parallel group) runs
        through the model at once.
    tensor_ranks, sequence_parallel, recompute
        As in :func:`kept_bytes`.
    attention : {"flash", "scores"}
        As in :func:`llama_layer_tensors`.
    layers : int, optional
        Layers of the GPU; all unless given.
    in_flight : float
        Micro-batches whose activations are kept at once: 1 without a pipeline.
    head_in_flight : int
        Micro-batches whose logits are kept at once: 0 where the head is elsewhere, and all
        of them on GPipe's last stage.

    Returns
    -------
    Activations
        What is stored. The peak is higher: gradients of activations come on top.

    Raises
    ------
    TypeError
        If the shape is none.
    ValueError
        If a count is out of range, a choice is unknown, or heads or K/V heads cannot be
        divided evenly.
    """
    tensor_ranks = check_tensor_ranks(shape, tensor_ranks)
    kv_heads_of_one_gpu(shape, tensor_ranks)
    heads = check_whole_from_zero(head_in_flight, "head_in_flight")
    tensors = llama_layer_tensors(shape, sequence, micro_batch, attention)
    everything = kept_bytes(tensors, tensor_ranks, sequence_parallel)
    kept = kept_bytes(tensors, tensor_ranks, sequence_parallel, recompute)
    head = kept_bytes(head_tensors(shape, sequence, micro_batch), tensor_ranks, sequence_parallel)
    return Activations(
        layer=kept,
        layers=shape.layers if layers is None else check_n_ranks(layers, "layers"),
        in_flight=check_positive(in_flight, "in_flight"),
        head=heads * head,
        working=everything - kept,
        tensors=tensors,
        assumptions=(
            f"{shape.name}, {micro_batch} x {sequence} tokens, BF16, {attention} attention",
            f"recomputation: {recompute}; tensor parallelism over {tensor_ranks}"
            + (" with sequence parallelism" if sequence_parallel else ""),
            "stored tensors only: no gradients of activations, no workspace",
        ),
    )
