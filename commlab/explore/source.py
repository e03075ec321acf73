"""The source of what a page teaches, shown on the page."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any


class Source:
    """Highlighted Python source; a notebook cell that ends with one shows it."""

    def __init__(self, functions: tuple[Callable[..., Any], ...]) -> None:
        self.functions = functions

    def _repr_markdown_(self) -> str:
        blocks = [f"# {_place(f)}\n{_short_source(f)}" for f in self.functions]
        return "```python\n" + "\n\n".join(blocks) + "\n```"

    def __repr__(self) -> str:
        names = ", ".join(f"{f.__module__}.{f.__qualname__}" for f in self.functions)
        return f"Source of {names}"


def show_source(*functions: Callable[..., Any]) -> Source:
    """Show the source of functions, each under the name of its file.

    A docstring is cut to its first line: on a page the code is what matters, and the
    full text is one ``help(function)`` away.

    Raises
    ------
    TypeError
        If nothing is given, or something that is not a Python function or class.
    """
    if not functions:
        raise TypeError("show_source needs at least one function.")
    for function in functions:
        if not (inspect.isfunction(function) or inspect.isclass(function)):
            raise TypeError(
                f"show_source shows Python functions and classes, got {function!r}: "
                "pass the function itself, not its result or its name."
            )
    return Source(functions)


def _place(function: Callable[..., Any]) -> str:
    return function.__module__.replace(".", "/") + ".py"


def _short_source(function: Callable[..., Any]) -> str:
    source = textwrap.dedent(inspect.getsource(function)).rstrip()
    lines = source.splitlines()
    taught = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, taught)]
    # From the last to the first, so that line numbers above stay right.
    for node in sorted(nodes, key=lambda node: node.lineno, reverse=True):
        summary = (ast.get_docstring(node) or "").split("\n")[0]
        if summary:
            text = node.body[0]
            indent = " " * text.col_offset
            lines[text.lineno - 1 : text.end_lineno] = [f'{indent}"""{summary}"""']
    return "\n".join(lines)
