"""Which test, and of how many ranks: from what a log states and from what its rows say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from commlab.calibrate.bus import OPS, SHARE_OF_OTHERS, TWICE_THE_SHARE, bus_factor
from commlab.calibrate.log_rows import RawRow
from commlab.calibrate.log_tokens import DTYPE_BYTES

# Rows whose rate has fewer digits than this say nothing about a factor.
_COARSE = 0.05
_REDUCING = ("all_reduce", "reduce_scatter", "reduce")
_WITH_ROOT = ("broadcast", "reduce", "gather", "scatter")
_TIGHTEST = 7
_VOTERS = 64
_MAJORITY = 0.6
_MOST_RANKS = 10_000_000
_MOST_CANDIDATES = 5000


class Factor(NamedTuple):
    """What busbw · time / size of one row lies between."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Tell whether a factor is possible, to the printed digits."""
        return self.low * (1 - 1e-6) <= value <= self.high * (1 + 1e-6)


def factors(rows: Iterable[RawRow]) -> list[Factor]:
    """Return what each row says of the bus factor, the tightest first."""
    found = []
    for row in rows:
        half = row.out or row.again
        if half is None or half.busbw is None:
            continue
        # A busbw of 0.00 beside a real algbw is a factor of 0: one rank.
        if half.busbw <= half.busbw_half and (half.algbw or 0) < 20 * half.busbw_half:
            continue
        low, high = half.busbw - half.busbw_half, half.busbw + half.busbw_half
        one = Factor(
            low * (half.seconds - half.seconds_half) / row.nbytes,
            high * (half.seconds + half.seconds_half) / row.nbytes,
        )
        if one.high - one.low <= _COARSE * max(one.high, 0.1):
            found.append(one)
    return sorted(found, key=lambda factor: factor.high - factor.low)


def share_that_holds(known: Sequence[Factor], factor: float) -> float:
    """Return the share of rows that a bus factor explains; 1 where no row says anything."""
    voters = known[:_VOTERS]
    if not voters:
        return 1.0
    return sum(one.holds(factor) for one in voters) / len(voters)


def ranks_that_fit(known: Sequence[Factor], op: str) -> list[int]:
    """Return the numbers of ranks that most rows allow for an op, in order.

    Empty where the factor does not depend on N, where no row says anything, or where too many
    numbers fit.
    """
    if op in TWICE_THE_SHARE:
        top = 2.0
    elif op in SHARE_OF_OTHERS:
        top = 1.0
    else:
        return []
    candidates: set[int] = set()
    for one in known[:_TIGHTEST]:
        low = _ranks_of(one.low * (1 - 1e-6), top)
        high = _ranks_of(one.high * (1 + 1e-6), top)
        if high > _MOST_RANKS or high - low > _MOST_CANDIDATES:
            continue
        candidates.update(range(max(1, math.ceil(low)), math.floor(high) + 1))
    if not candidates or len(candidates) > _MOST_CANDIDATES:
        return []
    shares = {n: share_that_holds(known, bus_factor(op, n)) for n in candidates}
    most = max(shares.values())
    return sorted(n for n, share in shares.items() if share == most and share >= _MAJORITY)


def _ranks_of(factor: float, top: float) -> float:
    """Solve top · (N − 1)/N = factor for N."""
    return math.inf if factor >= top else top / (top - factor)


def ops_that_fit(
    rows: Sequence[RawRow],
    known: Sequence[Factor],
    n_ranks: int | None,
    titles: Sequence[str] | None = None,
) -> list[str]:
    """Return the tests that rows like these may come from.

    Parameters
    ----------
    rows : sequence of RawRow
    known : sequence of Factor
        What `factors` says of them.
    n_ranks : int or None
        The number of ranks if it is known.
    titles : sequence of str or None
        The columns of the table if it names them.
    """
    found = [op for op in OPS if op not in ("alltoallv", "hypercube")]
    found = _by_rates(found, known, n_ranks)
    # Until 2.10 a test printed only the columns that it needed.
    if titles and "error0" in titles and "redop" not in titles:
        found = [op for op in found if op not in _REDUCING] or found
    if titles and "root" not in titles:
        found = [op for op in found if op not in _WITH_ROOT] or found
    for rule in (_by_reduction, _by_root, _by_check, _by_count):
        kept = rule(found, rows)
        found = kept or found
    return found


def _by_rates(ops: list[str], known: Sequence[Factor], n_ranks: int | None) -> list[str]:
    found = ops
    if n_ranks:
        found = [
            op for op in found if share_that_holds(known, bus_factor(op, n_ranks)) >= _MAJORITY
        ]
    elif known:
        found = [
            op
            for op in found
            if share_that_holds(known, 1.0) >= _MAJORITY
            or (op in SHARE_OF_OTHERS + TWICE_THE_SHARE and ranks_that_fit(known, op))
        ]
        if share_that_holds(known, 1.0) >= _MAJORITY:
            found = [op for op in found if op not in SHARE_OF_OTHERS]
    return found


def _by_reduction(ops: list[str], rows: Sequence[RawRow]) -> list[str]:
    redops = {row.redop for row in rows if row.redop}
    if not redops:
        return ops
    if redops == {"none"}:
        return [op for op in ops if op not in _REDUCING]
    # sendrecv prints sum, although it adds nothing.
    return [op for op in ops if op in (*_REDUCING, "sendrecv")]


def _by_root(ops: list[str], rows: Sequence[RawRow]) -> list[str]:
    roots = {row.root for row in rows if row.root is not None}
    if not roots:
        return ops
    if roots == {-1}:
        return [op for op in ops if op not in _WITH_ROOT]
    return [op for op in ops if op in _WITH_ROOT]


def _by_check(ops: list[str], rows: Sequence[RawRow]) -> list[str]:
    """Only sendrecv, alltoall and their kin do not check what they did in-place."""
    checked = [row for row in rows if row.out and row.again and not row.out.no_check]
    if not checked:
        return ops
    unchecked = ("alltoall", "sendrecv", "gather", "scatter")
    if all(row.again and row.again.no_check for row in checked):
        return [op for op in ops if op in unchecked]
    return [op for op in ops if op not in ("alltoall", "sendrecv")]


def _by_count(ops: list[str], rows: Sequence[RawRow]) -> list[str]:
    """The count of an all_gather or an alltoall is that of one rank's share."""
    whole = [
        row.nbytes == row.n_elements * DTYPE_BYTES[row.dtype]
        for row in rows
        if row.n_elements and row.dtype in DTYPE_BYTES
    ]
    if not whole:
        return ops
    if sum(whole) > len(whole) / 2:
        return [op for op in ops if op not in SHARE_OF_OTHERS]
    return [op for op in ops if op in SHARE_OF_OTHERS]
