"""Rules for notebooks as files, and for how pages hang together."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from nbformat import NotebookNode

from tools.lints.pages import SETUP_CELL, outside_code_blocks, toc_files

_LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
_ATTRIBUTE = re.compile(r"(?:href|src)=\"([^\"]+)\"")
_CODE_SPAN = re.compile(r"(`+).*?\1")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|#", re.IGNORECASE)
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")


def wrong_kernelspec(notebook: NotebookNode) -> list[str]:
    """The kernel is python3, which exists everywhere, not one of the author's machine."""
    name = notebook.metadata.get("kernelspec", {}).get("name")
    return [] if name == "python3" else [f"kernelspec is {name!r}, not 'python3'"]


def widgets_without_state(notebook: NotebookNode) -> list[str]:
    """No ``metadata.widgets`` without a state: GitHub and Colab refuse such a file."""
    widgets = notebook.metadata.get("widgets")
    if widgets is None:
        return []
    stateful = widgets and all("state" in entry for entry in widgets.values())
    return [] if stateful else ["metadata.widgets has no state: run `make notebooks`"]


def wrong_setup_cell(notebook: NotebookNode) -> list[str]:
    """The second cell is the setup cell, the same text in every notebook."""
    cells = notebook.cells
    if len(cells) < 2 or cells[0].cell_type != "markdown" or cells[1].cell_type != "code":
        return ["begins not with a Markdown cell and the setup cell"]
    if cells[1].source.rstrip("\n") != SETUP_CELL:
        return ["the second cell is not tools/setup_cell.txt: run python -m tools.setup_cells"]
    return []


def memory_addresses(notebook: NotebookNode) -> list[str]:
    """No output shows an object's address, which differs from run to run."""
    complaints = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            texts = [output.get("text", ""), data.get("text/plain", ""), data.get("text/html", "")]
            if any(_ADDRESS.search(text) for text in texts):
                complaints.append(f"cell {cell.id} shows a memory address")
    return complaints


def relative_links(text: str) -> list[str]:
    """Return the targets of links and images to files, without fragment."""
    targets = []
    for _, line in outside_code_blocks(text):
        plain = _CODE_SPAN.sub("", line)
        found = _LINK.findall(plain) + _ATTRIBUTE.findall(plain)
        targets += [link.partition("#")[0] for link in found if not _ELSEWHERE.match(link)]
    return targets


def dead_links(folder: Path, text: str) -> list[str]:
    """Each relative link of a page in ``folder`` leads to a file."""
    return [
        f"the link to {target} leads nowhere"
        for target in relative_links(text)
        if not (folder / target).is_file()
    ]


def toc_and_files(toc: str, root: Path, pages: Iterable[Path]) -> list[str]:
    """The table of contents names each page once, and nothing that does not exist."""
    named = toc_files(toc)
    existing = {page.relative_to(root).with_suffix("").as_posix() for page in pages}
    listed = {name.removesuffix(".md").removesuffix(".ipynb") for name in named}
    complaints = [f"_toc.yml names {name}, which is no page" for name in sorted(listed - existing)]
    complaints += [f"_toc.yml lacks {name}" for name in sorted(existing - listed)]
    if len(listed) < len(named):
        complaints.append("_toc.yml names a page twice")
    return complaints
