"""What is odd about a run as a whole, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from commlab.calibrate.log_parts import Block, Fragment
from commlab.calibrate.log_rows import ReadRows
from commlab.calibrate.records import Remark

_MANY_LINES = 3


@dataclass(frozen=True)
class BlockRows:
    """A block, and its rows as numbers."""

    block: Block
    read: ReadRows


def remarks_on(found: BlockRows) -> list[Remark]:
    """Return the remarks on a run that are not about single numbers."""
    block, read = found.block, found.read
    remarks = [_on_recovered(row) for row in block.rows if row.recovered or row.joined]
    if block.lost_hash is not None:
        remarks.append(
            Remark("lost_hash", "Lines of the header have lost their #.", block.lost_hash)
        )
    if read.zero_size:
        numbers = [fragment.number for fragment in read.zero_size]
        remarks.append(
            Remark(
                "zero_size",
                f"{these_lines(numbers)} of size 0: nothing was sent, so they are not used.",
                numbers[0],
            )
        )
    wrong = [row.line for row in read.rows if row.out and row.out.n_wrong]
    if wrong or block.out_of_bounds:
        who = f"{these_lines(wrong)} of a wrong result" if wrong else "Results are wrong"
        text = f"{who}: do not trust this machine's times before that is explained."
        remarks.append(Remark("wrong_results", text, wrong[0] if wrong else None))
    remarks += _on_columns(block, read)
    if block.elided_rows:
        remarks.append(Remark("elided_rows", "Rows were left out here.", block.elided_rows[0]))
    if block.errors:
        line, said = block.errors[0]
        remarks.append(Remark("error_in_log", f"The log reports a problem: {said}", line))
    with_end = block.n_headers and not block.inherits and block.header.version != "commlab bench"
    if with_end and not block.n_trailers:
        remarks.append(Remark("unfinished", "The end of the table is missing."))
    sizes = [row.nbytes for row in read.rows]
    if len(sizes) >= 2 * len(set(sizes)) > 2:
        remarks.append(Remark("repeated_sizes", "Sizes were measured more than once."))
    return remarks


def _on_columns(block: Block, read: ReadRows) -> list[Remark]:
    remarks = []
    longer = [
        row.number for row in block.rows if block.titles and len(row.tokens) > len(block.titles)
    ]
    if longer:
        text = f"{these_lines(longer)} longer than the titles: the columns behind are not read."
        remarks.append(Remark("extra_columns", text, longer[0]))
    shorter = [row.line for row in read.rows if row.out and not row.again]
    if shorter and len(shorter) < sum(row.out is not None for row in read.rows):
        text = f"{these_lines(shorter)} without in-place columns, unlike the others."
        remarks.append(Remark("half_missing", text, shorter[0]))
    return remarks


def _on_recovered(row: Fragment) -> Remark:
    where = f"line {row.number}"
    if row.joined:
        where = f"lines {row.number}, {', '.join(map(str, row.joined))}"
    return Remark("recovered_row", f"A row among other text was read from {where}.", row.number)


def these_lines(numbers: Sequence[int]) -> str:
    """Return "Line 7 is", or "Lines 7, 8, 9 and 4 more are"."""
    if len(numbers) == 1:
        return f"Line {numbers[0]} is"
    shown = ", ".join(map(str, numbers[:_MANY_LINES]))
    more = f" and {len(numbers) - _MANY_LINES} more" if len(numbers) > _MANY_LINES else ""
    return f"Lines {shown}{more} are"
