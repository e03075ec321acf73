"""The build with the book's own settings turns red where a reader would meet an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tools.lints.pages import ROOT, SETUP_CELL
from tools.notebooks import NOTEBOOK_METADATA

# Drawing works at the start and fails at one stop that only the build visits.
EXPLORER = """
def draw(fig, n):
    fig.text(0.5, 0.5, str({expression}))
    return {{"n": n}}

explore(draw, title=("A", "甲"), alt=("A", "甲"), n=Knob([1, 2, 3, 4, 5, 6, 7], value=1,
        label=("n", "n"), format=str))
"""
CELLS = {
    "good": (EXPLORER.format(expression="1 / n"), True),
    "a draw that raises": (EXPLORER.format(expression="1 / (n - 3)"), False),
    "a cell that raises": ("1 / 0", False),
    "a warning on stderr": ("import warnings\nwarnings.warn('careful')", False),
}


@pytest.mark.parametrize(("source", "green"), CELLS.values(), ids=CELLS.keys())
def test_build_is_green_only_without_errors(tmp_path: Path, source: str, green: bool):
    settings = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    config = {"title": "One page", "only_build_toc_files": True, "execute": settings["execute"]}
    (tmp_path / "_config.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: page\n", encoding="utf-8")
    cells = [
        new_markdown_cell("# Page"),
        new_code_cell(SETUP_CELL),
        new_code_cell(source),
    ]
    notebook = new_notebook(cells=cells, metadata=NOTEBOOK_METADATA)
    nbformat.write(notebook, tmp_path / "page.ipynb")
    program = "import sys; from jupyter_book.cli.main import main; sys.exit(main())"
    result = subprocess.run(
        [sys.executable, "-c", program, "build", str(tmp_path), "-W", "--keep-going"],
        env=os.environ | {"COMMLAB_EXPLORE": "static", "COMMLAB_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )
    assert (result.returncode == 0) == green, result.stdout[-2000:] + result.stderr[-2000:]
