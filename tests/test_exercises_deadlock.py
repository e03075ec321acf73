from __future__ import annotations

import inspect
import tempfile

import pytest
from leftovers import processes_of
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from commlab.exercises import EXERCISES, check
from commlab.exercises.deadlock import (
    GRADIENTS,
    MEAN_GRADIENT,
    MEAN_LOSS,
    N_RANKS,
    judge_run,
    log_and_average,
)
from commlab.exercises.verdicts import Refused
from commlab.real.evidence import Call, Evidence
from tools.lints.language import HANZI

REFERENCE = EXERCISES["deadlock"].references[""]


def loss_call(outcome="left", line=3, result=1):
    error = "Timed out" if outcome == "failed" else ""
    digest = result if outcome == "left" else None
    where = f"your_function.py, line {line}"
    return Call("all_reduce", (1,), "float32", where, outcome, digest, error)


def gradient_call(outcome="left", line=6, result=2):
    error = "Timed out" if outcome == "failed" else ""
    digest = result if outcome == "left" else None
    where = f"your_function.py, line {line}"
    return Call("all_reduce", (4,), "float32", where, outcome, digest, error)


def run_of(calls_of, loss=MEAN_LOSS, gradient=MEAN_GRADIENT, state="finished", detail=""):
    """What four ranks have left; ``calls_of(rank)`` are the calls of each."""
    return [
        Evidence(
            rank,
            tuple(calls_of(rank)),
            state,
            detail,
            value={"returned": loss if rank == 0 else None, "gradient": list(gradient)},
        )
        for rank in range(N_RANKS)
    ]


def both(rank):
    return [loss_call(), gradient_call()]


def rank_0_logs_first(rank):
    if rank == 0:
        return [loss_call("failed", line=4)]
    return [gradient_call("failed", line=7)]


def rank_0_logs_last(rank):
    return [gradient_call(), loss_call("failed")] if rank == 0 else [gradient_call()]


def rank_0_in_another_order(rank):
    order = [loss_call("failed"), gradient_call("failed", line=4)]
    return order[:1] if rank == 0 else order[1:]


def test_the_run_of_the_reference_is_right():
    verdict = judge_run(run_of(both))
    assert verdict.reason == "right"
    assert verdict.evidence.count("all_reduce(float32[4])") == N_RANKS


@pytest.mark.parametrize(
    ("saw", "reason", "named"),
    [
        (run_of(rank_0_logs_first, state="raised"), "rule_broken", "ank 0"),
        (run_of(rank_0_logs_last), "rule_broken", "ank 0"),
        (run_of(rank_0_in_another_order, state="raised"), "rule_broken", "ank 0"),
        (run_of(lambda rank: [gradient_call()], loss=None), "loss", "None"),
        (run_of(lambda rank: [gradient_call()], loss=2.0), "loss", "2.0"),
        (run_of(both, loss=MEAN_LOSS * N_RANKS), "loss", "24"),
        (run_of(both, gradient=GRADIENTS[0]), "gradient", "1.0"),
        (
            run_of(lambda rank: [loss_call()], state="raised", detail="NameError: x"),
            "raised",
            "NameError: x",
        ),
    ],
)
def test_wrong_runs_get_their_reason_and_the_evidence(saw, reason, named):
    with pytest.raises(Refused) as refused:
        judge_run(saw)
    verdict = refused.value.verdict
    assert (verdict.status, verdict.reason) == ("wrong", reason)
    assert named in verdict.words.en and named in verdict.words.zh.replace("rank", "Rank")
    assert HANZI.search(verdict.words.zh) and not HANZI.search(verdict.words.en)
    assert "all_reduce" in verdict.evidence


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (log_and_average, "open"),
        (None, "open"),
        (3, "type"),
        (len, "type"),
        ("def f(dist:", "syntax"),
        ("x = 1", "signature"),
        (lambda dist: None, "signature"),
    ],
)
def test_what_cannot_run_is_refused_without_starting_anything(answer, reason, monkeypatch):
    monkeypatch.setattr("commlab.exercises.deadlock.run_to_its_end", None)
    verdict = check("deadlock", answer).parts[""]
    assert verdict.reason == reason
    assert HANZI.search(verdict.words.zh) and not HANZI.search(verdict.words.en)


def test_a_loss_that_meets_a_gradient_is_no_matter_of_shapes():
    with pytest.raises(Refused) as refused:
        judge_run(run_of(rank_0_logs_first, state="raised"))
    for text in refused.value.verdict.words:
        assert "line 4" in text and "line 7" in text
    assert "same order" in refused.value.verdict.words.en
    assert "padding" not in refused.value.verdict.words.en


def assert_nothing_left(scratch, capfd):
    assert processes_of(scratch) == []
    assert list(scratch.iterdir()) == []
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A folder of this test alone for everything that a run puts on the disk."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_reference_really_runs(scratch, capfd):
    report = check("deadlock", REFERENCE)
    assert report.solved, report
    assert report.parts[""].evidence.count("✓") == 2 * N_RANKS
    assert_nothing_left(scratch, capfd)


@pytest.mark.night
@pytest.mark.parametrize(
    ("body", "reason", "named"),
    [
        (
            "if dist.get_rank() == 0:\n  dist.all_reduce(loss)\n dist.all_reduce(gradient)",
            "rule_broken",
            "line 3",
        ),
        (
            "dist.all_reduce(gradient)\n if dist.get_rank() == 0:\n  dist.all_reduce(loss)",
            "rule_broken",
            "line 4",
        ),
        ("dist.all_reduce(loss)\n return undefined_name", "raised", "line 3"),
        ("dist.all_reduce(gradient)\n gradient /= 4\n return loss", "loss", "2.0"),
        ("dist.all_reduce(loss)\n return loss / 4", "gradient", "[1.0"),
    ],
)
def test_wrong_functions_really_fail(scratch, capfd, body, reason, named):
    verdict = check("deadlock", f"def mine(dist, loss, gradient):\n {body}\n").parts[""]
    assert verdict.reason == reason, verdict.words.en
    assert named in verdict.words.en
    assert_nothing_left(scratch, capfd)


@pytest.mark.night
def test_reduce_to_rank_0_is_right_as_well(scratch):
    source = (
        "def mine(dist, loss, gradient):\n"
        " dist.reduce(loss, dst=0)\n"
        " dist.all_reduce(gradient)\n"
        " gradient /= dist.get_world_size()\n"
        " return loss / dist.get_world_size()\n"
    )
    assert check("deadlock", source).solved


@pytest.mark.night
def test_a_function_of_a_notebook_cell_reaches_the_processes(tmp_path):
    body = inspect.getsource(REFERENCE).replace(": Any", "")
    check_it = 'print(exercises.check("deadlock", log_and_average).reasons)'
    cells = [new_code_cell("from commlab import exercises"), new_code_cell(f"{body}\n\n{check_it}")]
    client = NotebookClient(new_notebook(cells=cells), timeout=180, kernel_name="python3")
    done = client.execute(cwd=str(tmp_path))
    assert "{'': 'right'}" in done.cells[1].outputs[-1].text
    assert list(tmp_path.iterdir()) == []
