"""Compare commlab with mlsysim's closed forms of collectives.

    python -m benchmarks.peer_mlsysim

mlsysim is no dependency of the book: ``pip install mlsysim``, in an environment of its own
if you like, since this script needs only NumPy besides.
"""

from __future__ import annotations

import importlib.util
import math
from importlib.metadata import version

import numpy as np

from benchmarks.comparison import Comparison, compare, print_table
from benchmarks.timing import fastest_call, fastest_seconds, machine
from commlab import cost
from commlab.hardware import ALPHA, INFINIBAND, NVLINK
from commlab.units import GIB, KIB, MIB

SIZES = (0, KIB, MIB, 100 * MIB, GIB, 1e12)
RANKS = (*range(2, 18), 31, 32, 33, 64, 100, 1000, 1024)
NODES = {"size": SIZES, "m": (2, 3, 8, 64), "g": (1, 2, 7, 8)}
# No bytes: its solver divides by the time of a node that moves none.
ONE_NODE = {"size": SIZES[1:], "m": (1,), "g": (2, 7, 8)}
# The defaults of mlsysim's hierarchical all-reduce, in seconds.
LATENCY_IN_NODE, LATENCY_BETWEEN = 500e-9, 5e-6


def flat_network() -> list[Comparison]:
    """Compare what takes (S, N, alpha, beta)."""
    from mlsysim.physics import communication as peer

    link = (NVLINK, ALPHA)
    grid = {"size": SIZES, "n": RANKS}

    def ring(size: float, n: int, alpha: float = ALPHA) -> float:
        return cost.alpha_beta_ring_allreduce(size, n, alpha, NVLINK)

    def tree(size: float, n: int) -> float:
        return cost.alpha_beta_tree_allreduce(size, n, ALPHA, NVLINK)

    def two_trees(size: float, n: int) -> float:
        chunks = cost.best_double_tree_chunks(size, n, ALPHA, NVLINK)
        return cost.alpha_beta_double_binary_tree_allreduce(size, n, ALPHA, NVLINK, chunks)

    return [
        compare(
            "ring all-reduce",
            lambda size, n: peer.calc_ring_allreduce_time(size, n, *link).m,
            ring,
            "the same formula",
            grid,
        ),
        compare(
            "tree all-reduce",
            lambda size, n: peer.calc_tree_allreduce_time(size, n, *link).m,
            tree,
            "the same formula, our binomial tree",
            grid,
        ),
        compare(
            "all-to-all",
            lambda size, n: peer.calc_all_to_all_time(size, n, *link).m,
            lambda size, n: cost.alpha_beta_all_to_all(size, n, ALPHA, NVLINK),
            "the same formula, our pairwise exchange",
            grid,
        ),
        compare(
            "double binary tree all-reduce",
            lambda size, n: peer.calc_double_binary_tree_allreduce_time(size, n, *link).m,
            two_trees,
            "1.05 × the bytes of a ring + 1.2 × the latency of a binomial tree with a "
            "fractional log₂N: derivation 1",
            grid,
            lambda size, n: (
                1.05 * ring(size, n, alpha=0.0)
                + 1.2 * tree(0, n) * math.log2(n) / math.ceil(math.log2(n))
            ),
        ),
        compare(
            "size where ring and tree cross, estimate",
            lambda n: peer.calc_ring_tree_crossover_size(n, ALPHA, NVLINK).m,
            lambda n: cost.ring_tree_crossover(n, ALPHA, NVLINK),
            "the exact crossing × N (d − (N−1)/N) / ((N−1−d) log₂N), d = ⌈log₂N⌉: derivation 2",
            {"n": [n for n in RANKS if n > 3]},
            estimated_crossover,
        ),
    ]


def estimated_crossover(n: int) -> float:
    """Return N alpha beta / log2 N, from the exact crossing of ring and tree."""
    depth = math.ceil(math.log2(n))
    factor = n * (depth - (n - 1) / n) / ((n - 1 - depth) * math.log2(n))
    return cost.ring_tree_crossover(n, ALPHA, NVLINK) * factor


def over_nodes() -> list[Comparison]:
    """Compare what knows nodes of GPUs."""
    from mlsysim.core.units import ureg
    from mlsysim.physics import communication as peer
    from mlsysim.solvers import AllReduceAlgorithmModel, HierarchicalAllReduceModel

    rate, second = ureg.byte / ureg.second, ureg.second

    def ours(size: float, m: int, g: int) -> float:
        return cost.hierarchical_allreduce_time(size, m, g, ALPHA, NVLINK, INFINIBAND)

    def solved(size: float, m: int, g: int):
        return HierarchicalAllReduceModel().solve(
            size * ureg.byte, m, g, NVLINK * rate, INFINIBAND * rate, ALPHA * second
        )

    def solved_flat(size: float, n: int):
        return AllReduceAlgorithmModel().solve(size * ureg.byte, [n], ALPHA * second, NVLINK * rate)

    return [
        compare(
            "hierarchical all-reduce, one α",
            lambda size, m, g: (
                peer.calc_hierarchical_allreduce_time(
                    size, m, g, NVLINK, INFINIBAND, ALPHA, ALPHA
                ).m
            ),
            ours,
            "the same formula",
            NODES,
        ),
        compare(
            "hierarchical all-reduce, its own latencies",
            lambda size, m, g: (
                peer.calc_hierarchical_allreduce_time(size, m, g, NVLINK, INFINIBAND).m
            ),
            lambda size, m, g: cost.hierarchical_allreduce_time(
                size, m, g, LATENCY_BETWEEN, NVLINK, INFINIBAND
            ),
            "ours − 2 (g−1) × 4.5 µs: 0.5 µs a step inside a node",
            NODES,
            lambda size, m, g: (
                cost.hierarchical_allreduce_time(size, m, g, LATENCY_BETWEEN, NVLINK, INFINIBAND)
                - 2 * (g - 1) * (LATENCY_BETWEEN - LATENCY_IN_NODE)
            ),
        ),
        compare(
            "hierarchical all-reduce of its solver",
            lambda size, m, g: solved(size, m, g).total_time.m_as("s"),
            ours,
            "ours − 2 (g−1) α: no latency inside a node",
            NODES,
            lambda size, m, g: ours(size, m, g) - 2 * (g - 1) * ALPHA,
        ),
        compare(
            "flat ring over nodes of its solver",
            lambda size, m, g: solved(size, m, g).flat_ring_time.m_as("s"),
            lambda size, m, g: cost.flat_ring_over_nodes_time(
                size, m, g, ALPHA, NVLINK, INFINIBAND
            ),
            "the same formula, our `rails=1`: it knows no ring over all interfaces",
            NODES,
        ),
        compare(
            "the same in one node",
            lambda size, m, g: solved(size, m, g).flat_ring_time.m_as("s"),
            lambda size, m, g: cost.flat_ring_over_nodes_time(
                size, m, g, ALPHA, NVLINK, INFINIBAND
            ),
            "our ring at the rate between nodes, although no byte leaves the node",
            ONE_NODE,
            lambda size, m, g: cost.alpha_beta_ring_allreduce(size, g, ALPHA, INFINIBAND),
        ),
        compare(
            "size where ring and tree cross, of its solver",
            lambda n: solved_flat(GIB, n).crossover_exact[n].m_as("byte"),
            lambda n: cost.ring_tree_crossover(n, ALPHA, NVLINK),
            "the same formula",
            {"n": [n for n in RANKS if n > 3]},
        ),
        compare(
            "bytes of a star all-reduce of its solver",
            lambda size, n: solved_flat(size, n).star_byte_time[n].m_as("s"),
            lambda size, n: cost.alpha_beta_naive_allreduce(size, n, 0, NVLINK),
            "our naive × N / (2 (N−1)): derivation 3",
            {"size": SIZES[1:], "n": RANKS},
            lambda size, n: cost.alpha_beta_naive_allreduce(size, n, 0, NVLINK) * n / (2 * (n - 1)),
        ),
    ]


def all_to_all_dispatch() -> Comparison:
    """Compare the dispatch of tokens to experts with our direct all-to-all."""
    from mlsysim.core.units import ureg
    from mlsysim.solvers import AllToAllDispatchModel

    hidden, tokens_per_pair = 4096, 16

    def theirs(n: int) -> float:
        return (
            AllToAllDispatchModel()
            .solve(
                total_tokens=tokens_per_pair * n * n,
                n_devices=n,
                n_experts=n,
                hidden_dim=hidden,
                bytes_per_element=2 * ureg.byte,
                alpha=ALPHA * ureg.second,
                bandwidth=INFINIBAND * ureg.byte / ureg.second,
            )
            .injection_bound.m_as("s")
        )

    def ours(n: int) -> float:
        size = tokens_per_pair * n * hidden * 2
        return cost.alpha_beta_all_to_all(size, n, ALPHA, INFINIBAND, algorithm="direct")

    return compare(
        "expert dispatch of its solver",
        theirs,
        ours,
        "the same formula, our direct all-to-all",
        {"n": RANKS},
    )


def times() -> None:
    """Print what a call costs, and what a sweep of a million sizes costs."""
    from mlsysim.physics import communication as peer

    theirs = fastest_call(lambda: peer.calc_ring_allreduce_time(GIB, 8, NVLINK, ALPHA))
    ours = fastest_call(lambda: cost.alpha_beta_ring_allreduce(GIB, 8, ALPHA, NVLINK))
    sizes = np.logspace(0, 12, 1_000_000)
    sweep = fastest_seconds(
        {"sweep": lambda: cost.alpha_beta_ring_allreduce(sizes, 8, ALPHA, NVLINK)}
    )["sweep"]
    print(
        f"one ring all-reduce: mlsysim {theirs * 1e6:.0f} µs, commlab {ours * 1e6:.0f} µs "
        f"({theirs / ours:.1f} x); a million sizes: mlsysim takes no arrays, so about "
        f"{theirs * 1e6:.0f} s one by one, commlab {sweep:.4f} s ({theirs * 1e6 / sweep:.0f} x)"
    )


def bad_input() -> None:
    """Print what mlsysim answers where commlab refuses."""
    from mlsysim.physics import communication as peer

    for what, size, n_ranks in (("nan bytes", math.nan, 8), ("2.5 ranks", GIB, 2.5)):
        answer = peer.calc_ring_allreduce_time(size, n_ranks, NVLINK, ALPHA).m
        try:
            cost.alpha_beta_ring_allreduce(size, n_ranks, ALPHA, NVLINK)
        except ValueError as refusal:
            print(f"{what}: mlsysim answers {answer:.4g} s, commlab: {refusal}")


def main() -> None:
    """Print the table, the times and the treatment of bad input."""
    if importlib.util.find_spec("mlsysim") is None:
        print("mlsysim is not installed here: `pip install mlsysim`, then run this again.")
        return
    print(f"mlsysim {version('mlsysim')}; {machine()}")
    print_table([*flat_network(), *over_nodes(), all_to_all_dispatch()])
    times()
    bad_input()


if __name__ == "__main__":
    main()
