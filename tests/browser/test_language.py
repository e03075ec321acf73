"""The language switch hides, remembers, and follows the browser at first."""

from __future__ import annotations

import pytest

from tests.browser.built_book import page_names

VISIBLE = """lang => [...document.querySelectorAll(`article [lang="${lang}"]`)]
  .filter(element => element.checkVisibility()).length"""


def switch(page, mode):
    page.click(f'.lang-switch button[data-mode="{mode}"]')


def state(page):
    """(Chinese blocks seen, English blocks seen, language of the page)."""
    zh, en = (page.evaluate(VISIBLE, lang) > 0 for lang in ("zh", "en"))
    return zh, en, page.evaluate("document.documentElement.lang")


def test_switch_hides_the_other_language(desk):
    page = desk.page
    assert state(page) == (True, True, "en")
    switch(page, "zh")
    assert state(page) == (True, False, "zh-CN")
    switch(page, "en")
    assert state(page) == (False, True, "en")
    pressed = '.lang-switch button[aria-pressed="true"]'
    assert page.eval_on_selector_all(pressed, "b => b.map(x => x.dataset.mode)") == ["en"]
    # Headings stand outside the blocks: they never go.
    assert page.locator("article h1").is_visible()
    switch(page, "both")
    assert state(page) == (True, True, "en")


def test_choice_is_remembered(open_book):
    visit = open_book(None)
    first, second = page_names()[:2]
    page = visit.go(first)
    switch(page, "zh")
    page.reload()
    assert state(page)[:2] == (True, False)
    visit.go(second)
    assert state(page)[:2] == (True, False)
    switch(page, "both")
    visit.go(first)
    assert state(page)[:2] == (True, True)


@pytest.mark.parametrize(
    ("locale", "mode"), [("zh-CN", "zh"), ("zh-TW", "zh"), ("en-GB", "en"), ("de-DE", "both")]
)
def test_first_visit_follows_the_browser(open_book, locale, mode):
    page = open_book(None, locale=locale).go("book/index.html")
    assert page.evaluate("document.documentElement.dataset.lang") == mode


def test_language_is_set_before_the_body_exists(open_book):
    """No flash of the other language: the choice is made while the head is read."""
    visit = open_book("zh")
    visit.page.add_init_script(
        """new MutationObserver((_, observer) => {
             if (!document.body) return;
             window.langAtBody = document.documentElement.dataset.lang;
             observer.disconnect();
           }).observe(document, {childList: true, subtree: true});"""
    )
    visit.page.goto(visit.base + page_names()[0])
    assert visit.page.evaluate("window.langAtBody") == "zh"


def test_switch_works_by_keyboard(open_book):
    page = open_book("both").go(page_names()[0])
    page.focus('.lang-switch button[data-mode="zh"]')
    page.keyboard.press("Enter")
    assert state(page)[:2] == (True, False)
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert state(page)[:2] == (False, True)
