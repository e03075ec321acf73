"""The registry: every algorithm of the book with its closed form and its source."""

from __future__ import annotations

from commlab import cost
from commlab.algorithms import (
    all_to_all,
    bruck,
    double_tree,
    doubling,
    hierarchical,
    naive,
    pairwise,
    pipelined,
    ring,
    tree,
)
from commlab.algorithms.node_size import can_be_cut, node_shape
from commlab.algorithms.pipelined import PIPELINE_CHUNKS
from commlab.algorithms.registry import Algorithm

_THAKUR = (
    "Thakur, Rabenseifner and Gropp (2005), Optimization of Collective Communication "
    "Operations in MPICH"
)
_PATARASUK = (
    "Patarasuk and Yuan (2009), Bandwidth Optimal All-reduce Algorithms for Clusters of "
    "Workstations"
)
_BRUCK = (
    "Bruck, Ho, Kipnis, Upfal and Weathersby (1997), Efficient Algorithms for All-to-All "
    "Communications in Multiport Message-Passing Systems"
)
_SANDERS = (
    "Sanders, Speck and Träff (2009), Two-tree algorithms for full bandwidth broadcast, "
    "reduction and scan; trees as in NCCL"
)
_WATTS = "Watts and van de Geijn (1995), A pipelined broadcast for multidimensional meshes"
_NODES = "a number of ranks that fills nodes of equal size, two GPUs or more each"


def _direct_time(nbytes, n_ranks, alpha, beta):
    return cost.alpha_beta_all_to_all(nbytes, n_ranks, alpha, beta, algorithm="direct")


def _hierarchical_time(nbytes, n_ranks, alpha, beta, gpus_per_node=None):
    m, g = node_shape(n_ranks, gpus_per_node)
    return cost.hierarchical_allreduce_time(nbytes, m, g, alpha, beta, beta)


def _two_level_time(nbytes, n_ranks, alpha, beta, gpus_per_node=None):
    m, g = node_shape(n_ranks, gpus_per_node)
    return cost.two_level_all_to_all_time(nbytes, m, g, alpha, beta, beta)


def _pipelined(closed_form):
    """The closed form with the k that builders use where none is given."""

    def time(nbytes, n_ranks, alpha, beta, pipeline_chunks=PIPELINE_CHUNKS):
        return closed_form(nbytes, n_ranks, alpha, beta, pipeline_chunks)

    return time


def _tuned_by(best_chunks):
    def best_options(nbytes, n_ranks, alpha, beta):
        return {"pipeline_chunks": best_chunks(nbytes, n_ranks, alpha, beta)}

    return best_options


_chain_time = _pipelined(cost.alpha_beta_pipelined_chain_broadcast)
_chain_all_reduce_time = _pipelined(cost.alpha_beta_pipelined_chain_allreduce)
_binary_tree_time = _pipelined(cost.alpha_beta_pipelined_binary_tree_allreduce)
_double_tree_time = _pipelined(cost.alpha_beta_double_binary_tree_allreduce)


REGISTRY: dict[tuple[str, str], Algorithm] = {
    ("all_reduce", "naive"): Algorithm(
        naive.naive_all_reduce,
        cost.alpha_beta_naive_allreduce,
        "textbook: everything through rank 0",
    ),
    ("all_reduce", "ring"): Algorithm(
        ring.ring_all_reduce, cost.alpha_beta_ring_allreduce, _PATARASUK
    ),
    ("all_reduce", "bidirectional_ring"): Algorithm(
        ring.bidirectional_ring_all_reduce,
        cost.alpha_beta_ring_allreduce,
        "folklore: two rings, one each way round; the steps are those of " + _PATARASUK,
        # Of two ranks, both neighbours are the same rank: one message.
        ports=lambda n_ranks: 1 if n_ranks == 2 else 2,
    ),
    ("all_reduce", "multi_rail_ring"): Algorithm(
        ring.multi_rail_ring_all_reduce,
        cost.alpha_beta_ring_allreduce,
        "NCCL's channels (NVIDIA/nccl#530); the steps are those of " + _PATARASUK,
        ports=lambda n_ranks: 2,
        supports=can_be_cut,
        requirement=_NODES,
        options=("gpus_per_node", "rails"),
    ),
    ("all_reduce", "binomial_tree"): Algorithm(
        tree.binomial_tree_all_reduce, cost.alpha_beta_tree_allreduce, _THAKUR
    ),
    ("all_reduce", "recursive_doubling"): Algorithm(
        doubling.recursive_doubling_all_reduce,
        cost.alpha_beta_recursive_doubling_allreduce,
        _THAKUR,
    ),
    ("all_reduce", "halving_doubling"): Algorithm(
        doubling.halving_doubling_all_reduce,
        cost.alpha_beta_halving_doubling_allreduce,
        "R. Rabenseifner's algorithm, in " + _THAKUR,
        options=("fold",),
        priced_options=("fold",),
    ),
    ("all_reduce", "pipelined_chain"): Algorithm(
        pipelined.pipelined_chain_all_reduce,
        _chain_all_reduce_time,
        _WATTS,
        options=("pipeline_chunks",),
        priced_options=("pipeline_chunks",),
        best_options=_tuned_by(cost.best_chain_chunks),
    ),
    ("all_reduce", "pipelined_binary_tree"): Algorithm(
        pipelined.pipelined_binary_tree_all_reduce,
        _binary_tree_time,
        "the single tree that " + _SANDERS + " improve on",
        exact=False,
        options=("pipeline_chunks",),
        priced_options=("pipeline_chunks",),
        best_options=_tuned_by(cost.best_binary_tree_chunks),
    ),
    ("all_reduce", "double_binary_tree"): Algorithm(
        double_tree.double_binary_tree_all_reduce,
        _double_tree_time,
        _SANDERS,
        exact=False,
        options=("pipeline_chunks",),
        priced_options=("pipeline_chunks",),
        best_options=_tuned_by(cost.best_double_tree_chunks),
    ),
    ("all_reduce", "hierarchical"): Algorithm(
        hierarchical.hierarchical_all_reduce,
        _hierarchical_time,
        "Mikami et al. (2018), Massively Distributed SGD: ImageNet/ResNet-50 Training in a "
        "Flash (there called 2D-torus all-reduce)",
        supports=can_be_cut,
        requirement=_NODES,
        options=("gpus_per_node",),
        priced_options=("gpus_per_node",),
    ),
    ("reduce_scatter", "ring"): Algorithm(
        ring.ring_reduce_scatter,
        cost.alpha_beta_reduce_scatter,
        _PATARASUK,
        options=("owner_shift",),
    ),
    ("reduce_scatter", "pairwise"): Algorithm(
        pairwise.pairwise_reduce_scatter, cost.alpha_beta_reduce_scatter, _THAKUR
    ),
    ("reduce_scatter", "recursive_halving"): Algorithm(
        doubling.recursive_halving_reduce_scatter,
        cost.alpha_beta_recursive_halving_reduce_scatter,
        _THAKUR,
        supports=doubling.is_power_of_two,
        requirement="a power of two",
    ),
    ("all_gather", "ring"): Algorithm(ring.ring_all_gather, cost.alpha_beta_all_gather, _THAKUR),
    ("all_gather", "recursive_doubling"): Algorithm(
        doubling.recursive_doubling_all_gather,
        cost.alpha_beta_recursive_doubling_all_gather,
        _THAKUR,
        supports=doubling.is_power_of_two,
        requirement="a power of two",
    ),
    ("all_gather", "bruck"): Algorithm(
        bruck.bruck_all_gather, cost.alpha_beta_bruck_all_gather, _BRUCK
    ),
    ("broadcast", "binomial_tree"): Algorithm(
        tree.binomial_tree_broadcast, cost.alpha_beta_broadcast, _THAKUR, options=("root",)
    ),
    ("broadcast", "scatter_all_gather"): Algorithm(
        tree.scatter_all_gather_broadcast,
        cost.alpha_beta_scatter_all_gather_broadcast,
        _THAKUR,
        options=("root",),
    ),
    ("broadcast", "pipelined_chain"): Algorithm(
        pipelined.pipelined_chain_broadcast,
        _chain_time,
        _WATTS,
        options=("root", "pipeline_chunks"),
        priced_options=("pipeline_chunks",),
        best_options=_tuned_by(cost.best_chain_chunks),
    ),
    ("reduce", "binomial_tree"): Algorithm(
        tree.binomial_tree_reduce, cost.alpha_beta_broadcast, _THAKUR, options=("root",)
    ),
    ("reduce", "pipelined_chain"): Algorithm(
        pipelined.pipelined_chain_reduce,
        _chain_time,
        _WATTS,
        options=("root", "pipeline_chunks"),
        priced_options=("pipeline_chunks",),
        best_options=_tuned_by(cost.best_chain_chunks),
    ),
    ("all_to_all", "pairwise"): Algorithm(
        all_to_all.pairwise_all_to_all,
        cost.alpha_beta_all_to_all,
        _THAKUR,
        options=("counts",),
    ),
    ("all_to_all", "direct"): Algorithm(
        all_to_all.direct_all_to_all,
        _direct_time,
        _THAKUR,
        ports=lambda n_ranks: max(1, n_ranks - 1),
        options=("counts",),
    ),
    ("all_to_all", "bruck"): Algorithm(
        bruck.bruck_all_to_all, cost.alpha_beta_bruck_all_to_all, _BRUCK
    ),
    ("all_to_all", "two_level"): Algorithm(
        all_to_all.two_level_all_to_all,
        _two_level_time,
        "regrouping by rail inside the node, then between nodes, as NCCL's PXN does "
        "(NVIDIA/nccl#866)",
        supports=can_be_cut,
        requirement=_NODES,
        options=("gpus_per_node", "counts"),
        priced_options=("gpus_per_node",),
    ),
}


def find_algorithm(collective: str, name: str) -> Algorithm:
    """Return an entry of the registry, or say which names there are."""
    names = sorted(known for kind, known in REGISTRY if kind == collective)
    if not names:
        collectives = ", ".join(sorted({kind for kind, _ in REGISTRY}))
        raise ValueError(
            f"{collective!r} is no collective of this book; choose one of: {collectives}."
        )
    if name not in names:
        raise ValueError(
            f"{collective} has no algorithm {name!r}; choose one of: {', '.join(names)}."
        )
    return REGISTRY[collective, name]
