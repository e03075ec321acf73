"""A page is light, and it is painted while all of its scripts are still on their way."""

from __future__ import annotations

import importlib
import re
from urllib.parse import urlsplit

from tests.browser.built_book import ROOT, page_names
from tests.browser.conftest import LOADED

PAGE_LIMIT = 1_500_000  # bytes as they lie on the disk: a server that compresses sends a quarter
EXPLORER = re.compile(r'<figure class="explore".*?</figure>', re.DOTALL)
PAINTED = "() => performance.getEntriesByName('first-contentful-paint').length > 0"
SEEN = """() => [...document.querySelectorAll('article h1, article [lang]')]
  .filter(element => element.checkVisibility()).map(element => element.lang)"""


def bytes_before_explorers(file):
    return len(EXPLORER.sub("", file.read_text()).encode())


def test_a_page_weighs_little_before_its_explorers(open_book, html):
    # All pages share styles, scripts and fonts: the longest of those with formulas is heaviest.
    names = [name for name in page_names() if 'class="math' in (html / name).read_text()]
    name = max(names, key=lambda name: bytes_before_explorers(html / name))
    visit = open_book()
    fetched = set()
    visit.page.on("response", lambda response: fetched.add(urlsplit(response.url).path[1:]))
    page = visit.go(name)
    page.wait_for_function("() => document.fonts.status === 'loaded'")
    assert name in fetched
    assert any("mathjax" in path for path in fetched)
    weights = {
        path: bytes_before_explorers(html / path) if path == name else (html / path).stat().st_size
        for path in fetched
        if path
    }
    assert sum(weights.values()) <= PAGE_LIMIT, sorted(weights.items(), key=lambda item: -item[1])


def test_text_is_painted_before_any_script_arrives(open_book):
    visit = open_book("zh", theme="dark")
    page = visit.page
    held = []
    page.route(re.compile(r"\.js(\?|$)"), lambda route: held.append(route))  # no answer yet
    page.goto(visit.base + "notebooks/03_ring_all_reduce.html", wait_until="commit")
    page.wait_for_function(PAINTED)
    # What is painted is final: the chosen language alone, on the reader's background.
    seen = page.evaluate(SEEN)
    assert "zh" in seen
    assert "en" not in seen
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert held
    page.unroute_all()  # answers all that were held
    page.wait_for_function(LOADED)
    assert visit.errors == []


def test_only_rules_that_cannot_apply_are_dropped(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "book" / "_ext")
    weight = importlib.import_module("book_weight")
    kept = [
        "/*! licence, e.g. of example.org */:root{--a:1}",
        ".used,.unused{a:b}",
        "@media print{.used.other{a:b}}",
        ".used:not(.unused){a:b}",
        ".bs-tooltip-auto .used{a:b}",
        "@keyframes turn{from{a:b}to{a:c}}",
    ]
    dropped = [".unused{a:b}", ".used .unused>p,.gone{a:b}"]
    styles = tmp_path / "styles" / "bootstrap.css"
    styles.parent.mkdir()
    styles.write_text("".join(kept + dropped))
    weight.prune_styles(tmp_path, ['<p class="used">', "toggle('other')"])
    assert styles.read_text() == "".join(kept)
