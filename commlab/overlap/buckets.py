"""How gradients are gathered in buckets: by the rule of DDP, and evenly.

A cut is a list of bucket sizes in bytes, in the order in which the buckets are sent. Bucket
after bucket they cover the gradients in the order in which the backward pass yields them.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence

from commlab.checks import check_nbytes, only_one
from commlab.setting_checks import check_list
from commlab.units import MIB

FIRST_BUCKET = 1 * MIB
"""Limit of DDP's first bucket in bytes, while ``bucket_cap_mb`` is left alone."""

BUCKET_CAP = 25 * MIB
"""Limit of DDP's other buckets in bytes."""


def ddp_buckets(
    gradient_nbytes: Sequence[int],
    *,
    first_bucket_nbytes: int = FIRST_BUCKET,
    bucket_cap_nbytes: int = BUCKET_CAP,
    first_iteration: bool = False,
    find_unused_parameters: bool = False,
) -> list[int]:
    """Sizes of DDP's buckets for gradients that become ready in this order.

    A bucket is closed once it has *reached* its limit, so it may be larger; a gradient is
    never split.

    Parameters
    ----------
    gradient_nbytes : sequence of int
        Bytes of each parameter's gradient, in the order in which they become ready. All are
        of one data type, on one device and dense; DDP cuts other kinds apart.
    first_bucket_nbytes : int
        Limit of the first bucket that is filled. With ``bucket_cap_mb`` written out it is
        equal to the cap, be it 25 or not.
    bucket_cap_nbytes : int
        Limit of all others, ``bucket_cap_mb * 2**20``.
    first_iteration : bool
        True: the first backward pass, before DDP has seen in which order gradients become
        ready. It has one bucket for all. The buckets of the second iteration stay.
    find_unused_parameters : bool
        True: buckets are cut when DDP is constructed, are never built anew, and the first
        iteration is like all others. They are filled in the order in which parameters were
        registered, here taken to be the reverse of the order of readiness, and sent last
        bucket first: the small one goes last.

    Returns
    -------
    list of int
        Bytes of each bucket, in the order in which they are sent.

    Raises
    ------
    ValueError
        If a size is not a whole number of bytes of at least 1, or there are no gradients.

    Notes
    -----
    Source: PyTorch 2.13, ``torch/nn/parallel/distributed.py`` (``_BucketCapacityConfig``,
    ``_ddp_init_helper``) and ``reducer.cpp`` (``compute_bucket_assignment_by_size``,
    ``Reducer::rebuild_buckets``). ``static_graph=True`` overrides ``find_unused_parameters``.
    Left out: sparse gradients, ``bucket_cap_mb_list``, and the environment variable
    ``DDP_SET_LAST_BUCKET_CAP``.
    """
    sizes = _whole_bytes(gradient_nbytes, "gradient_nbytes")
    first, cap = _whole_bytes((first_bucket_nbytes, bucket_cap_nbytes), "a bucket's limit")
    if find_unused_parameters:
        return fill_buckets(sizes[::-1], first, cap)[::-1]
    if first_iteration:
        return [sum(sizes)]
    return fill_buckets(sizes, first, cap)


def fill_buckets(sizes: Sequence[int], first: int, cap: int) -> list[int]:
    """Put gradients into buckets, each of which is closed once it has reached its limit.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of each gradient, in the order in which they are put in.
    first, cap : int
        Limits of the first bucket and of all others, in bytes.

    Returns
    -------
    list of int
        Bytes of each bucket, in the order in which they are filled.
    """
    buckets, filling, limit = [], 0, first
    for nbytes in sizes:
        filling += nbytes
        if filling >= limit:
            buckets.append(filling)
            filling, limit = 0, cap
    return [*buckets, filling] if filling else buckets


def equal_buckets(nbytes: int, bucket_nbytes: float) -> list[int]:
    """Cut a gradient vector into equal buckets of at most ``bucket_nbytes``.

    Parameters
    ----------
    nbytes : int
        S, the bytes of the whole gradient.
    bucket_nbytes : float
        b, the most that a bucket may hold, above zero. Cuts may fall inside a gradient.

    Returns
    -------
    list of int
        ``ceil(S / b)`` sizes, b rounded down to whole bytes, that differ by one byte at most.

    Raises
    ------
    ValueError
        If S is not a whole number of bytes, 1 or more, or b is below 1.
    """
    (total,) = _whole_bytes((nbytes,), "nbytes")
    most = only_one(check_nbytes(bucket_nbytes, "bucket_nbytes"), "bucket_nbytes")
    if most < 1:
        raise ValueError(f"bucket_nbytes must be at least one byte; got {bucket_nbytes!r}.")
    # A bucket holds whole bytes, and so many fit.
    n_buckets = math.ceil(total / math.floor(most))
    ends = [total * (i + 1) // n_buckets for i in range(n_buckets)]
    return [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _whole_bytes(sizes: Sequence[int], what: str) -> list[int]:
    """Return the sizes as Python's ints, or say that they must be whole bytes."""
    sizes = check_list(sizes, what)
    if not sizes:
        raise ValueError(f"{what} is empty: give the bytes of at least one gradient.")
    for size in sizes:
        whole = isinstance(size, numbers.Integral) and not isinstance(size, bool)
        if not whole or size < 1:
            raise ValueError(f"{what} must be a whole number of bytes, 1 or more; got {size!r}.")
    return [int(size) for size in sizes]
