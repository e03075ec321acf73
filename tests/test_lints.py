"""The house rules: each catches its fault in a sample, and the repository keeps them all."""

from __future__ import annotations

import inspect
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tools import notebooks as storing
from tools.lints import book, code, language
from tools.lints.pages import ROOT, SETUP_CELL, code_of, markdown_of, markdown_pages, notebooks
from tools.lints.quantities import quantities

ZH = '<div lang="zh">\n\n{}\n\n</div>'
EN = '<div lang="en">\n\n{}\n\n</div>'


def pair(chinese: str, english: str) -> str:
    return ZH.format(chinese) + "\n" + EN.format(english)


CHINESE = "每块卡传 $2(N-1)/N \\cdot S$ 字节，**铁律**：8 块卡要 4.24 ms，见 [§4](x.ipynb)。"
ENGLISH = "Each sends $2(N-1)/N \\cdot S$ bytes; eight GPUs take 4.24 ms, see [§4](x.ipynb)."
TABLE = "| symbol · 符号 | meaning |\n|---|---|\n| N | ranks · 卡数 |"
FENCED = "```\n# 代码里的 **注释：**这样\n```"
GOOD_PAGE = "\n\n".join(
    [
        "# §3 Ring all-reduce · 环形 all-reduce",
        "### rank",
        "ring · 环",
        pair(CHINESE, ENGLISH),
        TABLE,
        FENCED,
    ]
)

TEXT_RULES = (
    language.unpaired_blocks,
    language.text_without_language,
    language.misplaced_headings,
    language.polite_you,
    language.differing_numbers,
    language.broken_emphasis,
    code.forbidden_words,
)

BAD_TEXTS = [
    (language.unpaired_blocks, EN.format("Only English"), "pairs"),
    (language.unpaired_blocks, EN.format("First") + "\n" + ZH.format("后来"), "zh first"),
    (language.unpaired_blocks, pair("", "Words"), "empty"),
    (language.unpaired_blocks, pair("Words", "Words"), "no Chinese"),
    (language.unpaired_blocks, '<div lang="zh">\n中文\n\n</div>\n' + EN.format("x"), "blank line"),
    (language.unpaired_blocks, '<div lang="zh">\n\n中文\n</div>\n' + EN.format("x"), "blank line"),
    (language.unpaired_blocks, '<div lang="zh">\n\n中文\n', "not closed"),
    (language.unpaired_blocks, '<div lang="fr">\n\nMots\n\n</div>', "neither zh nor en"),
    (
        language.unpaired_blocks,
        ZH.format("中文") + "\n\nBetween\n\n" + EN.format("x"),
        "something stands between",
    ),
    (
        language.unpaired_blocks,
        '<div lang="zh">\n\n中文\n\n' + EN.format("x") + "\n\n</div>",
        "opens inside",
    ),
    (language.unpaired_blocks, '<div lang="zh">中文</div>', "stands alone"),
    (language.text_without_language, "两种读者都看到这句话。", "outside"),
    (language.misplaced_headings, pair("## 标题\n\n中文", "x"), "out of the block"),
    (language.misplaced_headings, "## Only English", "English · 中文"),
    (language.misplaced_headings, "## 中文 · English", "English · 中文"),
    (language.misplaced_headings, "### 中文", "English · 中文"),
    (language.polite_you, "请\u60a8看", "你"),
    (language.differing_numbers, pair("共 8 块卡，1 GiB", "16 GPUs, 1 GiB"), "zh block states 8"),
    (language.differing_numbers, pair("共 8 块卡", "16 GPUs"), "en block states 16"),
    (language.differing_numbers, pair("要 $5.91$ ms", "takes $9.01$ ms"), "5.91"),
    (language.differing_numbers, pair("带宽 450 GB/s", "bandwidth 450 MB/s"), "450 is GB/s in zh"),
    (language.differing_numbers, pair("4 MB，4 ms", "4 MB"), "4 is MB, ms in zh"),
    (language.differing_numbers, pair("80 亿个参数", "8 million parameters"), "8000000000"),
    (language.broken_emphasis, "**铁律：**每个 rank 都要调用。", "star"),
    (language.broken_emphasis, "这是 **铁律：** 每个", "punctuation"),
    (language.broken_emphasis, "不是**“平均的平均”**", "star"),
    (language.broken_emphasis, "不是 **（平均）** 的", "punctuation"),
    (language.broken_emphasis, "不是 **（平均** 的", "punctuation"),
    (language.broken_emphasis, "N * S 字节", "star"),
    (code.forbidden_words, "Run pip install " + "commlab first.", "somebody else"),
    (code.forbidden_words, "!pip install -q " + "commlab", "somebody else"),
    *(
        (code.forbidden_words, f"open('/{folder}/x.log')", "one machine")
        for folder in ("home", "root", "tmp", "work", "Users")
    ),
]


@pytest.mark.parametrize("rule", TEXT_RULES, ids=lambda rule: rule.__name__)
def test_text_rules_accept_a_good_page(rule):
    assert rule(GOOD_PAGE) == []


@pytest.mark.parametrize(("rule", "text", "word"), BAD_TEXTS)
def test_text_rules_name_the_fault(rule, text, word):
    complaints = rule(text)
    assert complaints
    assert any(word in complaint for complaint in complaints)


@pytest.mark.parametrize(
    ("chinese", "english"),
    [
        ("8 块卡", "eight GPUs"),
        ("两个阶段", "2 phases"),
        ("80 亿个参数", "8B parameters"),
        ("1.3 万亿", "1.3 trillion"),
        ("rank 3 数千", "rank 3 thousands"),
        ("1,024 个 rank", "1024 ranks"),
        ("16 字节", "16 bytes"),
        ("5 微秒", "5 µs"),
        ("$42.9\\,\\text{ms}$", "42.9 ms"),
        ("1. 先\n2. 后", "First, then."),
        ("H100 有 4 条", "four of them on an H100"),
        ("0.50 倍", "0.5 times"),
        ("约 5e-6 秒", "about 0.000005 s"),
        ("见 [这里](page3.md#7)", "see [here](page4.md)"),
    ],
)
def test_numbers_compare_by_value(chinese, english):
    assert language.differing_numbers(pair(chinese, english)) == []


def test_numbers_inside_a_word_or_a_reference_do_not_count():
    assert quantities("H100, FP32, §3.2, all_reduce_2, [^1], v2.13.0") == []


def test_bold_next_to_chinese_letters_is_fine():
    assert (
        language.broken_emphasis("这是**铁律**：每个 rank 都要调用 `**kwargs` 和 $a*b*c$。") == []
    )


WRONG_IMPORTS = [
    ("commlab/cost.py", "import torch", "torch"),
    ("commlab/cost.py", "def f():\n    from matplotlib.figure import Figure", "matplotlib"),
    ("commlab/cost.py", "from commlab import figures", "commlab.figures"),
    ("commlab/cost.py", "from .figures import style", "commlab.figures"),
    ("commlab/algorithms/ring.py", "from ..explore import explore", "commlab.explore"),
    ("commlab/algorithms/ring.py", "from .. import real", "commlab.real"),
    ("commlab/figures/cost.py", "import torch.distributed", "torch"),
    ("commlab/explore/live.py", "from commlab.real import launch", "commlab.real"),
    ("commlab/real/workers.py", "from commlab.figures import style", "commlab.figures"),
    ("commlab/real/workers.py", "from matplotlib.figure import Figure", "matplotlib"),
    ("commlab/cli/bench.py", "def f():\n    import torch", "torch"),
    ("commlab/cost.py", "from commlab import cli", "commlab.cli"),
]


@pytest.mark.parametrize(("path", "source", "module"), WRONG_IMPORTS)
def test_imports_against_the_direction_are_named(path, source, module):
    (complaint,) = code.wrong_imports(path, source)
    assert complaint.startswith(path)
    assert f"must not import {module}" in complaint


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "commlab/cost.py",
            "import numpy as np\nfrom commlab.units import GIB\nfrom . import units",
        ),
        (
            "commlab/figures/cost.py",
            "from matplotlib.figure import Figure\nfrom commlab import cost",
        ),
        ("commlab/real/workers.py", "import torch\nfrom commlab import schedule"),
        ("commlab/cli/bench.py", "def f():\n    from commlab.real import doctor"),
        ("commlab/explore/live.py", "import ipywidgets\nfrom commlab.figures import style"),
    ],
)
def test_imports_along_the_direction_are_fine(path, source):
    assert code.wrong_imports(path, source) == []


CODE_RULES = (code.widget_misuse, code.trailing_semicolon, code.not_plain_python)


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (code.widget_misuse, "import matplotlib.pyplot as plt"),
        (code.widget_misuse, "from matplotlib import pyplot"),
        (code.widget_misuse, "from ipywidgets import interact"),
        (code.widget_misuse, "from ipywidgets import interactive"),
        (code.widget_misuse, "from ipywidgets import interactive_output"),
        (code.widget_misuse, "import ipywidgets as w\nout = w.Output()"),
        (code.trailing_semicolon, "x = 1\nax.plot(x);  # quiet"),
        (code.not_plain_python, "%timeit f()"),
        (code.not_plain_python, "!nvidia-smi"),
    ],
)
def test_code_rules_name_the_fault(rule, source):
    assert rule(source)


@pytest.mark.parametrize("rule", CODE_RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize(
    "source",
    [
        "",
        "x = 1; y = 2\nprint(f'{x};')",
        "import ipywidgets as w\nw.Image()",
        "class Output: ...\nOutput()",
    ],
)
def test_code_rules_accept_good_cells(rule, source):
    assert rule(source) == []


def sample_notebook(**metadata):
    cells = [
        new_markdown_cell("# X · 某", id="title"),
        new_code_cell(SETUP_CELL, id="setup"),
        new_code_cell("print(1)", id="one", outputs=[new_output("stream", text="1\n")]),
    ]
    notebook = new_notebook(cells=cells)
    notebook.metadata = nbformat.from_dict({**storing.NOTEBOOK_METADATA, **metadata})
    return notebook


NOTEBOOK_RULES = (
    book.wrong_kernelspec,
    book.widgets_without_state,
    book.wrong_setup_cell,
    book.memory_addresses,
)


@pytest.mark.parametrize("rule", NOTEBOOK_RULES, ids=lambda rule: rule.__name__)
def test_notebook_rules_accept_a_good_notebook(rule):
    assert rule(sample_notebook()) == []


def test_notebook_rules_name_the_fault():
    assert book.wrong_kernelspec(sample_notebook(kernelspec={"name": "conda-env-me"}))
    assert book.wrong_kernelspec(new_notebook())
    assert book.widgets_without_state(sample_notebook(widgets={}))
    assert book.widgets_without_state(
        sample_notebook(widgets={"application/vnd.jupyter.widget-state+json": {}})
    )
    other = sample_notebook()
    other.cells[1].source += "\nimport math"
    assert book.wrong_setup_cell(other)
    assert book.wrong_setup_cell(new_notebook())
    shown = sample_notebook()
    address = "<object at 0x7f00deadbeef>"
    for output in (
        new_output("stream", text=address),
        new_output("display_data", {"text/plain": address}),
        new_output("display_data", {"text/html": address}),
    ):
        shown.cells[2].outputs = [output]
        assert book.memory_addresses(shown)


def test_links_lead_to_files(tmp_path):
    (tmp_path / "there.md").write_text("x")
    good = (
        "[a](there.md#part) [b](https://x.org/y) [c](#here) `[d](gone.md)`\n```\n[e](gone.md)\n```"
    )
    assert book.dead_links(tmp_path, good) == []
    assert book.dead_links(tmp_path, "[a](gone.md)") == ["the link to gone.md leads nowhere"]
    assert book.dead_links(tmp_path, '<img src="gone.png">')


def test_toc_and_files_agree(tmp_path):
    pages = [tmp_path / "book" / "index.md", tmp_path / "notebooks" / "01.ipynb"]
    toc = "format: jb-book\nroot: book/index\nparts:\n- chapters:\n  - file: notebooks/01.ipynb\n"
    assert book.toc_and_files(toc, tmp_path, pages) == []
    assert book.toc_and_files(toc, tmp_path, pages[:1]) == [
        "_toc.yml names notebooks/01, which is no page"
    ]
    assert book.toc_and_files("root: book/index", tmp_path, pages) == [
        "_toc.yml lacks notebooks/01"
    ]
    twice = toc + "  - file: book/index.md\n"
    assert book.toc_and_files(twice, tmp_path, pages) == ["_toc.yml names a page twice"]


# ---------------------------------------------------------------------------------------
# How notebooks are stored


def stored(tmp_path: Path, notebook) -> Path:
    path = tmp_path / "sample.ipynb"
    path.write_text(storing.canonical_text(notebook), encoding="utf-8")
    return path


def test_normal_form_is_a_fixed_point(tmp_path):
    path = stored(tmp_path, sample_notebook())
    assert storing.complaints(path) == []
    again = storing.canonical_text(nbformat.read(path, as_version=4))
    assert again == path.read_text(encoding="utf-8")


def test_normal_form_drops_what_changes_from_run_to_run():
    plain = sample_notebook()
    noisy = sample_notebook(widgets={}, vscode={"x": 1}, language_info={"version": "3.12.1"})
    for number, cell in enumerate(noisy.cells):
        cell.metadata["execution"] = {"iopub.execute_input": f"2026-01-0{number + 1}"}
        if cell.cell_type == "code":
            cell.execution_count = 40 + number
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "f00"}, "text/plain": "Box()"}
    noisy.cells[2].outputs.append(new_output("display_data", view))
    plain.cells[2].outputs.append(new_output("display_data", {"text/plain": "Box()"}))
    assert storing.canonical_text(noisy) == storing.canonical_text(plain)


def test_errors_and_stderr_are_not_stored(tmp_path):
    for output in (
        new_output("error", ename="ValueError", evalue="x", traceback=[]),
        new_output("stream", name="stderr", text="warning"),
    ):
        notebook = sample_notebook()
        notebook.cells[2].outputs = [output]
        assert storing.complaints(stored(tmp_path, notebook))


def test_other_forms_are_refused(tmp_path):
    path = stored(tmp_path, sample_notebook())
    text = path.read_text(encoding="utf-8")
    for other in (text + "\n", text.replace("\n", "\r\n")):
        path.write_text(other, encoding="utf-8", newline="")
        (complaint,) = storing.complaints(path)
        assert "not in the normal form" in complaint


NORMAL = storing.canonical_text(sample_notebook()).encode()
DAMAGED = {
    "empty": b"",
    "cut short": NORMAL[:200],
    "conflict": b"<<<<<<< HEAD\n" + NORMAL,
    "BOM": b"\xef\xbb\xbf" + NORMAL,
    "latin-1": NORMAL.replace("某".encode(), b"\xe9"),
    "no notebook": b"[]",
    "no outputs": NORMAL.replace(b'"outputs"', b'"output"'),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_notebook_is_named_and_the_others_are_checked(
    tmp_path, content, monkeypatch, capsys
):
    (tmp_path / "a.ipynb").write_bytes(content)
    (tmp_path / "b.ipynb").write_bytes(NORMAL + b"\n")
    monkeypatch.setattr("sys.argv", ["notebooks", "--check", str(tmp_path)])
    assert storing.main() == 1
    first, second = capsys.readouterr().out.splitlines()
    assert "a.ipynb: is not a readable notebook" in first
    assert "b.ipynb: not in the normal form" in second


def test_cells_without_ids_are_given_some(tmp_path):
    notebook = sample_notebook()
    notebook.nbformat_minor = 4
    for cell in notebook.cells:
        del cell["id"]
    path = tmp_path / "from_colab.ipynb"
    nbformat.write(notebook, path)
    (complaint,) = storing.complaints(path)
    assert "not in the normal form" in complaint
    path.write_text(storing.canonical_text(storing.read(path)), encoding="utf-8")
    assert storing.complaints(path) == []


def test_measurements_are_kept_while_only_numbers_differ():
    def measured(text):
        notebook = sample_notebook()
        notebook.cells[2].metadata["tags"] = [storing.VOLATILE_TAG]
        notebook.cells[2].outputs = [new_output("stream", text=text)]
        return notebook

    def after(old, new):
        executed = measured(new)
        storing.keep_measurements(executed, measured(old))
        return executed.cells[2].outputs[0].text

    assert after("27.1 ms at 4 ranks", "131.22 ms at 4 ranks") == "27.1 ms at 4 ranks"
    assert after("987 µs to 1 ms", "0.99 ms to 998 µs") == "987 µs to 1 ms"
    assert after("27.1 ms at 4 ranks", "27.1 ms a message") == "27.1 ms a message"
    executed, old = measured("1 ms"), measured("2 ms")
    old.cells[2].outputs[0].name = "stderr"
    storing.keep_measurements(executed, old)
    assert executed.cells[2].outputs[0].text == "1 ms", "another stream"
    fresh = sample_notebook()
    storing.keep_measurements(fresh, sample_notebook())
    assert fresh.cells[2].outputs[0].text == "1\n"


# ---------------------------------------------------------------------------------------
# The repository

PAGES = markdown_pages() + notebooks()


def by_name(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("rule", TEXT_RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("path", PAGES, ids=by_name)
def test_pages_keep_the_text_rules(path, rule):
    complaints = [
        f"{text.where}: {complaint}"
        for text in markdown_of(path)
        for complaint in rule(text.source)
    ]
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize("path", PAGES, ids=by_name)
def test_links_between_pages_lead_somewhere(path):
    complaints = [
        f"{text.where}: {complaint}"
        for text in markdown_of(path)
        for complaint in book.dead_links(path.parent, text.source)
    ]
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize("path", notebooks(), ids=by_name)
def test_cells_keep_the_code_rules(path):
    complaints = [
        f"{cell.where}: {complaint}"
        for cell in code_of(path)
        for rule in (*CODE_RULES, code.forbidden_words)
        for complaint in rule(cell.source)
    ]
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize("path", notebooks(), ids=by_name)
def test_notebooks_keep_the_notebook_rules(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    complaints = [complaint for rule in NOTEBOOK_RULES for complaint in rule(notebook)]
    complaints += storing.complaints(path)
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize("path", notebooks(), ids=by_name)
def test_outputs_show_no_path_of_one_machine(path):
    assert not code.forbidden_words(path.read_text(encoding="utf-8"))


def test_every_page_is_in_the_table_of_contents():
    toc = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    assert book.toc_and_files(toc, ROOT, PAGES) == []


MODULES = sorted((ROOT / "commlab").rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_keep_the_code_rules(path):
    source = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT).as_posix()
    complaints = code.wrong_imports(name, source)
    complaints += code.widget_misuse(source)
    complaints += code.forbidden_words(source)
    assert not complaints, "\n".join(complaints)


def test_documents_name_no_machine_and_no_other_package():
    for name in ("README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml", ".ci/run"):
        assert code.forbidden_words((ROOT / name).read_text(encoding="utf-8")) == [], name


def test_every_text_rule_has_a_bad_sample():
    """A rule that was never seen to fail proves nothing."""
    tested = {rule for rule, _, _ in BAD_TEXTS}
    defined = {
        function
        for _, function in inspect.getmembers(language, inspect.isfunction)
        if function.__module__ == language.__name__
        and list(inspect.signature(function).parameters) == ["text"]
        and function.__annotations__["return"] == "list[str]"
        and not function.__name__.startswith("_")
    }
    assert defined <= tested
    assert defined <= set(TEXT_RULES)
