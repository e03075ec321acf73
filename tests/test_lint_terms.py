"""Terms: linked by their names, at their first use, and in Chinese with their English names."""

from __future__ import annotations

import nbformat
import pytest
from nbformat.v4 import new_markdown_cell, new_notebook

from tools.lints.pages import markdown_of, markdown_pages, notebooks
from tools.lints.terms import (
    GLOSSARY,
    glossary_terms,
    misnamed_terms,
    read_terms,
    unlinked_terms,
    untranslated_terms,
)

ZH = '<div lang="zh">\n\n{}\n\n</div>\n'
EN = '<div lang="en">\n\n{}\n\n</div>\n'
LINK = "[{}](../book/glossary.md#{})"


def page(folder, *cells):
    path = folder / "page.ipynb"
    nbformat.write(new_notebook(cells=[new_markdown_cell(cell) for cell in cells]), path)
    return path


def test_entries_of_the_glossary_are_read():
    glossary = (
        "## Training · 训练\n\n### activation recomputation\n\n"
        '<div lang="zh">\n\n**激活重算**（activation recomputation，也叫 activation '
        "checkpointing）：少存一些。\n"
    )
    (term,) = read_terms(glossary).values()
    assert (term.anchor, term.section) == ("activation-recomputation", "Training")
    assert term.chinese == "激活重算"
    assert "activation checkpointing" in term.names
    headings = GLOSSARY.read_text(encoding="utf-8").count("\n### ")
    assert len(glossary_terms()) == headings, "an entry is not of the form **中文**（English）"


@pytest.mark.parametrize(
    ("text", "anchor"),
    [
        ("gradient buckets", "gradient-bucket"),
        ("**Gradient bucket**", "gradient-bucket"),
        ("buckets", "gradient-bucket"),
        ("桶", "gradient-bucket"),
        ("总线带宽", "bus-bandwidth"),
        ("busbw", "bus-bandwidth"),
        ("root's", "root"),
        ("环形", "ring-all-reduce"),
    ],
)
def test_a_link_may_say_any_name_or_a_part_of_it(text, anchor):
    assert misnamed_terms(LINK.format(text, anchor)) == []


@pytest.mark.parametrize(
    ("text", "anchor", "word"),
    [
        ("flat network", "alpha-beta-model", "α-β 模型"),
        ("算法带宽", "bus-bandwidth", "总线带宽"),
        ("bucket", "gradient-bukket", "no entry #gradient-bukket"),
    ],
)
def test_a_link_with_another_name_is_refused(text, anchor, word):
    (complaint,) = misnamed_terms("text " + LINK.format(text, anchor))
    assert word in complaint


def test_a_term_is_linked_where_it_is_used_first(tmp_path):
    first = "A gradient bucket is sent. " + LINK.format("Gradient buckets", "gradient-bucket")
    later = "A gradient bucket is sent.\n\n" + LINK.format("gradient bucket", "gradient-bucket")
    assert unlinked_terms(page(tmp_path, "# Goals", EN.format(first))) == []
    (complaint,) = unlinked_terms(page(tmp_path, "# Goals", EN.format(later)))
    assert "after its first use, in 'A gradient bucket is sent.'" in complaint
    goals = EN.format("Explain gradient buckets.")
    assert unlinked_terms(page(tmp_path, goals, EN.format(first))) == [], "goals are no use"
    in_code = EN.format("`gradient bucket` and\n\n```\ngradient bucket\n```\n\n" + first)
    assert unlinked_terms(page(tmp_path, "# Goals", in_code)) == [], "code is no use"


def test_a_term_may_pass_twice_without_a_link_but_not_more_often(tmp_path):
    twice, often = "梯度桶，梯度桶。", "梯度桶，梯度桶。\n\n- 梯度桶"
    assert unlinked_terms(page(tmp_path, "# Goals", ZH.format(twice))) == []
    (complaint,) = unlinked_terms(page(tmp_path, "# Goals", ZH.format(often)))
    assert "uses '梯度桶' 3 times" in complaint
    longer = "The hierarchical all-reduce is an all-reduce, all-reduce, all-reduce."
    assert unlinked_terms(page(tmp_path, "# Goals", EN.format(longer))) == []


def test_the_english_name_stands_at_the_first_link(tmp_path):
    link = LINK.format("梯度桶", "gradient-bucket")
    good = ZH.format(f"{link}（gradient bucket）。\n\n{link}。")
    assert untranslated_terms(page(tmp_path, "# Goals", good)) == []
    bad = ZH.format(f"{link}。\n\n{link}（gradient bucket）。")
    (complaint,) = untranslated_terms(page(tmp_path, "# Goals", bad))
    assert "梯度桶（gradient bucket）" in complaint
    named = ZH.format(LINK.format("DDP", "ddp"))
    assert untranslated_terms(page(tmp_path, "# Goals", named)) == []


PAGES = [path for path in markdown_pages() if path != GLOSSARY] + notebooks()
# Their entries link to the sections that explain the terms.
LISTS_OF_LINKS = ("errata.md", "reading.md")


@pytest.mark.parametrize("path", [*PAGES, GLOSSARY], ids=lambda path: path.name)
def test_links_to_the_glossary_say_its_names(path):
    complaints = [fault for text in markdown_of(path) for fault in misnamed_terms(text.source)]
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_link_terms_where_they_use_them_first(path):
    complaints = [] if path.name in LISTS_OF_LINKS else unlinked_terms(path)
    complaints += untranslated_terms(path)
    assert not complaints, "\n".join(complaints)
