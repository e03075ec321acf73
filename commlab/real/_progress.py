"""A line that says how far a run is, for somebody who watches, and of which nothing remains.

Whoever does not watch gets nothing at all: not a log file, and not a notebook that is executed
by a program (nbclient, nbval, the build of the book), where it would end in stored outputs.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

# A cell that is done sooner needs no explanation.
NOTEBOOK_DELAY_SECONDS = 3.0


@contextlib.contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """Give a function that shows a text in place of the one before; at the end clear it."""
    if threading.current_thread() is not threading.main_thread():
        # Two runs at once would overwrite each other's line.
        yield lambda text: None
    elif sys.stderr is not None and sys.stderr.isatty():
        with _terminal_line() as show:
            yield show
    elif (shell := _watched_notebook()) is not None:
        with _notebook_line(shell) as show:
            yield show
    else:
        yield lambda text: None


@contextlib.contextmanager
def _terminal_line() -> Iterator[Callable[[str], None]]:
    shown = ""

    def show(text: str) -> None:
        nonlocal shown
        # One column stays free: a full line would wrap, and could not be overwritten.
        text = text[: shutil.get_terminal_size().columns - 1]
        print(f"\r{text.ljust(len(shown))}", end="", file=sys.stderr, flush=True)
        shown = text

    try:
        yield show
    finally:
        if shown:
            print(f"\r{' ' * len(shown)}\r", end="", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _notebook_line(shell: Any) -> Iterator[Callable[[str], None]]:
    start = time.monotonic()
    name = {"display_id": f"commlab-{uuid.uuid4().hex}"}
    is_there = False

    def publish(html: str) -> None:
        # What IPython.display does, without importing IPython.
        data = {"text/plain": "", "text/html": html}
        shell.display_pub.publish(data, transient=name, update=is_there)

    def show(text: str) -> None:
        nonlocal is_there
        if is_there or time.monotonic() - start >= NOTEBOOK_DELAY_SECONDS:
            publish(f"<em>{text}</em>")
            is_there = True

    try:
        yield show
    finally:
        if is_there:
            publish("")


def _watched_notebook() -> Any:
    """Return IPython's shell in a cell sent by a front end where a person could answer, or None.

    Jupyter's protocol says so with each cell: JupyterLab, VS Code and Colab allow ``input()``,
    nbclient and nbval do not.
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return None
    request = kernel.get_parent("shell")
    return shell if request.get("content", {}).get("allow_stdin", False) else None
