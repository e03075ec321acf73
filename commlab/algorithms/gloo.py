"""The ring all-reduce of gloo, with gloo's own order of additions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from commlab.checks import check_count, check_n_ranks, only_one
from commlab.schedule import COPY, REDUCE, Schedule, Step

# gloo's default upper limit of a segment, in bytes.
MAX_SEGMENT_BYTES = 2**20


def gloo_ring_all_reduce(n_ranks: int, n_elements: int, element_bytes: int = 4) -> Schedule:
    """Ring all-reduce as gloo does it, for one buffer size.

    The vector is cut into segments, equally many for each of N blocks and at least two, so
    that one travels while another is added. Data flows to rank r-1. Block b starts at rank
    b-1 and is complete at rank b; then the complete blocks go round once more.

    Parameters
    ----------
    n_ranks : int
    n_elements : int
        Elements of the vector. The schedule fits this size only: its last segments may be
        shorter or empty.
    element_bytes : int
        Bytes of an element: 4 for FP32, 2 for BF16 and FP16.

    Returns
    -------
    Schedule
        One segment per message and step, as gloo sends them. That gloo has two of them in
        flight at a time is not in it.

    References
    ----------
    gloo, allreduce.cc, function ``ring``: https://github.com/pytorch/gloo
    """
    n_ranks = check_n_ranks(n_ranks)
    n_segments, segment_elements = gloo_segments(n_ranks, n_elements, element_bytes)
    per_rank = n_segments // n_ranks
    r = np.arange(n_ranks)
    left = (r - 1) % n_ranks
    rounds = range(n_segments - per_rank)
    reduce_scatter = [
        Step(src=r, dst=left, chunk=((r + 1) * per_rank + i) % n_segments, op=REDUCE)
        for i in rounds
    ]
    all_gather = [
        Step(src=r, dst=left, chunk=(r * per_rank + i) % n_segments, op=COPY) for i in rounds
    ]
    bounds = np.minimum(np.arange(n_segments + 1) * segment_elements, n_elements)
    everything = tuple(range(n_segments))
    return Schedule(
        "all_reduce",
        n_ranks,
        shares=[Fraction(1, n_segments)] * n_segments,
        starts=[everything] * n_ranks,
        ends=[everything] * n_ranks,
        steps=reduce_scatter + all_gather,
        name="gloo_ring",
        counts=np.diff(bounds).tolist(),
    )


def gloo_segments(n_ranks: int, n_elements: int, element_bytes: int) -> tuple[int, int]:
    """Return how many segments gloo cuts a vector into, and the elements of a full one.

    A multiple of N, at least 2N, and enough to keep each below `MAX_SEGMENT_BYTES`.
    """
    n_ranks = check_n_ranks(n_ranks)
    if n_elements != 0:
        n_elements = int(only_one(check_count(n_elements, "n_elements"), "n_elements"))
    element_bytes = int(only_one(check_count(element_bytes, "element_bytes"), "element_bytes"))
    nbytes = n_elements * element_bytes
    at_least = max(_ceil(nbytes, MAX_SEGMENT_BYTES), 2 * n_ranks)
    n_segments = _ceil(at_least, n_ranks) * n_ranks
    return n_segments, _ceil(_ceil(nbytes, n_segments), element_bytes)


def _ceil(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
