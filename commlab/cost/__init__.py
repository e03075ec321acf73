"""The alpha-beta cost model: closed forms, lower bounds, and the price of any schedule."""

from __future__ import annotations

from commlab.cost.arguments import Scalars
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
from commlab.cost.nodes import (
    flat_ring_over_nodes_time,
    hierarchical_allreduce_time,
    hierarchical_ring_crossover,
)
from commlab.cost.prices import Price, price

__all__ = [
    "Price",
    "Scalars",
    "alpha_beta_all_gather",
    "alpha_beta_all_to_all",
    "alpha_beta_broadcast",
    "alpha_beta_halving_doubling_allreduce",
    "alpha_beta_naive_allreduce",
    "alpha_beta_recursive_doubling_allreduce",
    "alpha_beta_reduce_scatter",
    "alpha_beta_ring_allreduce",
    "alpha_beta_tree_allreduce",
    "bucketed_allreduce_time",
    "flat_ring_over_nodes_time",
    "hierarchical_allreduce_time",
    "hierarchical_ring_crossover",
    "price",
    "ring_tree_crossover",
]
