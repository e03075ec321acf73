"""What ranks start with, the same for the processes of a cluster and for the simulation."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from commlab.schedule import Schedule
from commlab.simulate import simulate

DTYPE = np.int32  # whole numbers: their sum is exact in any order
ELEMENT_BYTES = 4


def start_buffer(schedule: Schedule, rank: int, counts: Sequence[int], seed: int) -> np.ndarray:
    """Return random whole numbers for the chunks that a rank starts with.

    Parameters
    ----------
    schedule : Schedule
    rank : int
    counts : sequence of int
        Elements of each chunk.
    seed : int

    Returns
    -------
    numpy.ndarray of int32, 1-D
    """
    n_elements = sum(counts[chunk] for chunk in schedule.starts[rank])
    return np.random.default_rng([seed, rank]).integers(-1000, 1000, n_elements, dtype=DTYPE)


def right_digests(schedule: Schedule, n_elements: int, seed: int) -> list[str]:
    """Return the fingerprint of what each rank has to end with, by simulation."""
    counts = schedule.chunk_counts(n_elements).tolist()
    buffers = [start_buffer(schedule, rank, counts, seed) for rank in range(schedule.n_ranks)]
    return [digest(result) for result in simulate(schedule, buffers, n_elements=n_elements).buffers]


def digest(values: np.ndarray) -> str:
    """Return a fingerprint of an array's bits."""
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
