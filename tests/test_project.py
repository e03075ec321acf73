"""What holds the project together: package data, pins, documents, and the tools of make."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import commlab
from tools import check, chromium, fingerprint, where
from tools.lints.pages import ROOT, notebooks

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# How conda-forge calls what PyPI calls otherwise.
CONDA_NAMES = {"matplotlib": "matplotlib-base", "torch": "pytorch-cpu"}


def declared() -> dict[str, Requirement]:
    """All requirements of pyproject.toml, with those of its extras, by name."""
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"].values()
    texts = [*project["dependencies"], *(text for extra in extras for text in extra)]
    return {canonicalize_name(Requirement(text).name): Requirement(text) for text in texts}


def pins() -> dict[str, str]:
    """The versions of requirements.lock by name."""
    found: dict[str, str] = {}
    for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, version = line.split("==")
            assert canonicalize_name(name) not in found, f"{name} is pinned twice"
            found[canonicalize_name(name)] = version
    return found


def conda_requirements() -> dict[str, Requirement]:
    """The requirements of environment.yml by conda's or pip's name."""
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    texts = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    (pip,) = (entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    texts += [text for text in pip if not text.startswith("-")]
    return {Requirement(text).name: Requirement(text) for text in texts}


@pytest.mark.parametrize("name", sorted(declared()))
def test_lock_pins_what_pyproject_asks_for(name):
    assert name in pins(), f"requirements.lock lacks {name}"
    assert declared()[name].specifier.contains(pins()[name])


def test_lock_pins_what_installs_the_package():
    (backend,) = map(Requirement, PYPROJECT["build-system"]["requires"])
    assert backend.specifier.contains(pins()[backend.name])


@pytest.mark.parametrize("name", sorted(declared()))
def test_conda_environment_asks_for_what_pyproject_asks_for(name):
    conda = conda_requirements()[CONDA_NAMES.get(name, name)]
    assert conda.specifier == declared()[name].specifier


def test_conda_environment_asks_for_nothing_else():
    known = {CONDA_NAMES.get(name, name) for name in declared()} | {"python", "pip"}
    assert set(conda_requirements()) == known
    python = conda_requirements()["python"].specifier
    assert str(python) == PYPROJECT["project"]["requires-python"]


def test_jupyter_book_stays_at_version_1():
    specifier = declared()["jupyter-book"].specifier
    assert not specifier.contains("2.0.0")
    assert pins()["jupyter-book"].startswith("1.")


def test_distribution_is_not_called_like_somebody_elses():
    assert PYPROJECT["project"]["name"] == "multigpu-commlab"


def test_citation_states_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    for key in ("cff-version", "message", "title", "authors", "license"):
        assert citation[key], key
    assert str(citation["version"]) == PYPROJECT["project"]["version"]


def test_licences_are_whole():
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith("MIT License")
    text = (ROOT / "LICENSE-text").read_text(encoding="utf-8")
    assert "Creative Commons Attribution 4.0 International Public License" in text
    assert "Section 8 -- Interpretation." in text


def test_the_whole_lecture_stands():
    sections = [path.name[:2] for path in notebooks() if path.name[0].isdigit()]
    assert sections == [f"{n:02d}" for n in range(1, 8)]


FIXED_NAMES = """
    Schedule Step ScheduleError verify simulate price flat_topology node_topology COPY REDUCE
    alpha_beta_ring_allreduce alpha_beta_tree_allreduce alpha_beta_naive_allreduce
    alpha_beta_recursive_doubling_allreduce alpha_beta_halving_doubling_allreduce
    alpha_beta_reduce_scatter alpha_beta_all_gather alpha_beta_broadcast alpha_beta_all_to_all
    hierarchical_allreduce_time
    all_reduce reduce_scatter all_gather broadcast reduce all_to_all
""".split()


@pytest.mark.parametrize("name", FIXED_NAMES)
def test_fixed_names_exist(name):
    assert hasattr(commlab, name)
    assert name in commlab.__all__


def test_registry_has_the_algorithms_of_the_lecture():
    for key in (
        *(("all_reduce", name) for name in ("naive", "ring", "binomial_tree")),
        ("reduce_scatter", "ring"),
        ("all_gather", "ring"),
        ("broadcast", "binomial_tree"),
        ("reduce", "binomial_tree"),
        *(("all_to_all", name) for name in ("pairwise", "direct")),
    ):
        assert key in commlab.algorithms.REGISTRY


def test_import_loads_neither_torch_nor_matplotlib():
    heavy = "('torch', 'matplotlib', 'IPython', 'ipywidgets')"
    program = f"import sys, commlab; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


# ---------------------------------------------------------------------------------------
# make and its tools


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True)


def test_make_alone_helps():
    result = make("--no-print-directory")
    assert result.returncode == 0
    for target in ("book", "publish", "test", "test-full", "lab", "notebooks", "clean"):
        assert f"make {target} " in result.stdout


def test_make_refuses_an_old_python_in_one_sentence(tmp_path):
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.10.9" && exit 0\nexit 1\n')
    old.chmod(0o755)
    result = make("-B", "-s", "install", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}")
    assert result.returncode != 0
    first, *rest = result.stderr.splitlines()
    assert first.startswith("This book needs Python 3.11 or newer")
    assert "Python 3.10.9" in first
    assert len(rest) == 1, "make's own line may follow, nothing else"
    assert not (tmp_path / "venv").exists()


def test_torch_index_reaches_pip():
    url = "https://download.pytorch.org/whl/cpu"
    assert f"--extra-index-url {url}" in make("-B", "-n", "install", f"TORCH_INDEX={url}").stdout
    assert "--extra-index-url" not in make("-B", "-n", "install", "TORCH_INDEX=").stdout


def test_publish_listens_to_its_command_line_only(tmp_path, monkeypatch):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\necho "$@"\nexit 1\n')  # the book is not built
    python.chmod(0o755)
    (tmp_path / ".installed").touch()
    for name in ("REPO", "BRANCH", "SITE"):
        monkeypatch.setenv(name, "from the environment")
    nameless = make("-s", "publish", f"VENV={tmp_path}")
    assert nameless.returncode != 0
    assert "make publish REPO=owner/name" in nameless.stderr.splitlines()[0]
    for repo in ("octocat/multi-gpu", 'two "words"', ""):
        stamped = make("-s", "publish", f"VENV={tmp_path}", f"REPO={repo}").stdout
        assert stamped == f"-m tools.publish --repo={repo} --branch= --site=\n"


def test_readme_names_the_commands_that_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md"):
        used = set(re.findall(r"`make ([a-z-]+)", (ROOT / name).read_text(encoding="utf-8")))
        assert used
        assert used <= targets, name


def test_documents_link_to_files_that_exist():
    for name in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (ROOT / target).exists(), f"{name} links to {target}"


def test_fingerprint_follows_contents_and_names(tmp_path):
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "a.md").write_text("one")
    first = fingerprint.fingerprint([folder])
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "a.pyc").write_text("x")
    (folder / "a.md").touch()
    assert fingerprint.fingerprint([folder]) == first
    (folder / "a.md").write_text("two")
    second = fingerprint.fingerprint([folder])
    (folder / "a.md").rename(folder / "b.md")
    assert len({first, second, fingerprint.fingerprint([folder])}) == 3


def test_fingerprint_is_written_only_when_it_changed(tmp_path):
    target = tmp_path / "cache" / "sources"
    assert fingerprint.write_if_changed(target, "x")
    assert not fingerprint.write_if_changed(target, "x")
    assert fingerprint.write_if_changed(target, "y")


def test_directions_name_the_page_to_open(tmp_path):
    assert (tmp_path / "index.html").as_uri() in where.directions(tmp_path)


def test_chromium_can_be_named(tmp_path, monkeypatch):
    browser = tmp_path / "my-chrome"
    browser.write_text("#!/bin/sh\n")
    browser.chmod(0o755)
    monkeypatch.setenv("CHROMIUM", str(browser))
    assert chromium.find_chromium() == str(browser)
    monkeypatch.setenv("CHROMIUM", str(tmp_path / "nothing"))
    assert chromium.find_chromium() is None


JUNIT = (
    '<testsuites><testsuite name="pytest" tests="{}" failures="{}" errors="{}" skipped="{}"/>'
    "</testsuites>"
)


def counted(tmp_path: Path, returncode: int, *numbers: int) -> check.Counts:
    report = tmp_path / "report.xml"
    report.write_text(JUNIT.format(*numbers))
    return check.count(check.Phase("x", (), is_pytest=True), returncode, report)


def test_check_counts_tests(tmp_path):
    assert counted(tmp_path, 0, 10, 0, 0, 0) == check.Counts(10, 0, 0)
    assert counted(tmp_path, 1, 10, 1, 1, 1) == check.Counts(7, 2, 1)


def test_check_counts_a_phase_that_dies_as_a_failure(tmp_path):
    assert counted(tmp_path, 3, 10, 0, 0, 0) == check.Counts(10, 1, 0)
    died = check.count(check.Phase("x", (), is_pytest=True), 5, tmp_path / "none.xml")
    assert died == check.Counts(0, 1, 0)
    assert check.count(check.Phase("x", ()), 2, tmp_path / "none.xml") == check.Counts(0, 1, 0)


@pytest.mark.parametrize("report", [None, "", "<testsuites><testsuite", JUNIT.format(0, 0, 0, 0)])
def test_check_counts_tests_without_a_report_as_a_failure(tmp_path, report):
    path = tmp_path / "report.xml"
    if report is not None:
        path.write_text(report)
    phase = check.Phase("x", (), is_pytest=True)
    assert check.count(phase, 0, path) == check.Counts(0, 1, 0)


def test_check_goes_on_after_a_program_that_is_missing():
    outcome = check.run(check.Phase("x", ("no-such-program-here",)))
    assert outcome.counts == check.Counts(0, 1, 0)


def test_check_runs_two_phases_side_by_side(tmp_path, capfd):
    """Each waits for the other; what the one beside prints does not mix with the other's."""
    program = (
        "import pathlib, sys, time\n"
        "own, other = map(pathlib.Path, sys.argv[1:])\n"
        "own.touch()\n"
        "end = time.monotonic() + 20\n"
        "while not other.exists() and time.monotonic() < end: time.sleep(0.01)\n"
        "print(f'{own.name} saw {other.name}:', other.exists())\n"
        "sys.exit(own.name == 'a')\n"
    )
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    phases = [
        check.Phase("first", check.python("-c", program, a, b), beside_next=True),
        check.Phase("second", check.python("-c", program, b, a)),
    ]
    outcomes = check.run_all(phases)
    assert [one.name for one in outcomes] == ["second", "first"]
    assert [one.counts.failed for one in outcomes] == [0, 1]
    printed = [line for line in capfd.readouterr().out.splitlines() if line[1:6] == " saw "]
    assert printed == ["b saw a: True", "a saw b: True"]


@pytest.mark.parametrize(
    ("counts", "status", "status_in_ci", "last"),
    [
        (check.Counts(3), 0, 0, "3 passed, 0 failed"),
        (check.Counts(3, 1), 1, 1, "3 passed, 1 failed"),
        (check.Counts(3, 0, 2), 0, 1, "3 passed, 0 failed, 2 skipped"),
        (check.Counts(), 1, 1, "0 passed, 0 failed"),
    ],
)
@pytest.mark.parametrize("in_ci", [False, True])
def test_check_closes_with_one_line(counts, status, status_in_ci, last, in_ci, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    if in_ci:
        monkeypatch.setenv("CI", "true")
        status = status_in_ci
    lines: list[str] = []
    outcomes = [check.Outcome("unit", counts, 1.5)]
    assert check.report_all(outcomes, 2.5, lines.append) == status
    assert lines[-1] == last
    assert "unit" in lines[0]
    assert lines[1].split()[:2] == ["all", "2.5"]


def test_the_rooms_of_the_package_come_when_they_are_asked_for():
    program = "import commlab; commlab.budget.MFU; commlab.overlap; commlab.nothing"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True
    )
    assert result.stderr.strip().endswith("module 'commlab' has no attribute 'nothing'")
