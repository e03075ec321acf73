r"""The same workers under torchrun, on one machine or many, with gloo or NCCL.

``commlab.real.run`` starts the ranks of one machine. Here somebody else has started them::

    torchrun --nnodes 2 --node-rank 0 --master-addr node1 --nproc-per-node 8 \
        -m commlab.real.torchrun commlab.real.workers:five_collectives --output results

Each rank then does what it does under ``run``: it joins the group, calls the worker and leaves
``rank0.result.json``, ``rank1.result.json`` … behind. The NCCL way was not run on GPUs here.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from commlab.real import _files
from commlab.real.interfaces import interface_towards, is_loopback, local_address_towards
from commlab.real.launch import RankError
from commlab.real.rank import leave, write_report, write_result

BACKENDS = ("auto", "gloo", "nccl")
# Nodes of a cluster may start minutes apart; one that is not there by then will not come.
MAX_JOIN_SECONDS = 300.0
_NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class JoinError(RuntimeError):
    """A rank could not find the others; says which rank it is and what to look at."""


@dataclass(frozen=True)
class Place:
    """Where this process stands among the others.

    Attributes
    ----------
    rank, n_ranks : int
    local_rank, ranks_per_node : int
        The same within this node.
    n_nodes : int
        The agents that torchrun started. Two on one machine count as two nodes.
    master : str
        Name or address of the machine through which the ranks find one another.
    """

    rank: int
    n_ranks: int
    local_rank: int
    ranks_per_node: int
    n_nodes: int
    master: str
    port: str


@dataclass(frozen=True)
class Group:
    """The group that was joined: its backend, and the device of this rank's tensors."""

    backend: str
    device: torch.device


def read_place(environment: Mapping[str, str] = os.environ) -> Place:
    """Read this rank's place from the variables that torchrun sets.

    Raises
    ------
    ValueError
        If a variable is missing or makes no sense.
    """
    missing = [name for name in _NEEDED if not environment.get(name)]
    if missing:
        raise ValueError(
            f"the environment variable {missing[0]} is not set: start this program with torchrun, "
            "which sets it, or unset RANK and WORLD_SIZE to run on this machine alone."
        )
    number = {name: _whole_number(name, environment[name]) for name in _NEEDED if name[:2] != "MA"}
    rank, n_ranks = number["RANK"], number["WORLD_SIZE"]
    local_rank, ranks_per_node = number["LOCAL_RANK"], number["LOCAL_WORLD_SIZE"]
    if not (0 <= rank < n_ranks and 0 <= local_rank < ranks_per_node <= n_ranks):
        raise ValueError(
            f"RANK {rank} of WORLD_SIZE {n_ranks} and LOCAL_RANK {local_rank} of LOCAL_WORLD_SIZE "
            f"{ranks_per_node} do not go together: start all processes with torchrun."
        )
    if n_ranks % ranks_per_node:
        raise ValueError(
            f"{n_ranks} ranks do not fill nodes of {ranks_per_node}: give torchrun the same "
            "--nproc-per-node on every node."
        )
    n_nodes = n_ranks // ranks_per_node
    master, port = environment["MASTER_ADDR"], environment["MASTER_PORT"]
    return Place(rank, n_ranks, local_rank, ranks_per_node, n_nodes, master, port)


def choose_backend(asked: str, ranks_per_node: int, gpus: Sequence[int]) -> str:
    """Return "nccl" or "gloo", the same on every rank.

    Parameters
    ----------
    asked : str
        "gloo", "nccl", or "auto": NCCL where every rank has a GPU of its own, gloo otherwise.
    ranks_per_node : int
    gpus : sequence of int
        By rank, how many GPUs PyTorch can use with NCCL there.

    Raises
    ------
    ValueError
        If NCCL is asked for and some rank has no GPU.
    """
    if asked not in BACKENDS:
        raise ValueError(f"there is no backend {asked!r}: choose one of {', '.join(BACKENDS)}.")
    if asked == "gloo" or (asked == "auto" and min(gpus) < ranks_per_node):
        return "gloo"
    if min(gpus) < ranks_per_node:
        poorest = list(gpus).index(min(gpus))
        raise ValueError(
            f"NCCL needs a GPU for each of the {ranks_per_node} ranks of a node, and PyTorch sees "
            f"{min(gpus)} where rank {poorest} is: take the backend gloo, or see what "
            "`commlab doctor` says there."
        )
    return "nccl"


@contextlib.contextmanager
def joined(place: Place, backend: str, timeout: float) -> Iterator[Group]:
    """Make this process a rank of the group that torchrun has started; leave it at the end.

    Parameters
    ----------
    place : Place
    backend : str
        See `choose_backend`.
    timeout : float
        Seconds that a collective may take.

    Yields
    ------
    Group
        Tensors are made on its device by default, so that workers written for the CPU run on
        GPUs as they are.

    Raises
    ------
    ValueError
        If the backend cannot be used, on all ranks; or the timeout makes no sense.
    JoinError
        If the ranks do not find one another.
    """
    if not (math.isfinite(timeout) and timeout > 0):
        raise ValueError(f"timeout is {timeout!r}: give a number of seconds above 0.")
    patience = timedelta(seconds=min(timeout, MAX_JOIN_SECONDS))
    try:
        store, _, _ = next(dist.rendezvous("env://", timeout=patience))
        gpus, addresses = _facts_by_rank(store, place)
    except (RuntimeError, OSError) as error:
        raise _join_error(place, error) from error
    backend = choose_backend(backend, place.ranks_per_node, gpus)
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", place.local_rank)
        torch.cuda.set_device(device)
        torch.set_default_device(device)
    else:
        torch.set_num_threads(1)
        _give_gloo_an_interface(place.master, addresses)
    try:
        dist.init_process_group(
            backend,
            store=store,
            rank=place.rank,
            world_size=place.n_ranks,
            timeout=timedelta(seconds=timeout),
            device_id=device if backend == "nccl" else None,
        )
        barrier(device)
    except RuntimeError as error:
        raise _join_error(place, error) from error
    yield Group(backend, device)
    barrier(device)
    dist.destroy_process_group()


def _facts_by_rank(store: dist.Store, place: Place) -> tuple[list[int], list[str]]:
    """Exchange, by rank, the GPUs that it could use with NCCL, and its address."""
    gpus = torch.cuda.device_count() if dist.is_nccl_available() else 0
    own = {"gpus": gpus, "address": local_address_towards(place.master) or ""}
    store.set(f"commlab/{place.rank}", json.dumps(own))
    facts = [json.loads(store.get(f"commlab/{rank}")) for rank in range(place.n_ranks)]
    return [one["gpus"] for one in facts], [one["address"] for one in facts]


def _give_gloo_an_interface(master: str, addresses: Sequence[str]) -> None:
    """Name the interface that leads to the other ranks, unless the user has named one.

    Otherwise gloo looks up this machine's own name, which may lead to a VPN or nowhere.
    ``addresses`` are those of all ranks: where the machine with rank 0 knows its own name as
    127.0.1.1, another rank's address shows the way.
    """
    if os.environ.get("GLOO_SOCKET_IFNAME"):
        return
    distant = [address for address in addresses if address and not is_loopback(address)]
    own = local_address_towards(master)
    if own is not None and is_loopback(own) and distant:
        master = distant[0]
    interface = interface_towards(master)
    if interface is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = interface


def _join_error(place: Place, error: Exception) -> JoinError:
    first_line = str(error).strip().partition("\n")[0].rstrip(".")
    return JoinError(
        f"rank {place.rank} on {socket.gethostname()} found no group through {place.master} "
        f"port {place.port} ({first_line}): run `commlab doctor` on every node."
    )


def barrier(device: torch.device) -> None:
    """Wait for all ranks; on GPUs, on the GPU of this rank."""
    if device.type == "cuda":
        dist.barrier(device_ids=[device.index])
    else:
        dist.barrier()


def gather_from_all(value: object) -> list:
    """Return every rank's value, by rank, on all of them."""
    values: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def describe_device(device: torch.device) -> tuple[str, dict[str, str]]:
    """Return the name of the device, and the versions that matter with it."""
    if device.type != "cuda":
        return "cpu", {}
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    return torch.cuda.get_device_name(device), {"cuda": str(torch.version.cuda), "nccl": nccl}


def refuse_together(reason: str | None) -> None:
    """Raise `ValueError` on all ranks if any of them passes a reason: none is left waiting."""
    for one in gather_from_all(reason):
        if one is not None:
            raise ValueError(one)


def _whole_number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(
            f"the environment variable {name} is {text!r}, which is no whole number: "
            "start this program with torchrun, which sets it."
        ) from None


def run_worker(
    worker: str, output: Path, arguments: Mapping[str, object], backend: str, timeout: float
) -> None:
    """Call a worker as this rank, and leave its result in a file of the folder ``output``.

    The files are those of ``commlab.real.run``: ``rankR.result.json``, or ``rankR.report.json``
    with the cause if this rank fails. A folder that the nodes do not share holds each node's own.

    Raises
    ------
    ValueError
        If the worker does not exist, or the place or the backend makes no sense.
    JoinError
        If the ranks do not find one another.
    RankError
        If the worker fails.
    """
    place = read_place()
    function = _find_worker(worker)
    output.mkdir(parents=True, exist_ok=True)
    for name in (_files.result(place.rank), _files.report(place.rank)):
        (output / name).unlink(missing_ok=True)  # of an earlier run
    with joined(place, backend, timeout):
        try:
            result = function(**arguments)
            write_result(output, place.rank, result)
        except Exception as error:
            report = write_report(output, place.rank, error, at=time.time())
            raise RankError(
                f"the worker failed: {report['cause']}", place.rank, report["traceback"]
            ) from error


def _find_worker(name: str) -> Callable[..., object]:
    module_name, _, function_name = name.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name, None)
    except (ModuleNotFoundError, ValueError):
        function = None
    if not callable(function):
        raise ValueError(
            f"there is no worker {name!r}: name it as 'module:function', for example "
            "'commlab.real.workers:five_collectives'."
        )
    return function


def main() -> int:
    """Run one worker as one rank. Returns 0, or 2 if it was refused or failed."""
    parser = argparse.ArgumentParser(
        prog="torchrun … -m commlab.real.torchrun",
        description="Call a worker on every rank and write what it returns to files. "
        "With NCCL: not run on GPUs here.",
    )
    parser.add_argument("worker", help="module:function, as for commlab.real.run")
    parser.add_argument("--output", type=Path, required=True, help="folder of rank0.result.json …")
    parser.add_argument("--arguments", type=json.loads, default={}, help="a JSON object")
    parser.add_argument("--backend", choices=BACKENDS, default="auto")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for a collective")
    options = parser.parse_args()
    try:
        run_worker(
            options.worker, options.output, options.arguments, options.backend, options.timeout
        )
    except RankError as error:
        print(f"{error.details}rank {error.rank}: {error}", file=sys.stderr)
        return 2
    except (ValueError, JoinError) as error:
        print(f"rank {os.environ.get('RANK', '?')}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    leave(main())
