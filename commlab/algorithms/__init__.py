"""Collective algorithms, each written once as a function that returns a Schedule."""

from __future__ import annotations

from commlab.algorithms.all_to_all import (
    direct_all_to_all,
    pairwise_all_to_all,
    two_level_all_to_all,
)
from commlab.algorithms.bruck import bruck_all_gather, bruck_all_to_all
from commlab.algorithms.catalogue import REGISTRY, find_algorithm
from commlab.algorithms.double_tree import double_binary_tree_all_reduce
from commlab.algorithms.doubling import (
    halving_doubling_all_reduce,
    recursive_doubling_all_gather,
    recursive_doubling_all_reduce,
    recursive_halving_reduce_scatter,
)
from commlab.algorithms.gloo import gloo_ring_all_reduce
from commlab.algorithms.hierarchical import hierarchical_all_reduce
from commlab.algorithms.naive import naive_all_reduce
from commlab.algorithms.node_size import usual_gpus_per_node
from commlab.algorithms.pairwise import pairwise_reduce_scatter
from commlab.algorithms.pipelined import (
    pipelined_binary_tree_all_reduce,
    pipelined_chain_all_reduce,
    pipelined_chain_broadcast,
    pipelined_chain_reduce,
)
from commlab.algorithms.registry import Algorithm
from commlab.algorithms.ring import (
    bidirectional_ring_all_reduce,
    multi_rail_ring_all_reduce,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
)
from commlab.algorithms.tree import (
    binomial_tree_all_reduce,
    binomial_tree_broadcast,
    binomial_tree_reduce,
    scatter_all_gather_broadcast,
)

__all__ = [
    "REGISTRY",
    "Algorithm",
    "bidirectional_ring_all_reduce",
    "binomial_tree_all_reduce",
    "binomial_tree_broadcast",
    "binomial_tree_reduce",
    "bruck_all_gather",
    "bruck_all_to_all",
    "direct_all_to_all",
    "double_binary_tree_all_reduce",
    "find_algorithm",
    "gloo_ring_all_reduce",
    "halving_doubling_all_reduce",
    "hierarchical_all_reduce",
    "multi_rail_ring_all_reduce",
    "naive_all_reduce",
    "pairwise_all_to_all",
    "pairwise_reduce_scatter",
    "pipelined_binary_tree_all_reduce",
    "pipelined_chain_all_reduce",
    "pipelined_chain_broadcast",
    "pipelined_chain_reduce",
    "recursive_doubling_all_gather",
    "recursive_doubling_all_reduce",
    "recursive_halving_reduce_scatter",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce_scatter",
    "scatter_all_gather_broadcast",
    "two_level_all_to_all",
    "usual_gpus_per_node",
]
