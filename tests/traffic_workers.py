"""Workers of test_traffic.py. The ranks import this module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor.debug import CommDebugMode

from commlab.real.traffic.data_parallel import AllToAllReduceScatter, make_layers
from commlab.real.traffic.hooks import see_buckets
from commlab.real.traffic.operations import OperationLog, count_step
from commlab.real.traffic.steps import run_steps
from commlab.real.workers import all_gather_single, reduce_scatter_single


def everything(steps: list[tuple[str, dict[str, Any]]], counts: list[int]) -> dict[str, Any]:
    """Make all observations of the tests in one start of the ranks."""
    return {
        "steps": run_steps(steps),
        "plain": plain_collectives(n_elements=2**20),
        "uneven": uneven_all_to_all(counts),
        "debug mode": what_the_debug_mode_counts(),
        "reduce-scatter": own_reduce_scatter_is_right(),
        "unknown": refuse_the_unknown(),
    }


def plain_collectives(n_elements: int) -> dict[str, Any]:
    """Call four collectives on float32 vectors, each a phase of its own."""
    rank, n_ranks = dist.get_rank(), dist.get_world_size()
    whole, part = torch.zeros(n_elements), torch.zeros(n_elements // n_ranks)

    def step(log: OperationLog) -> None:
        log.begin("all_reduce")
        dist.all_reduce(whole)
        log.begin("all_gather")
        all_gather_single(whole, part)
        log.begin("reduce_scatter")
        reduce_scatter_single(part, whole)
        log.begin("all_to_all")
        dist.all_to_all_single(torch.empty_like(whole), whole)
        log.begin("send")
        if rank == 0:
            dist.send(whole, 1)
        if rank == 1:
            dist.recv(whole, 0)
        log.begin("nothing")

    return count_step(step)


def uneven_all_to_all(counts: list[int]) -> dict[str, Any]:
    """Send counts[r] rows to rank r."""
    rows = torch.zeros(sum(counts), 4)
    mine = counts[dist.get_rank()]

    def step(log: OperationLog) -> None:
        log.begin("step")
        received = torch.empty(mine * dist.get_world_size(), 4)
        dist.all_to_all_single(received, rows, [mine] * dist.get_world_size(), counts)

    return count_step(step)


def what_the_debug_mode_counts() -> list[dict[str, int]]:
    """Count one FSDP step with PyTorch's own debug mode, and with our log."""
    from torch.distributed.fsdp import fully_shard

    model = make_layers(n_layers=3, hidden=64)
    for layer in model:
        fully_shard(layer, reshard_after_forward=True)
    fully_shard(model)
    samples = torch.ones(2, 64, dtype=torch.bfloat16)
    log = OperationLog()
    with CommDebugMode() as debug:
        model(samples).sum().backward()
    with log:
        model(samples).sum().backward()
    theirs = {str(op).rpartition(".")[2]: times for op, times in debug.get_comm_counts().items()}
    ours: dict[str, int] = {}
    for operation in log.operations:
        ours[operation.kind] = ours.get(operation.kind, 0) + 1
    return [theirs, ours]


def own_reduce_scatter_is_right() -> list[float]:
    """Return the largest difference from gloo's own, for a sum and for a mean."""
    n_ranks = dist.get_world_size()
    generator = torch.Generator().manual_seed(dist.get_rank())
    whole = torch.randn(n_ranks * 1001, generator=generator, dtype=torch.float64)
    group = dist.group.WORLD
    assert group is not None
    differences = []
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
        by_gloo, own = torch.empty(1001).double(), torch.empty(1001).double()
        reduce_scatter_single(by_gloo, whole, op=op)
        AllToAllReduceScatter()(own, whole, group, op)
        differences.append((by_gloo - own).abs().max().item())
    return differences


def refuse_the_unknown() -> str:
    """Return what the log says to a collective that it cannot count."""
    try:
        with OperationLog():
            dist.broadcast(torch.zeros(1), src=0)
    except NotImplementedError as error:
        return str(error)
    return ""


def interface_and_sockets(n_elements: int) -> list[int | None]:
    """Count one all_reduce on the loopback interface, and at this process's sockets.

    All ranks return the same count of the interface, if nobody else uses it.
    """
    x = torch.zeros(n_elements)

    def step(log: OperationLog) -> None:
        log.begin("step")
        dist.all_reduce(x)

    dist.barrier()
    before = loopback_bytes()
    dist.barrier()
    sent = count_step(step)["sent"]
    dist.barrier()
    return [loopback_bytes() - before, sent["step"]]


def loopback_bytes() -> int:
    """Bytes that the loopback interface has transmitted, headers included."""
    for line in Path("/proc/net/dev").read_text(encoding="ascii").splitlines():
        name, _, fields = line.partition(":")
        if name.strip() == "lo":
            return int(fields.split()[8])
    raise LookupError("there is no loopback interface")


def bucket_cases(cases: list[list[Any]]) -> list[list[list[list[int]]]]:
    """Look at the buckets of several models in one start of the ranks."""
    return [see_buckets(*case) for case in cases]
