"""The search box finds the right page first, in Chinese and in English."""

from __future__ import annotations

import pytest

from tests.browser.conftest import new_window

# Query -> the page that explains it.
FIRST = {
    "集合通信": "02_six_collectives",
    "环形": "03_ring_all_reduce",
    "通信量": "03_ring_all_reduce",
    "死锁": "06_torch_distributed",
    "梯度分桶": "04_alpha_beta_model",
    "张量并行": "07_communication_budget",
    "数据并行": "05_data_parallelism",
    "术语": "glossary",
    "环": "03_ring_all_reduce",
    "显存墙": "01_why_one_gpu_is_not_enough",
    "显存": "07_communication_budget",
    "符号": "symbols",
    "ring": "03_ring_all_reduce",
    "ring all-reduce": "03_ring_all_reduce",
    "all-reduce": "03_ring_all_reduce",
    "collectives": "02_six_collectives",
    "bucket": "04_alpha_beta_model",
    "tensor parallel": "07_communication_budget",
    "data parallelism": "05_data_parallelism",
    "torch.distributed": "06_torch_distributed",
    "deadlock": "06_torch_distributed",
    "glossary": "glossary",
}


# What the script of a new page with this query in its address does, without loading it all again.
SEARCH = """query => {
  history.replaceState(null, '', '?q=' + encodeURIComponent(query));
  document.querySelector('#search-results').replaceChildren();
  Search.performSearch(query);
}"""


@pytest.fixture(scope="module")
def search_page(browser, server, html):
    """The search page, with its index loaded once for all queries."""
    visit = new_window(browser, server, html)
    visit.page.goto(f"{visit.base}search.html?q=ring")
    results(visit.page)
    yield visit.page
    visit.page.context.close()


def results(page):
    """The pages found, best first, once the search has finished."""
    page.wait_for_function("document.querySelector('.search-summary')?.textContent.match(/[0-9]/)")
    return page.eval_on_selector_all(
        "ul.search > li > a", "links => links.map(link => link.pathname.split('/').pop())"
    )


@pytest.mark.parametrize(("query", "expected"), FIRST.items())
def test_right_page_first(search_page, query, expected):
    search_page.evaluate(SEARCH, query)
    assert results(search_page)[:1] == [f"{expected}.html"]


def test_no_such_word(open_book):
    visit = open_book()
    visit.page.goto(f"{visit.base}search.html?q=量子纠缠")
    visit.page.wait_for_function("document.querySelector('.search-summary')?.textContent")
    assert visit.page.query_selector("ul.search > li") is None


def test_search_box_leads_to_the_results(open_book):
    page = open_book().go("book/index.html")
    page.keyboard.press("Control+k")
    page.keyboard.type("死锁")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html*")
    assert results(page)[:1] == ["06_torch_distributed.html"]
