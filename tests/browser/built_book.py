"""Where the built book is and which pages it has."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HTML = Path(os.environ.get("COMMLAB_HTML") or ROOT / "_build" / "html").resolve()


def page_names() -> list[str]:
    """The pages of the table of contents, as paths below the built book."""
    names = [
        path.relative_to(HTML).as_posix()
        for folder in ("book", "notebooks")
        for path in (HTML / folder).glob("*.html")
    ]
    return sorted(names)
