"""Real processes: everything of this package that runs on ``torch.distributed``.

``run`` starts the ranks and brings their results back. It does not import torch itself:
only the processes it starts do, and ``commlab.real.workers``, where the work is written.
"""

from commlab.real.cluster import (
    ClusterUnavailable,
    VirtualCluster,
    run_on_cluster,
    stored_cluster_measurement,
)
from commlab.real.deadlock import DeadlockReport, deadlock_lab
from commlab.real.launch import RankError, run
from commlab.real.schedules import RealResult, differing_from_gloo, run_schedule

__all__ = [
    "ClusterUnavailable",
    "DeadlockReport",
    "RankError",
    "RealResult",
    "VirtualCluster",
    "deadlock_lab",
    "differing_from_gloo",
    "run",
    "run_on_cluster",
    "run_schedule",
    "stored_cluster_measurement",
]
