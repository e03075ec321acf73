"""Rules for code: who may import what, and what never belongs in a cell."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import PurePosixPath

DRAWING = ("matplotlib", "IPython", "ipywidgets")
# The rooms of commlab that draw or start processes, the exercises, which ask them to, and the
# command line, which hands its subcommands on to them; all other modules are science.
ROOMS = ("figures", "explore", "real", "exercises", "cli")
NEVER_IN_WIDGETS = ("Output", "interact", "interactive", "interactive_output")

_FORBIDDEN = (
    (re.compile(r"pip3?\s+install\s+(?:-\S+\s+)*commlab\b"), "installs somebody else's package"),
    (re.compile(r"(?<![\w./])/(?:home|root|tmp|work|Users)/"), "is a path of one machine"),
)


def imported_modules(source: str, package: str = "") -> Iterator[str]:
    """Yield the dotted names that a module imports anywhere, also inside functions.

    ``from a import b`` yields ``a.b``: b may be a module. Relative imports are resolved
    against ``package``.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *([base] if base else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def wrong_imports(path: str, source: str) -> list[str]:
    """Imports point one way; only ``real`` knows torch.

    Parameters
    ----------
    path : str
        The module's path from the root of the repository, e.g. ``commlab/cost.py``.
    source : str
        Its text.
    """
    parts = PurePosixPath(path).with_suffix("").parts
    room = parts[1] if len(parts) > 1 and parts[1] in ROOMS else "science"
    forbidden = {
        "science": (*DRAWING, "torch", *(f"commlab.{name}" for name in ROOMS)),
        "figures": ("torch", "commlab.real"),
        "explore": ("torch", "commlab.real"),
        "exercises": (*DRAWING, "torch", "commlab.figures"),
        "cli": (*DRAWING, "torch"),
        "real": ("commlab.figures", "commlab.explore", *DRAWING),
    }[room]
    package = ".".join(parts[:-1])
    return [
        f"{path}: {room} must not import {module}"
        for module in sorted(set(imported_modules(source, package)))
        if any(_within(module, name) for name in forbidden)
    ]


def widget_misuse(source: str) -> list[str]:
    """No pyplot (figures pile up) and no interact or Output (errors vanish in them)."""
    complaints = []
    modules = list(imported_modules(source))
    if any(_within(module, name) for module in modules for name in ("matplotlib.pyplot", "pylab")):
        complaints.append("uses pyplot: draw on a matplotlib Figure")
    tree = ast.parse(source)
    aliases = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "ipywidgets"
    }
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in aliases
    }
    used |= {module.rpartition(".")[2] for module in modules if _within(module, "ipywidgets")}
    complaints += [
        f"uses ipywidgets.{name}: use commlab.explore" for name in NEVER_IN_WIDGETS if name in used
    ]
    return complaints


def trailing_semicolon(source: str) -> list[str]:
    """No cell relies on a semicolon to hide its value: nbval shows it all the same."""
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER)
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in skipped and token.string
    ]
    if tokens and tokens[-1].string == ";":
        return ["ends with ';': write `_ = ...` where a value must not show"]
    return []


def not_plain_python(source: str) -> list[str]:
    """Cells are plain Python, without magics and shell lines."""
    try:
        ast.parse(source)
    except SyntaxError as error:
        return [f"line {error.lineno} is not plain Python: {error.msg}"]
    return []


def forbidden_words(text: str) -> list[str]:
    """Nothing says how to install the other commlab, and no path of one machine is left."""
    return [
        f"'{match[0]}' {reason}"
        for pattern, reason in _FORBIDDEN
        for match in pattern.finditer(text)
    ]
