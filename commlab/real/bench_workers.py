"""What the ranks of `commlab bench` do: check each collective once, then time it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from commlab.algorithms import REGISTRY
from commlab.real.bench_plan import BACKEND
from commlab.real.execute import execute_plan, steps_ahead
from commlab.real.plan import plan_for_rank
from commlab.real.torchrun import barrier
from commlab.real.workers import (
    BYTES_PER_BLOCK,
    MAX_CALLS,
    WARM_UP_BLOCKS,
    all_gather_single,
    reduce_scatter_single,
)

ROOT = 0
# Slow collectives get fewer blocks, but never fewer than a median needs.
SECONDS_PER_CASE = 10.0
MIN_BLOCKS = 5
# The check's numbers repeat after a prime number of elements, so that two chunks which change
# places are noticed, and are small enough for sums over 65 000 ranks to be exact in float32.
PERIOD = 251
LARGEST_NUMBER = 255

Call = Callable[[], torch.Tensor]


class WrongResultError(RuntimeError):
    """A collective gave wrong numbers; all ranks raise it, and nothing is timed."""


def sweep(cases: list[dict[str, Any]], blocks: int, progress_file: str) -> list | None:
    """Measure all cases between CPU processes; rank 0 returns what `measure_cases` does."""
    path = Path(progress_file)

    def write_line(text: str) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(text + "\n")

    measured = measure_cases(cases, blocks, torch.device("cpu"), write_line)
    return measured if dist.get_rank() == 0 else None


def measure_cases(
    cases: list[dict[str, Any]],
    blocks: int,
    device: torch.device,
    report: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Check and time every case. Every rank of the group calls it.

    Parameters
    ----------
    cases : list of dict
        As `commlab.real.bench_plan.plan_cases` makes them: ``collective``, ``n_elements`` and
        ``nbytes`` of the full vector S, and ``algorithms`` with ``name`` and ``options``.
    blocks : int
        How often each algorithm is timed.
    device : torch.device
    report : callable
        Called on rank 0 with one line before each case.

    Returns
    -------
    list of dict
        Per case ``calls`` in a timed block, and ``seconds[algorithm][block]`` per call, as the
        slowest rank saw them.

    Raises
    ------
    WrongResultError
        If a collective gives a wrong number on any rank.
    """
    measured = []
    for number, case in enumerate(cases, start=1):
        names = ", ".join(algorithm["name"] for algorithm in case["algorithms"])
        if dist.get_rank() == 0:
            report(f"[{number}/{len(cases)}] {case['collective']} {case['size']}: {names}")
        measured.append(measure_case(case, blocks, device))
    return measured


def measure_case(case: dict[str, Any], blocks: int, device: torch.device) -> dict[str, Any]:
    """Check and time the algorithms of one collective at one size, in turns.

    In turns, because then whatever else the machine does meets all of them alike.
    """
    collective, n_elements = case["collective"], case["n_elements"]
    for algorithm in case["algorithms"]:
        check_once(collective, algorithm, n_elements, case["size"], device)
    own = torch.zeros(input_length(collective, n_elements), device=device)
    calls = [prepare(collective, algorithm, own, n_elements) for algorithm in case["algorithms"]]
    repeats = max(1, min(MAX_CALLS, BYTES_PER_BLOCK // case["nbytes"]))
    warm_up = time_blocks(calls, WARM_UP_BLOCKS, repeats, device)
    # All ranks know the same maxima, and so agree on the number of blocks.
    seconds_per_block = max(float(warm_up[:, -1].sum()) * repeats, 1e-9)
    affordable = int(SECONDS_PER_CASE / seconds_per_block)
    blocks = min(blocks, max(MIN_BLOCKS, affordable))
    return {"calls": repeats, "seconds": time_blocks(calls, blocks, repeats, device).tolist()}


def time_blocks(calls: list[Call], blocks: int, repeats: int, device: torch.device) -> torch.Tensor:
    """Return the seconds per call, shape (calls, blocks): the maximum over the ranks."""
    seconds = torch.empty(len(calls), blocks, dtype=torch.float64, device="cpu")
    for block in range(blocks):
        for index, call in enumerate(calls):
            barrier(device)
            settle(device)
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            settle(device)
            seconds[index, block] = (time.perf_counter() - start) / repeats
    slowest = seconds.to(device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.cpu()


def settle(device: torch.device) -> None:
    """Wait until the GPU has done what it was given; on a CPU a call returns when it is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# ---------------------------------------------------------------------------------------
# One collective


def input_length(collective: str, n_elements: int) -> int:
    """Elements that one rank passes in, of ``n_elements`` in S."""
    return n_elements // dist.get_world_size() if collective == "all_gather" else n_elements


def prepare(collective: str, algorithm: dict[str, Any], own: torch.Tensor, n_elements: int) -> Call:
    """Return a function that runs the collective once and returns this rank's result."""
    if algorithm["name"] == BACKEND:
        return prepare_backend(collective, own, n_elements)
    rank, n_ranks = dist.get_rank(), dist.get_world_size()
    entry = REGISTRY[collective, algorithm["name"]]
    schedule = entry.build(n_ranks, **algorithm["options"])
    counts = schedule.chunk_counts(n_elements).tolist()
    plan = plan_for_rank(schedule, rank, counts, ahead=steps_ahead(own.device))
    # In a broadcast only the root starts with anything.
    buffer = own[: plan.n_input]
    return lambda: execute_plan(plan, buffer)[0]


def prepare_backend(collective: str, own: torch.Tensor, n_elements: int) -> Call:
    """Return the backend's own collective. Those that work in place work on a copy of ``own``."""
    n_ranks = dist.get_world_size()
    if collective == "all_gather":
        result = own.new_empty(n_elements)
        return lambda: _after(all_gather_single(result, own), result)
    if collective == "reduce_scatter":
        result = own.new_empty(n_elements // n_ranks)
        return lambda: _after(reduce_scatter_single(result, own), result)
    if collective == "all_to_all":
        result = own.new_empty(n_elements)
        return lambda: _after(dist.all_to_all_single(result, own), result)
    in_place = own.clone()
    if collective == "all_reduce":
        return lambda: _after(dist.all_reduce(in_place), in_place)
    if collective == "broadcast":
        return lambda: _after(dist.broadcast(in_place, ROOT), in_place)
    if collective == "reduce":
        kept = in_place if dist.get_rank() == ROOT else in_place[:0]
        return lambda: _after(dist.reduce(in_place, ROOT), kept)
    raise ValueError(f"the backend has no collective {collective!r}.")


def _after(work: object, result: torch.Tensor) -> torch.Tensor:
    """Return the result of a call that has been made."""
    return result


# ---------------------------------------------------------------------------------------
# Is it right?


def check_once(
    collective: str, algorithm: dict[str, Any], n_elements: int, size: str, device: torch.device
) -> None:
    """Run the collective on whole numbers and compare every element on every rank."""
    rank = dist.get_rank()
    own = tiled(_numbers_of(rank), input_length(collective, n_elements)).to(device)
    result = prepare(collective, algorithm, own, n_elements)()
    settle(device)
    right = expected(collective, n_elements).to(device)
    if result.shape == right.shape:
        wrong = (result != right).sum()
    else:
        wrong = torch.tensor(max(len(result), len(right)), device=device)
    total = wrong.to(torch.int64)
    dist.all_reduce(total)
    if total.item():
        raise WrongResultError(
            f"{collective} by {algorithm['name']} at {size} gave {total.item()} wrong numbers, "
            "so it was not timed"
        )


def expected(collective: str, n_elements: int) -> torch.Tensor:
    """Return what this rank must hold after a collective on every rank's `_numbers_of`."""
    rank, n_ranks = dist.get_rank(), dist.get_world_size()
    chunk = n_elements // n_ranks
    if collective == "all_gather":
        return torch.cat([tiled(_numbers_of(r), chunk) for r in range(n_ranks)])
    if collective == "all_to_all":
        first = rank * chunk
        return torch.cat([tiled(_numbers_of(r).roll(-first), chunk) for r in range(n_ranks)])
    if collective == "broadcast":
        return tiled(_numbers_of(ROOT), n_elements)
    total = tiled(sum(_numbers_of(r) for r in range(n_ranks)), n_elements)
    if collective == "all_reduce":
        return total
    if collective == "reduce_scatter":
        return total[rank * chunk : (rank + 1) * chunk]
    if collective == "reduce":
        return total if rank == ROOT else total[:0]
    raise ValueError(f"there is no collective {collective!r}.")


def _numbers_of(rank: int) -> torch.Tensor:
    """Return the whole numbers, as float32, that rank ``rank`` repeats throughout its buffer."""
    generator = torch.Generator(device="cpu").manual_seed(rank)
    numbers = torch.randint(LARGEST_NUMBER + 1, (PERIOD,), generator=generator, device="cpu")
    return numbers.to(torch.float32)


def tiled(numbers: torch.Tensor, length: int) -> torch.Tensor:
    """Repeat ``numbers`` until there are ``length`` of them."""
    repeats = -(-length // len(numbers))
    return numbers.repeat(repeats)[:length]
