"""Data parallelism: one all-reduce of the gradients per step."""

from __future__ import annotations

from dataclasses import dataclass

from commlab.budget.cluster import H100_CLUSTER, Cluster
from commlab.budget.groups import Group, all_reduce_seconds, check_algorithm, place
from commlab.budget.report import Report, gpus
from commlab.setting_checks import check_gradient_bytes, check_positive
from commlab.units import format_bytes, format_seconds


@dataclass(frozen=True)
class DataParallel(Report):
    """The gradient all-reduce of one data-parallel step."""

    n_gpus: int
    gradient_bytes: float
    algorithm: str
    seconds: float
    assumptions: tuple[str, ...]

    @property
    def title(self) -> str:
        """One line that names the result."""
        return f"data parallelism on {gpus(self.n_gpus)}"

    @property
    def lines(self) -> dict[str, str]:
        """Each quantity by name."""
        return {
            "gradients": format_bytes(self.gradient_bytes),
            "algorithm": self.algorithm,
            "all-reduce": format_seconds(self.seconds),
        }


def data_parallel(
    n_parameters: float,
    n_gpus: int,
    cluster: Cluster = H100_CLUSTER,
    algorithm: str = "hierarchical",
    gradient_bytes: int = 2,
) -> DataParallel:
    """Estimate the all-reduce of the gradients.

    Parameters
    ----------
    n_parameters : float
        Parameters Φ that each GPU has a gradient for.
    n_gpus : int
        Up to one node, or a whole number of nodes.
    cluster : Cluster
        Links and node size.
    algorithm : {"hierarchical", "rails"}
        Beyond one node: the three-step hierarchical all-reduce, or the flat ring over all
        rails of a node, like NCCL's Ring. Inside one node: a ring.
    gradient_bytes : {2, 4}
        Bytes per gradient on the wire: 2 for BF16, 4 where the reduction runs in FP32.

    Returns
    -------
    DataParallel
        Bytes and seconds per step, nothing overlapped. Gradient accumulation changes
        neither: under ``no_sync()`` the micro-batches of a step share one all-reduce.

    Raises
    ------
    TypeError
        If the cluster is none.
    ValueError
        If ``n_gpus`` does not fill whole nodes, or the algorithm is unknown.
    """
    phi = check_positive(n_parameters, "n_parameters")
    nbytes = check_gradient_bytes(gradient_bytes) * phi
    check_algorithm(algorithm)
    group = place(n_gpus, cluster)
    return DataParallel(
        n_gpus=group.n_ranks,
        gradient_bytes=nbytes,
        algorithm=_used(algorithm, group, cluster),
        seconds=all_reduce_seconds(nbytes, group, cluster, algorithm),
        assumptions=(
            cluster.name,
            "one bucket, no overlap with the backward pass, line rates",
        ),
    )


def _used(algorithm: str, group: Group, cluster: Cluster) -> str:
    if group.n_ranks == 1:
        return "none: one GPU has nobody to add with"
    if group.n_nodes == 1:
        return "ring in the node"
    if algorithm == "hierarchical":
        return f"hierarchical, {group}"
    rails = "1 rail" if cluster.n_rails == 1 else f"{cluster.n_rails} rails"
    return f"flat ring over {rails}, {group}"
