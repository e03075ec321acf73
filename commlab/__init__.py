"""Multi-GPU communication as data: one schedule, read four ways.

A collective algorithm is a `Schedule`. `verify` proves it, `simulate` runs it on arrays,
`price` says what it costs, and the figures draw it.

This is the package of the book "Multi-GPU Communication". The package called commlab on
PyPI is another project.
"""

from commlab.algorithms import REGISTRY
from commlab.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    reduce,
    reduce_scatter,
)
from commlab.cost import (
    Price,
    alpha_beta_all_gather,
    alpha_beta_all_to_all,
    alpha_beta_broadcast,
    alpha_beta_halving_doubling_allreduce,
    alpha_beta_naive_allreduce,
    alpha_beta_recursive_doubling_allreduce,
    alpha_beta_reduce_scatter,
    alpha_beta_ring_allreduce,
    alpha_beta_tree_allreduce,
    bucketed_allreduce_time,
    flat_ring_over_nodes_time,
    hierarchical_allreduce_time,
    hierarchical_ring_crossover,
    price,
    ring_tree_crossover,
)
from commlab.schedule import (
    COPY,
    REDUCE,
    Schedule,
    ScheduleError,
    Step,
    Transfer,
    held_contributions,
    verify,
)
from commlab.simulate import Ledger, Message, Result, ledger, simulate
from commlab.topology import Link, Topology, flat_topology, node_topology

__version__ = "0.1.0"

__all__ = [
    "COPY",
    "REDUCE",
    "REGISTRY",
    "Ledger",
    "Link",
    "Message",
    "Price",
    "Result",
    "Schedule",
    "ScheduleError",
    "Step",
    "Topology",
    "Transfer",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "alpha_beta_all_gather",
    "alpha_beta_all_to_all",
    "alpha_beta_broadcast",
    "alpha_beta_halving_doubling_allreduce",
    "alpha_beta_naive_allreduce",
    "alpha_beta_recursive_doubling_allreduce",
    "alpha_beta_reduce_scatter",
    "alpha_beta_ring_allreduce",
    "alpha_beta_tree_allreduce",
    "broadcast",
    "bucketed_allreduce_time",
    "flat_ring_over_nodes_time",
    "flat_topology",
    "held_contributions",
    "hierarchical_allreduce_time",
    "hierarchical_ring_crossover",
    "ledger",
    "node_topology",
    "price",
    "reduce",
    "reduce_scatter",
    "ring_tree_crossover",
    "simulate",
    "verify",
]
