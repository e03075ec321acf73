"""Intervals of the parameters of a straight line that was fitted by relative error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commlab.calibrate.fit_segments import SINGULAR

CONFIDENCE = 0.95
NORMAL_QUANTILE = 1.959964  # of (1 + CONFIDENCE) / 2
# Logs print four digits or so: no fit is better than that.
SMALLEST_DEVIATION = 1e-4


def student_quantile(freedom: int) -> float:
    """Return the factor of a two-sided 95 % interval with so many degrees of freedom.

    Exact for 1 and 2; from 3 on by the expansion in 1/freedom of Abramowitz and Stegun 26.7.5,
    which is right to three digits.
    """
    if freedom == 1:
        return float(np.tan(np.pi / 2 * CONFIDENCE))
    if freedom == 2:
        return CONFIDENCE * float(np.sqrt(2 / (1 - CONFIDENCE**2)))
    z = NORMAL_QUANTILE
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))


@dataclass(frozen=True)
class Noise:
    """The scatter of rows about their fit.

    Parameters
    ----------
    deviation : float
        Standard deviation of the relative errors.
    freedom : int
        Rows minus parameters, 1 or more.
    """

    deviation: float
    freedom: int

    def line_errors(self, sizes: np.ndarray, seconds: np.ndarray) -> tuple[float, float]:
        """Return the standard errors of α and of the seconds per byte of a line.

        Parameters
        ----------
        sizes, seconds : array of shape (n_rows,)
            The rows of the line. Those of one size determine neither: both are infinite then.
        """
        x1, x2 = 1 / seconds, sizes / seconds
        s11, s12, s22 = x1 @ x1, x1 @ x2, x2 @ x2
        determinant = s11 * s22 - s12**2
        if determinant <= SINGULAR * s11 * s22:
            return np.inf, np.inf
        of_alpha, of_slope = np.sqrt(s22 / determinant), np.sqrt(s11 / determinant)
        return self.deviation * float(of_alpha), self.deviation * float(of_slope)

    def half_widths(self, sizes: np.ndarray, seconds: np.ndarray) -> tuple[float, float]:
        """Return half the widths of the 95 % intervals of α and of the seconds per byte."""
        quantile = student_quantile(self.freedom)
        of_alpha, of_slope = self.line_errors(sizes, seconds)
        return quantile * of_alpha, quantile * of_slope


def noise_of(errors: np.ndarray, n_parameters: int) -> Noise | None:
    """Return the scatter of relative errors; None where no row is left over to tell."""
    freedom = len(errors) - n_parameters
    if freedom < 1:
        return None
    deviation = float(np.sqrt(errors @ errors / freedom))
    return Noise(max(deviation, SMALLEST_DEVIATION), freedom)
