"""A notebook alone on Colab: the wheel has all it needs, and the setup cell brings it."""

from __future__ import annotations

import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell

import commlab
from tools import colab, notebooks, setup_cells, wheel
from tools.lints.pages import ROOT

NOTEBOOK = ROOT / "notebooks" / "02_six_collectives.ipynb"
LONGEST_SETUP_CELL = 28
NOWHERE = "http://127.0.0.1:9/"  # nothing listens on the port called discard


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    return wheel.build(tmp_path_factory.mktemp("site") / "wheel")


# ---------------------------------------------------------------------------------------
# The wheel


def test_the_wheel_has_every_file_of_the_package(built):
    names = {name for name in zipfile.ZipFile(built).namelist() if name.startswith("commlab/")}
    files = {path.relative_to(ROOT) for path in (ROOT / "commlab").rglob("*") if path.is_file()}
    made_by_running = {p for p in files if "__pycache__" in p.parts or "/." in p.as_posix()}
    assert names == {path.as_posix() for path in files - made_by_running}


def test_the_wheel_is_the_same_every_time(built, tmp_path):
    assert wheel.build(tmp_path).read_bytes() == built.read_bytes()


def test_the_list_names_one_wheel_and_its_digest(built):
    stale = built.with_name("multigpu_commlab-0.0.1-py3-none-any.whl")
    stale.write_bytes(b"")
    again = wheel.build(built.parent)
    page = (built.parent / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'href="([^"#]+)#sha256=[0-9a-f]{64}"', page) == [again.name]
    assert [path.name for path in built.parent.glob("*.whl")] == [again.name]


# ---------------------------------------------------------------------------------------
# The setup cell in a clone


def test_the_setup_cell_is_short_and_asks_for_this_version():
    setup = setup_cells.text()
    assert len(setup.splitlines()) <= LONGEST_SETUP_CELL
    (needed,) = re.findall(r"< \[(\d+), (\d+), (\d+)\]", setup)
    assert ".".join(needed) == commlab.__version__


def test_in_a_clone_nothing_is_fetched_and_nothing_printed(monkeypatch, capfd):
    def refuse(*arguments, **options):
        raise AssertionError("the setup cell started a program")

    monkeypatch.setattr(subprocess, "run", refuse)
    names: dict[str, object] = {}
    for _ in range(2):
        exec(setup_cells.for_site(setup_cells.text(), NOWHERE), names)
    assert names["explore"] is commlab.explore.explore
    assert capfd.readouterr() == ("", "")


# ---------------------------------------------------------------------------------------
# The setup cell and a notebook on Colab


def install_another_commlab(environment: colab.Environment) -> None:
    """Put a package of the same name where PyPI's would be."""
    package = environment.site_packages / "commlab"
    package.mkdir()
    (package / "__init__.py").write_text('__version__ = "9.9.9"\n')
    about = environment.site_packages / "commlab-9.9.9.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: commlab\nVersion: 9.9.9\n")


def remove_every_commlab(environment: colab.Environment) -> None:
    for path in environment.site_packages.glob("*commlab*"):
        shutil.rmtree(path)


def last_line(result: subprocess.CompletedProcess[str]) -> str:
    """The message of a program that failed in its own lines and nowhere deeper."""
    assert result.returncode == 1
    assert result.stdout == ""
    assert re.findall(r'File "([^"]+)"', result.stderr) == ["<string>"]
    return result.stderr.strip().splitlines()[-1]


def check_what_a_reader_is_told(environment: colab.Environment, folder: Path) -> None:
    setup = setup_cells.text()
    before = environment.installed()
    offline = last_line(environment.run(setup_cells.for_site(setup, NOWHERE), folder))
    assert offline.startswith("ImportError: This book's commlab is missing or too old")
    assert offline.count(NOWHERE) == 2, "once in each language"
    install_another_commlab(environment)
    unpublished = last_line(environment.run(setup_cells.for_site(setup, ""), folder))
    assert "uninstall it" in unpublished and "请卸载" in unpublished
    assert "make lab" in unpublished and "SITE is ''" in unpublished
    assert environment.installed() == before | {"commlab": "9.9.9"}


def check_that_the_wheel_wins(environment: colab.Environment, folder: Path, site: colab.Site):
    """First over another project's package, then over an older version, both already loaded."""
    program = "\n".join(
        [
            "import commlab",
            setup_cells.for_site(setup_cells.text(), site.address),
            "import commlab",
            "print(commlab.__version__, callable(explore), commlab.ledger.__name__)",
        ]
    )
    right = f"{commlab.__version__} True ledger\n"
    first = environment.run(program, folder)
    assert (first.stdout, first.stderr) == (right, "")
    module = environment.site_packages / "commlab" / "__init__.py"
    ours = f'__version__ = "{commlab.__version__}"'
    text = module.read_text(encoding="utf-8")
    assert ours in text
    module.write_text(text.replace(ours, '__version__ = "0.0.99"'), encoding="utf-8")
    second = environment.run(program, folder)
    assert (second.stdout, second.stderr) == (right, "")
    assert len([path for path in site.asked if path.endswith(".whl")]) == 2


def notebook_with_checks(folder: Path) -> Path:
    """NOTEBOOK, then its setup cell once more, then a cell that says what the kernel holds."""
    notebook = notebooks.read(NOTEBOOK)
    again = setup_cells.for_site(setup_cells.text(), NOWHERE)
    tell = "import commlab, numpy, matplotlib, IPython, ipywidgets, ipykernel\n" + "\n".join(
        f"print('{name}', {name}.__version__, {name}.__file__)"
        for name in ("commlab", "numpy", "matplotlib", "IPython", "ipywidgets", "ipykernel")
    )
    notebook.cells += [new_code_cell(again), new_code_cell(tell)]
    path = folder / "notebook.ipynb"
    nbformat.write(notebook, path)
    return path


def test_a_notebook_alone_runs_to_its_end_with_colab_s_versions(built, tmp_path):
    """One test, one environment: pip needs seconds to make it."""
    environment = colab.make_environment(tmp_path / "environment")
    with colab.served(built.parents[1]) as site:
        check_what_a_reader_is_told(environment, tmp_path)
        check_that_the_wheel_wins(environment, tmp_path, site)
        remove_every_commlab(environment)
        before = environment.installed()
        site.asked.clear()
        path = notebook_with_checks(tmp_path)
        done = colab.run_alone(path, tmp_path / "alone", environment, site.address)
    assert site.asked == ["/wheel/", f"/wheel/{built.name}"]
    assert environment.installed() == before | {"multigpu-commlab": commlab.__version__}
    outputs = [cell.outputs for cell in done.cells if cell.cell_type == "code"]
    assert outputs[0] == outputs[-2] == []
    # A kernel may send what a cell prints in several parts.
    printed = "".join(output.text for output in outputs[-1])
    told = {line.split()[0]: line.split()[1:] for line in printed.splitlines()}
    assert told.pop("commlab")[0] == commlab.__version__
    pins = {pin.partition("==")[0].lower(): pin.partition("==")[2] for pin in colab.PINS}
    assert {name.lower(): version for name, (version, _) in told.items()} == pins
    assert all(str(environment.folder) in file for _, file in told.values())
    assert list((tmp_path / "alone").iterdir()) == []
