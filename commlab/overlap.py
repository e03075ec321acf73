"""Gradient buckets against the backward pass."""

from __future__ import annotations

import numpy as np


def bucket_timeline(
    n_buckets: int, backward_seconds: float, bucket_seconds: float
) -> tuple[np.ndarray, np.ndarray]:
    """When each bucket's all-reduce starts and ends, if gradients appear evenly.

    A bucket starts when its gradients are there *and* the network is free.

    Parameters
    ----------
    n_buckets : int
        Equal buckets, in the order in which the backward pass fills them.
    backward_seconds : float
        Duration of the backward pass; bucket i is full at (i + 1) / n_buckets of it.
    bucket_seconds : float
        Time of one bucket's all-reduce.

    Returns
    -------
    start, end : numpy.ndarray
        Seconds after the start of the backward pass, shape (n_buckets,).
    """
    start, end = np.empty(n_buckets), np.empty(n_buckets)
    network_free = 0.0
    for i in range(n_buckets):
        gradients_ready = backward_seconds * (i + 1) / n_buckets
        start[i] = max(gradients_ready, network_free)
        network_free = end[i] = start[i] + bucket_seconds
    return start, end
