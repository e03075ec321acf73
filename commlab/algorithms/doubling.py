"""Recursive doubling and halving: partners at distance 1, 2, 4, ...

Both need a power of two. Of other numbers of ranks, the surplus hands its vector to a
partner first and gets the result back at the end (the fold of MPICH).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from commlab.checks import check_n_ranks
from commlab.schedule import COPY, REDUCE, Schedule, Step


def recursive_doubling_all_reduce(n_ranks: int) -> Schedule:
    """All-reduce in which partners exchange whole vectors, at doubling distance.

    log2 N steps of S for a power of two, two more otherwise.

    References
    ----------
    Thakur, Rabenseifner and Gropp (2005), "Optimization of Collective Communication
    Operations in MPICH".
    """
    power = _largest_power_of_two(n_ranks)
    r = np.arange(power)
    exchanges = [
        Step(src=r, dst=r ^ distance, chunk=np.zeros_like(r), op=REDUCE)
        for distance in _distances(power)
    ]
    return _folded(n_ranks, power, 1, exchanges, "recursive_doubling")


def halving_doubling_all_reduce(n_ranks: int) -> Schedule:
    """Rabenseifner's all-reduce: recursive halving, then recursive doubling.

    For a power of two 2 log2 N steps that move 2(N-1)/N S, as few bytes as a ring.
    Otherwise two more steps of S.

    References
    ----------
    Thakur, Rabenseifner and Gropp (2005), as above; the algorithm is R. Rabenseifner's.
    """
    power = _largest_power_of_two(n_ranks)
    rank = np.arange(power)[:, None]
    chunk = np.arange(power)[None, :]
    halving, doubling = [], []
    for distance in reversed(_distances(power)):
        # Send the partner's half of what is still mine: chunks that agree with me above
        # this bit of the number and differ in it.
        src, sent = np.nonzero((rank ^ chunk) // distance == 1)
        halving.append(Step(src=src, dst=src ^ distance, chunk=sent, op=REDUCE))
    for distance in _distances(power):
        # Send all chunks that are complete here: those that differ from me below this bit.
        src, sent = np.nonzero((rank ^ chunk) // distance == 0)
        doubling.append(Step(src=src, dst=src ^ distance, chunk=sent, op=COPY))
    return _folded(n_ranks, power, power, halving + doubling, "halving_doubling")


def _folded(n_ranks: int, power: int, n_chunks: int, core: list[Step], name: str) -> Schedule:
    """Put the fold for the ranks from ``power`` up around the steps of the others."""
    surplus, chunk = np.meshgrid(np.arange(power, n_ranks), np.arange(n_chunks), indexing="ij")
    outside, moved = surplus.reshape(-1), chunk.reshape(-1)
    steps = core
    if n_ranks > power:
        fold = Step(src=outside, dst=outside - power, chunk=moved, op=REDUCE)
        unfold = Step(src=outside - power, dst=outside, chunk=moved, op=COPY)
        steps = [fold, *core, unfold]
    everything = tuple(range(n_chunks))
    return Schedule(
        "all_reduce",
        n_ranks,
        shares=[Fraction(1, n_chunks)] * n_chunks,
        starts=[everything] * n_ranks,
        ends=[everything] * n_ranks,
        steps=steps,
        name=name,
    )


def _largest_power_of_two(n_ranks: int) -> int:
    return 1 << (check_n_ranks(n_ranks).bit_length() - 1)


def _distances(power: int) -> list[int]:
    return [1 << k for k in range(power.bit_length() - 1)]
