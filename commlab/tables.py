"""Tables that a notebook cell ends with: Markdown on a page, the same text in a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A finished table. Jupyter shows ``_repr_markdown_``; ``print`` shows the same text.

    Parameters
    ----------
    markdown : str
        The table as Markdown, one row a line.
    """

    markdown: str

    def __repr__(self) -> str:
        return self.markdown

    def _repr_markdown_(self) -> str:
        return self.markdown


def table(
    headers: Sequence[object], rows: Sequence[Sequence[object]], align: str | None = None
) -> Table:
    """Lay out a table.

    Parameters
    ----------
    headers : sequence
        One heading per column, for example ``("ranks N · 卡数 N", "time · 耗时")``.
    rows : sequence of sequences
        The cells, printed with ``str``: format numbers and units before, with
        :mod:`commlab.units` or an f-string.
    align : str, optional
        One letter per column, ``l`` or ``r``. Without it the first column stands left and
        all others right, which suits numbers.

    Returns
    -------
    Table
        An object that displays itself as the last expression of a cell.

    Raises
    ------
    ValueError
        If a row has another number of cells than there are headings, if a cell holds a line
        break, or if ``align`` does not fit.

    Examples
    --------
    >>> table(("N", "time"), [(2, "2.40 ms"), (8, "4.25 ms")])
    | N   |    time |
    | :-- | ------: |
    | 2   | 2.40 ms |
    | 8   | 4.25 ms |
    """
    return Table(markdown_table(headers, rows, align))


def markdown_table(
    headers: Sequence[object], rows: Sequence[Sequence[object]], align: str | None = None
) -> str:
    """Return the Markdown text of a table; the arguments are those of :func:`table`."""
    lines = [[_cell(value) for value in row] for row in (headers, *rows)]
    columns = len(headers)
    if columns == 0:
        raise ValueError("a table needs at least one column: give at least one heading.")
    for number, line in enumerate(lines[1:], start=1):
        if len(line) != columns:
            raise ValueError(
                f"row {number} has {len(line)} cells but there are {columns} headings: "
                "give one cell per heading."
            )
    if align is None:
        align = "l" + "r" * (columns - 1)
    if len(align) != columns or set(align) - {"l", "r"}:
        raise ValueError(
            f"align={align!r} does not fit {columns} columns: give one letter l or r per column."
        )
    widths = [max(3, *(_width(line[k]) for line in lines)) for k in range(columns)]
    rule = [
        ":" + "-" * (width - 1) if side == "l" else "-" * (width - 1) + ":"
        for width, side in zip(widths, align, strict=True)
    ]
    return "\n".join(_line(line, widths, align) for line in (lines[0], rule, *lines[1:]))


def _cell(value: object) -> str:
    text = str(value)
    if "\n" in text:
        raise ValueError(f"the cell {text!r} holds a line break: a table cell is one line.")
    # An unescaped bar would open another column.
    return text.replace("|", "\\|")


def _line(cells: Sequence[str], widths: Sequence[int], align: str) -> str:
    padded = []
    for text, width, side in zip(cells, widths, align, strict=True):
        space = " " * (width - _width(text))
        padded.append(text + space if side == "l" else space + text)
    return "| " + " | ".join(padded) + " |"


def _width(text: str) -> int:
    """Columns that a terminal needs: Chinese characters take two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
