"""From fitted pieces to α and β with intervals, and to None where the sizes do not tell."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from commlab.calibrate.fit_intervals import Noise, noise_of
from commlab.calibrate.fit_search import N_PARAMETERS, Found
from commlab.calibrate.pieces import Piece
from commlab.calibrate.records import Remark, Run
from commlab.units import MIB, format_bytes, format_seconds

# α must be at least this share of the time of the smallest row, and the bytes' part of that of
# the largest row, or the sizes do not determine them.
SMALLEST_SHARE = 0.2
# An interval that reaches further than this share to either side determines nothing.
WIDEST_INTERVAL = 0.5
# Where the smallest size is above this, α is that of large messages.
SMALL_MESSAGE = MIB

# Messages that one call sends one after the other, by the algorithm that this is true for.
MESSAGES = {
    "all_reduce": ("ring", lambda n_ranks: 2 * (n_ranks - 1)),
    "all_gather": ("ring", lambda n_ranks: n_ranks - 1),
    "reduce_scatter": ("ring", lambda n_ranks: n_ranks - 1),
    "alltoall": ("pairwise", lambda n_ranks: n_ranks - 1),
    "alltoallv": ("pairwise", lambda n_ranks: n_ranks - 1),
    "broadcast": ("pipelined chain", lambda n_ranks: n_ranks - 1),
    "reduce": ("pipelined chain", lambda n_ranks: n_ranks - 1),
    "gather": ("direct", lambda n_ranks: n_ranks - 1),
    "scatter": ("direct", lambda n_ranks: n_ranks - 1),
    "sendrecv": ("direct", lambda n_ranks: 1),
}


@dataclass(frozen=True)
class Parameter:
    """A fitted number and its interval of 95 %, None where no row is left over to tell."""

    value: float
    interval: tuple[float, float] | None


def messages_of(run: Run) -> tuple[int | None, str | None]:
    """Return the messages that a call sends one after the other, and for which algorithm.

    Both None where the log names an algorithm other than the one that is counted here.
    """
    algorithm, count = MESSAGES.get(run.op, (None, None))
    if count is None or run.algorithm not in (None, "backend", algorithm):
        return None, None
    return count(run.n_ranks), algorithm


def make_pieces(
    found: Found, sizes: np.ndarray, seconds: np.ndarray
) -> tuple[tuple[Piece, ...], Noise | None]:
    """Turn the chain that was found into pieces, and measure the scatter about them.

    The scatter is None if no row is left over to tell.
    """
    chain = found.chain
    first_blocks = chain.starts[0]
    starts = [*found.blocks[first_blocks].tolist(), len(sizes)]
    pieces = []
    for n, (first, end) in enumerate(pairwise(starts)):
        points = sizes[first:end][found.used[first:end]]
        pieces.append(
            Piece(
                float(chain.breaks[first_blocks[n]]),
                int(points[0]),
                int(points[-1]),
                len(points),
                float(chain.alpha[0, n]),
                float(chain.per_byte[0, n]),
            )
        )
    points, times = sizes[found.used], seconds[found.used]
    errors = chain.seconds(points)[0] / times - 1
    noise = noise_of(errors, N_PARAMETERS * len(pieces))
    if noise is not None:
        pieces[-1] = _without_noise(pieces, points, times, noise)
    return tuple(pieces), noise


def _without_noise(
    pieces: list[Piece], sizes: np.ndarray, seconds: np.ndarray, noise: Noise
) -> Piece:
    """Return the last piece, without its α if the interval of that holds 0: β gains by it."""
    last = pieces[-1]
    size, time = _points_of(last, sizes, seconds)
    half, _ = noise.half_widths(size, time)
    if last.alpha >= half:
        return last
    ratio = size / time
    line = replace(last, alpha=0.0, per_byte=float(ratio.sum() / (ratio @ ratio)))
    grows = len(pieces) == 1 or _at(pieces[-2], last.start) <= _at(line, last.start)
    return line if grows else last


def alpha_of(
    piece: Piece, sizes: np.ndarray, seconds: np.ndarray, noise: Noise | None
) -> tuple[Parameter | None, list[Remark]]:
    """Return α of the first piece, or None where the sizes don't determine it, and remarks.

    Parameters
    ----------
    piece : Piece
        That of the smallest sizes.
    sizes, seconds : array
        All points of the fit.
    noise : Noise or None
        Their scatter.
    """
    size, time = _points_of(piece, sizes, seconds)
    share = piece.alpha / _at(piece, piece.first)
    half = None if noise is None else noise.half_widths(size, time)[0]
    too_wide = half is not None and half > WIDEST_INTERVAL * piece.alpha
    # As many rows as parameters: of large messages alone, their scatter may be all of α.
    unjudged = half is None and piece.first > SMALL_MESSAGE
    if share < SMALLEST_SHARE or too_wide or unjudged:
        why = f"α would be {share:.0%} of it"
        if unjudged:
            why = "no row is left over to tell how far α may be off"
        elif share >= SMALLEST_SHARE:
            why = "the rows scatter too much"
        return None, [
            Remark(
                "alpha_not_determined",
                f"α cannot be had from these sizes: the smallest, {format_bytes(piece.first)}, "
                f"takes {format_seconds(float(time[0]))}, and {why}. Measure from -b 8 on.",
            )
        ]
    remarks = []
    if piece.first > SMALL_MESSAGE:
        remarks.append(
            Remark(
                "alpha_of_large_messages",
                f"The smallest size is {format_bytes(piece.first)}: α is what a call of that size "
                "spends besides its bytes; small messages take another path. Measure from -b 8 on.",
            )
        )
    interval = None if half is None else (piece.alpha - half, piece.alpha + half)
    return Parameter(piece.alpha, interval), remarks


def beta_of(
    piece: Piece, sizes: np.ndarray, seconds: np.ndarray, noise: Noise | None, factor: float
) -> tuple[Parameter | None, list[Remark]]:
    """Return β of the last piece in bytes/s, or None where the sizes don't determine it.

    Parameters
    ----------
    piece : Piece
        That of the largest sizes.
    sizes, seconds, noise
        As for `alpha_of`.
    factor : float
        Of the bus bandwidth.
    """
    size, time = _points_of(piece, sizes, seconds)
    share = piece.per_byte * piece.last / _at(piece, piece.last)
    half = None if noise is None else noise.half_widths(size, time)[1]
    too_wide = half is not None and half > WIDEST_INTERVAL * piece.per_byte
    if share < SMALLEST_SHARE or too_wide:
        why = f"the bytes' part would be {share:.0%} of it"
        if share >= SMALLEST_SHARE:
            why = "the rows scatter too much"
        return None, [
            Remark(
                "beta_not_determined",
                f"β cannot be had from these sizes: the largest, {format_bytes(piece.last)}, takes "
                f"{format_seconds(float(time[-1]))}, and {why}. "
                "Measure up to larger sizes, for example -e 8G.",
            )
        ]
    interval = None
    if half is not None:
        interval = factor / (piece.per_byte + half), factor / (piece.per_byte - half)
    return Parameter(factor / piece.per_byte, interval), []


def _points_of(
    piece: Piece, sizes: np.ndarray, seconds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    inside = (piece.first <= sizes) & (sizes <= piece.last)
    return sizes[inside], seconds[inside]


def _at(piece: Piece, size: float) -> float:
    return piece.alpha + piece.per_byte * size
