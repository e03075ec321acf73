"""A backward pass as data: which gradient is ready when, if nothing disturbs it."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from commlab.checks import check_n_ranks
from commlab.models import BF16_BYTES, TransformerShape
from commlab.setting_checks import (
    check_gradient_bytes,
    check_kind,
    check_mfu,
    check_positive,
)

# Forward: a multiplication and an addition per parameter and token. Backward: that twice, for
# the gradient of the input and for that of the parameters.
FORWARD_FLOPS = 2
BACKWARD_FLOPS = 4


@dataclass(frozen=True)
class Gradient:
    """The gradient of one parameter tensor.

    Parameters
    ----------
    name, layer : str
        The tensor, and the layer that it is drawn with.
    nbytes : int
        Bytes that are sent.
    ready : float
        Seconds after the start of the backward pass, all compute before it included.

    Raises
    ------
    ValueError
        If the bytes are no whole number from 1 up, or the time is not finite and 0 or more.
    """

    name: str
    layer: str
    nbytes: int
    ready: float

    def __post_init__(self) -> None:
        check_n_ranks(self.nbytes, f"nbytes of gradient {self.name!r}")
        number = isinstance(self.ready, numbers.Real) and not isinstance(self.ready, bool)
        if not number or not 0 <= self.ready < math.inf:
            raise ValueError(
                f"ready of gradient {self.name!r} must be seconds, 0 or more; got {self.ready!r}."
            )


@dataclass(frozen=True)
class BackwardPass:
    """The gradients of a model in the order in which they become ready.

    Parameters
    ----------
    name : str
        Printed with results.
    gradients : tuple of Gradient
        In order of readiness; those of one layer follow each other.
    forward_seconds : float
        The forward pass before it.
    assumptions : tuple of str

    Raises
    ------
    ValueError
        If there are no gradients, or if they are not in order.
    """

    name: str
    gradients: tuple[Gradient, ...]
    forward_seconds: float
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for gradient in self.gradients:
            example = "commlab.overlap.Gradient('head', 'head', 4096, 0.1)"
            check_kind(gradient, Gradient, "each of gradients", example)
        if not self.gradients:
            raise ValueError(f"{self.name}: a backward pass needs at least one gradient.")
        if np.any(np.diff(self.ready, prepend=0.0) < 0):
            raise ValueError(
                f"{self.name}: list gradients in the order in which they become ready, "
                "with times of 0 or more."
            )

    @cached_property
    def ready(self) -> np.ndarray:
        """Seconds at which each gradient is there, shape (n_gradients,)."""
        return np.array([gradient.ready for gradient in self.gradients])

    @cached_property
    def sizes(self) -> list[int]:
        """Bytes of each gradient."""
        return [gradient.nbytes for gradient in self.gradients]

    @property
    def nbytes(self) -> int:
        """S, the bytes of all gradients."""
        return sum(self.sizes)

    @property
    def seconds(self) -> float:
        """Duration of the backward pass, if nothing disturbs it."""
        return self.gradients[-1].ready


def uniform_backward(
    nbytes: int, seconds: float, n_gradients: int = 256, n_layers: int = 32
) -> BackwardPass:
    """A backward pass that yields gradients of one size at a steady rate.

    Parameters
    ----------
    nbytes : int
        S, the bytes of all gradients.
    seconds : float
        Duration of the backward pass; the forward pass takes half of it.
    n_gradients : int
        Gradients, their sizes equal to one byte.
    n_layers : int
        Layers that they are spread over; no more than gradients.

    Returns
    -------
    BackwardPass

    Raises
    ------
    ValueError
        If there are fewer bytes than gradients or fewer gradients than layers, or if a number
        is out of range.
    """
    n_gradients, n_layers = (
        check_n_ranks(n_gradients, "n_gradients"),
        check_n_ranks(n_layers, "n_layers"),
    )
    total = check_n_ranks(nbytes, "nbytes")
    seconds = check_positive(seconds, "seconds")
    if not n_layers <= n_gradients <= total:
        raise ValueError(
            f"{total} bytes, {n_gradients} gradients, {n_layers} layers: every layer needs a "
            "gradient, and every gradient a byte."
        )
    ends = [total * (i + 1) // n_gradients for i in range(n_gradients)]
    gradients = tuple(
        Gradient(
            name=f"gradient {i}",
            # The last layer comes first.
            layer=f"layer {n_layers - 1 - i * n_layers // n_gradients}",
            nbytes=ends[i] - (ends[i - 1] if i else 0),
            ready=seconds * (i + 1) / n_gradients,
        )
        for i in range(n_gradients)
    )
    return BackwardPass(
        name=f"{n_gradients} equal gradients",
        gradients=gradients,
        forward_seconds=seconds / 2,
        assumptions=("gradients appear at a steady rate",),
    )


def transformer_backward(
    shape: TransformerShape,
    tokens: float,
    *,
    peak_flops: float,
    mfu: float,
    gradient_bytes: int = BF16_BYTES,
) -> BackwardPass:
    """The backward pass of a Transformer, one gradient after the other.

    Output head first, then the layers from the last to the first, the embedding at the end.

    Parameters
    ----------
    shape : TransformerShape
        The whole model on each GPU: data parallelism.
    tokens : float
        Tokens per GPU and step, above zero.
    peak_flops : float
        Dense peak of the GPU in FLOP/s.
    mfu : float
        Part of the peak that the computation alone reaches, above 0 and at most 1.
    gradient_bytes : int
        Bytes per gradient on the wire: 2 for BF16, 4 for FP32.

    Returns
    -------
    BackwardPass

    Raises
    ------
    TypeError
        If the shape is none.
    ValueError
        If a number is out of range.

    Notes
    -----
    ``4 · parameters · tokens`` FLOPs backward and half of it forward, see
    :func:`commlab.models.training_flops`; the embedding is a look-up and counts none, so the
    whole is ``6 (Φ - vocab · hidden) D / (mfu · peak)``.
    """
    check_kind(shape, TransformerShape, "shape", "commlab.models.LLAMA3_8B")
    tokens = check_positive(tokens, "tokens")
    rate = check_positive(peak_flops, "peak_flops") * check_mfu(mfu)
    gradient_bytes = check_gradient_bytes(gradient_bytes)

    gradients, computed = [], 0
    for layer, name, parameters in _tensors(shape):
        if layer != "embedding":
            computed += parameters
        ready = BACKWARD_FLOPS * computed * tokens / rate
        gradients.append(Gradient(name, layer, parameters * gradient_bytes, ready))
    return BackwardPass(
        name=f"{shape.name}, {tokens:g} tokens per GPU",
        gradients=tuple(gradients),
        forward_seconds=FORWARD_FLOPS * computed * tokens / rate,
        assumptions=(
            f"{rate / 1e12:.0f} TFLOP/s per GPU (MFU {mfu:.0%}), no recomputation",
            "time of a tensor in proportion to its parameters; attention scores left out",
            f"gradients of {gradient_bytes} B per parameter, all dense",
        ),
    )


def _tensors(shape: TransformerShape) -> list[tuple[str, str, int]]:
    """Layer, tensor and number of parameters, in the order of the backward pass."""
    kv_width = shape.kv_heads * shape.head_dim
    query_width = shape.heads * shape.head_dim
    block = (
        ("down", shape.ffn * shape.hidden),
        ("up", shape.hidden * shape.ffn),
        ("gate", shape.hidden * shape.ffn),
        ("mlp norm", shape.hidden),
        ("output", query_width * shape.hidden),
        ("value", shape.hidden * kv_width),
        ("key", shape.hidden * kv_width),
        ("query", shape.hidden * query_width),
        ("attention norm", shape.hidden),
    )
    head = [
        ("head", "head", shape.vocab * shape.hidden),
        ("head", "last norm", shape.hidden),
    ]
    layers = [
        (f"layer {layer}", name, parameters)
        for layer in reversed(range(shape.layers))
        for name, parameters in block
    ]
    return [*head, *layers, ("embedding", "embedding", shape.vocab * shape.hidden)]


def check_backward(backward: BackwardPass) -> BackwardPass:
    """Return the backward pass, or say that something else was passed."""
    example = "commlab.overlap.uniform_backward(2**30, 0.1)"
    check_kind(backward, BackwardPass, "backward", example)
    return backward
