"""The time of a collective over its size, in pieces: T = α + S·traffic/β in each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from commlab.checks import check_nbytes


@dataclass(frozen=True)
class Piece:
    """One regime of sizes, in which T(S) = `alpha` + `per_byte` · S.

    Parameters
    ----------
    start : float
        The piece holds from this size S on, in bytes, up to the start of the next piece; 0 for
        the first piece.
    first, last : int
        Smallest and largest size in bytes that it was fitted to.
    n_rows : int
        How many measured rows it was fitted to.
    alpha : float
        Seconds per call, 0 or more.
    per_byte : float
        Seconds per byte of S, 0 or more; the bus bandwidth is the bus factor divided by it.
    """

    start: float
    first: int
    last: int
    n_rows: int
    alpha: float
    per_byte: float


@dataclass(frozen=True)
class PiecewiseTime:
    """The predicted time of one call over all sizes; it never falls as the size grows."""

    pieces: tuple[Piece, ...]

    def seconds(self, nbytes: ArrayLike) -> np.ndarray:
        """Predict the time of a call.

        Parameters
        ----------
        nbytes : float or array
            S in bytes, as nccl-tests' column ``size``.

        Returns
        -------
        array
            Seconds, of the shape of `nbytes`. Beyond the measured sizes the first and the last
            piece go on.
        """
        size = check_nbytes(nbytes)
        starts = np.array([piece.start for piece in self.pieces])
        alpha = np.array([piece.alpha for piece in self.pieces])
        per_byte = np.array([piece.per_byte for piece in self.pieces])
        which = np.searchsorted(starts, size, side="right") - 1
        return alpha[which] + per_byte[which] * size

    @property
    def breaks(self) -> tuple[float, ...]:
        """The sizes in bytes at which one piece ends and the next begins."""
        return tuple(piece.start for piece in self.pieces[1:])
