"""The machine that a budget is made for, and how long it computes."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass

from commlab.checks import check_alpha, check_beta, check_n_ranks
from commlab.hardware import ALPHA, H100, INFINIBAND, NVLINK
from commlab.models import training_flops

BF16_BYTES = 2
FP32_BYTES = 4
MFU = 0.40
"""Model FLOPs utilisation: here the part of the peak that the computation alone reaches."""


def check_positive(value: float, name: str) -> float:
    """Return ``value`` as a float, or say that it must be a number above zero."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} must be a number above zero; got {value!r}.")
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{name} must be a number above zero; got {value!r}.")
    return float(value)


def check_part(value: float, name: str) -> float:
    """Return ``value`` as a float, or say that it must be a part from 0 to 1."""
    whole = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not whole or not 0 <= value <= 1:
        raise ValueError(f"{name} is a part, from 0 to 1; got {value!r}. 40 percent is 0.40.")
    return float(value)


def check_gradient_bytes(gradient_bytes: int) -> int:
    """Return the bytes of one gradient, or say that they are 2 or 4."""
    if gradient_bytes not in (BF16_BYTES, FP32_BYTES):
        raise ValueError(f"gradient_bytes is {gradient_bytes!r}: choose 2 (BF16) or 4 (FP32).")
    return gradient_bytes


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
        Bytes/s in one direction, of a GPU inside its node and of one network interface.
    peak_flops : float
        Dense BF16 FLOP/s of one GPU.
    mfu : float
        Part of the peak that the computation alone reaches, above 0 and at most 1.
    rails : int, optional
        Network interfaces per node; one per GPU unless given.
    gpu_memory : float
        Bytes of memory of one GPU.

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
    rails: int | None = None
    gpu_memory: float = H100.memory_bytes

    def __post_init__(self) -> None:
        check_n_ranks(self.gpus_per_node, "gpus_per_node")
        check_alpha(self.alpha)
        check_beta(self.beta_intra, "beta_intra")
        check_beta(self.beta_inter, "beta_inter")
        check_positive(self.peak_flops, "peak_flops")
        check_positive(self.gpu_memory, "gpu_memory")
        if not check_positive(self.mfu, "mfu") <= 1:
            raise ValueError(
                f"mfu is a part of the peak, above 0 and at most 1; got {self.mfu!r}. "
                "40 percent is 0.40."
            )
        if self.rails is not None and check_n_ranks(self.rails, "rails") > self.gpus_per_node:
            raise ValueError(
                f"rails is {self.rails}, but a node has {self.gpus_per_node} GPUs: give at most "
                "one network interface per GPU."
            )

    @property
    def beta_out(self) -> float:
        """Bytes/s between nodes of one GPU while all GPUs of its node send."""
        rails = self.gpus_per_node if self.rails is None else self.rails
        return self.beta_inter * rails / self.gpus_per_node


H100_CLUSTER = Cluster(
    name="H100 nodes of 8, NVLink 4, one NDR InfiniBand port per GPU",
    gpus_per_node=8,
    alpha=ALPHA,
    beta_intra=NVLINK,
    beta_inter=INFINIBAND,
    peak_flops=H100.bf16_flops,
    mfu=MFU,
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
        check_positive(n_parameters, "n_parameters"), check_positive(tokens, "tokens")
    )
    return flops / (check_n_ranks(n_gpus, "n_gpus") * cluster.mfu * cluster.peak_flops)
