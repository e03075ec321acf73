"""What holds on every page: nothing from outside, no errors, formulas, phones, links."""

from __future__ import annotations

import functools
import re

import pytest

# Raw TeX delimiters that a reader would see if a formula was not rendered.
RAW_MATH = r"""() => {
  const walker = document.createTreeWalker(document.querySelector('article'), NodeFilter.SHOW_TEXT);
  const raw = [];
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    if (parent.closest('pre, code, script, style, mjx-container')) continue;
    if (/\\[([]|\\[)\]]|\$[^$\n]*[\\^_][^$\n]*\$|\$\$/.test(walker.currentNode.data))
      raw.push(walker.currentNode.data.trim());
  }
  return raw;
}"""
MATH_COUNTS = """() => [
  document.querySelectorAll('.math').length,
  document.querySelectorAll('.math mjx-container').length,
  document.querySelectorAll('mjx-container').length,
  document.querySelectorAll('mjx-merror, [data-mjx-error]').length,
]"""
# Emphasis that CommonMark did not close.
STARS = r"""() => {
  const walker = document.createTreeWalker(document.querySelector('article'), NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode())
    if (!walker.currentNode.parentElement.closest('pre, code, script, style, mjx-container')
        && /\*\*/.test(walker.currentNode.data)) found.push(walker.currentNode.data.trim());
  return found;
}"""
WIDTHS = """() => [document.documentElement.scrollWidth, document.body.scrollWidth, innerWidth]"""


@pytest.mark.parametrize("window", ["desk", "phone"])
def test_page_is_complete_and_alone(request, page_name, window):
    """Once from the server on a wide screen, once from disk on a narrow one."""
    visit = request.getfixturevalue(window)
    page = visit.page
    assert visit.foreign == []
    assert visit.errors == []
    nodes, rendered, containers, errors = page.evaluate(MATH_COUNTS)
    assert (rendered, containers, errors) == (nodes, nodes, 0)
    assert page.evaluate(RAW_MATH) == []
    assert page.evaluate(STARS) == []


@pytest.mark.parametrize("name", ["search.html?q=ring", "genindex.html"])
@pytest.mark.parametrize("disk", [False, True], ids=["http", "file"])
def test_the_theme_s_own_pages_are_alone(open_book, name, disk):
    visit = open_book(disk=disk)
    visit.page.goto(visit.base + name)
    visit.page.wait_for_selector(".lang-switch")
    if name.startswith("search"):
        visit.page.wait_for_selector("ul.search li a")
    assert visit.foreign == []
    assert visit.errors == []


def test_a_phone_scrolls_downwards_only(phone):
    page = phone.page
    for mode in ("zh", "en", "both"):
        page.click(f'.lang-switch button[data-mode="{mode}"]')
        document, body, window = page.evaluate(WIDTHS)
        assert document <= window == 360, f"{mode}: the page is {document} px wide"
        assert body <= window


def test_every_page_is_in_the_sidebar(open_book, html):
    page = open_book().go("book/index.html")
    links = page.eval_on_selector_all(
        ".bd-sidebar-primary nav a.reference.internal",
        "links => links.map(link => new URL(link.href).pathname.slice(1))",
    )
    pages = {
        path.relative_to(html).as_posix()
        for folder in ("book", "notebooks")
        for path in (html / folder).glob("*.html")
    }
    assert set(links) == pages


@functools.cache
def anchors_of(file):
    """The ids of a built page; a page of the glossary is asked for hundreds of times."""
    return set(re.findall(r'\bid="([^"]+)"', file.read_text()))


def test_no_link_leads_nowhere(desk, html):
    targets = desk.page.eval_on_selector_all(
        "a[href]",
        "links => links.map(link => link.href).filter(href => href.startsWith(location.origin))",
    )
    missing = set()
    for target in targets:
        path, _, anchor = target.split("/", 3)[3].partition("#")
        file = html / (path.split("?")[0] or "index.html")
        has_anchor = not anchor or (file.is_file() and anchor in anchors_of(file))
        if not file.is_file() or not has_anchor:
            missing.add(target)
    assert missing == set()
