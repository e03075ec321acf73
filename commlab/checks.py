"""Checks of what a caller passes in: one clear sentence, or the value itself."""

from __future__ import annotations

import numbers
import warnings

import numpy as np

SECONDS_PER_YEAR = 365 * 24 * 3600
# No link of this century moves less than 1 MB/s; such a number is a rate in GB/s.
SLOWEST_PLAUSIBLE_BETA = 1e6
SMALLEST_ABOVE_ZERO = float(np.nextafter(0.0, 1.0))


def check_n_ranks(n_ranks: int, what: str = "n_ranks") -> int:
    """Return ``n_ranks`` as an int, or say that it must be a whole number from 1 up."""
    if isinstance(n_ranks, bool) or not isinstance(n_ranks, numbers.Integral) or n_ranks < 1:
        raise ValueError(f"{what} must be a whole number, 1 or more; got {n_ranks!r}.")
    return int(n_ranks)


def check_count(values: object, what: str) -> np.ndarray:
    """Return an array of whole numbers from 1 up (as float64, ready for arithmetic)."""
    array = _numeric(values, what)
    if not _all_finite_from(array, 1) or np.any(array != np.floor(array)):
        raise ValueError(f"{what} must be whole numbers, 1 or more; got {values!r}.")
    return array


def check_nbytes(nbytes: object, what: str = "nbytes") -> np.ndarray:
    """Return message sizes in bytes: finite, zero or more."""
    array = _numeric(nbytes, what)
    if not _all_finite_from(array, 0):
        raise ValueError(f"{what} is a number of bytes, zero or more; got {nbytes!r}.")
    return array


def check_alpha(alpha: object, what: str = "alpha") -> np.ndarray:
    """Return latencies in seconds per message: finite, zero or more."""
    array = _numeric(alpha, what)
    if not _all_finite_from(array, 0):
        raise ValueError(
            f"{what} is a time in seconds per message, zero or more; got {alpha!r}. "
            "Five microseconds is 5e-6."
        )
    return array


def check_beta(beta: object, what: str = "beta") -> np.ndarray:
    """Return bandwidths in bytes per second: finite and above zero.

    Warns where a value is so small that GB/s were probably meant.
    """
    array = _numeric(beta, what)
    if not _all_finite_from(array, SMALLEST_ABOVE_ZERO):
        raise ValueError(
            f"{what} is a bandwidth in bytes per second, above zero; got {beta!r}. "
            "450 GB/s is 450e9."
        )
    if array.min(initial=np.inf) < SLOWEST_PLAUSIBLE_BETA:
        warnings.warn(
            f"{what} = {beta!r} is below 1 MB/s. It is taken as bytes per second: "
            "if GB/s were meant, multiply by 1e9.",
            UserWarning,
            stacklevel=4,
        )
    return array


def only_one(values: np.ndarray, what: str) -> float:
    """Return the one number in ``values``, or say that an array does not fit here."""
    if values.ndim:
        raise ValueError(
            f"{what} must be one number here, not an array: call it once for each value."
        )
    return float(values)


def check_rank(rank: int, n_ranks: int, what: str = "root") -> int:
    """Return ``rank`` as an int, or say which ranks there are."""
    whole = isinstance(rank, numbers.Integral) and not isinstance(rank, bool)
    if not whole or not 0 <= rank < n_ranks:
        raise ValueError(f"{what} must be one of the ranks 0 to {n_ranks - 1}; got {rank!r}.")
    return int(rank)


def warn_if_absurd(seconds: np.ndarray) -> None:
    """Warn where a communication time is above a year."""
    if np.max(seconds, initial=0.0) > SECONDS_PER_YEAR:
        warnings.warn(
            "the computed time is above a year: check the units "
            "(sizes in bytes, alpha in seconds, beta in bytes per second, so 450 GB/s is 450e9).",
            UserWarning,
            stacklevel=4,
        )


def _all_finite_from(array: np.ndarray, lowest: float) -> bool:
    """Tell whether all values are finite and at least ``lowest``.

    Two passes that make no arrays; NaN is minimum and maximum of whatever holds one, and no
    comparison with it is true.
    """
    return bool(array.min(initial=np.inf) >= lowest and array.max(initial=lowest) < np.inf)


def _numeric(values: object, what: str) -> np.ndarray:
    """Return the values as float64, read-only: a view of the caller's array where it fits."""
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "iufO" or isinstance(values, np.ma.MaskedArray):
            raise TypeError(f"{array.dtype} is no type of numbers")
        floats = array.astype(np.float64, copy=False).view()
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{what} must be a number or an array of numbers; got {values!r}."
        ) from error
    floats.flags.writeable = False
    return floats
