"""Multi-GPU communication as data: one schedule, read four ways.

A collective algorithm is a `Schedule`. `verify` proves it, `simulate` runs it on arrays,
`price` says what it costs, and the figures draw it.

This is the package of the book "Multi-GPU Communication". The package called commlab on
PyPI is another project.
"""

from importlib import import_module
from types import ModuleType

from commlab.algorithms import REGISTRY, Algorithm
from commlab.choice import Choice, best_algorithm
from commlab.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    reduce,
    reduce_scatter,
)
from commlab.cost import (
    Distance,
    Price,
    alpha_beta_all_gather,
    alpha_beta_all_to_all,
    alpha_beta_broadcast,
    alpha_beta_bruck_all_gather,
    alpha_beta_bruck_all_to_all,
    alpha_beta_double_binary_tree_allreduce,
    alpha_beta_halving_doubling_allreduce,
    alpha_beta_naive_allreduce,
    alpha_beta_pipelined_binary_tree_allreduce,
    alpha_beta_pipelined_chain_allreduce,
    alpha_beta_pipelined_chain_broadcast,
    alpha_beta_recursive_doubling_all_gather,
    alpha_beta_recursive_doubling_allreduce,
    alpha_beta_recursive_halving_reduce_scatter,
    alpha_beta_reduce_scatter,
    alpha_beta_ring_allreduce,
    alpha_beta_scatter_all_gather_broadcast,
    alpha_beta_tree_allreduce,
    bandwidth_lower_bound,
    best_binary_tree_chunks,
    best_chain_chunks,
    best_double_tree_chunks,
    bucketed_allreduce_time,
    distance_from_bounds,
    flat_ring_over_nodes_time,
    hierarchical_allreduce_time,
    hierarchical_ring_crossover,
    in_network_allreduce_time,
    latency_lower_bound,
    least_share,
    least_steps,
    lower_bound,
    multi_rail_ring_time,
    price,
    ring_tree_crossover,
    two_level_all_to_all_time,
)
from commlab.ledger import Ledger, Message, ledger
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
from commlab.simulate import Result, simulate
from commlab.topology import Link, Topology, flat_topology, node_topology, ring_topology

__version__ = "0.1.0"

_LOADED_ON_DEMAND = ("atlas", "budget", "hardware", "models", "overlap", "training")


def __getattr__(name: str) -> ModuleType:
    """Load a room of the package when it is first asked for: `commlab.budget`."""
    if name in _LOADED_ON_DEMAND:
        return import_module(f"commlab.{name}")
    raise AttributeError(f"module 'commlab' has no attribute {name!r}")


__all__ = [
    "COPY",
    "REDUCE",
    "REGISTRY",
    "Algorithm",
    "Choice",
    "Distance",
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
    "alpha_beta_bruck_all_gather",
    "alpha_beta_bruck_all_to_all",
    "alpha_beta_double_binary_tree_allreduce",
    "alpha_beta_halving_doubling_allreduce",
    "alpha_beta_naive_allreduce",
    "alpha_beta_pipelined_binary_tree_allreduce",
    "alpha_beta_pipelined_chain_allreduce",
    "alpha_beta_pipelined_chain_broadcast",
    "alpha_beta_recursive_doubling_all_gather",
    "alpha_beta_recursive_doubling_allreduce",
    "alpha_beta_recursive_halving_reduce_scatter",
    "alpha_beta_reduce_scatter",
    "alpha_beta_ring_allreduce",
    "alpha_beta_scatter_all_gather_broadcast",
    "alpha_beta_tree_allreduce",
    "bandwidth_lower_bound",
    "best_algorithm",
    "best_binary_tree_chunks",
    "best_chain_chunks",
    "best_double_tree_chunks",
    "broadcast",
    "bucketed_allreduce_time",
    "distance_from_bounds",
    "flat_ring_over_nodes_time",
    "flat_topology",
    "held_contributions",
    "hierarchical_allreduce_time",
    "hierarchical_ring_crossover",
    "in_network_allreduce_time",
    "latency_lower_bound",
    "least_share",
    "least_steps",
    "ledger",
    "lower_bound",
    "multi_rail_ring_time",
    "node_topology",
    "price",
    "reduce",
    "reduce_scatter",
    "ring_topology",
    "ring_tree_crossover",
    "simulate",
    "two_level_all_to_all_time",
    "verify",
]
