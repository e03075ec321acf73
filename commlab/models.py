"""Transformer shapes; parameter counts and training FLOPs are computed from them.

The shapes are those of the published Llama-3, Llama-3.1 and Mixtral configurations. A model's
name is a rounded number ("8B"), so nothing here is stored that can be counted: the tests
compare the counts with the parameter totals that the model repositories publish
(8 030 261 248, 70 553 706 496, 405 853 388 800 and 46 702 792 704).
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, fields

BF16_BYTES = 2
FP32_BYTES = 4


@dataclass(frozen=True)
class TransformerShape:
    """A decoder-only Transformer of the Llama kind.

    Grouped-query attention, a gated MLP of three matrices, RMSNorm before both, no biases,
    and an output head that is not tied to the embedding.

    Parameters
    ----------
    name : str
        Printed on pages.
    layers : int
        Number of blocks L.
    hidden : int
        Width of the residual stream.
    heads, kv_heads : int
        Query heads and key/value heads; ``heads`` is a multiple of ``kv_heads``.
    head_dim : int
        Width of one head.
    ffn : int
        Inner width of the MLP.
    vocab : int
        Number of token identities.
    n_experts : int
        MLPs of each layer; above 1 a router sends each token to some of them (mixture of
        experts, no shared expert).
    experts_per_token : int
        Experts that act on one token (top-k).

    Raises
    ------
    ValueError
        If a dimension is not a whole number above zero, if ``kv_heads`` does not divide
        ``heads``, or if a token needs more experts than there are.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    n_experts: int = 1
    experts_per_token: int = 1

    def __post_init__(self) -> None:
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
            if not whole or value < 1:
                raise ValueError(
                    f"{self.name}: {field.name} is {value!r}, but a shape needs whole numbers "
                    "of at least 1."
                )
            # Python's own int: products of NumPy's could overflow.
            object.__setattr__(self, field.name, int(value))
        if self.heads % self.kv_heads:
            raise ValueError(
                f"{self.name}: {self.heads} query heads cannot share {self.kv_heads} key/value "
                "heads evenly; choose a kv_heads that divides heads."
            )
        if self.experts_per_token > self.n_experts:
            raise ValueError(
                f"{self.name}: {self.experts_per_token} experts per token, but there are "
                f"{self.n_experts}; choose a smaller experts_per_token."
            )

    @property
    def attention_parameters(self) -> int:
        """Parameters of one layer's query, key, value and output matrices."""
        query_and_output = 2 * self.hidden * self.heads * self.head_dim
        key_and_value = 2 * self.hidden * self.kv_heads * self.head_dim
        return query_and_output + key_and_value

    @property
    def mlp_parameters(self) -> int:
        """Parameters of one expert's gate, up and down matrices (a dense layer has one MLP)."""
        return 3 * self.hidden * self.ffn

    @property
    def router_parameters(self) -> int:
        """Parameters of one layer's router: one score per expert; a dense layer has none."""
        return self.hidden * self.n_experts if self.n_experts > 1 else 0

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer, its two norms, its router and all its experts included."""
        experts = self.n_experts * self.mlp_parameters
        return self.attention_parameters + experts + self.router_parameters + 2 * self.hidden

    @property
    def root_parameters(self) -> int:
        """Parameters outside the layers: embedding, last norm and output head."""
        return 2 * self.vocab * self.hidden + self.hidden

    @property
    def parameters(self) -> int:
        """All parameters Φ: embedding, L layers, the last norm and the output head."""
        return self.layers * self.layer_parameters + self.root_parameters

    @property
    def active_parameters(self) -> int:
        """Parameters that act on one token; all of them in a dense model."""
        idle = self.n_experts - self.experts_per_token
        return self.parameters - self.layers * idle * self.mlp_parameters

    def training_flops(self, tokens: float, sequence: float = 0.0) -> float:
        """FLOPs to train on ``tokens`` tokens: see :func:`training_flops`.

        Parameters
        ----------
        tokens : float
            Tokens D.
        sequence : float
            Tokens of one sequence, to add the attention scores; 0 leaves them out, as 6ΦD
            does.

        Returns
        -------
        float
            6ΦD with the active parameters, and 12·L·heads·head_dim·sequence FLOPs per token
            for the scores, counted without the half that a causal mask would save.

        Notes
        -----
        Source of the second term: Chowdhery et al. (2022), "PaLM", appendix B.
        """
        if not math.isfinite(sequence) or sequence < 0:
            raise ValueError(f"sequence is {sequence!r}: give a length of at least 0 tokens.")
        scores_per_token = 12 * self.layers * self.heads * self.head_dim * sequence
        return training_flops(self.active_parameters, tokens) + scores_per_token * tokens


def training_flops(n_parameters: float, tokens: float) -> float:
    """Estimate the FLOPs of training as 6ΦD.

    Two FLOPs (multiply and add) per parameter and token in the forward pass, twice that in
    the backward pass.

    Parameters
    ----------
    n_parameters : float
        Parameters Φ.
    tokens : float
        Tokens D.

    Returns
    -------
    float
        FLOPs.

    Raises
    ------
    ValueError
        If a count is negative, infinite or not a number.

    Notes
    -----
    Leaves out the attention scores, whose cost grows with the sequence length, and counts
    the embedding table as if it were a matrix multiplication.

    Source: Kaplan et al. (2020), "Scaling Laws for Neural Language Models", section 2.1.
    """
    for name, value in (("n_parameters", n_parameters), ("tokens", tokens)):
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"{name} is {value!r}: give a count of at least 0.")
    return 6.0 * n_parameters * tokens


LLAMA3_8B = TransformerShape("Llama-3 8B", 32, 4096, 32, 8, 128, 14336, 128256)
LLAMA3_70B = TransformerShape("Llama-3 70B", 80, 8192, 64, 8, 128, 28672, 128256)
LLAMA3_405B = TransformerShape("Llama-3.1 405B", 126, 16384, 128, 8, 128, 53248, 128256)
MIXTRAL_8X7B = TransformerShape("Mixtral 8x7B", 32, 4096, 32, 8, 128, 14336, 32000, 8, 2)

MODELS = (LLAMA3_8B, LLAMA3_70B, LLAMA3_405B)
