"""How many pieces, where, and which rows count: decided by the error on rows held out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from commlab.calibrate.fit_outliers import cold_excess, fits_growth, near_prediction
from commlab.calibrate.fit_segments import Chains, best_chains, fit_segments

# A log of more rows is cut into so many blocks and folds; else each row is one of its own.
MOST_BLOCKS = 48
N_PARAMETERS = 2
MOST_PIECES = 6
ROWS_PER_PIECE = 3
# With one row held out, its piece may be down to this many.
ROWS_PER_PIECE_HELD_OUT = 2
# The last of several pieces reaches at least from a size to this many times the size: fewer bytes
# between its ends say little of β.
SMALLEST_SPAN = 2.0
# Of so many rows that were left out their neighbours are tried instead; each costs a fit.
MOST_SWAPPED = 4
# How often the rows are looked through for outliers after a fit.
ROUNDS = 2
# More pieces are taken only if the held-out errors fall by more than this share of the standard
# error of that fall; a row can count at most with the error CAP, so that one break that a held-out
# row hides does not decide.
STANDARD_ERRORS = 0.7
CAP = 0.25


@dataclass(frozen=True)
class Found:
    """The chosen chain and what it does on rows it was not fitted to.

    Parameters
    ----------
    blocks : array of int of shape (n_blocks,)
        First row of each block.
    chain : Chains
        Of a batch of one.
    used : array of bool of shape (n_rows,)
        False for outliers.
    held_out : array of shape (n_rows,) or None
        The time of each row, predicted by a fit without it; None with two rows.
    one_line_error : float or None
        Median relative error of held-out used rows, if there were a single piece.
    """

    blocks: np.ndarray
    chain: Chains
    used: np.ndarray
    held_out: np.ndarray | None
    one_line_error: float | None


def find_pieces(sizes: np.ndarray, seconds: np.ndarray) -> Found:
    """Choose pieces and outliers for measured times.

    Parameters
    ----------
    sizes, seconds : array of shape (n_rows,)
        S in bytes, growing and above zero; times. At least two different sizes.
    """
    n_rows = len(sizes)
    n_blocks = min(n_rows, MOST_BLOCKS)
    blocks = np.arange(n_blocks) * n_rows // n_blocks
    # The last weighting has all rows, each other one lacks a fold: every n_blocks-th row.
    row = np.arange(n_rows)
    fold = row % n_blocks
    holding = np.ones((n_blocks + 1, n_rows))
    holding[fold, row] = 0
    if cold_excess(seconds) is not None:
        holding[:, 0] = 0
    fewest = np.full(n_blocks + 1, min(ROWS_PER_PIECE_HELD_OUT, n_rows - 1))
    fewest[-1] = min(ROWS_PER_PIECE, n_rows)
    most = min(MOST_PIECES, max(1, n_rows // ROWS_PER_PIECE))

    too_short = SMALLEST_SPAN * sizes[blocks] > sizes[-1]
    too_short[0] = False  # all rows in one piece

    def chains_of(weights: np.ndarray) -> list[Chains]:
        segments = fit_segments(sizes, seconds, blocks, weights, fewest)
        segments.cost[:, too_short, -1] = np.inf
        return best_chains(sizes, blocks, segments, most)

    weights = holding * fits_growth(seconds, blocks)
    chains = chains_of(weights)
    for _ in range(ROUNDS):
        before = weights
        weights = holding * near_prediction(seconds, _predictions(chains, sizes)[-1])
        if np.array_equal(weights, before):
            break
        chains = chains_of(weights)
    if n_rows == N_PARAMETERS:
        return Found(blocks, _last(chains[0]), weights[-1] > 0, None, None)

    def best_of(chains: list[Chains], used: np.ndarray) -> Found:
        possible = [n for n, chain in enumerate(chains) if np.isfinite(chain.cost[-1])]
        held_out = [predicted[fold, row] for predicted in _predictions(chains, sizes)]
        errors = [np.abs(held_out[n] / seconds - 1)[used] for n in possible]
        n = possible[choose(errors)]
        return Found(blocks, _last(chains[n]), used, held_out[n], float(np.median(errors[0])))

    def without(others: np.ndarray) -> Found:
        weights = holding * others
        return best_of(chains_of(weights), weights[-1] > 0)

    found = best_of(chains, weights[-1] > 0)
    # A chain of many pieces may bend to an outlier that stands out from the chosen one.
    near = near_prediction(seconds, found.chain.seconds(sizes)[0])
    if not np.all(near[found.used]):
        found = without(near)
    # A row that is late, and the next larger one in time, take as long: which of them is off,
    # only the others can tell.
    for swapped in _neighbours_swapped(found.used, holding[-1] > 0):
        other = without(swapped)
        if _held_out_error(other, seconds) < _held_out_error(found, seconds):
            found = other
    return found


def _neighbours_swapped(used: np.ndarray, usable: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the rows to use if a neighbour of a row that was left out were left out instead."""
    left_out = np.flatnonzero(usable & ~used)[:MOST_SWAPPED]
    for row in left_out:
        for neighbour in (row - 1, row + 1):
            if 0 <= neighbour < len(used) and used[neighbour]:
                swapped = used.copy()
                swapped[[row, neighbour]] = True, False
                yield swapped


def _held_out_error(found: Found, seconds: np.ndarray) -> float:
    """Return the mean error of the used rows, each held out, none counting with more than CAP."""
    if found.held_out is None:
        return np.inf
    error = np.abs(found.held_out / seconds - 1)[found.used]
    return float(np.minimum(error, CAP).mean())


def choose(errors: Sequence[np.ndarray]) -> int:
    """Return the index of the smallest model that is as good as the best one, within noise.

    Parameters
    ----------
    errors : sequence of array of shape (n_used,)
        Held-out relative errors, from the smallest model to the largest.
    """
    capped = [np.minimum(error, CAP) for error in errors]
    best = min(range(len(capped)), key=lambda n: capped[n].mean())
    for n in range(best):
        worse = capped[n] - capped[best]
        if worse.mean() <= STANDARD_ERRORS * worse.std(ddof=1) / np.sqrt(len(worse)):
            return n
    return best


def _predictions(chains: Sequence[Chains], sizes: np.ndarray) -> list[np.ndarray]:
    """Predict with 1, 2, … pieces; where a weighting allows no chain of so many, with fewer."""
    predicted = [chains[0].seconds(sizes)]
    for chain in chains[1:]:
        possible = np.isfinite(chain.cost)[:, None]
        predicted.append(np.where(possible, chain.seconds(sizes), predicted[-1]))
    return predicted


def _last(chains: Chains) -> Chains:
    """Only the fit to all rows."""
    of_all = slice(-1, None)
    return Chains(
        chains.cost[of_all],
        chains.starts[of_all],
        chains.alpha[of_all],
        chains.per_byte[of_all],
        chains.breaks,
    )
