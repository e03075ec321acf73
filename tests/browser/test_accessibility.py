"""axe-core finds nothing serious or critical on any page, in light or dark."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe

SERIOUS = ("serious", "critical")
# axe looks at each element by itself. Code is coloured by token class, so the tokens of a kind
# that the page has shown become plain text; the letters inside figures have a test of their own
# (test_explorers).
THIN_OUT = """() => {
  const seen = new Set();
  for (const block of document.querySelectorAll('.highlight')) {
    const kind = block.closest('.cell_output') ? 'out' : block.closest('.cell') ? 'in' : 'text';
    for (const token of block.querySelectorAll('pre span[class]')) {
      if (seen.has(kind + token.className)) token.replaceWith(...token.childNodes);
      seen.add(kind + token.className);
    }
    block.normalize();
  }
  for (const box of document.querySelectorAll('.explore-figure'))
    (box.shadowRoot ?? box).querySelector('svg').style.display = 'none';
}"""
# For colours alone one text of each kind is enough: elements with the same tags, classes and
# styles all the way up look the same (in a table, every other row does). The others go.
ONE_OF_EACH_KIND = """() => {
  const kinds = new Map(), seen = new Set();
  const hasText = element => [...element.childNodes].some(
    node => node.nodeType === Node.TEXT_NODE && node.data.trim());
  const kindOf = element => {
    if (!element || element === document.documentElement) return '';
    if (!kinds.has(element)) {
      const look = [...element.attributes].filter(a => a.name !== 'id' && a.name !== 'href')
        .map(a => `${a.name}=${a.value}`);
      const row = element.tagName === 'TR' ? element.sectionRowIndex % 2 : '';
      kinds.set(element, `${kindOf(element.parentElement)} ${element.tagName}${row} ${look}`);
    }
    return kinds.get(element);
  };
  const thin = element => {
    if (element.matches('script, style')) return;
    const texts = [element, ...element.querySelectorAll('*')].filter(hasText);
    if (texts.every(text => seen.has(kindOf(text)))) { element.remove(); return; }
    if (hasText(element)) seen.add(kindOf(element));
    [...element.children].forEach(thin);
  };
  [...document.body.children].forEach(thin);
}"""


# A colour half-way through a transition is nobody's colour.
SETTLED = "*, ::before, ::after { transition: none !important; animation: none !important; }"


def serious_findings(page, **options):
    """What axe finds; ``options`` are its own, such as ``runOnly`` and ``rules``."""
    page.add_style_tag(content=SETTLED)
    options["resultTypes"] = ["violations"]
    results = Axe().run(page, options=options).response
    return [
        f"{violation['id']} ({violation['impact']}): {node['html'][:160]} {node['failureSummary']}"
        for violation in results["violations"]
        if violation["impact"] in SERIOUS
        for node in violation["nodes"]
    ]


def findings_in_both_themes(page):
    """What axe finds on a page; most of the page is gone afterwards."""
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.evaluate(THIN_OUT)
    found = serious_findings(page, rules={"color-contrast": {"enabled": False}})
    page.evaluate(ONE_OF_EACH_KIND)
    # Only colours differ between the themes, so the page need not be loaded again.
    for theme in ("light", "dark"):
        page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
        found += serious_findings(page, runOnly=["color-contrast"])
    return found


def test_nothing_serious(desk):
    assert findings_in_both_themes(desk.page) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_serious_on_the_search_page(open_book, theme):
    visit = open_book(theme=theme)
    visit.page.goto(f"{visit.base}search.html?q=ring")
    visit.page.wait_for_selector("ul.search li a")
    assert serious_findings(visit.page) == []


# Each is the last of many of its tag: what is thinned out must not hide it.
FAULTS = """() => {
  const article = document.querySelector('article');
  const image = document.createElement('img');
  image.src = 'data:image/gif;base64,R0lGODlhAQABAAAAACw=';
  const pale = document.createElement('p');
  pale.className = 'pale';
  pale.textContent = 'pale';
  article.append(image, pale);
  const tokens = article.querySelectorAll('.highlight pre span.k');
  tokens[tokens.length - 1].className = 'faint';
  const style = document.createElement('style');
  style.textContent = '[data-theme=dark] .pale { color: #333 } .faint { color: #888 !important }';
  document.head.append(style);
}"""


def test_a_fault_is_found(open_book):
    """The check itself works: a picture without a name, and two texts that are hard to read."""
    page = open_book().go("notebooks/03_ring_all_reduce.html")
    page.evaluate(FAULTS)
    found = findings_in_both_themes(page)
    assert [finding.split()[0] for finding in found] == ["image-alt"] + ["color-contrast"] * 3
    assert sum("pale" in finding for finding in found) == 1  # in the dark
    assert sum("faint" in finding for finding in found) == 2
