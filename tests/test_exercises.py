from __future__ import annotations

import re
import subprocess
import sys

import nbformat
import numpy as np
import pytest
from exercise_answers import RIGHT, WRONG, all_at_once, forwards_what_it_lacks, schedule_of

import commlab
from commlab import exercises
from commlab.budget import compute_time, expert_parallel
from commlab.exercises import EXERCISES, check
from commlab.exercises.deadlock import log_and_average, read_source
from commlab.exercises.numeric import Number
from commlab.exercises.quantities import TIMES
from commlab.exercises.verdicts import OPEN, Refused
from commlab.models import LLAMA3_70B
from commlab.units import MIB
from tools.lints.language import HANZI, broken_emphasis
from tools.lints.pages import ROOT

NOTEBOOK = ROOT / "notebooks" / "exercises.ipynb"
QUIET = [name for name, exercise in EXERCISES.items() if not exercise.starts_processes]
PARTS = [(name, part) for name in QUIET for part in EXERCISES[name].judges]


@pytest.fixture(autouse=True)
def nothing_solved(monkeypatch):
    """Progress of this test alone."""
    monkeypatch.setattr(exercises, "_found", {})


def judged(name: str, part: str, answer: object):
    """The verdict on one part."""
    report = check(name, **{part: answer}) if part else check(name, answer)
    return report.parts[part]


def assert_in_both_languages(words):
    assert HANZI.search(words.zh) and words.zh.endswith(("。", "？", "…"))
    # A quotation in code may hold anything.
    assert not HANZI.search(re.sub(r"`[^`]*`", "", words.en)) and words.en.endswith((".", "?"))
    for text in words:
        assert "\n" not in text
        assert broken_emphasis(text) == []


@pytest.mark.parametrize(("name", "part"), PARTS, ids=lambda value: value or "one")
def test_the_reference_is_right_and_wrong_answers_get_their_reason(name, part):
    # The same report stands below the worked solution, whose test reads it again.
    verdict = exercises._report_on_solution(name).parts[part]
    assert (verdict.status, verdict.reason) == ("right", "right")
    assert_in_both_languages(verdict.words)
    assert len(WRONG[name, part]) >= 3
    for answer, reason in WRONG[name, part]:
        verdict = judged(name, part, answer)
        assert (verdict.status, verdict.reason) == ("wrong", reason), verdict.words.en
        assert_in_both_languages(verdict.words)


def test_every_part_has_wrong_answers():
    assert set(WRONG) == set(PARTS)


@pytest.mark.parametrize(("name", "part"), PARTS, ids=lambda value: value or "one")
def test_what_fits_nothing_is_refused_in_words(name, part):
    for answer, status in (
        (None, "open"),
        (..., "open"),
        (True, "wrong"),
        ({}, "wrong"),
        (object(), "wrong"),
        (float("nan"), "wrong"),
        (-1.0, "wrong"),
        ("", "wrong"),
        (lambda *given: ..., "wrong"),
        (lambda *given: None, "wrong"),
        (lambda *given: object(), "wrong"),
        (lambda *given: 1 / 0, "wrong"),
    ):
        verdict = judged(name, part, answer)
        blank_code = verdict.reason == "open" and callable(answer)
        assert verdict.status == status or blank_code, (answer, verdict)
        assert_in_both_languages(verdict.words)
        assert "0x" not in verdict.words.en


def test_a_number_is_taken_in_any_of_its_units():
    for answer in ("7.5 GiB", "7.5GiB", 7.5 * 2**30, "8053063680 B", "8.05 GB", np.float64(8.05e9)):
        assert judged("volume", "ring_bytes", answer).status == "right", answer
    for answer in ("17.9 ms", 0.0179, "17896 µs", "17896 us", np.array(0.0179)):
        assert judged("volume", "ring_seconds", answer).status == "right", answer
    for answer in ("2 倍", "2x", 2.0):
        assert judged("hot_expert", "slowdown", answer).status == "right", answer
    for answer in ("9.4 %", "9.4%", 0.094):
        assert judged("hot_expert", "dropped", answer).status == "right", answer


@pytest.mark.parametrize(
    ("name", "part", "answer"),
    [
        ("volume", "ring_bytes", "8.1 GB"),
        ("volume", "ring_bytes", 8.1e9),
        ("volume", "naive_seconds", "290 ms"),
        ("volume", "naive_seconds", 0.29),
        ("llama_70b", "all_reduce_seconds", "1.2 s"),
        ("fsdp_volume", "kept_bytes", "16 GB"),
    ],
)
def test_two_digits_are_enough(name, part, answer):
    assert judged(name, part, answer).status == "right"


def test_rounding_is_not_taken_for_a_mistake():
    assert judged("llama_70b", "compute_seconds", "36 s").reason == "too_large"
    assert judged("volume", "naive_seconds", "280 ms").reason == "too_small"


def test_a_decimal_comma_is_not_taken_for_thousands():
    assert judged("volume", "ring_bytes", "7,5 GiB").reason == "type"
    assert judged("volume", "ring_bytes", "8,053,063,680 B").status == "right"


def test_no_constant_bucket_passes_all_cases():
    for octave in range(0, 13):
        size = 2**octave * MIB // 4
        assert judged("bucket_size", "", lambda *given, b=size: b).status == "wrong", size


def test_a_wrong_number_does_not_give_the_right_one_away():
    for (name, part), answers in WRONG.items():
        judge = EXERCISES[name].judges[part]
        # A bare number such as 2 stands in many a sentence.
        if not isinstance(judge, Number) or judge.unit is TIMES:
            continue
        shown = judge.unit.show(judge.expected)
        assert shown in judged(name, part, judge.expected).words.en
        for answer, _ in answers:
            for text in judged(name, part, answer).words:
                assert not re.search(rf"(?<![\d.]){re.escape(shown)}", text), (name, part, text)


def test_a_wrong_schedule_names_step_rank_and_chunk():
    def loses_one(n_ranks):
        good = EXERCISES["short_all_reduce"].references[""](n_ranks)
        first = good.steps[0]
        steps = [
            commlab.Step(first.src[1:], first.dst[1:], first.chunk[1:], first.op[1:]),
            *good.steps[1:],
        ]
        return commlab.Schedule("all_reduce", n_ranks, good.shares, good.starts, good.ends, steps)

    with pytest.raises(commlab.ScheduleError) as raised:
        commlab.verify(loses_one(2))
    verdict = judged("short_all_reduce", "", loses_one)
    assert verdict.reason == "meaning"
    assert str(raised.value) in verdict.words.en
    assert f"rank {raised.value.rank}，第 {raised.value.chunk} 块" in verdict.words.zh


def test_the_chinese_names_what_is_wrong_with_a_schedule():
    def built(*rows):
        def build(n_ranks):
            shares, every = [1], [[0]] * n_ranks
            steps = [commlab.Step(*row) for row in rows]
            return commlab.Schedule("all_reduce", n_ranks, shares, every, every, steps)

        return build

    add = [commlab.REDUCE]
    for answer, told in (
        (built(([1], [2], [0], add)), "没有这个 rank"),
        (built(([1], [1], [0], add)), "发给了自己"),
        (built(([0, 0], [1, 1], [0, 0], add * 2)), "两行写进了"),
        (built(([0], [1], [0], [commlab.COPY])), "被覆盖"),
        (built(([0], [1], [0], add)), "还缺别的 rank 的贡献"),
        (built(([0], [1], [0], add), ([1], [0], [0], add)), "又加了一次"),
    ):
        assert told in judged("uncut_ring", "schedule", answer).words.zh
    assert "不止一条消息" in judged("uncut_ring", "schedule", all_at_once).words.zh
    assert "还没有内容" in judged("fast_broadcast", "", forwards_what_it_lacks).words.zh


def test_worked_solutions_agree_with_the_library():
    skewed = expert_parallel(8192, 4096, 32, 8, hottest_share=0.25)
    limited = expert_parallel(8192, 4096, 32, 8, hottest_share=0.25, capacity_factor=1.25)
    assert RIGHT["hot_expert"]["slowdown"] == pytest.approx(skewed.byte_skew)
    assert RIGHT["hot_expert"]["dropped"] == pytest.approx(limited.dropped)
    seconds = compute_time(LLAMA3_70B.parameters, 32768)
    assert RIGHT["llama_70b"]["compute_seconds"] == pytest.approx(seconds)


def test_an_error_in_the_readers_code_shows_the_readers_line():
    def my_order(node_of):
        places = {}
        return [places[node] for node in node_of]  # the line that matters

    verdict = judged("ring_order", "", my_order)
    assert verdict.reason == "raised"
    for text in verdict.words:
        assert "KeyError: 0" in text
        assert "return [places[node] for node in node_of]" in text
    line = my_order.__code__.co_firstlineno + 2
    assert f"line {line}" in verdict.words.en and f"第 {line} 行" in verdict.words.zh


def test_a_blank_inside_code_is_a_blank():
    def half_done(n_ranks):
        everybody = [[0]] * n_ranks
        return commlab.Schedule("all_reduce", n_ranks, [1], everybody, everybody, ...)

    assert judged("uncut_ring", "schedule", half_done).status == OPEN


def test_unknown_names_and_parts_are_answered():
    for report, reason in (
        (check("volum"), "unknown_name"),
        (check(7), "unknown_name"),
        (check("volume", 3), "wrong_call"),
        (check("volume", bytes=3), "wrong_call"),
        (check("ring_order", order=[]), "wrong_call"),
    ):
        (verdict,) = report.parts.values()
        assert (verdict.status, verdict.reason) == ("wrong", reason)
        assert_in_both_languages(verdict.words)
    assert "`volume`" in check("volum").parts[""].words.en
    for helping in (exercises.hint("volum"), exercises.solution("volum")):
        assert "`volume`" in helping._repr_markdown_()


def test_blanks_are_open_together_and_one_by_one():
    assert check("volume").status == OPEN
    assert str(check("volume")).count("not answered yet") == 1
    partly = check("volume", ring_bytes="7.5 GiB", root_bytes=None)
    assert partly.status == OPEN and partly.reasons["ring_bytes"] == "right"
    assert str(partly).count("not answered yet") == 3


# ---------------------------------------------------------------------------------------
# Answers that cheat are judged by what they do


def test_patched_constants_and_closed_forms_change_nothing(monkeypatch):
    def patches_and_returns_a_tree(n_ranks):
        monkeypatch.setattr("commlab.hardware.NVLINK", 1.0)
        monkeypatch.setattr("commlab.hardware.ALPHA", 1e6)
        monkeypatch.setattr("commlab.alpha_beta_broadcast", lambda *given: 1e9)
        monkeypatch.setattr("commlab.verify", lambda schedule: None)
        monkeypatch.setattr("commlab.price", lambda *given: 0.0)
        return commlab.REGISTRY["broadcast", "binomial_tree"].build(n_ranks)

    assert judged("fast_broadcast", "", patches_and_returns_a_tree).reason == "slow"


def test_schedules_of_the_registry_are_judged_on_their_merits():
    assert judged("short_all_reduce", "", schedule_of("all_reduce", "halving_doubling")).reason == (
        "right"
    )
    chain = schedule_of("broadcast", "pipelined_chain", pipeline_chunks=40)
    assert judged("fast_broadcast", "", chain).reason == "right"


# ---------------------------------------------------------------------------------------
# Help and progress


@pytest.mark.parametrize("name", EXERCISES)
def test_hint_and_solution_are_in_both_languages_and_folded(name):
    exercise = EXERCISES[name]
    assert_in_both_languages(exercise.hint)
    assert_in_both_languages(exercise.solution)
    assert HANZI.search(exercise.title.zh) and not HANZI.search(exercise.title.en)
    for helping in (exercises.hint(name), exercises.solution(name)):
        text = helping._repr_markdown_()
        assert text.startswith("<details><summary>") and text.endswith("</details>")
        assert text.count('<div lang="zh">') == text.count('<div lang="en">') >= 1
    shown = exercises.solution(name)._repr_markdown_()
    for function in exercise.shown:
        assert f"def {function.__name__}(" in shown
    assert "✗" not in shown
    assert exercise.starts_processes or "✓" in shown


def test_progress_counts_what_was_solved():
    assert "✓" not in str(exercises.progress())
    check("volume", ring_bytes="7.5 GiB", root_bytes="1 GiB")
    assert "1 / 4" in str(exercises.progress())
    check("volume", **RIGHT["volume"])
    check("volume")  # a look at the blanks takes nothing away
    exercises.solution("ring_order")  # reading a solution solves nothing
    table = str(exercises.progress())
    assert "4 / 4" in table and table.count("✓") == 1


def test_nothing_heavy_is_imported():
    code = (
        "import sys; from commlab import exercises; exercises.check('volume', ring_bytes=1); "
        "print([m for m in ('torch', 'matplotlib', 'ipywidgets') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---------------------------------------------------------------------------------------
# The notebook


def test_the_notebook_asks_every_exercise_and_holds_no_answer():
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    checks = [
        cell for cell in code if "exercises.check(" in cell.source and cell.id != "how-answer"
    ]
    asked = [re.search(r'exercises\.check\(\s*"(\w+)"', cell.source)[1] for cell in checks]
    assert asked == list(EXERCISES)
    for cell, name in zip(checks, asked, strict=True):
        (output,) = cell.outputs
        assert "not answered yet" in output.data["text/plain"], cell.id
        assert "还没有作答" in output.data["text/plain"], cell.id
        assert "✓" not in output.data["text/plain"] and "✗" not in output.data["text/plain"]
        for part in EXERCISES[name].judges:
            assert not part or f"{part}=" in cell.source
        assert any(
            f'exercises.hint("{name}"), exercises.solution("{name}")' in other.source
            for other in code
        )
    assert code[-1].source == "exercises.progress()"
    assert "✓" not in code[-1].outputs[0].data["text/plain"]


def test_the_notebook_shows_the_broken_function_of_the_checker():
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    (cell,) = [cell for cell in cells if cell.id == "deadlock-check"]
    source = cell.source.partition("\n\n\n")[0]
    with pytest.raises(Refused) as refused:
        read_source(source)
    assert refused.value.verdict.status == OPEN
    assert log_and_average.__name__ in source
