"""Run parts of the tests in other environments: ``python -m tools.matrix NAME``.

colab    a fresh environment with the versions of packages that Google Colab has, on this
         Python: the explorers' tests, and one notebook from top to bottom
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLAB = (
    "ipykernel==6.17.1",
    "ipython==7.34.0",
    "ipywidgets==7.7.1",
    "matplotlib==3.10.0",
    "numpy==2.1.3",
)
# What the tests themselves need; any version will do.
TEST_TOOLS = ("hypothesis", "nbclient", "nbformat", "pytest", "pyyaml", "setuptools>=77")
EXPLORER_TESTS = "test_explore*.py"
NOTEBOOK = "notebooks/03_ring_all_reduce.ipynb"


def run(*command: str | Path, **env: str) -> None:
    """Run a command from the repository's root; raise CalledProcessError if it fails."""
    print("+", *command, flush=True)
    subprocess.run([str(part) for part in command], cwd=ROOT, env=os.environ | env, check=True)


def colab() -> None:
    """Test the explorers and one notebook with Colab's versions."""
    folder = ROOT / ".cache" / "matrix" / "colab"
    venv.create(folder, with_pip=True, clear=True)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", *COLAB, *TEST_TOOLS)
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "-e", ".")
    run(python, "-m", "pytest", "-q", *sorted((ROOT / "tests").glob(EXPLORER_TESTS)))
    # Its own kernel, not that of .venv, and live: what a reader on Colab gets.
    kernels = str(folder / "share" / "jupyter")
    run(python, "-m", "tools.notebooks", "--live", NOTEBOOK, JUPYTER_PATH=kernels)


def main() -> int:
    """Run the environment named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=("colab",))
    try:
        {"colab": colab}[parser.parse_args().name]()
    except subprocess.CalledProcessError as error:
        print(f"failed with status {error.returncode}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
