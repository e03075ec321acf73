"""The experiments on a virtual cluster: each returns what was measured beside its price."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Callable

import numpy as np

from commlab.algorithms import (
    direct_all_to_all,
    hierarchical_all_reduce,
    ring_all_reduce,
)
from commlab.real.cluster.buffers import ELEMENT_BYTES
from commlab.real.cluster.description import VirtualCluster
from commlab.real.cluster.launch import ClusterRun, Job, Measured, run_on_cluster
from commlab.real.cluster.overlap import ddp_overlap
from commlab.real.cluster.results import TIMES, ClusterMeasurement, OverlapPair, Row
from commlab.real.measure import about_this_machine
from commlab.units import MIB

ALL_REDUCE_BYTES = 4 * MIB
DISPATCH_BYTES = 3 * MIB
MOE_SHARES = (25, 50, 100)  # percent of all tokens that want an expert of rank 0
RAIL_PER_GPU = VirtualCluster(2, 2)
ONE_NIC = VirtualCluster(2, 2, rails=1)
# Neighbours on the ring never share a node: every hop goes over the network.
BAD_ORDER = (0, 2, 1, 3)


def hierarchy(repeats: int = 5) -> tuple[list[Row], float]:
    """Flat ring against the hierarchical scheme, every GPU with its own network interface.

    Parameters
    ----------
    repeats : int
        Timed runs of each schedule; the median counts.

    Returns
    -------
    rows : list of Row
        Both, and how many times as fast the second is.
    alpha : float
        Seconds per message.
    """
    run = run_on_cluster(
        RAIL_PER_GPU, [_ring("flat ring"), _two_level("hierarchical")], repeats=repeats
    )
    ring, two_level = run.results
    rows = _rows("hierarchy", run)
    return [*rows, _compared("hierarchy", "speed-up", ring, two_level)], run.alpha


def bad_order(repeats: int = 5) -> tuple[list[Row], float]:
    """A ring whose every hop leaves its node, where two GPUs share a network interface.

    Parameters and results as of `hierarchy`; the last row is how many times as slow it is.
    """
    bad = Job("ring 0, 2, 1, 3", ring_all_reduce(4), ALL_REDUCE_BYTES, rank_order=BAD_ORDER)
    run = run_on_cluster(ONE_NIC, [_ring("ring 0, 1, 2, 3"), bad], repeats=repeats)
    good, slow = run.results
    return [*_rows("rank order", run), _compared("rank order", "slow-down", slow, good)], run.alpha


def rails(repeats: int = 5) -> tuple[list[Row], float]:
    """The hierarchical scheme with one network interface per node, and with one per GPU.

    Parameters and results as of `hierarchy`; the last row is what the second one gains.
    """
    shared = run_on_cluster(ONE_NIC, [_two_level("1 NIC per node")], repeats=repeats)
    own = run_on_cluster(RAIL_PER_GPU, [_two_level("1 NIC per GPU")], repeats=repeats)
    rows = [*_rows("rails", shared), *_rows("rails", own)]
    gain = _compared("rails", "speed-up", shared.results[0], own.results[0])
    return [*rows, gain], float(np.median([shared.alpha, own.alpha]))


def moe_skew(repeats: int = 5) -> tuple[list[Row], float]:
    """All-to-all of tokens of which 25, 50 or 100 % want an expert of rank 0.

    At 25 % all ranks get the same. Every rank sends to all others at once. Parameters and
    results as of `hierarchy`.
    """
    jobs = []
    for percent in MOE_SHARES:
        counts = moe_counts(4, DISPATCH_BYTES // ELEMENT_BYTES, percent)
        # The schedule's S is what the fullest rank starts or ends with.
        fullest = int(max(counts.sum(axis=0).max(), counts.sum(axis=1).max())) * ELEMENT_BYTES
        jobs.append(Job(f"{percent} % to rank 0", direct_all_to_all(4, counts), fullest, ports=3))
    run = run_on_cluster(RAIL_PER_GPU, jobs, repeats=repeats)
    return _rows("MoE all-to-all", run), run.alpha


def moe_counts(n_ranks: int, n_elements: int, percent: int) -> np.ndarray:
    """Return how many elements each rank sends to each, when rank 0 is wanted too often.

    Parameters
    ----------
    n_ranks : int
    n_elements : int
        What each rank has to send, its own part included.
    percent : int
        Part of it that goes to rank 0; the others share the rest evenly.

    Returns
    -------
    numpy.ndarray of int, shape (n_ranks, n_ranks)
        ``[i, j]``: from rank i to rank j.
    """
    to_first = n_elements * percent // 100
    ends = to_first + (n_elements - to_first) * np.arange(n_ranks) // (n_ranks - 1)
    return np.tile(np.diff(ends, prepend=0), (n_ranks, 1))


def overlap(n_steps: int = 3) -> tuple[list[Row], float, tuple[OverlapPair, ...]]:
    """Train with DDP, its gradients in one bucket and in several.

    Returns
    -------
    rows : list of Row
    alpha : float
    pairs : tuple of OverlapPair
        The timelines, measured and priced.
    """
    alpha, pairs = ddp_overlap(RAIL_PER_GPU, n_steps=n_steps)
    one, many = (pair.row() for pair in pairs)
    gain = Row(
        one.experiment, "speed-up", one.measured / many.measured, one.priced / many.priced, TIMES
    )
    return [one, many, gain], alpha, pairs


def measure_all(repeats: int = 5, show: Callable[[str], None] = print) -> ClusterMeasurement:
    """Run all experiments, two minutes; ``show`` is told which one is next."""
    load = os.getloadavg()[0]
    rows: list[Row] = []
    alphas = []
    for experiment in (hierarchy, bad_order, rails, moe_skew):
        show(f"{experiment.__name__} ...")
        more, alpha = experiment(repeats)
        rows += more
        alphas.append(alpha)
    show("overlap ...")
    more, alpha, pairs = overlap()
    return ClusterMeasurement(
        date=datetime.date.today().isoformat(),
        machine=f"{about_this_machine()}, kernel {platform.release().partition('-')[0]}",
        load=load,
        alpha=float(np.median([*alphas, alpha])),
        rows=(*rows, *more),
        overlap=pairs,
    )


def _ring(name: str) -> Job:
    return Job(name, ring_all_reduce(4), ALL_REDUCE_BYTES)


def _two_level(name: str) -> Job:
    return Job(name, hierarchical_all_reduce(4, gpus_per_node=2), ALL_REDUCE_BYTES)


def _rows(experiment: str, run: ClusterRun) -> list[Row]:
    return [Row(experiment, one.name, one.measured, one.priced) for one in run.results]


def _compared(experiment: str, what: str, one: Measured, other: Measured) -> Row:
    return Row(experiment, what, one.measured / other.measured, one.priced / other.priced, TIMES)
