"""Training steps with DDP on a virtual cluster, beside the timeline of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from commlab.algorithms import ring_all_reduce
from commlab.cost import price
from commlab.overlap import (
    BucketInterval,
    Interval,
    OverlapTimeline,
    timeline,
    uniform_backward,
)
from commlab.real.cluster.description import VirtualCluster
from commlab.real.cluster.launch import ClusterError, Task, alpha_of, alpha_task, run_tasks
from commlab.real.cluster.results import OverlapPair
from commlab.units import MIB

WORKERS = "commlab.real.cluster.overlap_workers"
N_LAYERS = 8
HIDDEN = 384  # so that a layer's gradient is 0.5625 MiB in FP32
ROWS = 4
PAUSE = 0.07  # seconds of a layer's backward pass, which take no processor
GRADIENT_BYTES = 4 * HIDDEN**2

# The timed steps of one rank, as `overlap_workers.train_in_buckets` returns them.
Steps = list[dict[str, Any]]


def ddp_overlap(
    cluster: VirtualCluster, *, n_steps: int = 3, timeout: float = 120.0
) -> tuple[float, tuple[OverlapPair, OverlapPair]]:
    """Train with DDP on a cluster, all gradients in one bucket and each in its own.

    A layer of the model rests in its backward pass, as a processor does whose GPU computes.
    Buckets are averaged one after the other by the ring schedule whose price the model has.

    Returns
    -------
    alpha : float
        Seconds per message.
    pairs : tuple of OverlapPair
        For one bucket and for one bucket per layer.

    Raises
    ------
    ClusterUnavailable, ClusterError, RankError
        As `run_on_cluster`.
    """
    training = Task(
        f"{WORKERS}:train_in_buckets",
        {
            "n_layers": N_LAYERS,
            "hidden": HIDDEN,
            "rows": ROWS,
            "pause": PAUSE,
            "bucket_caps_mb": [N_LAYERS * GRADIENT_BYTES / MIB, GRADIENT_BYTES / MIB],
            "n_steps": n_steps,
        },
    )
    tasks = [alpha_task(cluster), training]
    alpha_answer, by_rank = run_tasks(cluster, tasks, timeout, entry=f"{WORKERS}:work_in_place")
    if not all(of_rank["averaged"] for of_rank in by_rank):
        raise ClusterError("DDP's gradients are not the mean of all ranks' gradients.")
    alpha = alpha_of(alpha_answer)
    one, many = (
        _pair(cluster, alpha, steps)
        for steps in zip(*(of_rank["with_ddp"] for of_rank in by_rank), strict=True)
    )
    return alpha, (one, many)


def _pair(cluster: VirtualCluster, alpha: float, steps: Sequence[Steps]) -> OverlapPair:
    step = _middle(steps)
    names = [f"layer {layer}" for layer in reversed(range(N_LAYERS))]
    starts = [0.0, *step["ready"][:-1]]
    buckets = [BucketInterval(**bucket) for bucket in step["buckets"]]
    measured = OverlapTimeline(
        name="measured",
        compute=tuple(Interval(*one) for one in zip(names, starts, step["ready"], strict=True)),
        buckets=tuple(buckets),
    )
    backward = uniform_backward(
        N_LAYERS * GRADIENT_BYTES, N_LAYERS * PAUSE, n_gradients=N_LAYERS, n_layers=N_LAYERS
    )
    topology = cluster.topology(alpha)

    ring = ring_all_reduce(cluster.n_ranks)
    model = timeline(
        backward,
        [bucket.nbytes for bucket in buckets],
        lambda nbytes: price(ring, topology, nbytes).total,
    )
    return OverlapPair(measured, model)


def _middle(steps: Sequence[Steps]) -> dict[str, Any]:
    """Return the step of median length, as the rank saw it that was last to end it."""
    ends = np.array([[step["buckets"][-1]["end"] for step in of_rank] for of_rank in steps])
    chosen = int(np.argsort(ends.max(axis=0))[ends.shape[1] // 2])
    return steps[int(np.argmax(ends[:, chosen]))][chosen]
