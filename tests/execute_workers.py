"""The worker of test_execute.py that runs every algorithm at every N, and what it runs."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from typing import NamedTuple

import numpy as np
import torch

# TorchDispatchMode imports it late. Here it is imported once, before the ranks are forked,
# and not once in each of them.
import torch._dynamo
import torch.distributed as dist
from schedules import ALGORITHMS, RANKS, random_inputs
from torch.utils._python_dispatch import TorchDispatchMode

from commlab.algorithms import REGISTRY
from commlab.real.execute import execute
from commlab.schedule import Schedule

N_PROCESSES = 16
# All N at night. On every change the small ones, where the algorithms' shapes differ most, an
# odd one above them, and the largest; plans are followed without processes for more of them.
AT_NIGHT = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
RUN_RANKS = [*RANKS] if AT_NIGHT else [2, 3, 4, 5, 6, 7, 8, 13, 16]
# Indivisible by every number of chunks, and one for all algorithms, so that their bits compare.
PRIME = 1009
# The last one is indivisible as well: integers have both kinds.
DTYPE_OF_SIZE = {"divisible": "int64", "indivisible": "float32", "some chunks empty": "int64"}
# Nothing but the additions depends on the type, so two N are enough for the others.
HALVES = ["float16", "bfloat16"]
RANKS_FOR_HALVES = [3, 8]


class Case(NamedTuple):
    collective: str
    algorithm: str
    n_ranks: int
    size: str
    dtype: str

    @property
    def schedule(self) -> Schedule:
        return build(self.collective, self.algorithm, self.n_ranks)

    @property
    def n_elements(self) -> int:
        if self.size == "indivisible":
            return PRIME
        parts = self.schedule.unit_denominator
        return 2 * parts if self.size == "divisible" else parts // 2

    def inputs(self) -> list[torch.Tensor]:
        """Seeded by N and size alone: algorithms of one collective get the same numbers."""
        is_whole = self.dtype == "int64"
        arrays = random_arrays(*self[:3], self.n_elements, "int64" if is_whole else "float32")
        return [torch.from_numpy(array).to(getattr(torch, self.dtype)) for array in arrays]


@functools.cache
def build(collective: str, algorithm: str, n_ranks: int) -> Schedule:
    return REGISTRY[collective, algorithm].build(n_ranks)


@functools.cache
def random_arrays(
    collective: str, algorithm: str, n_ranks: int, n_elements: int, dtype: str
) -> list[np.ndarray]:
    rng = np.random.default_rng([n_ranks, n_elements])
    return random_inputs(build(collective, algorithm, n_ranks), n_elements, dtype, rng)


def cases(n_ranks: int) -> list[Case]:
    """Every registered algorithm that supports this N, at all sizes and some types."""
    found = []
    for key in ALGORITHMS:
        if not REGISTRY[key].supports(n_ranks):
            continue
        found += [Case(*key, n_ranks, *size) for size in DTYPE_OF_SIZE.items()]
        if n_ranks in RANKS_FOR_HALVES:
            found += [Case(*key, n_ranks, "indivisible", dtype) for dtype in HALVES]
    return found


def fingerprint(result: torch.Tensor) -> str:
    """Hash all bits of a tensor."""
    return hashlib.sha256(result.view(torch.uint8).numpy().tobytes()).hexdigest()


class Wiretap(TorchDispatchMode):
    """Notes every operation that torch.distributed hands to its backend."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[list[int]] = []
        self.names: set[str] = set()

    def __torch_dispatch__(self, function, types, arguments=(), kwargs=None):
        if function.namespace == "c10d":
            self.names.add(function._opname)
            if function._opname == "send":
                (tensor,), _, peer, _ = arguments
                self.sent.append([peer, tensor.numel()])
        return function(*arguments, **(kwargs or {}))


def run_all() -> dict[str, object]:
    """Run all cases of all N in ``RUN_RANKS`` that this process takes part in."""
    rank = dist.get_rank()
    answers = []
    operations: set[str] = set()
    for n_ranks, group in my_groups(rank):
        for case in cases(n_ranks):
            own = case.inputs()[dist.get_rank(group)]
            before = own.clone()
            # Slow, so one type is enough: nothing but the size of an element depends on it.
            tapped = case.dtype == "int64"
            with Wiretap() if tapped else contextlib.nullcontext() as wiretap:
                result, sent = execute(case.schedule, own, group, n_elements=case.n_elements)
            assert torch.equal(own, before), f"{case} changed its input"
            if wiretap:
                operations |= wiretap.names
                assert wiretap.sent == [[dst, elements] for _, dst, elements in sent], case
            answers.append([case, fingerprint(result), sent])
    return {"answers": answers, "operations": sorted(operations)}


def at_the_same_time() -> list[list[int]]:
    """Put the N together whose groups find room beside one another, largest first."""
    together: list[list[int]] = []
    for n_ranks in sorted(RUN_RANKS, reverse=True):
        for some in together:
            if sum(some) + n_ranks <= N_PROCESSES:
                some.append(n_ranks)
                break
        else:
            together.append([n_ranks])
    return together


def my_groups(rank: int) -> list[tuple[int, dist.ProcessGroup]]:
    """The groups that this process is in, with their N."""
    mine = []
    for some in at_the_same_time():
        first = 0
        for n_ranks in some:
            members = range(first, first + n_ranks)
            group = dist.new_group(list(members))  # every process has to make this call
            if rank in members:
                mine.append((n_ranks, group))
            first += n_ranks
    return mine


# Built in the process that the ranks are forked from, and so only once.
for _n_ranks in RUN_RANKS:
    for _case in cases(_n_ranks):
        _ = _case.inputs()
