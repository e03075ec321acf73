"""Measure a running group: its α and β, and which all-reduce is fastest at each size.

The model and the clock share the work. With α and β measured, `best_algorithm` orders the
algorithms for each size; the first few race against the backend's own all_reduce, and what
wins is used from then on (`commlab.real.fast`). Where nothing beats the backend, the backend
stays, so that the fast path is not slower than what it replaces.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist

from commlab.algorithms import REGISTRY
from commlab.calibrate.fit_ring import fit_alpha_beta
from commlab.checks import check_n_ranks
from commlab.choice import Choice, best_algorithm
from commlab.real.bench_plan import BACKEND
from commlab.real.bind import bind_plan, make_scratch
from commlab.real.execute import follow_plan
from commlab.real.plan import plan_for_rank
from commlab.real.workers import BYTES_PER_BLOCK, FLOAT32_BYTES, MAX_CALLS
from commlab.schedule import Schedule
from commlab.topology import flat_topology
from commlab.units import KIB, MIB

# Sizes at which the race is held: 1 KiB, 4 KiB … 64 MiB.
SIZES = tuple(KIB * 4**power for power in range(9))
FIT_SIZES = (KIB, 16 * KIB, 256 * KIB, 4 * MIB)
BLOCKS = 9
# How many of the model's candidates race against the backend.
SHORTLIST = 5
# A candidate that takes so many times the backend's time in its first timed turn is out.
HOPELESS = 1.2
# A schedule is used only if it takes at most this share of the backend's time: a smaller gain
# is within the noise of a machine that others use as well.
WORTHWHILE = 0.8
# Seconds that one size may take, though never with fewer turns than a quartile needs.
SECONDS_PER_SIZE = 3.0
MIN_BLOCKS = 7
# Vectors up to so many bytes are copied into memory of the plan's own; of those up to so many,
# the last one is kept.
LARGEST_COPIED = 64 * KIB
LARGEST_KEPT = MIB
# Of its own, so that a send or receive of the program that is still under way is not mistaken
# for one of the schedule.
TAG = 4321


@dataclass(frozen=True)
class Decision:
    """What won at one measured size.

    Attributes
    ----------
    nbytes : int
    algorithm : str
        A name of the registry, or "backend".
    ratio : float
        Its time over that of the backend: the worse one of the two rounds.
    """

    nbytes: int
    algorithm: str
    ratio: float = 1.0


@dataclass(frozen=True)
class Calibration:
    """What was measured on a group.

    Attributes
    ----------
    n_ranks : int
    alpha : float
        Seconds per message.
    beta : float
        Bytes per second, one direction, while all ranks send.
    decisions : tuple of Decision
        By size, smallest first.
    """

    n_ranks: int
    alpha: float
    beta: float
    decisions: tuple[Decision, ...]

    def decision_for(self, nbytes: int) -> Decision:
        """Return the decision of the next measured size from ``nbytes`` up.

        Above the largest nothing was measured, so the backend is used.
        """
        for decision in self.decisions:
            if nbytes <= decision.nbytes:
                return decision
        return Decision(nbytes, BACKEND)

    def schedule_for(self, nbytes: int) -> Schedule | None:
        """Return the schedule to run for ``nbytes``; None where the backend is to do it.

        Pipelined algorithms get as many chunks as are best for this size.
        """
        algorithm = self.decision_for(nbytes).algorithm
        if algorithm == BACKEND:
            return None
        return _order(nbytes, self.n_ranks, self.alpha, self.beta, (algorithm,)).best.schedule


class PreparedSchedule:
    """A schedule made ready for one rank, number of elements and dtype.

    To lay out the views of a plan takes as long as several small messages, so it is done once
    where that is possible. Small vectors are copied into a store of the plan's own. Of larger
    ones the copy takes too long: they are their own store, and the views of the last one are
    kept for the case that it comes again, unless that would hold on to much memory.
    """

    def __init__(
        self, schedule: Schedule, like: torch.Tensor, group: dist.ProcessGroup | None
    ) -> None:
        counts = schedule.chunk_counts(like.numel()).tolist()
        self.plan = plan_for_rank(schedule, dist.get_rank(group), counts)
        assert self.plan.is_in_place, f"{schedule.name} does not end where it starts"
        self.group = group
        self.scratch = make_scratch(self.plan, like)
        self.is_copied = like.nbytes <= LARGEST_COPIED
        self.is_kept = like.nbytes <= LARGEST_KEPT
        self.store = like.new_empty(like.numel() if self.is_copied else 0)
        self.bound = bind_plan(self.plan, self.store, self.scratch) if self.is_copied else None

    def run(self, vector: torch.Tensor) -> None:
        """Sum a vector, shape (n_elements,), over the ranks, in place."""
        if self.is_copied:
            self.store.copy_(vector)
        # As long as the last vector is held here, no other memory can have its address.
        elif self.bound is None or self.store.data_ptr() != vector.data_ptr():
            self.store = vector.detach()
            self.bound = bind_plan(self.plan, self.store, self.scratch)
        assert self.bound is not None
        follow_plan(self.bound, self.group, TAG)
        if self.is_copied:
            vector.copy_(self.store)
        elif not self.is_kept:
            self.store, self.bound = vector.new_empty(0), None


def calibrate(
    group: dist.ProcessGroup | None = None,
    sizes: Sequence[int] = SIZES,
    blocks: int = BLOCKS,
) -> Calibration:
    """Measure α and β on a group, and for each size race the model's choices and the backend.

    Parameters
    ----------
    group : ProcessGroup, optional
        Every rank of it makes this call; all get the same answer.
    sizes : sequence of int
        Bytes, 4 or more.
    blocks : int
        Timed turns at each size; fewer where they take long.

    Returns
    -------
    Calibration

    Raises
    ------
    ValueError
        As for `commlab.real.fast.FastAllReduce`, or if the machine is so busy that no α and β fit.
    """
    n_ranks = check_group(group)
    sizes = sorted(set(sizes))
    if not sizes or sizes[0] < FLOAT32_BYTES:
        raise ValueError(f"sizes must be one or more, of 4 bytes or more each; got {sizes}.")
    check_n_ranks(blocks, "blocks")
    alpha, beta = _measure_alpha_beta(group, n_ranks, blocks)
    decisions = tuple(_race(nbytes, n_ranks, alpha, beta, group, blocks) for nbytes in sizes)
    return Calibration(n_ranks, alpha, beta, decisions)


def time_in_turns(
    calls: Sequence[Callable[[], object]],
    blocks: int,
    repeats: int,
    group: dist.ProcessGroup | None = None,
) -> np.ndarray:
    """Return the seconds per call, shape (calls, blocks), as the slowest rank saw them.

    The calls take turns in each block, because then whatever else the machine does meets all
    of them alike. Every rank of the group gets the same numbers.
    """
    seconds = torch.empty(len(calls), blocks, dtype=torch.float64)
    for block in range(blocks):
        for index, call in enumerate(calls):
            dist.barrier(group)
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            seconds[index, block] = (time.perf_counter() - start) / repeats
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX, group=group)
    return seconds.numpy()


def calls_per_block(nbytes: int) -> int:
    """Return how many calls are timed together, so that the clock itself does not count."""
    return max(1, min(MAX_CALLS, BYTES_PER_BLOCK // nbytes))


def _measure_alpha_beta(
    group: dist.ProcessGroup | None, n_ranks: int, blocks: int
) -> tuple[float, float]:
    """Fit α and β to our own ring: all ranks send at once, as they will later."""
    ring = REGISTRY["all_reduce", "ring"].build(n_ranks)
    medians = []
    for nbytes in FIT_SIZES:
        call = _call(ring, torch.zeros(nbytes // FLOAT32_BYTES), group)
        repeats = calls_per_block(nbytes)
        time_in_turns([call], 1, repeats, group)
        medians.append(float(np.median(time_in_turns([call], blocks, repeats, group))))
    # All ranks have the same times; that their processors round alike is not certain.
    fitted = torch.tensor(fit_alpha_beta(FIT_SIZES, medians, n_ranks), dtype=torch.float64)
    dist.broadcast(fitted, group=group, group_src=0)
    alpha, beta = fitted.tolist()
    return alpha, beta


def _race(
    nbytes: int,
    n_ranks: int,
    alpha: float,
    beta: float,
    group: dist.ProcessGroup | None,
    blocks: int,
) -> Decision:
    """Time the backend and the model's first choices in turns, and return the winner.

    The best of several noisy times looks better than it is. So the winner has to win once
    more, alone against the backend, and by more than the noise; otherwise the backend stays.
    """
    vector = torch.zeros(nbytes // FLOAT32_BYTES)
    repeats = calls_per_block(nbytes)

    def backend() -> None:
        dist.all_reduce(vector, group=group)

    candidates = _order(nbytes, n_ranks, alpha, beta).candidates[:SHORTLIST]
    calls = [_call(candidate.schedule, vector, group) for candidate in candidates]
    time_in_turns([backend, *calls], 1, repeats, group)  # touches memory, wakes up connections
    first, *others = time_in_turns([backend, *calls], 1, repeats, group)[:, 0].tolist()
    hopeful = [index for index, seconds in enumerate(others) if seconds < HOPELESS * first]
    if not hopeful:
        return Decision(nbytes, BACKEND)
    # The two rounds share the time between them, by the number of calls in each.
    affordable = int(SECONDS_PER_SIZE / (first * (len(hopeful) + 3) * repeats))
    turns = min(blocks, max(MIN_BLOCKS, affordable))
    race = time_in_turns([backend, *(calls[index] for index in hopeful)], turns, repeats, group)
    theirs, *ours = _undisturbed(race)
    winner = hopeful[int(np.argmin(ours))]
    again = time_in_turns([backend, calls[winner]], turns, repeats, group)
    theirs_again, ours_again = _undisturbed(again)
    ratio = max(min(ours) / theirs, ours_again / theirs_again)
    if ratio > WORTHWHILE:
        return Decision(nbytes, BACKEND)
    return Decision(nbytes, candidates[winner].algorithm, ratio)


def _undisturbed(seconds: np.ndarray) -> list[float]:
    """Return the lower quartile of each call's turns: a neighbour only makes a turn slower."""
    return np.percentile(seconds, 25, axis=1).tolist()


def _order(
    nbytes: int, n_ranks: int, alpha: float, beta: float, names: tuple[str, ...] | None = None
) -> Choice:
    """Let the model order the algorithms for a flat network; those for nodes are left out."""
    if names is None:
        names = tuple(
            name
            for (collective, name), entry in REGISTRY.items()
            if collective == "all_reduce" and "gpus_per_node" not in entry.options
        )
    return best_algorithm("all_reduce", nbytes, flat_topology(n_ranks, alpha, beta), names)


def _call(
    schedule: Schedule, vector: torch.Tensor, group: dist.ProcessGroup | None
) -> Callable[[], None]:
    prepared = PreparedSchedule(schedule, vector, group)
    return lambda: prepared.run(vector)


def check_group(group: dist.ProcessGroup | None) -> int:
    """Return the number of ranks of the group, or say why it cannot be used."""
    if not dist.is_initialized():
        raise ValueError(
            "this process is in no group: call torch.distributed.init_process_group first."
        )
    if dist.get_rank(group) < 0:
        raise ValueError("this process is not in the given group: let only its members call.")
    backend = dist.get_backend(group)
    if "gloo" not in backend:
        raise ValueError(
            f"the group's backend is {backend}: the fast path is for CPU processes over gloo, "
            "so call torch.distributed.all_reduce here."
        )
    n_ranks = dist.get_world_size(group)
    if n_ranks < 2:
        raise ValueError("the group has one rank, which has nobody to talk to: give 2 or more.")
    return n_ranks
