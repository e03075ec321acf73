"""Collective algorithms, each written once as a function that returns a Schedule."""

from __future__ import annotations

from commlab import cost
from commlab.algorithms.all_to_all import direct_all_to_all, pairwise_all_to_all
from commlab.algorithms.doubling import halving_doubling_all_reduce, recursive_doubling_all_reduce
from commlab.algorithms.hierarchical import hierarchical_all_reduce
from commlab.algorithms.naive import naive_all_reduce
from commlab.algorithms.registry import Algorithm
from commlab.algorithms.ring import ring_all_gather, ring_all_reduce, ring_reduce_scatter
from commlab.algorithms.tree import (
    binomial_tree_all_reduce,
    binomial_tree_broadcast,
    binomial_tree_reduce,
)

__all__ = [
    "REGISTRY",
    "Algorithm",
    "binomial_tree_all_reduce",
    "binomial_tree_broadcast",
    "binomial_tree_reduce",
    "direct_all_to_all",
    "halving_doubling_all_reduce",
    "hierarchical_all_reduce",
    "naive_all_reduce",
    "pairwise_all_to_all",
    "recursive_doubling_all_reduce",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce_scatter",
]

_THAKUR = (
    "Thakur, Rabenseifner and Gropp (2005), Optimization of Collective Communication "
    "Operations in MPICH"
)
_PATARASUK = (
    "Patarasuk and Yuan (2009), Bandwidth Optimal All-reduce Algorithms for Clusters of "
    "Workstations"
)


def _direct(nbytes, n_ranks, alpha, beta):
    return cost.alpha_beta_all_to_all(nbytes, n_ranks, alpha, beta, algorithm="direct")


REGISTRY: dict[tuple[str, str], Algorithm] = {
    ("all_reduce", "naive"): Algorithm(
        naive_all_reduce, cost.alpha_beta_naive_allreduce, "textbook: everything through rank 0"
    ),
    ("all_reduce", "ring"): Algorithm(ring_all_reduce, cost.alpha_beta_ring_allreduce, _PATARASUK),
    ("all_reduce", "binomial_tree"): Algorithm(
        binomial_tree_all_reduce, cost.alpha_beta_tree_allreduce, _THAKUR
    ),
    ("all_reduce", "recursive_doubling"): Algorithm(
        recursive_doubling_all_reduce, cost.alpha_beta_recursive_doubling_allreduce, _THAKUR
    ),
    ("all_reduce", "halving_doubling"): Algorithm(
        halving_doubling_all_reduce, cost.alpha_beta_halving_doubling_allreduce, _THAKUR
    ),
    ("reduce_scatter", "ring"): Algorithm(
        ring_reduce_scatter, cost.alpha_beta_reduce_scatter, _PATARASUK
    ),
    ("all_gather", "ring"): Algorithm(ring_all_gather, cost.alpha_beta_all_gather, _THAKUR),
    ("broadcast", "binomial_tree"): Algorithm(
        binomial_tree_broadcast, cost.alpha_beta_broadcast, _THAKUR
    ),
    ("reduce", "binomial_tree"): Algorithm(
        binomial_tree_reduce, cost.alpha_beta_broadcast, _THAKUR
    ),
    ("all_to_all", "pairwise"): Algorithm(pairwise_all_to_all, cost.alpha_beta_all_to_all, _THAKUR),
    ("all_to_all", "direct"): Algorithm(
        direct_all_to_all, _direct, _THAKUR, ports=lambda n_ranks: max(1, n_ranks - 1)
    ),
}
