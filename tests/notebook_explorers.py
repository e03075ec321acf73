"""The explorers of a notebook, in page order, without showing (that is, drawing) them."""

from __future__ import annotations

import ast
import contextlib
import functools
import io
from pathlib import Path
from typing import Any

import nbformat

from commlab.explore import Explorer

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))


@functools.cache
def explorers_of(path: Path) -> list[Explorer]:
    """Run a notebook's code cells and collect the explorers that end a cell.

    A cell that displays an explorer in its middle would be missed, so the number is
    compared with the built page by the browser tests.
    """
    notebook = nbformat.read(path, as_version=4)
    # `display` is a name that IPython gives to every cell.
    namespace: dict[str, Any] = {"__name__": "__main__", "display": lambda *shown: None}
    found = []
    with contextlib.redirect_stdout(io.StringIO()), contextlib.chdir(path.parent):
        for cell in notebook.cells:
            if cell.cell_type == "code":
                shown = _run(cell.source, f"{path.name}:{cell.id}", namespace)
                if isinstance(shown, Explorer):
                    found.append(shown)
    return found


def _run(source: str, place: str, namespace: dict[str, Any]) -> Any:
    """Run a cell; return the value of its last expression."""
    body = ast.parse(source, place).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    # dont_inherit: a cell must not run under this module's own __future__ import.
    exec(compile(ast.Module(body, []), place, "exec", dont_inherit=True), namespace)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), place, "eval", dont_inherit=True), namespace)
