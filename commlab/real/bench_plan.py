"""What `commlab bench` is asked for, and what every rank will have to do for it.

Nothing here needs torch or a process, so a sweep that makes no sense, or would not fit into
the memory, is refused before anything is started.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from commlab.algorithms import REGISTRY
from commlab.checks import check_n_ranks
from commlab.real.memory import available_bytes
from commlab.units import MIB, format_bytes, parse_size

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")
# The algorithm's name for the collective of gloo or NCCL itself.
BACKEND = "backend"
ALL = "all"
DTYPE = "float32"
ELEMENT_BYTES = np.dtype(DTYPE).itemsize
# How many buffers of S a rank holds at once: the check needs its own numbers, what is right and
# what came out; a schedule its store, its scratch and what it packs. Measured with all
# algorithms on 4 ranks at 64 MiB: 7.9 in all_reduce and all_to_all, fewer in the others.
BUFFERS_PER_RANK = 10
# A process that has imported PyTorch.
PROCESS_BYTES = 200 * MIB
MOST_SIZES = 64


@dataclass(frozen=True)
class Sweep:
    """What is to be measured.

    Attributes
    ----------
    collectives, algorithms : tuple of str
        Names, or ``("all",)``.
    sizes : tuple of int
        S in bytes, in rising order: the full vector of one rank. For all_gather and
        reduce_scatter the full array, as nccl-tests counts.
    blocks : int
        How often each is timed.
    """

    collectives: tuple[str, ...]
    algorithms: tuple[str, ...]
    sizes: tuple[int, ...]
    blocks: int


def read_sweep(collectives: str, algorithms: str, sizes: str, blocks: int) -> Sweep:
    """Read what the command line says.

    Parameters
    ----------
    collectives, algorithms : str
        Names with commas between them, or "all".
    sizes : str
        Sizes and ranges with commas between them: ``"1KiB..64MiB"`` doubles from the first
        to the last.
    blocks : int

    Raises
    ------
    ValueError
        If a name is unknown or a size cannot be read.
    """
    if blocks < 1:
        raise ValueError(f"blocks is {blocks}: time each size once or more.")
    collective_names = _names(collectives, "collective")
    if collective_names == (ALL,):
        collective_names = COLLECTIVES
    for name in collective_names:
        if name not in COLLECTIVES:
            raise ValueError(
                f"there is no collective {name!r}: choose from {', '.join(COLLECTIVES)}, or all."
            )
    algorithm_names = _names(algorithms, "algorithm")
    known = {BACKEND, *(name for kind, name in REGISTRY if kind in collective_names)}
    for name in algorithm_names:
        if name not in known and algorithm_names != (ALL,):
            raise ValueError(
                f"no algorithm {name!r} for {', '.join(collective_names)}: choose from "
                f"{', '.join(sorted(known))}, or all."
            )
    return Sweep(collective_names, algorithm_names, _read_sizes(sizes), blocks)


def _names(text: str, what: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ValueError(f"name at least one {what}, or all.")
    return names


def _read_sizes(text: str) -> tuple[int, ...]:
    sizes: set[int] = set()
    for part in text.split(","):
        first, dots, last = part.partition("..")
        low = _read_size(first)
        high = _read_size(last) if dots else low
        if low > high:
            raise ValueError(f"the range of sizes {part.strip()!r} runs backwards: swap its ends.")
        while low <= high and len(sizes) <= MOST_SIZES:
            sizes.add(low)
            low *= 2
    if len(sizes) > MOST_SIZES:
        raise ValueError(f"these are more than {MOST_SIZES} sizes: give fewer.")
    return tuple(sorted(sizes))


def _read_size(text: str) -> int:
    size = parse_size(text)
    if size < 1:
        raise ValueError(f"the size {text.strip()!r} holds no number: give 4 bytes or more.")
    return size


# ---------------------------------------------------------------------------------------
# What each rank will do


def plan_cases(
    sweep: Sweep, n_ranks: int, gpus_per_node: int | None = None
) -> tuple[list[dict[str, Any]], list[str]]:
    """Work out what the ranks have to do.

    Parameters
    ----------
    sweep : Sweep
    n_ranks : int
    gpus_per_node : int, optional
        Passed to algorithms that cut the ranks into nodes.

    Returns
    -------
    cases : list of dict
        For each collective and size: ``collective``, ``n_elements`` (of float32, cut so that
        N divides it), ``nbytes``, ``size`` in words, and ``algorithms``, each with its ``name``
        and ``options``.
    skipped : list of str
        One sentence for each algorithm that "all" leaves out because it does not support N.

    Raises
    ------
    ValueError
        If there is one rank only, an algorithm was named that does not support N, or a size
        holds less than one number for each rank.
    """
    if check_n_ranks(n_ranks, "ranks") < 2:
        raise ValueError("one rank has nobody to talk to: give 2 ranks or more.")
    cases, skipped = [], []
    sizes = [_elements(size, n_ranks) for size in sweep.sizes]
    for collective in sweep.collectives:
        algorithms, left_out = _algorithms_for(collective, sweep.algorithms, n_ranks, gpus_per_node)
        skipped += left_out
        if not algorithms:
            continue
        for n_elements in dict.fromkeys(sizes):
            nbytes = n_elements * ELEMENT_BYTES
            cases.append(
                {
                    "collective": collective,
                    "n_elements": n_elements,
                    "nbytes": nbytes,
                    "size": format_bytes(nbytes),
                    "algorithms": algorithms,
                }
            )
    return cases, skipped


def _elements(size: int, n_ranks: int) -> int:
    """Return how many float32 go into ``size`` bytes so that N divides them."""
    n_elements = size // (ELEMENT_BYTES * n_ranks) * n_ranks
    if n_elements == 0:
        raise ValueError(
            f"{format_bytes(size)} hold less than one {DTYPE} for each of {n_ranks} ranks: "
            f"give sizes from {ELEMENT_BYTES * n_ranks} B up."
        )
    return n_elements


def _algorithms_for(
    collective: str, names: Sequence[str], n_ranks: int, gpus_per_node: int | None
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the algorithms of one collective, each tried out, and why others are left out."""
    everything = tuple(names) == (ALL,)
    if everything:
        names = [BACKEND, *(name for kind, name in REGISTRY if kind == collective)]
    chosen, left_out = [], []
    for name in names:
        options: dict[str, int] = {}
        if name != BACKEND:
            entry = REGISTRY.get((collective, name))
            if entry is None:
                continue  # It belongs to another collective of this sweep.
            if gpus_per_node is not None and "gpus_per_node" in entry.options:
                options = {"gpus_per_node": gpus_per_node}
            try:
                entry.build(n_ranks, **options)
            except ValueError as error:
                reason = f"{collective} by {name}: {error}"
                if not everything:
                    raise ValueError(reason) from None
                left_out.append(reason)
                continue
        chosen.append({"name": name, "options": options})
    return chosen, left_out


def why_too_large(sweep: Sweep, ranks_here: int) -> str | None:
    """Say why the memory of this machine does not suffice; None if it does, or is unknown."""
    available = available_bytes()
    largest = max(sweep.sizes)
    needed = ranks_here * (BUFFERS_PER_RANK * largest + PROCESS_BYTES)
    if available is None or needed <= available:
        return None
    return (
        f"{ranks_here} ranks on {socket.gethostname()} with buffers of {format_bytes(largest)} "
        f"need about {format_bytes(needed)} of memory, and {format_bytes(available)} are free: "
        "give smaller sizes or fewer ranks."
    )
