"""Refuse the logs of several runs that printed at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from commlab.calibrate.log_parts import Block
from commlab.calibrate.log_rows import RawRow
from commlab.calibrate.records import LogError


def refuse_interleaved(block: Block, rows: Sequence[RawRow]) -> None:
    """Refuse the rows of several runs that printed at the same time.

    A test that was built without MPI runs once per process: every copy believes to be alone and
    prints its own header and rows, and the launcher mixes them.
    """
    sizes = [row.nbytes for row in rows]
    if not sizes:
        return
    times = Counter(sizes)
    repeated = sum(count > 1 for count in times.values()) / len(times)
    smallest = min(sizes)
    mixed_labels = len({(row.dtype, row.redop, row.root) for row in rows}) > 1
    # A new sweep starts at the smallest size; any other step back is another copy's row.
    woven = sum(after < before and after > smallest for before, after in pairwise(sizes))
    beside = sum(after == before for before, after in pairwise(sizes))
    each_twice = len(times) > 2 and min(times.values()) > 1 and (woven or beside >= len(times))
    copies = not block.inherits and block.n_headers > 1 and repeated >= 0.5
    if (
        len(block.tags) > 1
        or copies
        or (not mixed_labels and (each_twice or (woven > 1 and repeated >= 0.3)))
    ):
        n_copies = max(block.n_headers, len(block.tags), *times.values())
        raise _mixed(rows[0].line, n_copies)


def refuse_mixed_headers(blocks: Sequence[Block]) -> None:
    """Refuse headers and rows of several runs that were printed into each other.

    Raises
    ------
    LogError
        ``interleaved``.
    """
    with_rows = [block for block in blocks if block.rows]
    for block, after in pairwise(with_rows):
        # A header that stood twice before the first row, and is missing before the next rows.
        twice = {key for key, count in block.header.seen.items() if count > 1}
        parted = bool(twice) and not twice & set(after.header.seen)
        # Rows that went on behind the header of another run, up to the end of both.
        sizes = Counter(row.tokens[0] for row in after.rows)
        went_on = not block.n_trailers and not after.inherits and max(sizes.values()) > 1
        two_ends = after.n_trailers > max(1, after.n_headers)
        if (parted and (two_ends or not after.inherits)) or (went_on and two_ends):
            raise _mixed(after.rows[0].number, 2)


def _mixed(line: int, n_copies: int) -> LogError:
    return LogError(
        "interleaved",
        f"The rows from line {line} on are those of {n_copies} runs mixed: the test was probably "
        "built without MPI, so each process ran alone. Build it with MPI=1 and measure again.",
    )
