"""Recursive doubling and halving: partners at distance 1, 2, 4, ...

Both need a power of two. Of other numbers of ranks, the surplus hands its vector to a
partner first and gets the result back at the end (the fold).
"""

from __future__ import annotations

import numpy as np

from commlab.algorithms.equal_chunks import (
    all_gather_schedule,
    equal_chunks_schedule,
    reduce_scatter_schedule,
)
from commlab.checks import check_n_ranks
from commlab.schedule import COPY, REDUCE, Schedule, Step

FOLDS = ("whole", "halves")


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


def halving_doubling_all_reduce(n_ranks: int, fold: str = "whole") -> Schedule:
    """Rabenseifner's all-reduce: recursive halving, then recursive doubling.

    For a power of two 2 log2 N steps that move 2(N-1)/N S, as few bytes as a ring.
    Otherwise the fold adds steps: two of S ("whole", as MPICH does it), or two of S/2 and one
    of S ("halves", Rabenseifner's own: partners first add half a vector each). Both move
    2 S more; the second halves the additions, which this model does not charge for.

    References
    ----------
    Thakur, Rabenseifner and Gropp (2005), as above; the algorithm is R. Rabenseifner's.
    """
    power = _largest_power_of_two(n_ranks)
    core = halving_steps(power) + doubling_steps(power)
    if fold not in FOLDS:
        raise ValueError(f"fold must be one of {', '.join(FOLDS)}; got {fold!r}.")
    return _folded(n_ranks, power, power, core, "halving_doubling", fold)


def recursive_halving_reduce_scatter(n_ranks: int) -> Schedule:
    """Reduce-scatter in log2 N steps: partners at halving distance swap what is not theirs.

    A power of two only. Rank r ends with chunk r; it sends (N-1)/N S. Source: Thakur et al.
    (2005), as above.
    """
    n_ranks = check_power_of_two(n_ranks)
    return reduce_scatter_schedule(n_ranks, halving_steps(n_ranks), "recursive_halving")


def recursive_doubling_all_gather(n_ranks: int) -> Schedule:
    """All-gather in log2 N steps: partners at doubling distance swap all that they have.

    A power of two only. Every rank sends (N-1)/N S. Source: Thakur et al. (2005), as above.
    """
    n_ranks = check_power_of_two(n_ranks)
    return all_gather_schedule(n_ranks, doubling_steps(n_ranks), "recursive_doubling")


def halving_steps(power: int) -> list[Step]:
    """Distance N/2, ..., 2, 1: send the partner's half of what is still mine.

    Those are the chunks that agree with me above this bit of the number and differ in it.
    """
    rank, chunk = np.arange(power)[:, None], np.arange(power)[None, :]
    steps = []
    for distance in reversed(_distances(power)):
        src, sent = np.nonzero((rank ^ chunk) // distance == 1)
        steps.append(Step(src=src, dst=src ^ distance, chunk=sent, op=REDUCE))
    return steps


def doubling_steps(power: int) -> list[Step]:
    """Distance 1, 2, ..., N/2: send all that is complete here.

    Those are the chunks whose number differs from mine below this bit only.
    """
    rank, chunk = np.arange(power)[:, None], np.arange(power)[None, :]
    steps = []
    for distance in _distances(power):
        src, sent = np.nonzero((rank ^ chunk) // distance == 0)
        steps.append(Step(src=src, dst=src ^ distance, chunk=sent, op=COPY))
    return steps


def is_power_of_two(n_ranks: int, **others: object) -> bool:
    """Whether N is 1, 2, 4, 8, ..."""
    return n_ranks >= 1 and n_ranks & (n_ranks - 1) == 0


def check_power_of_two(n_ranks: int) -> int:
    """Return ``n_ranks``, or say that it must be a power of two."""
    n_ranks = check_n_ranks(n_ranks)
    if not is_power_of_two(n_ranks):
        raise ValueError(f"partners at doubling distance need a power of two; got {n_ranks} ranks.")
    return n_ranks


def _folded(
    n_ranks: int, power: int, n_chunks: int, core: list[Step], name: str, fold: str = "whole"
) -> Schedule:
    """Put the fold for the ranks from ``power`` up around the steps of the others."""
    surplus, chunk = np.meshgrid(np.arange(power, n_ranks), np.arange(n_chunks), indexing="ij")
    outside, moved = surplus.reshape(-1), chunk.reshape(-1)
    inside = outside - power
    steps = core
    if n_ranks > power:
        unfold = Step(src=inside, dst=outside, chunk=moved, op=COPY)
        if fold == "whole":
            before = [Step(src=outside, dst=inside, chunk=moved, op=REDUCE)]
        else:
            # The partner adds the lower half, the surplus rank the upper one and hands it over.
            upper = moved >= n_chunks // 2
            halves = Step(
                src=np.where(upper, inside, outside),
                dst=np.where(upper, outside, inside),
                chunk=moved,
                op=REDUCE,
            )
            hand_over = Step(src=outside[upper], dst=inside[upper], chunk=moved[upper], op=COPY)
            before = [halves, hand_over]
        steps = [*before, *core, unfold]
    return equal_chunks_schedule("all_reduce", n_ranks, n_chunks, steps, name)


def _largest_power_of_two(n_ranks: int) -> int:
    return 1 << (check_n_ranks(n_ranks).bit_length() - 1)


def _distances(power: int) -> list[int]:
    return [1 << k for k in range(power.bit_length() - 1)]
