"""Stamping the repository's address into the book, and the check of all links."""

from __future__ import annotations

import difflib
import json
import shutil
from pathlib import Path

import pytest

from tools import links, publish, setup_cells
from tools.publish import Stamp, parse
from tools.setup_cells import NOTEBOOKS, TEMPLATE

ROOT = publish.ROOT
ELSEWHERE = Stamp("octocat/multi-gpu", "main", "https://octocat.github.io/multi-gpu/")

# ---------------------------------------------------------------------------------------
# What the command line says


@pytest.mark.parametrize(
    "repo",
    [
        "octocat/multi-gpu",
        " octocat/multi-gpu ",
        "octocat/multi-gpu/",
        "octocat/multi-gpu.git",
        "https://github.com/octocat/multi-gpu",
        "https://github.com/octocat/multi-gpu.git",
        "http://www.github.com/octocat/multi-gpu/",
        "git@github.com:octocat/multi-gpu.git",
        "ssh://git@github.com/octocat/multi-gpu.git",
    ],
)
def test_a_repository_may_be_written_in_many_ways(repo):
    assert parse(repo) == ELSEWHERE


def test_the_site_is_that_of_github_pages_unless_it_is_named():
    assert parse("Octo-Cat/Multi.GPU_1").site == "https://octo-cat.github.io/Multi.GPU_1/"
    assert parse("Octocat/octocat.github.io").site == "https://octocat.github.io/"
    for site in ("https://book.example.org", "https://book.example.org/"):
        named = parse("octocat/multi-gpu", "lecture/2026", site)
        assert named == Stamp("octocat/multi-gpu", "lecture/2026", "https://book.example.org/")
    assert parse("a/b", site="http://localhost:8000/book").site == "http://localhost:8000/book/"
    assert parse("") == parse("  ") == Stamp("", "main", "")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("foo",), "owner/name"),
        (("a/b/c",), "owner/name"),
        (("two words/name",), "owner/name"),
        (("owner/two words",), "owner/name"),
        (("owner/",), "owner/name"),
        (("/name",), "owner/name"),
        (("owner/..",), "owner/name"),
        (("-owner/name",), "owner/name"),
        (('owner/na"me',), "owner/name"),
        (("https://gitlab.com/owner/name",), "owner/name"),
        (("https://github.com/owner/name/tree/main",), "owner/name"),
        (("owner/name", "two words"), "BRANCH=main"),
        (("owner/name", "-b"), "BRANCH=main"),
        (("owner/name", "a..b"), "BRANCH=main"),
        (("owner/name", "", "book.example.org"), "SITE=https"),
        (("owner/name", "", "https://two words.org"), "SITE=https"),
        (("owner/name", "", 'https://x.org/"'), "SITE=https"),
        (("", "main"), "REPO="),
        (("", "", "https://book.example.org/"), "REPO="),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(arguments, word, monkeypatch, capsys):
    with pytest.raises(ValueError, match=r"REPO=|BRANCH=|SITE="):
        parse(*arguments)
    options = zip(("--repo", "--branch", "--site"), arguments, strict=False)
    monkeypatch.setattr("sys.argv", ["publish", *(f"{key}={value}" for key, value in options)])
    monkeypatch.setattr(publish, "write", lambda stamp: pytest.fail("something was written"))
    assert publish.main() == 2
    out, err = capsys.readouterr()
    assert out == ""
    (sentence,) = err.splitlines()
    assert word in sentence


# ---------------------------------------------------------------------------------------
# The stamp in the files


@pytest.fixture
def copy(tmp_path) -> Path:
    """The files that are stamped, in a folder of their own, without an address."""
    for name in (publish.CONFIG, publish.CITATION, TEMPLATE):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / NOTEBOOKS, tmp_path / NOTEBOOKS)
    publish.write(Stamp(), tmp_path)
    return tmp_path


def texts(root: Path) -> dict[str, str]:
    files = [path for path in root.rglob("*") if path.is_file()]
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in files}


def changed_lines(before: str, after: str) -> list[str]:
    diff = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line for line in diff if line[0] in "+-"]


def test_a_stamp_can_be_repeated_replaced_and_taken_out(copy):
    clean = texts(copy)
    assert publish.write(Stamp(), copy) == []
    assert publish.write(ELSEWHERE, copy)
    stamped = texts(copy)
    assert publish.read(copy) == ELSEWHERE
    assert publish.write(ELSEWHERE, copy) == []
    other = parse("somebody/else", "dev", "https://book.example.org")
    publish.write(other, copy)
    assert publish.read(copy) == other
    assert not any("octocat" in text for text in texts(copy).values())
    publish.write(ELSEWHERE, copy)
    assert texts(copy) == stamped
    publish.write(Stamp(), copy)
    assert texts(copy) == clean


def test_a_stamp_changes_its_own_lines_only(copy):
    clean = texts(copy)
    publish.write(parse("octocat/multi-gpu", "dev"), copy)
    lines = {name: changed_lines(clean[name], text) for name, text in texts(copy).items()}
    assert [line.split(":")[0] for line in lines.pop(publish.CITATION)] == [
        "+ repository-code",
        "+ url",
    ]
    config = [line for line in lines.pop(publish.CONFIG) if line[0] == "+"]
    assert [line[1:].split()[0] for line in config] == ["baseurl:", "url:", "branch:"]
    assert len(lines) == 1 + len(list((ROOT / NOTEBOOKS).glob("*.ipynb")))
    for name, changed in lines.items():
        assert len(changed) == 2, name
        assert all("SITE = " in line for line in changed), name


def test_outputs_and_other_cells_stay_as_they_are(copy):
    path = next((copy / NOTEBOOKS).glob("02*.ipynb"))
    before = json.loads(path.read_text(encoding="utf-8"))
    publish.write(ELSEWHERE, copy)
    after = json.loads(path.read_text(encoding="utf-8"))
    assert "".join(setup_cells.setup_cell(after).pop("source")).count(ELSEWHERE.site) == 1
    setup_cells.setup_cell(before).pop("source")
    assert after == before


def test_the_repository_carries_one_stamp():
    """Whatever it is: stamping the same again would change nothing."""
    stamp = publish.read()
    for path, stamped in (
        (publish.CONFIG, publish.stamped_config),
        (publish.CITATION, publish.stamped_citation),
        (TEMPLATE, lambda text, stamp: setup_cells.for_site(text, stamp.site)),
    ):
        text = (ROOT / path).read_text(encoding="utf-8")
        assert stamped(text, stamp) == text, f"{path} differs: run make publish"


def test_a_file_that_lost_its_place_for_the_stamp_is_named():
    with pytest.raises(ValueError, match="SITE"):
        setup_cells.for_site("import sys", "https://x.org/")
    with pytest.raises(ValueError, match="baseurl"):
        publish.stamped_config("html: {}", ELSEWHERE)


def test_a_notebook_without_a_setup_cell_gets_one():
    title = {"cell_type": "markdown", "id": "title", "metadata": {}, "source": ["# T"]}
    other = {"cell_type": "code", "id": "one", "metadata": {}, "source": ["1"], "outputs": []}
    text = setup_cells.with_setup_cell(json.dumps({"cells": [title, other]}), setup_cells.text())
    first, setup, last = json.loads(text)["cells"]
    assert (first, last) == (title, other)
    assert "".join(setup["source"]) == setup_cells.text()
    assert setup["metadata"] == {"tags": ["hide-input"]}


# ---------------------------------------------------------------------------------------
# The check of the links

COLAB_LINK = f"{publish.COLAB}octocat/multi-gpu/blob/main/notebooks/a.ipynb"
WRONG_LINKS = {
    "gone.html": "leads to no file",
    "/notebooks/b.html": "leads to no file",
    "../../outside.html": "leads to no file",
    "b.html#gone": "leads to an anchor that does not exist",
    "#gone": "leads to an anchor that does not exist",
    ELSEWHERE.site + "gone.html": "leads to no file",
    COLAB_LINK.replace("main", "dev"): "is not on the branch main",
    COLAB_LINK.replace("a.ipynb", "gone.ipynb"): "a file that the repository lacks",
    COLAB_LINK.replace("a.ipynb", "b.md"): "is no notebook",
    COLAB_LINK.replace("a.ipynb", "damaged.ipynb"): "is not a readable notebook",
    COLAB_LINK.replace("octocat", "binder"): "offers another repository than octocat/multi-gpu",
    publish.COLAB: "offers another repository",
    f"{ELSEWHERE.url}/blob/main/gone.py": "a file that the repository lacks",
}
RIGHT_LINKS = (
    "b.html",
    "b.html#here",
    "./",
    "#here",
    "../wheel/",
    "../wheel/x.whl#sha256=00",
    "../zh%20x.png",
    ELSEWHERE.site,
    ELSEWHERE.site + "notebooks/b.html#here",
    COLAB_LINK,
    ELSEWHERE.url,
    f"{ELSEWHERE.url}/issues/new?title=x",
    f"{ELSEWHERE.url}/blob/main/notebooks/a.ipynb",
    "https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md",
    "https://arxiv.org/abs/1802.05799",
    "mailto:a@example.org",
)


@pytest.fixture
def site(tmp_path) -> Path:
    """A small built book next to the repository that it was built from."""
    for name in ("index.html", "notebooks/b.html", "wheel/index.html", "wheel/x.whl", "zh x.png"):
        (tmp_path / "html" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "html" / name).write_text("")
    notebooks = tmp_path / "notebooks"
    notebooks.mkdir()
    (notebooks / "a.ipynb").write_text('{"cells":[],"metadata":{},"nbformat":4,"nbformat_minor":5}')
    (notebooks / "damaged.ipynb").write_text("{-}")
    (notebooks / "b.md").write_text("")
    (tmp_path / "html/notebooks/index.html").write_text("")
    return tmp_path


def page_with(site: Path, *targets: str) -> None:
    body = '<p id="here">' + "".join(f'<a href="{target}">x</a>' for target in targets)
    for name in ("a.html", "b.html"):
        (site / "html" / "notebooks" / name).write_text(body + f'<a href="{COLAB_LINK}">y</a>')
    (site / "html" / "notebooks" / "index.html").write_text(body + f"<i title='{COLAB_LINK}'>")


def test_right_links_are_accepted(site):
    page_with(site, *RIGHT_LINKS)
    assert links.complaints(site / "html", ELSEWHERE, site) == []


@pytest.mark.parametrize(("link", "word"), WRONG_LINKS.items())
def test_a_wrong_link_is_named(site, link, word):
    page_with(site, link)
    found = links.complaints(site / "html", ELSEWHERE, site)
    assert len(found) == 3, "on each of the three pages"
    assert all(link in complaint and word in complaint for complaint in found)


def test_an_unpublished_book_offers_no_colab(site):
    page_with(site)
    found = links.complaints(site / "html", Stamp(), site)
    assert found and all("offers another repository than none" in line for line in found)


def test_a_published_notebook_offers_colab(site):
    (site / "html" / "notebooks" / "a.html").write_text("")
    assert "notebooks/a.html: does not offer Colab" in links.complaints(
        site / "html", ELSEWHERE, site
    )


@pytest.mark.parametrize("word", links.FOREIGN)
def test_code_that_runs_on_a_stranger_s_server_is_named(site, word):
    (site / "html" / "index.html").write_text(f"<script>{word}</script>")
    page_with(site)
    assert links.complaints(site / "html", ELSEWHERE, site) == [f"index.html: offers {word}"]


def test_a_book_that_was_not_built_is_no_book_without_mistakes(tmp_path):
    (complaint,) = links.complaints(tmp_path, Stamp(), tmp_path)
    assert "make book" in complaint
