"""What the curve of a run tells: a collapse, a cliff, two regimes, a mean that is no speed."""

from __future__ import annotations

import numpy as np

from commlab.calibrate.fit import Fit
from commlab.calibrate.records import Remark
from commlab.units import format_bytes, format_rate, format_seconds

# Bandwidth has collapsed if that of the largest sizes is below this share of the best; both are
# medians of so many neighbouring rows, so that one row does not decide.
COLLAPSED = 0.8
WINDOW = 3
# α + S/β at most keeps its bandwidth from one size to the next. A cliff: less than this share …
CLIFF = 0.7
# … and the row after it is not fast again, which would make a single slow row of it.
STAYS = 0.85
# Two rows in a row are slower than the next two by this factor, although these send more.
FALLS = 1.25
# In-place and out-of-place times of so many neighbouring rows differ by this factor.
DIFFERS = 1.5
NEIGHBOURS = 2
# The log's mean is worth a word if it is below this share of β.
MISLEADING = 0.8


def bandwidth_falls(fit: Fit) -> Remark | None:
    """The largest sizes run at a fraction of the best bandwidth."""
    busbw = fit.busbw
    if len(busbw) <= WINDOW:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(busbw, WINDOW)
    medians = np.median(windows, axis=1)
    best = int(medians.argmax())
    if medians[-1] > COLLAPSED * medians[best]:
        return None
    top = best + int(windows[best].argmax())
    return Remark(
        "bandwidth_falls",
        f"Bandwidth collapses with size: {_row(fit, top)} reaches {format_rate(busbw[top])}, "
        f"{_row(fit, -1)} only {format_rate(busbw[-1])}. Healthy links keep their rate: look for "
        "congestion, retransmissions, a throttling NIC or GPU, and pause frames on the switches.",
        fit.rows[-1].line,
    )


def cliff(fit: Fit) -> Remark | None:
    """From one size to the next the time grows by more than the size, and stays up."""
    sizes, seconds = fit.sizes, fit.seconds
    for n in range(len(sizes) - 2):
        growth = seconds[n + 1] / seconds[n]
        allowed = sizes[n + 1] / sizes[n]
        if growth * CLIFF >= allowed and seconds[n + 2] >= STAYS * seconds[n + 1]:
            return Remark(
                "cliff",
                f"A cliff: from {_row(fit, n)} to {_row(fit, n + 1)} the time grows {growth:.1f} "
                f"times ({format_seconds(seconds[n])} to {format_seconds(seconds[n + 1])}) and the "
                f"size {allowed:.1f} times. The library switches to a worse protocol or algorithm "
                "there (NCCL: try NCCL_PROTO and NCCL_ALGO, and look at its tuner), or a cache "
                "is full.",
                fit.rows[n + 1].line,
            )
    return None


def time_falls(fit: Fit) -> Remark | None:
    """Larger messages take less time than smaller ones, and not only one row."""
    seconds = fit.seconds
    for n in range(1, len(seconds) - 2):
        slow, fast = min(seconds[n - 1 : n + 1]), max(seconds[n + 1 : n + 3])
        if slow >= FALLS * fast:
            return Remark(
                "time_falls",
                f"More bytes take less time: {_row(fit, n)} {format_seconds(seconds[n])}, "
                f"{_row(fit, n + 1)} {format_seconds(seconds[n + 1])}. Up to there the library "
                "uses a slower algorithm or protocol than it could; a time that grows with the "
                "size cannot follow.",
                fit.rows[n].line,
            )
    return None


def in_place_differs(fit: Fit) -> Remark | None:
    """In-place and out-of-place times disagree over a range of sizes."""
    ratios = [
        None if row.in_place_seconds is None else row.in_place_seconds / row.seconds
        for row in fit.rows
    ]
    far = [ratio is not None and (ratio >= DIFFERS or ratio * DIFFERS <= 1) for ratio in ratios]
    for first in range(len(far) - NEIGHBOURS + 1):
        if all(far[first : first + NEIGHBOURS]):
            last = first
            while last + 1 < len(far) and far[last + 1]:
                last += 1
            row = fit.rows[first]
            assert row.in_place_seconds is not None
            return Remark(
                "in_place_differs",
                f"In-place and out-of-place times belong to two regimes from {_row(fit, first)} to "
                f"{_row(fit, last)}: at the first {format_seconds(row.in_place_seconds)} against "
                f"{format_seconds(row.seconds)}. α and β here are those of the out-of-place "
                "columns; a training framework mostly works in place.",
                row.line,
            )
    return None


def average_busbw(fit: Fit) -> Remark | None:
    """The log's "Avg bus bandwidth" lies far below β."""
    average = fit.run.average_busbw
    if average is None or fit.beta is None or average > MISLEADING * fit.beta.value:
        return None
    return Remark(
        "average_busbw",
        f"'Avg bus bandwidth' {format_rate(average)} is no speed of this machine: it is the mean "
        f"over all sizes from {format_bytes(fit.rows[0].nbytes)} on, and changes with -b and -e. "
        f"β is {format_rate(fit.beta.value)}.",
    )


def _row(fit: Fit, n: int) -> str:
    row = fit.rows[n]
    return f"{format_bytes(row.nbytes)} (line {row.line})"
