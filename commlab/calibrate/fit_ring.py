"""The two parameters of the ring formula from measured all-reduce times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def fit_alpha_beta(
    nbytes: Sequence[float], seconds: Sequence[float], n_ranks: int
) -> tuple[float, float]:
    """Fit α and β of the ring formula to measured all-reduce times.

    Parameters
    ----------
    nbytes, seconds : sequence of float
        Sizes S in bytes and the time of each, at least two different sizes.
    n_ranks : int
        2 or more.

    Returns
    -------
    alpha, beta : float
        Seconds per step of the ring; bytes per second in one direction.

    Raises
    ------
    ValueError
        If the times don't grow with the size, so that no positive α and β fit.

    Notes
    -----
    Least squares of the *relative* errors: otherwise the largest message alone, whose
    microseconds are the most, would decide on β and leave α to chance.
    """
    size, time = np.asarray(nbytes, dtype=float), np.asarray(seconds, dtype=float)
    if len(np.unique(size)) < 2:
        raise ValueError("two unknowns need at least two different sizes.")
    # T = messages * α + bytes_sent / β is linear in α and 1/β. Divided by T: aim at 1.
    messages = np.full(len(size), 2.0 * (n_ranks - 1))
    bytes_sent = 2 * (n_ranks - 1) / n_ranks * size
    columns = np.column_stack([messages / time, bytes_sent / time])
    (alpha, per_byte), *_ = np.linalg.lstsq(columns, np.ones(len(size)), rcond=None)
    if alpha <= 0 or per_byte <= 0:
        raise ValueError(
            "no positive α and β fit these times: measure more sizes, from a few KiB "
            "to tens of MiB, on a quiet machine."
        )
    return float(alpha), float(1 / per_byte)
