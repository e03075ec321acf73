"""Run parts of the tests in other environments: ``python -m tools.matrix NAME``.

colab    a fresh environment with the versions of packages that Google Colab has, on this
         Python: every notebook alone in an empty folder, then the explorers' tests
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from tools import colab, wheel
from tools.notebooks import find_notebooks

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".cache" / "matrix" / "colab"
# What the tests themselves need; any version will do.
TEST_TOOLS = ("hypothesis", "nbclient", "nbformat", "pytest", "pyyaml", "setuptools>=77")
EXPLORER_TESTS = "test_explore*.py"


def run(*command: str | Path) -> bool:
    """Run a command from the repository's root; say whether it succeeded."""
    print("+", *command, flush=True)
    return subprocess.run([str(part) for part in command], cwd=ROOT).returncode == 0


def run_notebooks(environment: colab.Environment) -> bool:
    """Run every notebook alone, the package coming from a site; say whether all succeeded."""
    before = environment.installed()
    package = wheel.build(FOLDER / "site" / "wheel")
    good = True
    with colab.served(FOLDER / "site") as site:
        for path in find_notebooks([ROOT / "notebooks"]):
            start = time.monotonic()
            try:
                colab.run_alone(path, FOLDER / "alone" / path.stem, environment, site.address)
                result = "ran"
            except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
                good, result = False, f"FAILED\n{error}"
            print(f"{path.name}: {result} ({time.monotonic() - start:.0f} s)", flush=True)
    version = package.name.split("-")[1]
    if environment.installed() != before | {"multigpu-commlab": version}:
        print("The setup cells changed other packages too:", environment.installed())
        good = False
    return good


def run_explorer_tests(environment: colab.Environment) -> bool:
    """Run the explorers' tests of the tree; say whether all passed."""
    pip = (environment.python, "-m", "pip", "install", "--quiet")
    return (
        run(*pip, *TEST_TOOLS)
        and run(*pip, "--no-deps", "--no-build-isolation", "-e", ".")
        and run(
            environment.python, "-m", "pytest", "-q", *sorted(ROOT.glob(f"tests/{EXPLORER_TESTS}"))
        )
    )


def check_colab() -> bool:
    """Test the notebooks and the explorers with Colab's versions."""
    os.environ.pop("PYTHONPATH", None)
    shutil.rmtree(FOLDER, ignore_errors=True)
    environment = colab.make_environment(FOLDER / "environment", with_torch=True)
    return all([run_notebooks(environment), run_explorer_tests(environment)])


def main() -> int:
    """Run the environment named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=("colab",))
    return 0 if {"colab": check_colab}[parser.parse_args().name]() else 1


if __name__ == "__main__":
    sys.exit(main())
