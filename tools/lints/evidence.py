"""What a page shows: the numbers in its outputs, and those that its code starts from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from commlab import units as sizes
from tools.lints.pages import inside_code_blocks
from tools.lints.quantities import (
    BINARY,
    BYTES,
    DECIMAL,
    RATIO,
    TOKENS,
    UNITS,
    Quantity,
    Unit,
    quantities,
)

_SIZES = {name: getattr(sizes, name) for name in ("KIB", "MIB", "GIB", "TIB")}
_NAMESPACE = {"__builtins__": {}, "range": range, **_SIZES}
# A small whole number in code is a count, not "8 s"; 12e-3 and 450e9 are seconds and rates.
_LEAST_SI_INPUT = 1000
# A stated digit may round, but not by more than this: 11.5 ms are not "11 ms".
_LARGEST_ROUNDING = Fraction(1, 40)
# 1 048 576 bytes are 1 MiB, and no 1 MB.
_LARGEST_BETWEEN_FAMILIES = Fraction(1, 100)

# "T [ms]", "T (ms)", "times in s", "step, ms", "MiB per all-reduce".
_UNIT_OF_HEADING = re.compile(
    r"[\[(]([^\])\d]{1,8})[\])]|\bin ([A-Za-zµ%/]+)|, ([A-Za-zµ%/]+)$|^([A-Za-zµ%/]+) per\b"
)
# A constant such as "64 KiB", for parse_size.
_WRITTEN_SIZE = re.compile(r"[\d.]+ ?[A-Za-zµ%/]+")


def _rounds_to(stated: Quantity, shown: Quantity) -> bool:
    """Say whether what was shown, in the same unit or another, is stated at its own precision."""
    difference = abs(shown.si - stated.si)
    if difference == 0:
        return True
    if shown.si_half > stated.si_half or difference > _LARGEST_ROUNDING * shown.si:
        return False
    return difference <= stated.si_half


def _same_kind(stated: Quantity, shown: Quantity) -> bool:
    if stated.unit is None or shown.unit is None:
        return False
    kinds = {stated.unit.kind, shown.unit.kind}
    if len(kinds) == 1:
        return True
    if BYTES in kinds and kinds <= {BYTES, BINARY, DECIMAL}:
        return abs(shown.si - stated.si) <= _LARGEST_BETWEEN_FAMILIES * shown.si
    return False


@dataclass(frozen=True)
class Evidence:
    """The numbers that a page has computed.

    ``shown`` stand with a unit in an output, ``bare`` without; ``inputs`` are the constants of
    the code, ``input_sizes`` those written with KIB, MIB, GIB or TIB.
    """

    shown: frozenset[Quantity]
    bare: frozenset[Quantity]
    inputs: frozenset[Fraction]
    input_sizes: frozenset[Fraction]

    def supports(self, stated: Quantity) -> bool:
        """Say whether a number with a unit is an output, rounded perhaps, or an input."""
        if stated.unit is None:
            raise ValueError(f"'{stated.text}' has no unit, so nothing says what to look for.")
        if any(_same_kind(stated, shown) and _rounds_to(stated, shown) for shown in self.shown):
            return True
        kind = stated.unit.kind
        if kind in (RATIO, TOKENS) and any(_rounds_to(stated, bare) for bare in self.bare):
            return True
        if kind in (BYTES, BINARY) and stated.si in self.input_sizes:
            return True
        a_count = kind in (RATIO, TOKENS)
        an_input = a_count or stated.si >= _LEAST_SI_INPUT or stated.si.denominator != 1
        return kind != BINARY and an_input and stated.si in self.inputs


# ---------------------------------------------------------------------------------------
# Outputs


def _printed(outputs: Iterable[NotebookNode]) -> Iterator[str]:
    """Yield the texts of outputs that a reader sees, without source code and drawn data."""
    for output in outputs:
        data = output.get("data", {})
        plain = data.get("text/plain", "")
        if output.output_type == "stream":
            yield output.text
        elif "image/png" in data:
            yield plain.partition("\n")[0]
        elif not plain.startswith("Source of "):
            yield data.get("text/markdown", plain)


def _heading_units(text: str) -> list[Unit]:
    """Return the units that a heading gives to the numbers below it."""
    words = ("".join(groups) for groups in _UNIT_OF_HEADING.findall(text))
    return [UNITS[word] for word in words if word in UNITS]


def _below(found: Iterable[Quantity], units: Sequence[Unit]) -> Iterator[Quantity]:
    """Yield quantities, and those without a unit once more in each of the units above them."""
    for quantity in found:
        yield quantity
        if quantity.unit is None:
            yield from (Quantity(quantity.text, quantity.value, quantity.half, u) for u in units)


def shown_quantities(text: str) -> Iterator[Quantity]:
    """Yield the numbers of a printed text.

    Below a heading such as ``steps [µs]`` a number without a unit has the heading's: in the
    same column of a table (that of the first column counts for columns without one), or in
    the lines up to the next heading or empty line.
    """
    columns: list[list[Unit]] = []
    below: list[Unit] = []
    for line in text.split("\n"):
        if line.lstrip().startswith("|"):
            cells = line.strip().strip("|").split("|")
            columns = columns or [_heading_units(cell.strip()) for cell in cells]
            for cell, units in zip(cells, columns, strict=False):
                yield from _below(quantities(cell), units or columns[0])
            continue
        columns = []
        below = _heading_units(line) or (below if line.strip() else [])
        yield from _below(quantities(line), below)


# ---------------------------------------------------------------------------------------
# Inputs


def _numbers(value: object) -> Iterator[Fraction]:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield Fraction(repr(value))
    elif isinstance(value, (list, tuple, range)):
        for part in value:
            yield from _numbers(part)


def _converts(number: Fraction) -> bool:
    """Say whether a constant is a power of ten, which converts units and states nothing."""
    return {str(part).rstrip("0") for part in number.as_integer_ratio()} == {"1"}


def _inputs(source: str) -> Iterator[tuple[Fraction, bool]]:
    """Yield the constants of a cell, and those that it spells out of constants and ranges.

    ``64 * MIB``, ``12e-3`` and ``[4**k * KIB for k in range(2, 11)]`` are such; the second
    value says whether a binary size is in it.
    """
    tree = ast.parse(source)
    factors = [
        operand
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp)
        for operand in (node.left, node.right)
    ]
    for node in ast.walk(tree):
        a_size = isinstance(node, ast.Name) and node.id in _SIZES and node not in factors
        if not (isinstance(node, (ast.Constant, ast.BinOp, ast.ListComp)) or a_size):
            continue
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        expression = compile(ast.Expression(node), "cell", "eval")  # type: ignore[arg-type]
        try:
            value = eval(expression, dict(_NAMESPACE))  # names of _NAMESPACE only
        except Exception:  # it needs what the cell computes, so it is no constant
            continue
        for number in _numbers(value):
            if not _converts(number):
                yield number, bool(names & _SIZES.keys())


def _written_sizes(source: str) -> Iterator[Quantity]:
    """Yield inputs that a cell writes as text, such as ``parse_size("64 KiB")``."""
    for node in ast.walk(ast.parse(source)):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and _WRITTEN_SIZE.fullmatch(text):
            yield from quantities(text)


# ---------------------------------------------------------------------------------------
# Pages


def collect(printed: Iterable[str], sources: Sequence[str]) -> Evidence:
    """Return what printed texts and the code of cells show."""
    found = {quantity for text in printed for quantity in shown_quantities(text)}
    found |= {quantity for source in sources for quantity in _written_sizes(source)}
    inputs = {item for source in sources for item in _inputs(source)}
    return Evidence(
        frozenset(quantity for quantity in found if quantity.unit),
        frozenset(quantity for quantity in found if not quantity.unit),
        frozenset(number for number, binary in inputs if not binary),
        frozenset(number for number, binary in inputs if binary),
    )


@cache
def evidence_of(path: Path) -> Evidence:
    """Return what a page shows: a notebook's outputs and code, a Markdown page's code blocks."""
    if path.suffix != ".ipynb":
        text = path.read_text(encoding="utf-8")
        return collect(["\n".join(inside_code_blocks(text))], [])
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    printed = [text for cell in cells for text in _printed(cell.outputs)]
    return collect(printed, [cell.source for cell in cells])
