"""Class mode: one section at a time, by keyboard, without losing place, language or sliders."""

from __future__ import annotations

import re

from tests.browser.test_accessibility import serious_findings

HEADINGS = """shown => [...document.querySelectorAll('article :is(h1, h2, h3)')]
  .filter(heading => !shown || heading.checkVisibility()).map(heading => heading.textContent)"""
HIDDEN = "() => document.querySelectorAll('[data-class-hidden]').length"
SCROLL_TO_END = "() => window.scrollTo(0, document.documentElement.scrollHeight)"
# From the first section to the last: [counter, headings on show, whether the focus is among them].
WALK = """() => {
  const seen = [];
  for (let last = ''; ;) {
    const place = document.querySelector('.class-place').textContent;
    if (place === last) return seen;
    const headings = [...document.querySelectorAll('article :is(h1, h2, h3)')]
      .filter(heading => heading.checkVisibility());
    seen.push([place, headings.map(heading => heading.textContent),
               headings.includes(document.activeElement)]);
    last = place;
    const [, number, count] = place.match(/(\\d+) \\/ (\\d+)/);
    if (number === count) return seen;
    document.activeElement.dispatchEvent(
      new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}));
  }
}"""


def place(page):
    """(number of the section on show, number of sections), as the page counts them."""
    return tuple(map(int, page.text_content(".class-place").split(" / ")))


def is_on(page):
    return page.is_visible(".class-bar")


def test_each_section_is_shown_once_and_escape_returns_to_its_place(open_book):
    page = open_book("zh", disk=True).go("book/glossary.html")  # it has headings of all levels
    everything = page.evaluate(HEADINGS, False)
    page.keyboard.press("p")
    walk = page.evaluate(WALK)
    count = len(walk)
    assert [shown for shown, _, _ in walk] == [f"{n} / {count}" for n in range(1, count + 1)]
    assert [title for _, titles, _ in walk for title in titles] == everything
    assert all(has_focus for _, _, has_focus in walk)

    page.keyboard.press("Home")
    assert place(page) == (1, count)
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    assert place(page) == (count - 1, count)
    titles = page.evaluate(HEADINGS, True)
    assert page.url.endswith("&lang=zh")
    page.reload()
    assert (place(page), page.evaluate(HEADINGS, True)) == ((count - 1, count), titles)

    page.keyboard.press("Escape")
    assert not is_on(page)
    assert page.evaluate(HIDDEN) == 0
    focused = page.locator(":focus")
    assert focused.text_content() == titles[0]
    # The page may be too short for it to reach the top.
    assert 0 <= focused.bounding_box()["y"] < 900
    page.click(".class-button")
    assert place(page) == (count - 1, count)


def test_long_sections_scroll_and_sliders_keep_their_arrows(open_book):
    page = open_book("zh", width=1280).go("notebooks/03_ring_all_reduce.html")
    figure = page.locator("figure.explore:has(input)").first
    in_text = figure.bounding_box()["width"]
    page.keyboard.press("p")
    while not figure.is_visible():
        page.keyboard.press("ArrowRight")
    here = place(page)

    # A slider moves; a remote control, which sends PageDown, leads on all the same.
    slider = figure.locator("input").first
    before = slider.evaluate("input => +input.value")
    slider.press("ArrowRight")
    assert slider.evaluate("input => +input.value") == before + 1
    assert int(figure.get_attribute("data-frame")) > 0
    assert place(page) == here
    box = figure.bounding_box()
    assert box["width"] > in_text
    assert box["height"] < page.locator(".class-bar").bounding_box()["y"]
    page.evaluate(SCROLL_TO_END)
    page.keyboard.press("PageDown")
    assert (place(page)[0], page.evaluate("scrollY")) == (here[0] + 1, 0)

    # Back at the end of a long section, and through it before the one above it comes.
    page.keyboard.press("PageUp")
    bottom = page.evaluate("scrollY")
    assert place(page) == here
    page.keyboard.press("PageUp")
    assert 0 < page.evaluate("scrollY") < bottom
    assert place(page) == here

    # The letters are large, and paper knows no class mode.
    sizes = page.eval_on_selector_all(
        "article pre", "blocks => blocks.map(b => parseFloat(getComputedStyle(b).fontSize))"
    )
    assert min(sizes) >= 20
    page.emulate_media(media="print")
    assert not is_on(page)
    printed = page.evaluate(HEADINGS, True)
    page.keyboard.press("Escape")
    assert printed == page.evaluate(HEADINGS, True)


def test_the_last_section_leads_to_the_next_page_and_back(open_book):
    visit = open_book("both", disk=True)
    page = visit.go("book/summary.html#class=last&lang=en")
    last = place(page)
    assert last[0] == last[1]
    following = page.get_attribute('link[rel="next"]', "href")
    page.keyboard.press("ArrowRight")
    page.wait_for_url(re.compile(re.escape(following)))
    page.wait_for_selector(".class-bar")
    assert place(page)[0] == 1
    # The address outweighs what this reader had chosen before.
    assert page.evaluate("document.documentElement.dataset.lang") == "en"
    page.keyboard.press("ArrowLeft")
    page.wait_for_url(re.compile("summary"))
    page.wait_for_selector(".class-bar")
    assert place(page) == last
    assert visit.errors == []


def test_on_a_phone_and_for_a_screen_reader(open_book):
    page = open_book("en", theme="dark", width=360).go("book/index.html")
    page.click(".class-button")
    page.keyboard.press("ArrowRight")
    status = page.locator(".class-bar [role=status]").inner_text()
    assert page.evaluate(HEADINGS, True)[0].rstrip("#") in status
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert serious_findings(page) == []
    # No trap: Enter on the bar's first button goes back, and Tab leaves its last one.
    page.press(".class-bar button >> nth=0", "Enter")
    assert place(page)[0] == 1
    page.press(".class-bar button >> nth=2", "Tab")
    assert not page.evaluate(
        "document.querySelector('.class-bar').contains(document.activeElement)"
    )
