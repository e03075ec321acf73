"""Say where the built book is."""

from __future__ import annotations

import sys
from pathlib import Path


def directions(html: Path) -> str:
    """Return how to open the book built in the folder ``html``."""
    index = (html / "index.html").resolve()
    return (
        f"\nThe book is built. Open it:  {index.as_uri()}\n"
        f"or serve it:                 python3 -m http.server --directory {html} 8000\n"
        "                             and open http://localhost:8000/\n"
    )


if __name__ == "__main__":
    print(directions(Path(sys.argv[1])))
