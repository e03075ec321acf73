"""What the pages of the book are, and the Markdown and code in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
import yaml

from tools import setup_cells

ROOT = Path(__file__).resolve().parents[2]
SETUP_CELL = setup_cells.text()


@dataclass(frozen=True)
class Text:
    """A piece of a page's source and where it stands."""

    where: str
    source: str


def notebooks() -> list[Path]:
    """Return the notebooks of the book."""
    return sorted((ROOT / "notebooks").glob("*.ipynb"))


def markdown_pages() -> list[Path]:
    """Return the book's pages that are Markdown files."""
    return sorted((ROOT / "book").glob("*.md"))


def _cells(path: Path, cell_type: str) -> Iterator[Text]:
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == cell_type:
            yield Text(f"{path.name}, cell {cell.id}", cell.source)


def markdown_of(path: Path) -> list[Text]:
    """Return a page's Markdown: each Markdown cell of a notebook, or a whole file."""
    if path.suffix == ".ipynb":
        return list(_cells(path, "markdown"))
    return [Text(path.name, path.read_text(encoding="utf-8"))]


def code_of(path: Path) -> list[Text]:
    """Return the code cells of a notebook."""
    return list(_cells(path, "code"))


def _lines(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield number (from 1), text and "is in a fenced code block" of lines that are no fence."""
    fence = ""
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if fence and stripped.startswith(fence) and not stripped.strip(fence[0]):
            fence = ""
        elif not fence and stripped.startswith(("```", "~~~")):
            fence = stripped[: len(stripped) - len(stripped.lstrip(stripped[0]))]
        else:
            yield number, line, bool(fence)


def outside_code_blocks(text: str) -> Iterator[tuple[int, str]]:
    """Yield line number (from 1) and text of the lines that are in no fenced code block."""
    return ((number, line) for number, line, inside in _lines(text) if not inside)


def inside_code_blocks(text: str) -> Iterator[str]:
    """Yield the lines of the fenced code blocks."""
    return (line for _, line, inside in _lines(text) if inside)


def toc_files(toc: str) -> list[str]:
    """Return the pages that a table of contents names, in order, without extension."""

    def below(node: object) -> Iterator[str]:
        if isinstance(node, dict):
            for key in ("root", "file"):
                if key in node:
                    yield str(node[key])
            for key in ("parts", "chapters", "sections", "subtrees", "entries"):
                yield from below(node.get(key))
        elif isinstance(node, list):
            for child in node:
                yield from below(child)

    return list(below(yaml.safe_load(toc)))
