"""The stated figures of §0, §1, §7 and §10, each to its last digit, in one table.

They belong to the rounded parameter counts; pages print the computed ones.
"""

from __future__ import annotations

import pytest

from commlab import alpha_beta_naive_allreduce, alpha_beta_ring_allreduce, hardware
from commlab.budget import (
    H100_CLUSTER,
    Group,
    Traffic,
    all_reduce_seconds,
    compute_time,
    data_parallel,
    expert_parallel,
    gather_seconds,
    sharded_volume,
    tensor_parallel,
    training_state,
)
from commlab.models import LLAMA3_8B, training_flops
from commlab.units import GIB, MIB, TIB

PHI_8B = 8.03e9
PHI_70B = 70.55e9
HOUR = 3600.0
WEEK = 7 * 24 * HOUR
YEAR = 365 * 24 * HOUR
LONG, SHORT = 32768, 4096
MOE = {"tokens": 8192, "hidden": 4096, "layers": 32, "n_ranks": 8}


def share(n_gpus: int, tokens: int) -> float:
    return 100 * data_parallel(PHI_8B, n_gpus).seconds / compute_time(PHI_8B, tokens)


def all_reduce_ms(n_gpus: int) -> float:
    return 1e3 * data_parallel(PHI_8B, n_gpus).seconds


def volume(stage: int) -> float:
    return sharded_volume(PHI_8B, 64, stage).total


def tensor(across: bool = False):
    return tensor_parallel(LLAMA3_8B, LONG, 8, across_nodes=across)


def experts(**changes):
    return expert_parallel(**MOE, **changes)


def ring_16():
    return alpha_beta_ring_allreduce(4 * GIB, 16, 0.0, hardware.NVLINK)


def naive_16():
    return alpha_beta_naive_allreduce(4 * GIB, 16, 0.0, hardware.NVLINK)


def sent_16():
    return Traffic("gradients", "all-reduce", 4 * GIB, Group(16), 1, 0.0, "last backward").sent


FIGURES = [
    ("0.1 training state of 8B, GiB", "119.656", lambda: training_state(PHI_8B).total / GIB),
    ("1.1 training state of 70B, TiB", "1.02664", lambda: training_state(PHI_70B).total / TIB),
    ("0.1 FLOPs of 8B on 15T, 1e23", "7.227", lambda: training_flops(PHI_8B, 15e12) / 1e23),
    ("0.1 one H100, years", "57.93", lambda: compute_time(PHI_8B, 15e12) / YEAR),
    ("1.1 H100 hours", "507457", lambda: compute_time(PHI_8B, 15e12) / HOUR),
    ("1.1 1000 H100, weeks", "3.0206", lambda: compute_time(PHI_8B, 15e12, n_gpus=1000) / WEEK),
    ("1.3 NVLink / InfiniBand", "9.0", lambda: hardware.NVLINK / hardware.INFINIBAND),
    ("1.3 HBM / NVLink", "7.444", lambda: hardware.H100.memory_rate / hardware.NVLINK),
    ("7.1 gradients, GiB", "14.957", lambda: data_parallel(PHI_8B, 8).gradient_bytes / GIB),
    ("7.1 compute at 32K tokens, s", "3.9908", lambda: compute_time(PHI_8B, LONG)),
    ("7.1 all-reduce on 8 GPUs, ms", "62.526", lambda: all_reduce_ms(8)),
    ("7.1 all-reduce on 64 GPUs, ms", "132.858", lambda: all_reduce_ms(64)),
    ("7.1 all-reduce on 1024 GPUs, ms", "143.468", lambda: all_reduce_ms(1024)),
    ("7.1 share at 32K, 8 GPUs, %", "1.567", lambda: share(8, LONG)),
    ("7.1 share at 32K, 64 GPUs, %", "3.329", lambda: share(64, LONG)),
    ("7.1 share at 32K, 1024 GPUs, %", "3.595", lambda: share(1024, LONG)),
    ("7.1 share at 4K, 8 GPUs, %", "12.53", lambda: share(8, SHORT)),
    ("7.1 share at 4K, 64 GPUs, %", "26.63", lambda: share(64, SHORT)),
    ("7.1 share at 4K, 1024 GPUs, %", "28.76", lambda: share(1024, SHORT)),
    ("7.2 FSDP / DDP", "1.5", lambda: volume(3) / volume(0)),
    ("7.3 activation, MiB", "256", lambda: tensor().activation_bytes / MIB),
    ("7.3 all-reduces", "128", lambda: tensor().count),
    ("7.3 in the node, ms", "142.581", lambda: 1e3 * tensor().seconds),
    ("7.3 compute, ms", "498.851", lambda: 1e3 * compute_time(PHI_8B, LONG, n_gpus=8)),
    ("7.3 across nodes, ms", "1211.55", lambda: 1e3 * tensor(across=True).seconds),
    ("7.4 bytes per layer, MiB", "112", lambda: experts().bytes_per_layer / MIB),
    ("7.4 layer in the node, ms", "0.270979", lambda: 1e3 * experts().seconds_per_layer),
    (
        "7.4 layer in the node, pairwise, ms",
        "0.330979",
        lambda: 1e3 * experts(algorithm="pairwise").seconds_per_layer,
    ),
    (
        "7.4 layer across nodes, ms",
        "2.35881",
        lambda: 1e3 * experts(across_nodes=True).seconds_per_layer,
    ),
    ("7.4 two passes, ms", "150.964", lambda: 1e3 * experts(across_nodes=True).seconds),
    (
        "7.4 three passes, ms",
        "226.446",
        lambda: 1e3 * experts(across_nodes=True, passes=3).seconds,
    ),
    ("10.1 ring sends, GiB", "7.5", lambda: sent_16() / GIB),
    ("10.1 ring, ms", "17.8957", lambda: 1e3 * ring_16()),
    ("10.1 naive, ms", "286.331", lambda: 1e3 * naive_16()),
    ("10.1 naive / ring", "16", lambda: naive_16() / ring_16()),
    ("10.4 hierarchical, s", "1.16617", lambda: data_parallel(PHI_70B, 64).seconds),
    (
        "10.4 each phase in the node, s",
        "0.274396",
        lambda: gather_seconds(2 * PHI_70B, Group(8), H100_CLUSTER),
    ),
    (
        "10.4 phase across nodes, s",
        "0.617382",
        lambda: all_reduce_seconds(2 * PHI_70B / 8, Group(1, 8), H100_CLUSTER),
    ),
    ("10.4 compute, s", "35.0624", lambda: compute_time(PHI_70B, LONG)),
    (
        "10.10 expert 0 gets 25%, slower by",
        "2.0",
        lambda: experts(hottest_share=0.25).byte_skew,
    ),
]


@pytest.mark.parametrize(
    ("text", "compute"), [row[1:] for row in FIGURES], ids=[row[0] for row in FIGURES]
)
def test_stated_figure(text, compute):
    decimals = len(text.partition(".")[2])
    assert compute() == pytest.approx(float(text), abs=0.5 * 10.0**-decimals)
