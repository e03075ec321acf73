"""The build with the book's own settings turns red where a reader would meet an error."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tools import links
from tools.lints.pages import ROOT, SETUP_CELL
from tools.notebooks import NOTEBOOK_METADATA
from tools.publish import COLAB, Stamp

# Drawing works at the start and fails at one stop that only the build visits.
EXPLORER = """
def draw(fig, n):
    fig.text(0.5, 0.5, str({expression}))
    return {{"n": n}}

explore(draw, title=("A", "甲"), alt=("A", "甲"), n=Knob([1, 2, 3, 4, 5, 6, 7], value=1,
        label=("n", "n"), format=str))
"""
GOOD = EXPLORER.format(expression="1 / n")
# What a page has beside good ones, and what the build must say of it.
BAD = {
    "a_draw_that_raises": EXPLORER.format(expression="1 / (n - 3)"),
    "a_cell_that_raises": "1 / 0",
    "a_warning_on_stderr": "import warnings\nwarnings.warn('careful')",
}
PUBLISHED = Stamp("octocat/multi-gpu", "dev", "https://octocat.github.io/multi-gpu/")
EXTENSIONS = str(ROOT / "book" / "_ext")


def build(folder: Path, pages: dict[str, str]) -> subprocess.CompletedProcess:
    """Build a book of these pages, each with one cell, with the settings of this book."""
    settings = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    config = {
        "title": "A book",
        "only_build_toc_files": True,
        "execute": settings["execute"],
        "repository": {"url": PUBLISHED.url, "branch": PUBLISHED.branch},
        "sphinx": {"local_extensions": {"book_colab": EXTENSIONS, "book_pages": EXTENSIONS}},
    }
    first, *others = pages
    contents: dict = {"format": "jb-book", "root": first}
    if others:
        contents["chapters"] = [{"file": one} for one in others]
    for name, data in (("_config.yml", config), ("_toc.yml", contents)):
        (folder / name).write_text(yaml.safe_dump(data), encoding="utf-8")
    for name, source in pages.items():
        cells = [new_markdown_cell("# Page"), new_code_cell(SETUP_CELL), new_code_cell(source)]
        notebook = new_notebook(cells=cells, metadata=NOTEBOOK_METADATA)
        nbformat.write(notebook, folder / f"{name}.ipynb")
    program = "import sys; from jupyter_book.cli.main import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", program, "build", str(folder), "-W", "--keep-going"],
        env=os.environ | {"COMMLAB_EXPLORE": "static", "COMMLAB_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
    )


def test_a_good_book_is_green_and_offers_colab(tmp_path: Path):
    answer = build(tmp_path, {"good": GOOD})
    assert answer.returncode == 0, answer.stdout[-2000:] + answer.stderr[-2000:]
    html = tmp_path / "_build" / "html"
    assert links.complaints(html, PUBLISHED, tmp_path) == []
    page = (html / "good.html").read_text(encoding="utf-8")
    address = f'href="{COLAB}octocat/multi-gpu/blob/dev/good.ipynb"'
    assert page.count(address) == 2, "in the header and below the title"
    assert f'<a class="colab-badge" {address}>' in page
    assert "fab fa-" not in page, "the book carries no font of brands"


def test_each_error_turns_the_build_red(tmp_path: Path):
    """With -W one warning is enough: each bad page must bring one, and the good page none."""
    answer = build(tmp_path, {"good": GOOD} | BAD)
    assert answer.returncode != 0
    said = re.sub(r"\x1b\[[0-9;]*m", "", answer.stderr)
    blamed = set(re.findall(r"(\w+)\.ipynb(?::\d+)?: (?:WARNING|ERROR)", said))
    assert blamed == set(BAD), said[-3000:]
