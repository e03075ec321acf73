from __future__ import annotations

import faulthandler
import random
import re
import signal
import subprocess
import tempfile
import time
from types import SimpleNamespace

import pytest
from leftovers import processes_of, python, wait_until

from commlab.real import deadlock, deadlock_lab
from commlab.real.deadlock import CASES
from commlab.real.diagnosis import diagnose
from commlab.real.evidence import Call, Evidence

# Seconds until a run that breaks the rule has ended by itself, once its ranks have met.
LIMIT = 15
N_RANKS = 4
SEED = 20


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A folder of this test alone for everything that the lab puts on the disk."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def recorded(evidence: Evidence) -> tuple[str, ...]:
    """What PyTorch's flight recorder should hold, going by our own notes."""
    return tuple(f"{k}: {c.op} {list(c.shape)}" for k, c in enumerate(evidence.calls, start=1))


@pytest.mark.parametrize("case", CASES)
def test_the_guilty_rank_is_found_and_nothing_is_left(scratch, capfd, case):
    odd = random.Random(f"{SEED} {case}").randrange(N_RANKS)
    report = deadlock_lab(case, ranks=N_RANKS, odd_rank=odd)
    assert report.seconds < LIMIT
    assert report.guilty == (odd,)
    for sentence in (report.sentence_en, report.sentence_zh):
        assert re.search(rf"\brank {odd}\b", sentence, re.IGNORECASE)
        assert "\n" not in sentence
        assert str(report).count(sentence) == 1
    assert report.sentence_en.endswith(".") and report.sentence_en.count(". ") == 0
    assert report.sentence_zh.endswith("。") and report.sentence_zh.count("。") == 1
    assert processes_of(scratch) == []
    assert list(scratch.iterdir()) == []
    assert capfd.readouterr() == ("", "")
    for one in report.saw:
        assert one.recorded is None or one.recorded == recorded(one)
    check_what_was_seen(case, report, odd)


def check_what_was_seen(case, report, odd):
    others = [one for one in report.saw if one.rank != odd]
    theirs = report.saw[odd]
    if case == "others busy":
        assert "Timed out" in theirs.calls[-1].error and theirs.state == "raised"
        assert all(one.state == "running" and "others_busy" in one.stands_at for one in others)
        # The flight recorder shows those that are missing one number behind.
        assert len(theirs.recorded) == 2
        assert all(len(one.recorded) == 1 for one in others)
    elif case == "others leave":
        # Reset or closed: a matter of what was still on its way.
        assert "by peer" in theirs.calls[-1].error
        assert all(one.state == "finished" for one in others)
    elif case == "wrong number":
        right = sum(10.0**r for r in range(N_RANKS))
        mixed = 7000 + right - 10.0**odd
        assert [one.value for one in others] == [mixed] * (N_RANKS - 1)
        assert theirs.value == 10.0**odd + (N_RANKS - 1) * 7000
        assert all(one.state == "finished" for one in report.saw)
    elif case == "killed":
        assert (theirs.state, theirs.detail) == ("died", "signal 9")
        assert any("by peer" in one.calls[-1].error for one in others)
    elif case == "stopped":
        assert theirs.state == "stopped"
        assert all("stopped" in one.stands_at for one in others)
    else:
        if case == "far larger":
            # A victim falls, and it is not the guilty one.
            fallen = [one for one in others if one.state == "died"]
            assert any("Received data size doesn't match" in one.detail for one in fallen)
        signatures = {one.calls[1].signature for one in others}
        assert len(signatures) == 1 and theirs.calls[1].signature not in signatures


@pytest.mark.parametrize(
    ("case", "words"), [("other order", "ALLREDUCE vs BROADCAST"), ("other shape", "4 vs 8")]
)
def test_torch_compares_the_calls_if_asked_for_details(case, words):
    odd = random.Random(f"{SEED} {case} in detail").randrange(N_RANKS)
    report = deadlock_lab(case, odd_rank=odd, detail=True)
    assert report.guilty == (odd,)
    # It compares with one other rank, so some see two that are equal and go on.
    errors = [one.calls[-1].error for one in report.saw if one.rank != odd]
    assert any(words in error for error in errors)


def test_the_witnesses_wait_for_their_turn(tmp_path, monkeypatch):
    """A dump by the thread of C, beside one that runs Python, killed 51 of 3000 processes."""
    from commlab.real import journal

    asked_later = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda *a, **k: asked_later.append(a))
    monkeypatch.setattr(journal, "_save_flight", lambda folder, notes: (folder / "saved").touch())
    with journal.witnesses(tmp_path, SimpleNamespace(rank=3), patience=0.02):
        assert wait_until((tmp_path / "saved").exists, 10)
    assert asked_later == []
    stack = (tmp_path / "rank3.stack.txt").read_text()
    assert "in test_the_witnesses_wait_for_their_turn" in stack
    # Whoever is done in time is not asked.
    with journal.witnesses(tmp_path, SimpleNamespace(rank=0), patience=0.2):
        pass
    time.sleep(0.3)
    assert not (tmp_path / "rank0.stack.txt").exists()


def test_a_stopped_rank_does_not_outlive_a_killed_caller(tmp_path):
    script = "from commlab.real import deadlock_lab; deadlock_lab('stopped', patience=10.0)"
    with subprocess.Popen(**python(script, TMPDIR=str(tmp_path))) as caller:

        def a_rank_is_stopped() -> bool:
            return any(one.status() == "stopped" for one in processes_of(tmp_path))

        assert wait_until(a_rank_is_stopped, 40)
        caller.send_signal(signal.SIGKILL)
        assert wait_until(lambda: not processes_of(tmp_path), 5)
        assert wait_until(lambda: not list(tmp_path.iterdir()), 5)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"case": "bad luck"}, "no case 'bad luck': choose one of others busy, others leave"),
        ({"ranks": 2}, "ranks is 2: give 3 or more"),
        ({"odd_rank": 4}, "odd_rank must be one of the ranks 0 to 3; got 4"),
        ({"patience": 0}, "patience is 0: give a number of seconds from 0.5 to 10"),
        ({"patience": "long"}, "patience is 'long': give a number"),
    ],
)
def test_nonsense_is_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        deadlock_lab(**{"case": "killed"} | options)


def test_a_system_that_stops_no_process_is_told_so(monkeypatch):
    monkeypatch.delattr(signal, "SIGSTOP")
    with pytest.raises(ValueError, match="try the case 'killed'"):
        deadlock_lab("stopped")


def test_ranks_that_never_started_are_an_error(monkeypatch, scratch):
    monkeypatch.setattr(deadlock, "START_SECONDS", -3.9)
    with pytest.raises(deadlock.RankError, match="had not started yet"):
        deadlock_lab("killed")
    assert list(scratch.iterdir()) == []


# ---------------------------------------------------------------------------------------
# The diagnosis alone, on evidence that is made up

OPS = ("all_reduce", "broadcast", "all_gather_single", "barrier")


def program(chance: random.Random, length: int) -> list[Call]:
    """A run of calls that ended well, each from a line of its own."""
    return [
        Call(
            chance.choice(OPS), (chance.randint(1, 9),), "float32", f"train.py, line {k}", "left", k
        )
        for k in range(length)
    ]


def hung(call: Call, outcome: str) -> Call:
    error = "Timed out" if outcome == "failed" else ""
    return Call(*call.signature, call.where, outcome, error=error)


def made_up(fault: str, n_ranks: int, odd: int, chance: random.Random) -> list[Evidence]:
    """The evidence of a run in which one rank goes astray after a few calls."""
    calls = program(chance, chance.randint(0, 5))
    this = Call("all_reduce", (4,), "float32", "train.py, line 90")
    wait = hung(this, chance.choice(("failed", "waiting")))
    waiting = Evidence(0, (*calls, wait), "raised" if wait.error else "running")
    other = {
        "other order": Evidence(0, (*calls, Call("broadcast", (4,), "float32", "x")), "raised"),
        "other shape": Evidence(0, (*calls, Call("all_reduce", (5,), "float32", "x")), "raised"),
        "other type": Evidence(0, (*calls, Call("all_reduce", (4,), "bfloat16", "x")), "raised"),
        "skipped": Evidence(0, tuple(calls), "running", stands_at="train.py, line 3, in load"),
        "left": Evidence(0, tuple(calls), "finished"),
        "raised": Evidence(0, tuple(calls), "raised", "ValueError: no such file"),
        "killed": Evidence(0, tuple(calls), "died", "signal 9"),
        "killed inside": Evidence(0, (*calls, this), "died", "signal 9"),
        "stopped": Evidence(0, tuple(calls), "stopped"),
        "stopped inside": Evidence(0, (*calls, this), "stopped"),
        "alone": Evidence(0, (*calls, wait), "raised"),
    }[fault]
    usual = Evidence(0, tuple(calls), "finished") if fault == "alone" else waiting
    ranks = [other if rank == odd else usual for rank in range(n_ranks)]
    return [
        Evidence(rank, one.calls, one.state, one.detail, one.stands_at)
        for rank, one in enumerate(ranks)
    ]


FAULTS = ("other order", "other shape", "other type", "skipped", "left", "raised", "killed")
FAULTS += ("killed inside", "stopped", "stopped inside", "alone")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("n_ranks", range(3, 17))
def test_the_odd_rank_is_found_wherever_it_is(fault, n_ranks):
    for odd in range(n_ranks):
        found = diagnose(made_up(fault, n_ranks, odd, random.Random(f"{fault} {n_ranks} {odd}")))
        assert found.guilty == (odd,)
        assert f"Rank {odd} " in found.sentence_en
        assert f"rank {odd}" in found.sentence_zh


def of_ranks(*calls_and_states) -> list[Evidence]:
    return [
        Evidence(rank, tuple(calls), state) for rank, (calls, state) in enumerate(calls_and_states)
    ]


GRADIENT = Call("all_reduce", (4,), "float32", "train.py, line 9", "left", 1)


def test_a_good_run_has_no_guilty_rank():
    found = diagnose(of_ranks(*[([GRADIENT] * 3, "finished")] * 4))
    assert found.guilty == ()
    assert "nothing is wrong" in found.sentence_en and "没有问题" in found.sentence_zh
    assert diagnose([]).guilty == ()


def test_a_slow_call_is_nobodys_fault():
    late = hung(GRADIENT, "failed")
    found = diagnose(of_ranks(([late], "raised"), ([GRADIENT], "finished"), ([late], "raised")))
    assert found.guilty == ()
    assert "longer timeout" in found.sentence_en


def test_the_victim_of_a_larger_tensor_is_not_its_cause():
    # gloo ends the neighbour that receives more than it expects, with signal 6.
    large = Call("all_reduce", (900,), "float32", "train.py, line 9")
    evidence = of_ranks(
        ([hung(GRADIENT, "waiting")], "running"),
        ([large], "running"),
        ([hung(GRADIENT, "waiting")], "died"),
        ([hung(GRADIENT, "waiting")], "running"),
    )
    assert diagnose(evidence).guilty == (1,)


def test_two_halves_are_both_named():
    calls = [GRADIENT, hung(GRADIENT, "waiting")]
    one_half, other_half = (calls, "running"), (calls[:1], "finished")
    found = diagnose(of_ranks(one_half, other_half, one_half, other_half))
    assert found.guilty == (0, 1, 2, 3)


def test_a_dead_rank_is_guilty_even_in_the_majority():
    calls = [GRADIENT, hung(GRADIENT, "waiting")]
    dead = (calls[:1], "died")
    assert diagnose(of_ranks((calls, "raised"), dead, dead, dead)).guilty == (1, 2, 3)


@pytest.mark.parametrize("n_ranks", range(3, 17))
@pytest.mark.parametrize("hangs", [False, True])
def test_a_sum_of_two_different_things_is_found(n_ranks, hangs):
    # One rank logs before the gradient. Its log meets the others' gradient, and the sum is 7.
    log = Call("all_reduce", (4,), "float32", "train.py, line 5", "left", 7)
    gradient = Call("all_reduce", (4,), "float32", "train.py, line 9", "left", 7)
    last = Call("all_reduce", (4,), "float32", "train.py, line 9", "left", 8)
    odd_rank = ([log, hung(last, "failed")], "raised") if hangs else ([log, last], "finished")
    others = ([gradient], "finished") if hangs else ([gradient, log], "finished")
    for odd in range(n_ranks):
        found = diagnose(of_ranks(*[odd_rank if r == odd else others for r in range(n_ranks)]))
        assert found.guilty == (odd,)
        assert "line 5" in found.sentence_en and "wrong" in found.sentence_en
        assert "line 5" in found.sentence_zh and "数却错了" in found.sentence_zh


def test_calls_that_do_not_fit_come_before_ranks_that_have_not_come_yet():
    other = Call("broadcast", (4,), "float32", "train.py, line 5")
    wait = hung(GRADIENT, "waiting")
    run = of_ranks(*[([wait], "running")] * 2, ([other], "running"), ([], "running"))
    assert diagnose(run).guilty == (2,)


def test_two_lines_are_no_fault_by_themselves():
    # `if rank == 0: all_reduce(x)`, `else: all_reduce(x)` is a matter of taste.
    elsewhere = Call(*GRADIENT.signature, "train.py, line 12", "left", GRADIENT.result)
    run = of_ranks(([elsewhere, GRADIENT], "finished"), *[([GRADIENT] * 2, "finished")] * 2)
    assert diagnose(run).guilty == ()
