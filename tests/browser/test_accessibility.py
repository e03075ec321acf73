"""axe-core finds nothing serious or critical on any page, in light or dark."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe

SERIOUS = ("serious", "critical")
# axe looks at each element by itself, which takes half a minute on a page of code. Code is
# coloured by token class, so a block that brings no new class is left out; the letters
# inside figures have a test of their own (test_explorers).
THIN_OUT = """() => {
  const seen = new Set();
  for (const block of document.querySelectorAll('.highlight')) {
    const kind = block.closest('.cell_output') ? 'out' : block.closest('.cell') ? 'in' : 'text';
    const classes = [...block.querySelectorAll('[class]')].map(token => kind + token.className);
    if (classes.every(name => seen.has(name))) block.style.display = 'none';
    classes.forEach(name => seen.add(name));
  }
  for (const box of document.querySelectorAll('.explore-figure'))
    (box.shadowRoot ?? box).querySelector('svg').style.display = 'none';
}"""


# A colour half-way through a transition is nobody's colour.
SETTLED = "*, ::before, ::after { transition: none !important; animation: none !important; }"


def serious_findings(page, rules=None):
    page.add_style_tag(content=SETTLED)
    options = {"resultTypes": ["violations"]} | ({"runOnly": rules} if rules else {})
    results = Axe().run(page, options=options).response
    return [
        f"{violation['id']} ({violation['impact']}): {node['html'][:160]} {node['failureSummary']}"
        for violation in results["violations"]
        if violation["impact"] in SERIOUS
        for node in violation["nodes"]
    ]


def test_nothing_serious(open_book, page_name):
    page = open_book(theme="light").go(page_name)
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.evaluate(THIN_OUT)
    assert serious_findings(page) == []
    # Only colours differ between the themes, so the page need not be loaded again.
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    assert serious_findings(page, ["color-contrast"]) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_serious_on_the_search_page(open_book, theme):
    visit = open_book(theme=theme)
    visit.page.goto(f"{visit.base}search.html?q=ring")
    visit.page.wait_for_selector("ul.search li a")
    assert serious_findings(visit.page) == []


def test_a_fault_is_found(open_book):
    """The check itself works: a picture without a name is a critical fault."""
    page = open_book().go("book/index.html")
    page.evaluate("document.querySelector('article').append(document.createElement('img'))")
    page.evaluate(
        "document.querySelector('article > img').src = 'data:image/gif;base64,R0lGODlhAQABAAAAACw='"
    )
    assert any(finding.startswith("image-alt") for finding in serious_findings(page))
