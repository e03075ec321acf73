"""The machine that a budget is made for, and how long it computes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from commlab.checks import check_alpha, check_beta, check_n_ranks, only_one
from commlab.hardware import ALPHA, H100, INFINIBAND, NVLINK
from commlab.models import training_flops
from commlab.setting_checks import check_kind, check_mfu, check_positive

MFU = 0.40
"""Model FLOPs utilisation: here the part of the peak that the computation alone reaches."""


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
        only_one(check_alpha(self.alpha), "alpha")
        only_one(check_beta(self.beta_intra, "beta_intra"), "beta_intra")
        only_one(check_beta(self.beta_inter, "beta_inter"), "beta_inter")
        check_positive(self.peak_flops, "peak_flops")
        check_positive(self.gpu_memory, "gpu_memory")
        check_mfu(self.mfu)
        if self.rails is not None and check_n_ranks(self.rails, "rails") > self.gpus_per_node:
            raise ValueError(
                f"rails is {self.rails}, but a node has {self.gpus_per_node} GPUs: give at most "
                "one network interface per GPU."
            )

    @property
    def n_rails(self) -> int:
        """Network interfaces of a node."""
        return self.gpus_per_node if self.rails is None else self.rails

    @property
    def beta_out(self) -> float:
        """Bytes/s between nodes of one GPU while all GPUs of its node send.

        Where the interfaces do not divide the GPUs, some are shared by one GPU more than
        others. Those set the pace.
        """
        return self.beta_inter / math.ceil(self.gpus_per_node / self.n_rails)


H100_CLUSTER = Cluster(
    name="H100 nodes of 8, NVLink 4, one NDR InfiniBand port per GPU",
    gpus_per_node=8,
    alpha=ALPHA,
    beta_intra=NVLINK,
    beta_inter=INFINIBAND,
    peak_flops=H100.bf16_flops,
    mfu=MFU,
)


def check_cluster(cluster: Cluster) -> Cluster:
    """Return the cluster, or say that something else was passed."""
    check_kind(cluster, Cluster, "cluster", "commlab.budget.H100_CLUSTER")
    return cluster


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
    TypeError
        If the cluster is none.
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
    rate = check_cluster(cluster).mfu * cluster.peak_flops
    return flops / (check_n_ranks(n_gpus, "n_gpus") * rate)
