"""What a notebook meets on Colab, made here: versions of packages, an empty folder, a site.

Colab gives a notebook a kernel with its own versions of Jupyter, numpy, matplotlib and torch,
and no other file of the book. The setup cell has to bring the rest from the published site;
here a server on this machine stands for that site. What differs from Colab: the Python is this
one, and torch is that of this environment, since it is as large as all the rest together.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import subprocess
import sys
import threading
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from packaging.requirements import Requirement

from tools import notebooks, setup_cells

PINS = (
    "ipykernel==6.17.1",
    "ipython==7.34.0",
    "ipywidgets==7.7.1",
    "matplotlib==3.10.0",
    "numpy==2.1.3",
)
KERNEL = "colab"


@dataclass(frozen=True)
class Environment:
    """A virtual environment with Colab's pins, in a folder of its own."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        """Where its packages are."""
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    def run(self, program: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run a Python program in a folder, without what is installed here."""
        command = [str(self.python), "-c", program]
        plain = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        return subprocess.run(command, cwd=folder, env=plain, capture_output=True, text=True)

    def installed(self) -> dict[str, str]:
        """Return what ``pip list`` shows: versions by the names of the packages."""
        found = importlib.metadata.distributions(path=[str(self.site_packages)])
        return {distribution.name: distribution.version for distribution in found}


def make_environment(folder: Path, with_torch: bool = False) -> Environment:
    """Install Colab's pins into a fresh virtual environment (about 10 s with a warm cache)."""
    venv.create(folder, with_pip=False, clear=True)
    environment = Environment(folder)
    # Our pip fills it (with a pip too, for the setup cell), which saves the time of ensurepip.
    command = [sys.executable, "-m", "pip", "--python", str(environment.python), "install"]
    subprocess.run([*command, "-qq", "--no-compile", "pip", *PINS], check=True)
    if with_torch:
        link_torch(environment)
    kernel = folder / "share" / "jupyter" / "kernels" / KERNEL
    kernel.mkdir(parents=True)
    description = {
        "argv": [str(environment.python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": KERNEL,
        "language": "python",
        # Our own tree and settings stay out of it, and the debugger's advice out of our log.
        "env": {
            "PYTHONPATH": "",
            "COMMLAB_EXPLORE": "live",
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        },
    }
    (kernel / "kernel.json").write_text(json.dumps(description))
    return environment


def link_torch(environment: Environment) -> None:
    """Make torch and what it needs visible in an environment, linked from this one."""
    names, known = ["torch"], set()
    while names:
        name = names.pop()
        if name in known or (environment.site_packages / name).exists():
            continue
        known.add(name)
        for entry in top_level_entries(name):
            link = environment.site_packages / entry.name
            if not link.exists():
                link.symlink_to(entry)
        names += required(name)


def required(name: str) -> list[str]:
    """Return the names of the packages that an installed package needs on this machine."""
    found = [Requirement(text) for text in importlib.metadata.requires(name) or []]
    return [need.name for need in found if not need.marker or need.marker.evaluate({"extra": ""})]


def top_level_entries(name: str) -> set[Path]:
    """Return the files and folders in site-packages that a package consists of."""
    distribution = importlib.metadata.distribution(name)
    files = distribution.files or []
    first = {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}
    return {Path(str(distribution.locate_file(part))) for part in first}


# ---------------------------------------------------------------------------------------
# The published site


@dataclass
class Site:
    """A server of a folder on this machine, and the paths that were asked for."""

    address: str
    asked: list[str] = field(default_factory=list)


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, *arguments: object, site: Site, **options: object) -> None:
        self.site = site
        super().__init__(*arguments, **options)

    def log_message(self, format: str, *arguments: object) -> None:
        """Note the request instead of printing it."""
        self.site.asked.append(self.path)


@contextmanager
def served(folder: Path) -> Iterator[Site]:
    """Serve a folder on this machine, as the published book is served."""
    site = Site("")
    handler = functools.partial(_Handler, directory=str(folder), site=site)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        site.address = f"http://127.0.0.1:{server.server_port}/"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield site
        finally:
            server.shutdown()


# ---------------------------------------------------------------------------------------
# A notebook alone


def run_alone(path: Path, folder: Path, environment: Environment, site: str) -> NotebookNode:
    """Run a notebook to its end in an empty folder, as if it were published at ``site``.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        If a cell raises.
    """
    folder.mkdir(parents=True)
    setup = setup_cells.for_site(setup_cells.text(), site)
    text = setup_cells.with_setup_cell(notebooks.read_text(path), setup)
    client = NotebookClient(
        nbformat.reads(text, as_version=4),
        timeout=notebooks.CELL_TIMEOUT,
        kernel_name=KERNEL,
        resources={"metadata": {"path": str(folder)}},
        store_widget_state=False,
    )
    manager = client.create_kernel_manager()
    kernels = environment.folder / "share" / "jupyter" / "kernels"
    manager.kernel_spec_manager.kernel_dirs = [str(kernels)]
    return client.execute()
