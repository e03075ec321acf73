"""Each number with a unit that a page states is computed on it, or on a page that it cites."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.lints.evidence import Evidence, evidence_of
from tools.lints.language import differing_numbers, read_blocks
from tools.lints.pages import Text, code_of, markdown_of, outside_code_blocks
from tools.lints.quantities import Quantity, quantities

# <!-- number 90 minutes: the length of a lesson -->
_EXCEPTION = re.compile(r"<!--\s*number\s+([^:>]+?)\s*:\s*(.*?)\s*-->")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_NEW_PIECE = re.compile(r"\s*(?:[-*+|#]|\d+[.)]\s|<)")
# "(2009)" and "2009 年" are dates.
_DATES = range(1900, 2101)


@dataclass(frozen=True)
class Piece:
    """A paragraph, a heading, an item of a list or a row of a table, and where it stands."""

    text: str
    where: str
    line: int = 0


def pieces(text: Text) -> Iterator[Piece]:
    """Yield the pieces of a Markdown text outside its code blocks."""
    lines: list[str] = []
    first = 0
    for number, line in [*outside_code_blocks(text.source), (0, "")]:
        if lines and (not line.strip() or _NEW_PIECE.match(line)):
            yield Piece("\n".join(lines), f"{text.where}, line {first}", first)
            lines = []
        if line.strip():
            first = first if lines else number
            lines.append(line)


def captions(code: Text) -> Iterator[tuple[str, str]]:
    """Yield the English and Chinese titles and descriptions that a code cell gives a figure."""
    for node in ast.walk(ast.parse(code.source)):
        if not isinstance(node, ast.keyword) or node.arg not in ("title", "alt"):
            continue
        if isinstance(node.value, ast.Tuple) and len(node.value.elts) == 2:
            both = [part.value for part in node.value.elts if isinstance(part, ast.Constant)]
            if len(both) == 2:
                yield str(both[0]), str(both[1])


def _with_units(text: str) -> list[Quantity]:
    return [
        quantity
        for quantity in quantities(text)
        if quantity.unit and not (quantity.unit.name == "year" and quantity.value in _DATES)
    ]


def _block_around(text: Text, line: int) -> str:
    """Return the language block in which a line of a text stands."""
    blocks = read_blocks(text.source)[0]
    return next((block.text for block in blocks if block.line <= line <= block.end), "")


def _cited(folder: Path, text: str) -> list[Evidence]:
    """Return what the pages show to which a text links."""
    links = (link.partition("#")[0] for link in _LINK.findall(text))
    files = (folder / link for link in links if link.endswith((".ipynb", ".md")))
    return [evidence_of(path.resolve()) for path in files if path.is_file()]


def _exceptions(texts: list[Text]) -> tuple[list[Quantity], list[str]]:
    """Return the numbers that a page excuses, and complaints about how it does."""
    excused, complaints = [], []
    for text in texts:
        for number, reason in _EXCEPTION.findall(text.source):
            found = _with_units(number)
            if len(found) == 1 and reason:
                excused += found
            else:
                complaints.append(
                    f"{text.where}: write '<!-- number 90 min: reason -->' with one number, its "
                    f"unit and a reason, not '{number}: {reason}'"
                )
    return excused, complaints


def _same(one: Quantity, other: Quantity) -> bool:
    kinds = {quantity.unit.kind for quantity in (one, other) if quantity.unit}
    return one.si == other.si and len(kinds) == 1


def _pieces_of(path: Path, texts: list[Text]) -> Iterator[tuple[Piece, str]]:
    """Yield the pieces of a page, each with the text whose links count for it."""
    for text in texts:
        for piece in pieces(text):
            block = "" if path.suffix == ".ipynb" else _block_around(text, piece.line)
            yield piece, block or piece.text
    if path.suffix == ".ipynb":
        for code in code_of(path):
            for both in captions(code):
                yield Piece(" | ".join(both), code.where), ""


def unsupported_numbers(path: Path) -> list[str]:
    """Say which numbers of a page stand in no output of it, nor of a page that it cites.

    A number with a unit, in text, heading, table, list or description of a picture, must be

    - in an output or a constant of the page's code, in its own unit or another of its kind,
      rounded to the digits stated (MiB and MB are two kinds), or
    - in those of a page to which its paragraph, item or row links (on a page without code of
      its own, under ``book/``: its language block), or
    - excused by a comment ``<!-- number 90 min: reason -->`` of its page.
    """
    texts = markdown_of(path)
    own = evidence_of(path.resolve())
    excused, complaints = _exceptions(texts)
    used = set()
    for piece, citing in _pieces_of(path, texts):
        shown = [own, *_cited(path.parent, citing)]
        for stated in _with_units(piece.text):
            if any(page.supports(stated) for page in shown):
                continue
            excuse = next((one for one in excused if _same(one, stated)), None)
            if excuse:
                used.add(excuse)
            else:
                complaints.append(
                    f"{piece.where}: '{stated.text}' is in no output of this page and of no page "
                    "linked here: compute it, link to where it is computed, or correct it"
                )
    complaints += [
        f"{path.name}: '{one.text}' is excused but needs no excuse: remove the comment"
        for one in excused
        if one not in used
    ]
    return complaints


def differing_captions(path: Path) -> list[str]:
    """Titles and descriptions of figures state the same numbers in both languages."""
    complaints = []
    for code in code_of(path) if path.suffix == ".ipynb" else []:
        for english, chinese in captions(code):
            blocks = "".join(
                f'<div lang="{lang}">\n\n{text}\n\n</div>\n'
                for lang, text in (("zh", chinese), ("en", english))
            )
            complaints += [f"{code.where}: {fault}" for fault in differing_numbers(blocks)]
    return complaints
