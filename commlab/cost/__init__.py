"""The alpha-beta cost model: closed forms, lower bounds, and the price of any schedule."""

from __future__ import annotations

from commlab.cost.arguments import Scalars
from commlab.cost.bounds import (
    COLLECTIVES,
    Distance,
    bandwidth_lower_bound,
    distance_from_bounds,
    latency_lower_bound,
    least_share,
    least_steps,
    lower_bound,
)
from commlab.cost.closed_forms import (
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
    ring_tree_crossover,
)
from commlab.cost.latency_optimal import (
    alpha_beta_bruck_all_gather,
    alpha_beta_bruck_all_to_all,
    alpha_beta_recursive_doubling_all_gather,
    alpha_beta_recursive_halving_reduce_scatter,
    alpha_beta_scatter_all_gather_broadcast,
)
from commlab.cost.nodes import (
    flat_ring_over_nodes_time,
    hierarchical_allreduce_time,
    hierarchical_ring_crossover,
    in_network_allreduce_time,
    multi_rail_ring_time,
    two_level_all_to_all_time,
)
from commlab.cost.pipelined import (
    MOST_CHUNKS,
    alpha_beta_double_binary_tree_allreduce,
    alpha_beta_pipelined_binary_tree_allreduce,
    alpha_beta_pipelined_chain_allreduce,
    alpha_beta_pipelined_chain_broadcast,
    best_binary_tree_chunks,
    best_chain_chunks,
    best_double_tree_chunks,
)
from commlab.cost.prices import Price, price

__all__ = [
    "COLLECTIVES",
    "MOST_CHUNKS",
    "Distance",
    "Price",
    "Scalars",
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
    "best_binary_tree_chunks",
    "best_chain_chunks",
    "best_double_tree_chunks",
    "bucketed_allreduce_time",
    "distance_from_bounds",
    "flat_ring_over_nodes_time",
    "hierarchical_allreduce_time",
    "hierarchical_ring_crossover",
    "in_network_allreduce_time",
    "latency_lower_bound",
    "least_share",
    "least_steps",
    "lower_bound",
    "multi_rail_ring_time",
    "price",
    "ring_tree_crossover",
    "two_level_all_to_all_time",
]
