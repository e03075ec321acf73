"""α and β of a measured run, by relative error, in as many pieces as held-out rows justify.

What α and β mean here: a log shows calls, so T(S) = α + factor · S / β is the time of **one
call** at size S. ``alpha`` is seconds per call, what a call of almost no bytes takes, and
``beta`` is the bus bandwidth of very large calls, in bytes per second: what each rank sends in
one direction if the algorithm is a ring or sends directly. ``factor`` is nccl-tests' own, 2(N−1)/N
for all_reduce. The book's α is seconds per **message**: `messages` says how many a call sends
one after the other, and ``alpha_per_message`` is α divided by it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from commlab.calibrate.bus import bus_factor
from commlab.calibrate.fit_outliers import cold_excess
from commlab.calibrate.fit_parameters import (
    Parameter,
    alpha_of,
    beta_of,
    make_pieces,
    messages_of,
)
from commlab.calibrate.fit_search import N_PARAMETERS, find_pieces
from commlab.calibrate.pieces import PiecewiseTime
from commlab.calibrate.records import LogError, Remark, Row, Run
from commlab.units import format_bytes, format_seconds

# Above this held-out error a fit is no model of its run.
LARGEST_ERROR = 0.08

# Rows in which the reader doubts one of these columns are no points.
DOUBTFUL_COLUMNS = ("time", "size", "unclear")


@dataclass(frozen=True)
class Outlier:
    """A row that was left out of the fit, and why: ``cold``, ``doubtful`` or ``off``.

    ``ratio`` is its measured time over the predicted one.
    """

    row: Row
    predicted: float
    ratio: float
    reason: str


@dataclass(frozen=True)
class Fit:
    """What a run says about α and β.

    Parameters
    ----------
    run : Run
    model : PiecewiseTime
        Predicts seconds per call from S in bytes.
    factor : float
        Of the bus bandwidth, see `commlab.calibrate.bus.bus_factor`.
    alpha : Parameter or None
        Seconds per call, of the piece of the smallest sizes; None where they don't determine it.
    beta : Parameter or None
        Bus bandwidth in bytes/s, of the piece of the largest sizes; None likewise.
    messages : int or None
        Messages that a call sends one after the other, and so pays α for; None if not known.
    algorithm : str or None
        The algorithm that `messages` counts.
    rows : tuple of Row
        All rows above 0 bytes, by size.
    used : array of bool of shape (len(rows),)
        The points of the fit.
    predicted, held_out : array of shape (len(rows),)
        Seconds; `held_out` by fits that did not see the row. None with two points.
    outliers : tuple of Outlier
    remarks : tuple of Remark
        What the fit has to say about itself.
    """

    run: Run
    model: PiecewiseTime
    factor: float
    alpha: Parameter | None
    beta: Parameter | None
    messages: int | None
    algorithm: str | None
    rows: tuple[Row, ...]
    used: np.ndarray
    predicted: np.ndarray
    held_out: np.ndarray | None
    outliers: tuple[Outlier, ...]
    remarks: tuple[Remark, ...]

    @property
    def sizes(self) -> np.ndarray:
        """S of each row, in bytes."""
        return np.array([row.nbytes for row in self.rows], dtype=float)

    @property
    def seconds(self) -> np.ndarray:
        """Measured time of each row."""
        return np.array([row.seconds for row in self.rows])

    @property
    def busbw(self) -> np.ndarray:
        """Bus bandwidth of each row, in bytes per second."""
        return self.factor * self.sizes / self.seconds

    @property
    def alpha_per_message(self) -> float | None:
        """The book's α, seconds per message of `algorithm`."""
        if self.alpha is None or self.messages is None:
            return None
        return self.alpha.value / self.messages

    @property
    def median_error(self) -> float:
        """Median relative error of the points."""
        return float(np.median(np.abs(self.predicted / self.seconds - 1)[self.used]))

    def held_out_error(self, all_rows: bool = False, smallest: float = 0) -> float | None:
        """Median relative error of rows, each predicted by a fit that did not see it.

        Parameters
        ----------
        all_rows : bool
            Count the outliers too.
        smallest : float
            Count rows of this size in bytes and above.
        """
        counted = (self.used | all_rows) & (self.sizes >= smallest)
        if self.held_out is None or not counted.any():
            return None
        return float(np.median(np.abs(self.held_out / self.seconds - 1)[counted]))


def fit_run(run: Run) -> Fit:
    """Fit α and β to a run.

    Parameters
    ----------
    run : Run
        From `commlab.calibrate.read_log`. The out-of-place times are fitted; rows of 0 bytes are
        no points.

    Raises
    ------
    LogError
        ``one_rank``, or ``few_points`` if there are fewer different sizes than the two parameters.
    """
    if run.n_ranks < 2:
        raise LogError(
            "one_rank", f"The run of {run.op} is on one rank, which sends nothing: take 2 or more."
        )
    rows = tuple(sorted((row for row in run.rows if row.nbytes > 0), key=lambda row: row.nbytes))
    sizes = np.array([row.nbytes for row in rows], dtype=float)
    seconds = np.array([row.seconds for row in rows])
    sound = np.array([_is_sound(row) for row in rows], dtype=bool)
    n_sizes = len(np.unique(sizes[sound]))
    if n_sizes < N_PARAMETERS:
        raise LogError(
            "few_points",
            f"The run of {run.op} on {run.n_ranks} ranks has {n_sizes} usable size above 0 bytes, "
            "and α and β are two unknowns: measure a sweep, for example -b 8 -e 8G -f 2.",
        )
    found = find_pieces(sizes[sound], seconds[sound])
    pieces, noise = make_pieces(found, sizes[sound], seconds[sound])
    model = PiecewiseTime(pieces)
    predicted = model.seconds(sizes)
    used = sound.copy()
    used[sound] = found.used
    held_out = None
    if found.held_out is not None:
        held_out = predicted.copy()  # a row that is not sound is in no fit
        held_out[sound] = found.held_out

    factor = bus_factor(run.op, run.n_ranks)
    alpha, about_alpha = alpha_of(pieces[0], sizes[used], seconds[used], noise)
    beta, about_beta = beta_of(pieces[-1], sizes[used], seconds[used], noise, factor)
    messages, algorithm = messages_of(run)
    outliers = _outliers(rows, used, sound, predicted)
    fit = Fit(
        run,
        model,
        factor,
        alpha,
        beta,
        messages,
        algorithm,
        rows,
        used,
        predicted,
        held_out,
        outliers,
        (*about_alpha, *about_beta, *(_remark_on(outlier) for outlier in outliers)),
    )
    return replace(fit, remarks=(*fit.remarks, *_on_the_whole(fit, found.one_line_error)))


def _is_sound(row: Row) -> bool:
    return row.seconds > 0 and row.suspect not in DOUBTFUL_COLUMNS


def _outliers(
    rows: tuple[Row, ...], used: np.ndarray, sound: np.ndarray, predicted: np.ndarray
) -> tuple[Outlier, ...]:
    first = int(np.argmax(sound))
    is_cold = cold_excess(np.array([row.seconds for row in rows])[sound]) is not None
    outliers = []
    for n in np.flatnonzero(~used):
        if not sound[n]:
            reason = "doubtful"
        elif n == first and is_cold:
            reason = "cold"
        else:
            reason = "off"
        ratio = rows[n].seconds / float(predicted[n])
        outliers.append(Outlier(rows[n], float(predicted[n]), ratio, reason))
    return tuple(outliers)


def _remark_on(outlier: Outlier) -> Remark:
    row = outlier.row
    code, why = {
        "off": ("outlier", "left out of the fit"),
        "cold": (
            "cold_first_row",
            "the first row pays for a cold start, so it is left out of the fit. "
            "Give nccl-tests more warm-up calls (-w 20)",
        ),
        "doubtful": (
            "doubtful_row",
            f"its {row.suspect} contradicts its other columns, so it is no point of the fit",
        ),
    }[outlier.reason]
    return Remark(
        code,
        f"Line {row.line}, {format_bytes(row.nbytes)}: {format_seconds(row.seconds)} is "
        f"{outlier.ratio:.2f} times the predicted {format_seconds(outlier.predicted)}; {why}.",
        row.line,
    )


def _on_the_whole(fit: Fit, one_line_error: float | None) -> list[Remark]:
    """Say how many pieces there are, and how well or badly they predict."""
    remarks = []
    error = fit.held_out_error()
    n_pieces = len(fit.model.pieces)
    if n_pieces > 1:
        breaks = ", ".join(format_bytes(size) for size in fit.model.breaks)
        remarks.append(
            Remark(
                "regimes",
                f"One straight line misses held-out rows by {one_line_error:.1%} in the median, "
                f"{n_pieces} pieces by {error:.1%}: the library switches algorithm "
                f"or protocol near {breaks}.",
            )
        )
    if error is None:
        remarks.append(
            Remark(
                "two_points",
                "Two points and two unknowns: the line goes through both, and nothing is left to "
                "tell how good it is. Measure a sweep.",
            )
        )
    elif error > LARGEST_ERROR:
        remarks.append(
            Remark(
                "poor_fit",
                f"Rows held out of the fit are missed by {error:.1%} in the median: α and β "
                "describe this run badly. Look at the residuals (--plot).",
            )
        )
    return remarks
