"""Do the columns of a row agree with each other? Recompute algbw and busbw, and say what is off."""

from __future__ import annotations

from collections.abc import Sequence

from commlab.calibrate.bus import SHARE_OF_OTHERS, bus_factor
from commlab.calibrate.log_rows import Half, RawRow
from commlab.calibrate.log_tokens import DTYPE_BYTES
from commlab.calibrate.records import Remark

_SLACK = 2e-3
# From this rounding on, algbw no longer stands for the time.
_COARSE_RATE = 0.02


def algbw_share(rows: Sequence[RawRow], op: str, n_ranks: int) -> float:
    """Return what part of S the algbw column counts.

    All of it, except in hypercube_perf and in the all_gather, reduce_scatter, gather and scatter
    of old versions: there the (N−1)/N that a rank does not have itself.
    """
    if op not in SHARE_OF_OTHERS or n_ranks < 2:
        return 1.0
    part = (n_ranks - 1) / n_ranks
    votes = 0
    for row in rows:
        half = row.out or row.again
        if half and half.algbw and half.algbw > 20 * half.algbw_half:
            votes += _rate_agrees(half, row.nbytes * part, half.algbw, half.algbw_half)
            votes -= _rate_agrees(half, row.nbytes, half.algbw, half.algbw_half)
    return part if votes > 0 else 1.0


def count_agrees(row: RawRow, n_ranks: int) -> bool | None:
    """Tell whether size is count times the width of an element; None if nobody can know."""
    width = DTYPE_BYTES.get(row.dtype or "")
    if not width or row.n_elements is None:
        return None
    return row.nbytes in (row.n_elements * width, row.n_elements * width * n_ranks)


def what_is_off(
    row: RawRow, half: Half, op: str, n_ranks: int, share: float
) -> tuple[str, str] | None:
    """Return which column contradicts the others, and what they say; None if all agree.

    The column is ``time``, ``size``, ``algbw``, ``busbw`` or ``unclear``.
    """
    factor = bus_factor(op, n_ranks)
    algbw_ok = half.algbw is None or _rate_agrees(
        half, row.nbytes * share, half.algbw, half.algbw_half
    )
    busbw_ok = half.busbw is None or _rate_agrees(
        half, row.nbytes * factor, half.busbw, half.busbw_half
    )
    if algbw_ok and busbw_ok:
        return None
    said = (
        f"{row.nbytes} bytes in {half.seconds * 1e6:g} µs are "
        f"{row.nbytes * share / half.seconds / 1e9:.4g} and "
        f"{row.nbytes * factor / half.seconds / 1e9:.4g} GB/s, printed are "
        f"{_shown(half.algbw)} and {_shown(half.busbw)}"
    )
    if algbw_ok:
        return "busbw", said
    if half.busbw is None or half.algbw is None:
        return "unclear", said
    if busbw_ok:
        return "algbw", said
    if not _rates_agree(half, factor / share):
        return "unclear", said
    return ("size" if count_agrees(row, n_ranks) is False else "time"), said


def time_of_cpu(rows: Sequence[RawRow]) -> bool:
    """Tell whether a column "cputime" (-C 1) really holds another time than that of the rates."""
    telling = [
        half.agrees(row.nbytes)
        for row in rows
        if (half := row.out or row.again) and half.algbw and half.algbw > 20 * half.algbw_half
    ]
    return not telling or sum(telling) < 0.9 * len(telling)


def with_time_of_rate(nbytes: int, half: Half | None) -> Half | None:
    """Return a half with the time that its algbw stands for; None if algbw is too coarse."""
    if half is None or not half.algbw or half.algbw_half > _COARSE_RATE * half.algbw:
        return None
    seconds = nbytes / half.algbw
    return half._replace(seconds=seconds, seconds_half=seconds * half.algbw_half / half.algbw)


def contradiction(line: int, column: str, said: str, where: str) -> Remark:
    """Put a contradiction into words."""
    verdict = "it is not clear which is wrong" if column == "unclear" else f"{column} looks wrong"
    return Remark("contradiction", f"{where}{said}: {verdict}.", line)


def _rate_agrees(half: Half, nbytes: float, rate: float, rate_half: float) -> bool:
    fastest = nbytes / max(half.seconds - half.seconds_half, 1e-30)
    slowest = nbytes / (half.seconds + half.seconds_half)
    return slowest * (1 - _SLACK) <= rate + rate_half and rate - rate_half <= fastest * (1 + _SLACK)


def _rates_agree(half: Half, ratio: float) -> bool:
    assert half.algbw is not None and half.busbw is not None
    low = (half.algbw - half.algbw_half) * ratio - half.busbw_half
    high = (half.algbw + half.algbw_half) * ratio + half.busbw_half
    return low * (1 - _SLACK) <= half.busbw <= high * (1 + _SLACK)


def _shown(rate: float | None) -> str:
    return "nothing" if rate is None else f"{rate / 1e9:.4g}"
