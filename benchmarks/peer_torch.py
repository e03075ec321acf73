"""Compare commlab with the estimates of PyTorch's compiler, torch/_inductor/comm_analysis.py.

    python -m benchmarks.peer_torch

The compiler schedules communication by these estimates. They are meant for GPUs, but the
functions called here are arithmetic and run anywhere; the link rates are set to those of the
book, since without a GPU they would be those of an A100. The module is private to PyTorch:
another version may have other names.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable

from benchmarks.comparison import Comparison, compare, print_table
from benchmarks.timing import fastest_call, machine
from commlab import cost
from commlab.hardware import ALPHA, INFINIBAND, NVLINK
from commlab.units import GIB, KIB, MIB, format_bytes

SIZES = (KIB, MIB, 100 * MIB, GIB, 10**12)
GPUS_PER_NODE = 8  # what the compiler assumes where it sees no GPU, and `main` hides them
ONE_NODE = {"size": SIZES, "n": range(2, GPUS_PER_NODE + 1)}
SEVERAL = {"size": SIZES, "m": (2, 3, 4, 8, 16, 128)}
US = 1e-6


def simple(algorithm: str, collective: str) -> Callable[[float, int], float]:
    """Return its estimate (size, n) -> seconds for NCCL's Simple protocol."""
    from torch._inductor import comm_analysis as peer

    return lambda size, n: (
        US
        * peer._nccl_algo_time(
            size,
            n,
            peer.NCCL_COLL[collective],
            peer.NCCL_ALGO[algorithm],
            peer.NCCL_PROTO.SIMPLE,
        )
    )


def latencies(algorithm: str) -> tuple[float, float, float]:
    """Return its seconds per call, per step in a node and per step between nodes."""
    from torch._inductor import comm_analysis as peer

    row, protocol = peer.NCCL_ALGO[algorithm], peer.NCCL_PROTO.SIMPLE
    return (
        US * peer.baseLat[row][protocol],
        US * peer.hwLat[peer.NCCL_HW.NVLINK][row][protocol],
        US * peer.hwLat[peer.NCCL_HW.NET][row][protocol],
    )


def rings_in_a_node() -> list[Comparison]:
    """Compare its rings on up to eight GPUs with ours at its own latency per step."""
    per_call, alpha, _ = latencies("RING")
    told = f"ours at α = {alpha / US:.1f} µs + {per_call / US:.1f} µs a call"

    def row(name: str, collective: str, form: Callable[..., float], why: str, times: int = 1):
        return compare(
            name,
            simple("RING", collective),
            lambda size, n: form(size, n, alpha, NVLINK),
            why,
            ONE_NODE,
            lambda size, n: times * form(size, n, alpha, NVLINK) + per_call,
        )

    return [
        row("ring all-reduce", "ALL_REDUCE", cost.alpha_beta_ring_allreduce, told),
        row("ring reduce-scatter", "REDUCE_SCATTER", cost.alpha_beta_reduce_scatter, told),
        row("ring all-gather", "ALL_GATHER", cost.alpha_beta_all_gather, told),
        row(
            "all-to-all",
            "ALL_TO_ALL",
            cost.alpha_beta_all_to_all,
            f"2 × our pairwise at α = {alpha / US:.1f} µs + {per_call / US:.1f} µs a call: "
            "derivation 4",
            times=2,
        ),
    ]


def tree_in_a_node() -> Comparison:
    """Compare its tree all-reduce, a pipelined chain inside a node, with the binomial tree."""
    from torch._inductor import comm_analysis as peer

    per_call, alpha, _ = latencies("TREE")
    gpu = peer.get_gpu_type()
    channels = peer._GPU_NCHANNELS[gpu] * peer.perChMaxTreeBws[gpu][0] * 1e9

    def explained(size: float, n: int) -> float:
        step_of_table = peer._log2i(size >> 6)
        table = peer.treeCorrectionFactor[peer.NCCL_PROTO.SIMPLE]
        correction = table[step_of_table] if step_of_table < len(table) else 1.0
        beta = min(0.92 * NVLINK, channels) * correction
        return per_call + 2 * (n - 1) * alpha + 2 * size / beta

    return compare(
        "tree all-reduce",
        simple("TREE", "ALL_REDUCE"),
        lambda size, n: cost.alpha_beta_tree_allreduce(size, n, alpha, NVLINK),
        f"{per_call / US:.1f} µs + 2 (N−1) × {alpha / US:.1f} µs + 2 S/β′: derivation 5",
        ONE_NODE,
        explained,
    )


def ring_over_nodes() -> list[Comparison]:
    """Compare its ring all-reduce over nodes of eight with both flat rings of ours."""
    per_call, inside, between = latencies("RING")
    theirs = simple("RING", "ALL_REDUCE")

    def explained(size: float, m: int) -> float:
        n = GPUS_PER_NODE * m
        efficiency = 0.77 + 0.23 * min(1, (m - 1) / 7)
        growth = (max(size, 50e6) / 50e6) ** 0.17 if m > 2 else 1.0
        beta = INFINIBAND * efficiency * growth
        bytes_only = cost.alpha_beta_ring_allreduce(size, n, 0.0, beta)
        return per_call + 2 * (n - m) * inside + 2 * (m - 1) * between + bytes_only

    return [
        compare(
            f"ring all-reduce over nodes, ours through {told}",
            lambda size, m: theirs(size, GPUS_PER_NODE * m),
            lambda size, m, rails=rails: cost.flat_ring_over_nodes_time(
                size, m, GPUS_PER_NODE, ALPHA, NVLINK, INFINIBAND, rails
            ),
            "a ring at one interface's rate × a fit to measurements: derivation 6",
            SEVERAL,
            explained,
        )
        for rails, told in ((1, "one interface"), (GPUS_PER_NODE, "eight"))
    ]


def one_size() -> None:
    """Print what both say of 1 GiB on 64 GPUs."""
    theirs = simple("RING", "ALL_REDUCE")(GIB, 64)
    one, eight = (
        cost.flat_ring_over_nodes_time(GIB, 8, 8, ALPHA, NVLINK, INFINIBAND, rails)
        for rails in (1, 8)
    )
    print(
        f"1 GiB on 64 GPUs, flat ring: torch {1e3 * theirs:.1f} ms; commlab {1e3 * one:.1f} ms "
        f"through one interface a node, {1e3 * eight:.2f} ms through eight"
    )


def counted_sizes() -> None:
    """Print how many bytes it counts for S when it reads a collective from a traced graph."""
    import torch
    import torch.distributed as dist
    from torch._inductor import comm_analysis as peer
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.testing._internal.distributed.fake_pg import FakeStore

    n_ranks, n_elements = 8, 2**18
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=n_ranks)
    group = dist.group.WORLD.group_name
    operations = torch.ops._c10d_functional
    even = [n_elements // n_ranks] * n_ranks
    calls = {
        "all-reduce": (n_elements, lambda x: operations.all_reduce(x, "sum", group)),
        "all-gather": (
            n_elements // n_ranks,
            lambda x: operations.all_gather_into_tensor(x, n_ranks, group),
        ),
        "reduce-scatter": (
            n_elements,
            lambda x: operations.reduce_scatter_tensor(x, "sum", n_ranks, group),
        ),
        "all-to-all": (
            n_elements,
            lambda x: operations.all_to_all_single(x, even, even, group),
        ),
    }
    told = []
    for name, (length, call) in calls.items():
        graph = make_fx(call, tracing_mode="fake")(torch.zeros(length)).graph
        node = next(node for node in graph.nodes if node.op == "call_function")
        share = peer.estimate_fx_collective_size(node) / (4 * n_elements)
        told.append(f"{name} {share:.4g} S")
    dist.destroy_process_group()
    print(f"bytes it counts for a traced collective, N = {n_ranks}: {', '.join(told)}")


def times() -> None:
    """Print what one estimate costs."""
    from torch._inductor import comm_analysis as peer

    ring = simple("RING", "ALL_REDUCE")
    theirs = fastest_call(lambda: ring(GIB, 8))
    chosen = fastest_call(
        lambda: peer.estimate_nccl_collective_runtime_impl(GIB, 8, peer.NCCL_COLL.ALL_REDUCE)
    )
    ours = fastest_call(lambda: cost.alpha_beta_ring_allreduce(GIB, 8, ALPHA, NVLINK))
    print(
        f"one ring all-reduce of {format_bytes(GIB)}: torch {theirs * 1e6:.0f} µs "
        f"(the best of its six pairs of algorithm and protocol {chosen * 1e6:.0f} µs), "
        f"commlab {ours * 1e6:.0f} µs, which checks its input and takes arrays"
    )


def main() -> None:
    """Print the table, the sizes and the times."""
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed here: `pip install torch`, then run this again.")
        return
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import torch
    from torch._inductor import comm_analysis, config

    gpu = comm_analysis.get_gpu_type().name
    print(f"torch {torch.__version__}, which takes this machine for {gpu}; {machine()}")
    with config.patch(intra_node_bw=NVLINK / 1e9, inter_node_bw=INFINIBAND / 1e9):
        print_table([*rings_in_a_node(), tree_in_a_node(), *ring_over_nodes()])
        one_size()
        times()
    counted_sizes()


if __name__ == "__main__":
    main()
