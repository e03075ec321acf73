"""Straight lines through all runs of neighbouring rows, and the best way to chain them.

Everything is done for a batch of weightings at once: one in which all rows count, and others in
which some are held out. Lines begin and end with blocks of rows; in a log of usual length
each row is a block of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Below this share of the product of its diagonal a determinant is rounding.
SINGULAR = 1e-12
# Two neighbouring lines may cross at their break by rounding.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Segments:
    """The line α + c·S through the blocks first … last, for all first and last.

    Parameters
    ----------
    alpha, per_byte, cost : array of shape (batch, n_blocks, n_blocks)
        Seconds, seconds per byte, and the sum of squared relative errors; axis 1 is the first
        block, axis 2 the last. The cost is infinite where there are too few rows.
    """

    alpha: np.ndarray
    per_byte: np.ndarray
    cost: np.ndarray


@dataclass(frozen=True)
class Chains:
    """The cheapest chain of a number of lines whose prediction grows with the size.

    Parameters
    ----------
    cost : array of shape (batch,)
        Sum of squared relative errors; infinite where there is no such chain.
    starts : array of int of shape (batch, n_pieces)
        First block of each piece.
    alpha, per_byte : array of shape (batch, n_pieces)
        Seconds, seconds per byte.
    breaks : array of shape (n_blocks,)
        ``breaks[k]`` is the size at which a piece begins that has block k as its first.
    """

    cost: np.ndarray
    starts: np.ndarray
    alpha: np.ndarray
    per_byte: np.ndarray
    breaks: np.ndarray

    def seconds(self, sizes: np.ndarray) -> np.ndarray:
        """Predicted times, an array of shape (batch, len(sizes))."""
        begins = self.breaks[self.starts]
        which = (begins[:, :, None] <= sizes).sum(axis=1) - 1
        alpha = np.take_along_axis(self.alpha, which, axis=1)
        return alpha + np.take_along_axis(self.per_byte, which, axis=1) * sizes


def fit_segments(
    sizes: np.ndarray,
    seconds: np.ndarray,
    blocks: np.ndarray,
    weights: np.ndarray,
    fewest: np.ndarray,
) -> Segments:
    """Fit a line to all runs of neighbouring blocks, by least squares of the relative errors.

    Parameters
    ----------
    sizes, seconds : array of shape (n_rows,)
        S in bytes, growing; measured times.
    blocks : array of int of shape (n_blocks,)
        First row of each block.
    weights : array of shape (batch, n_rows)
        1 for a row that counts, 0 for one that does not.
    fewest : array of shape (batch,)
        How many rows that count a line needs.

    Notes
    -----
    With x₁ = 1/T and x₂ = S/T the line aims at 1 = α·x₁ + c·x₂. Neither α nor c may be negative:
    where the free solution has one below 0, the best one on the border has that one at 0.
    """
    # 1 where the block of axis 2 is not before that of axis 1.
    within = np.triu(np.ones((len(blocks), len(blocks))))

    def sums(values: np.ndarray | float) -> np.ndarray:
        of_blocks = np.add.reduceat(weights * values, blocks, axis=1)
        return np.cumsum(of_blocks[:, None, :] * within, axis=2)

    x1, x2 = 1 / seconds, sizes / seconds
    count, s11, s12, s22 = sums(1.0), sums(x1 * x1), sums(x1 * x2), sums(x2 * x2)
    s1, s2 = sums(x1), sums(x2)
    determinant = s11 * s22 - s12**2
    with np.errstate(divide="ignore", invalid="ignore"):
        alpha = (s22 * s1 - s12 * s2) / determinant
        per_byte = (s11 * s2 - s12 * s1) / determinant
        no_alpha = (alpha < 0) | (determinant <= SINGULAR * s11 * s22)
        alpha = np.where(no_alpha, 0.0, alpha)
        per_byte = np.where(no_alpha, s2 / s22, per_byte)
        flat = per_byte < 0
        alpha = np.where(flat, s1 / s11, alpha)
        per_byte = np.where(flat, 0.0, per_byte)
    cost = count - 2 * (alpha * s1 + per_byte * s2)
    cost += alpha**2 * s11 + 2 * alpha * per_byte * s12 + per_byte**2 * s22
    enough = (within > 0) & (count >= fewest[:, None, None])
    return Segments(alpha, per_byte, np.where(enough, np.maximum(cost, 0.0), np.inf))


def best_chains(
    sizes: np.ndarray, blocks: np.ndarray, segments: Segments, most: int
) -> list[Chains]:
    """Return the cheapest chain of 1, 2, … `most` lines, by dynamic programming.

    A line may follow another only if it does not lie below it at their break, the geometric
    mean of the two sizes there: so the prediction never falls as the size grows.
    """
    below, above = sizes[blocks[1:] - 1], sizes[blocks[1:]]
    breaks = np.concatenate([[0.0], np.sqrt(below * above)])
    # total[n, b, first, last]: cheapest chain of n + 1 lines over the blocks 0 … last whose last
    # line begins at first; origin says where the line before that one begins.
    total = np.full((most, *segments.cost.shape), np.inf)
    origin = np.zeros(total.shape, dtype=int)
    total[0, :, 0] = segments.cost[:, 0]
    for first in range(1, len(blocks)):
        if below[first - 1] == above[first - 1]:
            continue  # rows of one size stay together
        before = slice(0, first)
        ends = _at(segments, before, first - 1, breaks[first])
        begins = _at(segments, first, slice(first, None), breaks[first])
        grows = ends[:, :, None] <= begins[:, None, :] * (1 + ROUNDING)
        chain = np.where(grows, total[:-1, :, before, first - 1, None], np.inf)
        best = chain.argmin(axis=2)
        cost = np.take_along_axis(chain, best[:, :, None], axis=2)[:, :, 0]
        total[1:, :, first, first:] = cost + segments.cost[:, first, first:]
        origin[1:, :, first, first:] = best
    return [_follow_back(n, segments, breaks, total, origin) for n in range(1, most + 1)]


def _at(segments: Segments, first: slice | int, last: slice | int, size: float) -> np.ndarray:
    return segments.alpha[:, first, last] + segments.per_byte[:, first, last] * size


def _follow_back(
    n_pieces: int, segments: Segments, breaks: np.ndarray, total: np.ndarray, origin: np.ndarray
) -> Chains:
    """Read the best chain of so many lines out of the tables, from its last line."""
    _, batch, n_blocks, _ = total.shape
    each = np.arange(batch)
    last = np.full(batch, n_blocks - 1)
    first = total[n_pieces - 1, :, :, -1].argmin(axis=1)
    cost = total[n_pieces - 1, each, first, last]
    starts = np.zeros((batch, n_pieces), dtype=int)
    alpha, per_byte = np.zeros((batch, n_pieces)), np.zeros((batch, n_pieces))
    for piece in reversed(range(n_pieces)):
        starts[:, piece] = first
        alpha[:, piece] = segments.alpha[each, first, last]
        per_byte[:, piece] = segments.per_byte[each, first, last]
        first, last = origin[piece, each, first, last], first - 1
    return Chains(cost, starts, alpha, per_byte, breaks)
