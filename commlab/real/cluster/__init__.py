"""A cluster on one machine: network namespaces as nodes and GPUs, links of a given rate."""

from commlab.real.cluster.description import MBIT, VirtualCluster
from commlab.real.cluster.launch import (
    ClusterError,
    ClusterRun,
    Job,
    Measured,
    Task,
    place_ranks,
    run_on_cluster,
    run_tasks,
)
from commlab.real.cluster.namespaces import ClusterUnavailable
from commlab.real.cluster.results import (
    ClusterMeasurement,
    OverlapPair,
    Row,
    stored_cluster_measurement,
    table_of_rows,
)

__all__ = [
    "MBIT",
    "ClusterError",
    "ClusterMeasurement",
    "ClusterRun",
    "ClusterUnavailable",
    "Job",
    "Measured",
    "OverlapPair",
    "Row",
    "Task",
    "VirtualCluster",
    "place_ranks",
    "run_on_cluster",
    "run_tasks",
    "stored_cluster_measurement",
    "table_of_rows",
]
