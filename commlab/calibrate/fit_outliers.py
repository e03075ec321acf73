"""Rows that no time growing with the size can follow, and a cold first row."""

from __future__ import annotations

import numpy as np

# A row is an outlier if it is off by more than this factor, and by more than so many robust
# standard deviations (which a median of absolute deviations gives for normal noise).
OUTLIER_FACTOR = 1.15
OUTLIER_DEVIATIONS = 5.0
DEVIATION_OF_MEDIAN = 1.4826
# At most this share of the rows is left out, and none of so few that a fit without one more
# would lack points.
LARGEST_SHARE = 1 / 3
FEWEST_ROWS = 5

# A first row is cold if it takes so much longer than the next three rows, of larger sizes …
COLD_FACTOR = 1.08
COLD_NEIGHBOURS = 3
# … and these differ among themselves by less than this share of the excess.
COLD_SPREAD = 1 / 3


def growing_median(values: np.ndarray) -> np.ndarray:
    """Return the growing sequence nearest to the values: least absolute deviations.

    Pool adjacent violators: neighbours that fall are merged until the medians grow. With an
    even number the lower of the two middle values is taken.
    """
    blocks: list[list[float]] = []
    for value in values:
        blocks.append([float(value)])
        while len(blocks) > 1 and _median(blocks[-2]) > _median(blocks[-1]):
            last = blocks.pop()
            blocks[-1] = blocks[-1] + last
    return np.concatenate([np.full(len(block), _median(block)) for block in blocks])


def fits_growth(seconds: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """Tell for each row whether its time is near a sequence that grows with the size.

    Parameters
    ----------
    seconds : array of shape (n_rows,)
    blocks : array of int of shape (n_blocks,)
        First row of each block; their medians are to grow.
    """
    times = np.split(np.log(seconds), blocks[1:])
    growing = growing_median(np.array([np.median(block) for block in times]))
    deviation = np.log(seconds) - np.repeat(growing, [len(block) for block in times])
    return keep_most(np.abs(deviation) <= np.log(OUTLIER_FACTOR), np.abs(deviation))


def near_prediction(seconds: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Tell for each row whether its time is near what a fit predicts; batched over axis 0."""
    deviation = np.abs(np.log(seconds / predicted))
    scale = DEVIATION_OF_MEDIAN * np.median(deviation, axis=-1, keepdims=True)
    limit = np.maximum(np.log(OUTLIER_FACTOR), OUTLIER_DEVIATIONS * scale)
    return keep_most(deviation <= limit, deviation)


def keep_most(good: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Take back in the least deviating of the bad rows, where there are too many of them."""
    n_rows = good.shape[-1]
    most = int(LARGEST_SHARE * n_rows) if n_rows >= FEWEST_ROWS else 0
    rank_from_worst = np.argsort(np.argsort(-deviation, axis=-1, kind="stable"), axis=-1)
    return good | (rank_from_worst >= most)


def cold_excess(seconds: np.ndarray) -> float | None:
    """Return by which factor the first row is slower than the next, larger ones; None if not."""
    if len(seconds) <= COLD_NEIGHBOURS:
        return None
    nearby = seconds[1 : 1 + COLD_NEIGHBOURS]
    usual = float(np.median(nearby))
    excess = float(seconds[0]) - usual
    cold = excess > (COLD_FACTOR - 1) * usual and np.ptp(nearby) < COLD_SPREAD * excess
    return float(seconds[0]) / usual if cold else None


def _median(values: list[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]
