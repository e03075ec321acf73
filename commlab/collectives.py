"""The six collectives as a reader calls them, on a list of arrays (one per rank).

Each call builds a schedule from the registry and simulates it. The input is not changed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from commlab.algorithms import find_algorithm
from commlab.schedule import Schedule
from commlab.simulate import simulate

Arrays = Sequence[np.ndarray]


def broadcast(
    buffers: Arrays, root: int = 0, algorithm: str = "binomial_tree", **options: int
) -> list[np.ndarray]:
    """Give every rank a copy of ``buffers[root]``.

    Parameters
    ----------
    buffers : sequence of arrays of one shape and dtype, one per rank
        As in `torch.distributed`, every rank passes a buffer; only the root's is read.
    root : int
    algorithm : str
        "binomial_tree", "scatter_all_gather" or "pipelined_chain".
    **options
        What the algorithm takes besides, for example ``pipeline_chunks``.

    Returns
    -------
    list of arrays, one per rank, in the shape of the input

    Raises
    ------
    ValueError
        If the buffers are ragged or differ in dtype, or the algorithm does not exist.
    """
    flat, shape = _flatten(buffers)
    schedule = _build("broadcast", algorithm, len(flat), root=root, **options)
    inputs = [buffer if rank == root else buffer[:0] for rank, buffer in enumerate(flat)]
    return [buffer.reshape(shape) for buffer in simulate(schedule, inputs).buffers]


def reduce(
    buffers: Arrays, root: int = 0, algorithm: str = "binomial_tree", **options: int
) -> list[np.ndarray]:
    """Add all buffers on rank ``root``; the other ranks get an empty array.

    Parameters and errors as in `broadcast`; algorithms "binomial_tree" and
    "pipelined_chain".
    """
    flat, shape = _flatten(buffers)
    schedule = _build("reduce", algorithm, len(flat), root=root, **options)
    results = simulate(schedule, flat).buffers
    return [
        buffer.reshape(shape) if rank == root else buffer for rank, buffer in enumerate(results)
    ]


def all_reduce(buffers: Arrays, algorithm: str = "ring", **options: int) -> list[np.ndarray]:
    """Give every rank the sum of all buffers.

    Parameters
    ----------
    buffers : sequence of arrays of one shape and dtype, one per rank
    algorithm : str
        A name in ``REGISTRY``, for example "ring", "halving_doubling" or "hierarchical".
    **options
        What the algorithm takes besides: ``gpus_per_node``, ``pipeline_chunks``.

    Returns
    -------
    list of arrays, one per rank, in the shape of the input; bit for bit equal

    Raises
    ------
    ValueError
        If the buffers are ragged or differ in dtype, or the algorithm does not exist.
    """
    flat, shape = _flatten(buffers)
    schedule = _build("all_reduce", algorithm, len(flat), **options)
    return [buffer.reshape(shape) for buffer in simulate(schedule, flat).buffers]


def reduce_scatter(buffers: Arrays, algorithm: str = "ring", **options: int) -> list[np.ndarray]:
    """Give rank r chunk r of the sum of all buffers.

    Parameters
    ----------
    buffers : sequence of 1-D arrays of one length and dtype, one per rank
        The chunks of a length that does not divide by N differ by one element at most.
    algorithm : str
        "ring", "pairwise" or (for a power of two) "recursive_halving".
    **options
        ``owner_shift=1`` leaves chunk r + 1 on rank r, as the textbook ring does.

    Returns
    -------
    list of 1-D arrays, one per rank
    """
    flat, _ = _flatten(buffers, one_dimensional=True)
    return simulate(_build("reduce_scatter", algorithm, len(flat), **options), flat).buffers


def all_gather(buffers: Arrays, algorithm: str = "ring") -> list[np.ndarray]:
    """Give every rank all buffers, one after the other.

    Parameters
    ----------
    buffers : sequence of 1-D arrays of one length and dtype, one per rank
    algorithm : str
        "ring", "bruck" or (for a power of two) "recursive_doubling".

    Returns
    -------
    list of 1-D arrays, one per rank
    """
    flat, _ = _flatten(buffers, one_dimensional=True)
    return simulate(_build("all_gather", algorithm, len(flat)), flat).buffers


def all_to_all(
    buffers: Arrays,
    algorithm: str = "pairwise",
    splits: Sequence[Sequence[int]] | None = None,
    **options: int,
) -> list[np.ndarray]:
    """Cut each buffer into N chunks and give chunk j of rank i to rank j, as its chunk i.

    Parameters
    ----------
    buffers : sequence of 1-D arrays of one dtype, one per rank
        Of one length, unless `splits` is given.
    algorithm : str
        "pairwise", "direct", "two_level", or (for even splits) "bruck".
    splits : sequence of N sequences of N int, optional
        Uneven splits: rank i sends ``splits[i][j]`` elements to rank j, in this order.
    **options
        What the algorithm takes besides: ``gpus_per_node``.

    Returns
    -------
    list of 1-D arrays, one per rank

    Raises
    ------
    ValueError
        If buffers and splits do not fit each other, or the algorithm takes no splits.
    """
    if splits is None:
        flat, _ = _flatten(buffers, one_dimensional=True)
        schedule = _build("all_to_all", algorithm, len(flat), **options)
        return simulate(schedule, flat).buffers
    arrays = _arrays(buffers)
    schedule = _build("all_to_all", algorithm, len(arrays), counts=splits, **options)
    sent = np.array(schedule.counts).reshape(len(arrays), -1).sum(axis=1).tolist()
    for rank, (array, length) in enumerate(zip(arrays, sent, strict=True)):
        if array.ndim != 1 or array.size != length:
            raise ValueError(
                f"rank {rank} passes an array of shape {array.shape}, but its splits add up to "
                f"{length}: give a 1-D array of that length."
            )
    return simulate(schedule, arrays).buffers


def _build(collective: str, algorithm: str, n_ranks: int, **options: object) -> Schedule:
    return find_algorithm(collective, algorithm).build(n_ranks, **options)


def _arrays(buffers: Arrays) -> list[np.ndarray]:
    """Return arrays; refuse what numpy would strip of its meaning in silence."""
    for rank, buffer in enumerate(buffers):
        if isinstance(buffer, np.ma.MaskedArray):
            raise ValueError(
                f"the buffer of rank {rank} is masked, and a sum has no mask: "
                "fill it first, for example with .filled(0)."
            )
        if hasattr(buffer, "requires_grad"):
            raise ValueError(
                f"the buffer of rank {rank} is a torch tensor: pass tensor.detach().numpy(), or "
                "run a schedule on tensors with commlab.simulate."
            )
    return [np.asarray(buffer) for buffer in buffers]


def _flatten(
    buffers: Arrays, one_dimensional: bool = False
) -> tuple[list[np.ndarray], tuple[int, ...]]:
    """Return flat views and the common shape, or say how the buffers differ."""
    arrays = _arrays(buffers)
    if not arrays:
        raise ValueError("give one buffer per rank, so at least one; got none.")
    shapes = [array.shape for array in arrays]
    if any(shape != shapes[0] for shape in shapes):
        told = ", ".join(f"rank {rank} {shape}" for rank, shape in enumerate(shapes))
        raise ValueError(f"the buffers are ragged: all ranks must pass one shape; got {told}.")
    if one_dimensional and arrays[0].ndim != 1:
        raise ValueError(
            f"this collective cuts or joins 1-D arrays; the buffers have {arrays[0].ndim} "
            "dimensions: flatten them first, for example with .reshape(-1)."
        )
    return [array.reshape(-1) for array in arrays], shapes[0]
