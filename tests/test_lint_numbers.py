"""Numbers in prose: what counts as computed or cited, and each kind of wrong number is caught."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tools.lints import evidence, language
from tools.lints.numbers import differing_captions, unsupported_numbers
from tools.lints.pages import markdown_pages, notebooks
from tools.lints.quantities import quantities

PAIR = '<div lang="zh">\n\n{}\n\n</div>\n<div lang="en">\n\n{}\n\n</div>'
CODE = """explore(
    draw,
    title=("Buckets of 25 MiB", "25 MiB 的桶"),
    alt=("One message of 64 MiB takes 12.0 ms.", "一条 64 MiB 的消息要 12.0 ms。"),
    nbytes=Knob([4**k * KIB for k in range(2, 5)], value=64 * MIB),
    backward=12e-3,
    shown=total / KIB,
    mfu=0.4,
    peak=989e12,
    size=parse_size("3 GiB"),
)"""
PRINTED = """message 11.96 ms, rate 5.91 GB/s of 450 GB/s, 1,234,567 bytes
exposed [ms]: 4.25
     second line 7.05
64 MiB in buckets of 25 MiB: 1.66 times one bucket, 8192 tokens, 12.53%
"""
TABLE = """| times in s · 秒 | T [µs] | MiB per step | share |
| :-- | --: | --: | --: |
| first | 85.92 | 256 | 0.5 |
| second | 14.3 | 112 | 4.01 |"""
GOOD = (
    "The message takes 12.0 ms, or 11.96 ms: 5.9 GB/s of 450 GB/s, 450 GB/s.",
    "That is 0.012 s, 11,960 µs, 1.23 MB or 1,234,567 bytes.",
    "After 4.25 ms and 7.05 ms come 85.9 µs, 4.01 s and 112 MiB.",
    "Inputs: 64 MiB, 3 GiB, 1 KiB = 1024 bytes in 16 KiB, 12 ms, 40%, 989 TFLOP/s.",
    "1.66 times as long, 1.7 倍, 12.53%, 8K tokens, 8192 个 token.",
    "见 $11.96\\,\\text{ms}$，来自 [§3](other.ipynb#there): 33.3 ms.",
)
EXCUSED = "<!-- number 1 KiB: defined here -->\n<!-- number 1024 bytes: defined here -->\n"


def stored(folder: Path, text: str, code: str = CODE, name: str = "page.ipynb") -> Path:
    """Write a notebook of one Markdown and one code cell, beside a page that it may cite."""
    outputs = [
        new_output("stream", text=PRINTED),
        new_output("execute_result", {"text/markdown": TABLE, "text/plain": "a table"}),
        new_output("display_data", {"image/png": "", "text/plain": "first\nsecond = 777 ms"}),
        new_output("execute_result", {"text/markdown": "888 ms", "text/plain": "Source of f"}),
    ]
    cells = [new_markdown_cell(text), new_code_cell(code, outputs=outputs)]
    nbformat.write(new_notebook(cells=cells), folder / name)
    cited = new_code_cell("", outputs=[new_output("stream", text="33.3 ms")])
    nbformat.write(new_notebook(cells=[cited]), folder / "other.ipynb")
    evidence.evidence_of.cache_clear()
    return folder / name


@pytest.mark.parametrize("sentence", GOOD)
def test_what_is_computed_or_cited_may_be_stated(tmp_path, sentence):
    excuses = EXCUSED if "1 KiB" in sentence else ""
    page = stored(tmp_path, excuses + PAIR.format(sentence, sentence))
    assert unsupported_numbers(page) == []


WRONG = {
    "changed digit": ("takes 11.96 ms", "takes 11.86 ms"),
    "one digit too many": ("takes 11.96 ms", "takes 11.962 ms"),
    "rounded too far": ("takes 11.96 ms", "takes 11 ms"),
    "rounded wrongly": ("takes 11.96 ms", "takes 11.9 ms"),
    "MiB to MB": ("is 64 MiB", "is 64 MB"),
    "MB to MiB": ("is 1.23 MB", "is 1.23 MiB"),
    "input of another kind": ("is 64 MiB", "is 64 ms"),
    "input with a changed digit": ("within 12 ms", "within 13 ms"),
    "ms to s": ("takes 11.96 ms", "takes 11.96 s"),
    "ms to µs": ("takes 11.96 毫秒", "takes 11.96 微秒"),
    "GB/s to MB/s": ("at 450 GB/s", "at 450 MB/s"),
    "percent": ("is 12.53%", "is 12.63%"),
    "times": ("1.66 times", "1.67 times"),
    "倍": ("1.66 倍", "1.67 倍"),
    "tokens": ("8192 tokens", "8193 tokens"),
    "first of an enumeration": ("25 和 64 MiB", "24 和 64 MiB"),
    "in a heading": ("## 64 MiB · 块", "## 65 MiB · 块"),
    "in a table": ("| a | b |\n|--|--|\n| x | 64 MiB |", "| a | b |\n|--|--|\n| x | 65 MiB |"),
    "in a list": ("- 64 MiB\n- 25 MiB", "- 64 MiB\n- 26 MiB"),
    "in a picture's description": ("![64 MiB](x.png)", "![65 MiB](x.png)"),
    "in LaTeX": ("$64\\,\\text{MiB}$", "$65\\,\\text{MiB}$"),
    "in an answer": (
        "<details><summary>A</summary>\n\n64 MiB\n\n</details>",
        "<details><summary>A</summary>\n\n65 MiB\n\n</details>",
    ),
    "cited in another paragraph": (
        "[§3](other.ipynb) has 33.3 ms.",
        "[§3](other.ipynb) has it.\n\nIt is 33.3 ms.",
    ),
    "cited where it does not stand": (
        "[§3](other.ipynb): 33.3 ms.",
        "[§3](other.ipynb): 33.4 ms.",
    ),
    "only in drawn data": ("64 MiB", "777 ms"),
    "only in source code": ("64 MiB", "888 ms"),
}


@pytest.mark.parametrize(("right", "wrong"), WRONG.values(), ids=WRONG.keys())
def test_each_kind_of_wrong_number_is_caught(tmp_path, right, wrong):
    assert unsupported_numbers(stored(tmp_path, right)) == []
    (complaint,) = unsupported_numbers(stored(tmp_path, wrong))
    assert complaint.startswith("page.ipynb, cell ")
    assert "compute it, link to where it is computed, or correct it" in complaint


@pytest.mark.parametrize(
    ("right", "wrong"), [("25 MiB 的桶", "26 MiB 的桶"), ("要 12.0", "要 11.9")]
)
def test_titles_and_descriptions_of_figures_are_read(tmp_path, right, wrong):
    assert unsupported_numbers(stored(tmp_path, "x")) == []
    assert differing_captions(stored(tmp_path, "x")) == []
    page = stored(tmp_path, "x", CODE.replace(right, wrong))
    (unsupported,) = unsupported_numbers(page)
    assert "26 MiB" in unsupported or "11.9 ms" in unsupported
    only_zh, only_en = differing_captions(page)
    assert "only the zh block states" in only_zh
    assert "only the en block states" in only_en


def test_a_number_in_one_language_only_is_caught():
    text = PAIR.format("要 11.96 ms。", "It takes a while.")
    (complaint,) = language.differing_numbers(text)
    assert "only the zh block states 11.96 ms" in complaint


def test_exceptions_name_a_number_and_a_reason_and_are_needed(tmp_path):
    page = stored(tmp_path, "<!-- number 90 min: a lesson -->\n\nTwo of 90 minutes. 两次 90 分钟。")
    assert unsupported_numbers(page) == []
    for comment, word in (
        ("<!-- number 90 min: -->", "a reason"),
        ("<!-- number many: a lesson -->", "one number"),
        ("<!-- number 90: a lesson -->", "one number"),
        ("<!-- number 64 MiB: not needed -->", "needs no excuse"),
    ):
        complaints = unsupported_numbers(stored(tmp_path, f"{comment}\n\n64 MiB"))
        assert len(complaints) == 1
        assert word in complaints[0]


def test_a_page_without_code_cites_by_block(tmp_path):
    stored(tmp_path, "")
    page = tmp_path / "page.md"
    page.write_text(PAIR.format("33.3 ms\n\n[那里](other.ipynb)", "33.3 ms"), encoding="utf-8")
    (complaint,) = unsupported_numbers(page)
    assert "line 10" in complaint, "the English block has no link of its own"
    page.write_text("```\n33.3 ms\n```\n\n33.3 ms", encoding="utf-8")
    evidence.evidence_of.cache_clear()
    assert unsupported_numbers(page) == []


@given(
    value=st.integers(100, 9999),
    digits=st.integers(0, 2),
    unit=st.sampled_from(["ms", "GB/s", "MiB", "MB", "%", "TFLOP/s"]),
)
def test_a_rounding_is_supported_and_its_neighbours_are_not(value, digits, unit):
    """An output of three decimals, stated with fewer."""
    printed = f"{value}.{value % 1000:03d}"
    found = evidence.collect([f"{printed} {unit}"], [])
    stated = f"{float(printed):.{digits}f}"
    step = 10**-digits
    for shift in (-2, -1, 0, 1, 2):
        (quantity,) = quantities(f"{float(stated) + shift * step:.{digits}f} {unit}")
        tie = abs(abs(float(printed) - float(quantity.value)) - step / 2) < 1e-9
        assert found.supports(quantity) == (shift == 0) or tie


PAGES = markdown_pages() + notebooks()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_state_what_they_compute_or_cite(path):
    complaints = unsupported_numbers(path) + differing_captions(path)
    assert not complaints, "\n".join(complaints)


MOST_EXCEPTIONS = 6


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_exceptions_are_few(path):
    assert path.read_text(encoding="utf-8").count("<!-- number ") <= MOST_EXCEPTIONS
