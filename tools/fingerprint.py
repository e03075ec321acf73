"""Write the digest of files and folders to a file, and only when it changed.

The Makefile lets the built book depend on that file: contents decide about a rebuild, not
time stamps, and a deleted page counts as a change.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

# Written by running, not by authors.
GENERATED = {"__pycache__", ".ipynb_checkpoints"}


def source_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the files among and below the paths, in a fixed order, without generated ones."""
    for path in paths:
        below = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in below:
            if file.is_file() and not GENERATED.intersection(file.parts):
                yield file


def fingerprint(paths: Iterable[Path]) -> str:
    """Return a digest of the names and contents of all files among and below the paths."""
    digest = hashlib.sha256()
    for file in source_files(paths):
        digest.update(f"{file.as_posix()}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def write_if_changed(target: Path, text: str) -> bool:
    """Write the text unless the file holds it already; say whether it was written."""
    if target.is_file() and target.read_text(encoding="utf-8") == text:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return True


if __name__ == "__main__":
    write_if_changed(Path(sys.argv[1]), fingerprint(Path(name) for name in sys.argv[2:]) + "\n")
