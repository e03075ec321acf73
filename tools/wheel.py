"""Build the package's wheel and a page that lists it: ``python -m tools.wheel FOLDER``.

`make book` puts both into the built site. A notebook that is opened alone, on Colab, has pip
take the package from there. The same tree gives the same bytes on every machine.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# All that the build reads. It runs in a copy, so that nothing left over from an earlier build
# gets into the wheel, and no folder build/ into the tree.
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "commlab")
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
# A zip archive cannot be older. A fixed time keeps two builds equal.
EARLIEST = "315532800"  # 1980-01-01
LIST = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>commlab, the package of the book</title></head>
<body><a href="{name}#sha256={digest}">{name}</a></body>
</html>
"""


def copy_sources(target: Path) -> None:
    """Copy what the build reads; file modes follow the umask, not the checkout."""
    skip = shutil.ignore_patterns("__pycache__", "*.py[co]")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=skip, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(source, target / name)


def build(folder: Path) -> Path:
    """Build the wheel into a folder, list it in ``index.html`` there, return its path.

    Raises
    ------
    RuntimeError
        If setuptools fails; the message is what it said.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    with tempfile.TemporaryDirectory() as tree:
        umask = os.umask(0o022)
        try:
            copy_sources(Path(tree))
            result = subprocess.run(
                [sys.executable, "-c", BUILD, str(folder.resolve())],
                cwd=tree,
                env=os.environ | {"SOURCE_DATE_EPOCH": EARLIEST},
                capture_output=True,
                text=True,
            )
        finally:
            os.umask(umask)
    if result.returncode != 0:
        raise RuntimeError(f"The wheel was not built: {result.stderr.strip()}")
    (wheel,) = folder.glob("*.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    page = LIST.format(name=wheel.name, digest=digest)
    (folder / "index.html").write_text(page, encoding="utf-8")
    return wheel


if __name__ == "__main__":
    build(Path(sys.argv[1]))
