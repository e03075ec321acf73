"""Reading list, experiments and errata: sources that exist, outputs and numbers that are right."""

from __future__ import annotations

import contextlib
import io
import re
from collections import Counter
from functools import partial

import pytest
from pybtex.database import Entry, parse_file

import commlab
from commlab.budget import data_parallel, expert_parallel, sharded_volume, training_state
from commlab.hardware import ALPHA, INFINIBAND, NVLINK
from commlab.models import LLAMA3_8B
from commlab.overlap import ddp_buckets
from commlab.units import GIB, KIB, MIB, format_bytes, format_seconds
from tools.lints.language import read_blocks
from tools.lints.pages import ROOT, markdown_pages, notebooks

BOOK = ROOT / "book"
READING, NEXT, ERRATA = (
    (BOOK / name).read_text(encoding="utf-8") for name in ("reading.md", "next.md", "errata.md")
)
SOURCES: dict[str, Entry] = dict(parse_file(str(BOOK / "references.bib")).entries)

CITED = re.compile(r"\{cite(?::\w+)?\}`([^`]+)`")
ANNOTATED = re.compile(r"^- \{cite:t\}`(\w+)` (★+) \S", re.MULTILINE)
NEEDED = {
    "article": {"author", "title", "journal", "volume", "pages", "year", "doi or url"},
    "inproceedings": {"author", "title", "booktitle", "year", "doi or url"},
    "book": {"author", "title", "publisher", "year", "doi or url"},
    "misc": {"author", "title", "doi or url"},
}


def cited_keys(text: str) -> list[str]:
    return [key.strip() for keys in CITED.findall(text) for key in keys.split(",")]


# ---------------------------------------------------------------------------------------
# Sources


@pytest.mark.parametrize("key", SOURCES)
def test_a_source_says_where_it_is(key):
    entry = SOURCES[key]
    given = set(entry.fields) | {name.lower() for name in entry.persons}
    if given & {"doi", "url"}:
        given.add("doi or url")
    assert not NEEDED[entry.type] - given
    fields = entry.fields
    assert re.fullmatch(r"10\.\d{4,}/\S+", fields.get("doi", "10.1000/none"))
    assert fields.get("url", "https://").startswith("https://")
    if "eprint" in fields:
        assert fields["archiveprefix"] == "arXiv"
        year, month = re.fullmatch(r"(\d\d)(\d\d)\.\d{4,5}", fields["eprint"]).groups()
        assert 7 <= int(year) <= int(fields["year"]) - 2000, "printed before it was written"
        assert 1 <= int(month) <= 12
        if "arxiv.org" in fields.get("url", ""):
            assert fields["url"] == f"https://arxiv.org/abs/{fields['eprint']}"
    written = re.search(r"\d{4}$", key)
    if written:
        assert fields["year"] == written[0]


@pytest.mark.parametrize("field", ["title", "doi", "url", "eprint"])
def test_no_source_stands_twice(field):
    values = [entry.fields[field] for entry in SOURCES.values() if field in entry.fields]
    plain = Counter(re.sub(r"\W", "", value).lower() for value in values)
    assert [value for value, times in plain.items() if times > 1] == []


def test_every_citation_has_its_source():
    for path in [*markdown_pages(), *notebooks()]:
        unknown = set(cited_keys(path.read_text(encoding="utf-8"))) - set(SOURCES)
        assert not unknown, f"{path.name} cites {unknown}, which references.bib lacks"


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_the_reading_list_has_every_source_once(lang):
    items = [
        item
        for block in read_blocks(READING)[0]
        if block.lang == lang
        for item in ANNOTATED.findall(block.text)
    ]
    assert Counter(key for key, _ in items) == Counter(dict.fromkeys(SOURCES, 1))
    assert {stars for _, stars in items} == {"★", "★★", "★★★"}


@pytest.mark.parametrize("page", [READING, NEXT, ERRATA], ids=["reading", "next", "errata"])
def test_both_languages_cite_the_same(page):
    blocks = read_blocks(page)[0]
    for zh, en in zip(blocks[::2], blocks[1::2], strict=True):
        assert sorted(cited_keys(zh.text)) == sorted(cited_keys(en.text)), f"line {zh.line}"
        assert ANNOTATED.findall(zh.text) == ANNOTATED.findall(en.text), f"line {zh.line}"


# ---------------------------------------------------------------------------------------
# Experiments

CELLS = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", NEXT, re.MULTILINE | re.DOTALL)


def test_every_cell_has_an_output():
    assert len(CELLS) == NEXT.count("```python") == NEXT.count("```text") > 10


@pytest.mark.parametrize(("source", "shown"), CELLS)
def test_an_experiment_prints_what_the_page_shows(source, shown):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(source, {})  # each stands alone: no names of the one before
    assert printed.getvalue() == shown


# ---------------------------------------------------------------------------------------
# Errata


def milliseconds(seconds: float, digits: int) -> str:
    return f"{1e3 * seconds:.{digits}f} ms"


def numbers_of_the_errata() -> dict[int, list[str]]:
    """Compute what the entries state, by the number of the entry."""
    ring, tree, recursive, halving = (
        partial(form, n_ranks=8, alpha=ALPHA, beta=NVLINK)
        for form in (
            commlab.alpha_beta_ring_allreduce,
            commlab.alpha_beta_tree_allreduce,
            commlab.alpha_beta_recursive_doubling_allreduce,
            commlab.alpha_beta_halving_doubling_allreduce,
        )
    )
    bucketed = partial(commlab.bucketed_allreduce_time, GIB, n_ranks=8, alpha=ALPHA, beta=NVLINK)
    nodes = (GIB, 8, 8, ALPHA, NVLINK, INFINIBAND)
    one_nic, rails = (commlab.flat_ring_over_nodes_time(*nodes, rails=count) for count in (1, 8))
    levels = commlab.hierarchical_allreduce_time(*nodes)
    phi = LLAMA3_8B.parameters
    moe = partial(expert_parallel, 8192, LLAMA3_8B.hidden, LLAMA3_8B.layers, 8)
    skew = [
        moe(hottest_share=0.25, across_nodes=across).seconds_per_layer
        / moe(across_nodes=across).seconds_per_layer
        for across in (False, True)
    ]
    assert all(0.98 < times / 2 < 1 for times in skew)
    compute_4k = 6 * phi * 4096 / (0.40 * 989e12)
    chunked = commlab.ledger(commlab.REGISTRY["all_reduce", "ring"].build(16)).max_sent
    twenty = [4 * MIB] * 20
    by_ddp = ddp_buckets([4 * MIB] * 256)
    passes = [moe(across_nodes=True, passes=n).seconds for n in (2, 3)]
    states = [training_state(phi, 8, stage).total for stage in (3, 2)]
    return {
        1: [milliseconds(seconds, 3) for seconds in passes] + [f"{passes[1] / passes[0]:g}"],
        2: [f"{bucketed(size) / bucketed(GIB):.2f}" for size in (25 * MIB, 25e6)]
        + [f"{len(by_ddp)} ", f"{sum(map(ring, by_ddp)) / ring(GIB):.2f}"],
        3: [format_bytes(ddp_buckets(twenty, first_iteration=True)[0])]
        + [str(size // MIB) for size in ddp_buckets(twenty)],
        4: [format_bytes(n * 4 * GIB) for n in (2 * 15, 2, float(chunked))],
        5: [format_bytes(nbytes) for nbytes in (*states, states[1] - states[0])],
        6: [format_bytes(commlab.ring_tree_crossover(8, ALPHA, NVLINK))]
        + [format_seconds(form(size)) for form in (tree, ring) for size in (KIB, GIB)],
        7: [milliseconds(seconds, 2) for seconds in (one_nic, levels, rails)]
        + [f"{ratio:.2f}" for ratio in (one_nic / levels, levels / rails)],
        8: [format_seconds(form(16 * KIB)) for form in (recursive, tree)]
        + [format_seconds(form(GIB)) for form in (halving, ring)],
        9: [f"{data_parallel(phi, n).seconds / compute_4k:.3%}" for n in (8, 64, 1024)],
        10: [
            milliseconds(moe(algorithm=how).seconds_per_layer, 3) for how in ("direct", "pairwise")
        ],
        11: [f"{skew[0]:.2f}", f"{moe(hottest_share=0.25).byte_skew:.2f}"],
        12: [format_bytes(sharded_volume(phi, 64).total)],
    }


def entries(lang: str) -> dict[int, str]:
    """The text of each entry in one language, without comments, by its number."""
    parts = re.split(r"^### (\d+)\. .*$", ERRATA, flags=re.MULTILINE)[1:]
    found = {}
    for number, text in zip(parts[::2], parts[1::2], strict=True):
        block = next(block for block in read_blocks(text)[0] if block.lang == lang)
        found[int(number)] = re.sub(r"<!--.*?-->", "", block.text)
    return found


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_the_errata_state_what_is_computed(lang):
    stated = entries(lang)
    for number, computed in numbers_of_the_errata().items():
        missing = [text for text in computed if text not in stated[number]]
        assert not missing, f"entry {number} lacks {missing}"


@pytest.mark.parametrize(
    ("lang", "parts"),
    [
        ("zh", ("**讲义说**：", "**其实**：", "**差多少**：", "**看这里**：")),
        ("en", ("**The notes say**: ", "**In fact** ", "**The difference**: ", "**Computed in** ")),
    ],
)
def test_every_entry_of_the_errata_has_its_four_parts(lang, parts):
    for number, text in entries(lang).items():
        paragraphs = text.split("\n\n")
        assert len(paragraphs) == 4, number
        for paragraph, part in zip(paragraphs, parts, strict=True):
            assert paragraph.startswith(part), f"entry {number}: {paragraph[:30]}"
        assert ".ipynb#" in paragraphs[3], f"entry {number} links to no section"
