"""The reader of nccl-tests logs: every quirk, every refusal, and damage that nobody planned."""

from __future__ import annotations

import contextlib
import math
import random
import re
import time

import pytest
from log_quirks import (
    SIZES,
    headerless,
    is_row,
    json_of,
    mutant,
    on_rows,
    quirks,
    row_text,
    sample,
    times,
)
from synthetic_runs import REAL_LOG_FILES, REAL_LOGS

from commlab.calibrate import Log, LogError, read_log, read_log_file
from commlab.calibrate.bus import OPS, bus_factor, collective_of
from commlab.calibrate.log_text import MAX_BYTES

QUIRKS = quirks()
PLAIN = QUIRKS["plain"]


def read(made):
    return read_log(made.data, **dict(made.arguments))


def codes(log):
    return {remark.code for remark in log.remarks} | {
        remark.code for run in log.runs for remark in run.remarks
    }


def account_is_complete(log):
    """Every line of the input was taken for something, and the skipped ones are listed."""
    assert sum(log.lines.values()) == log.n_lines
    assert "" not in log.lines
    if "json" in log.lines:
        return
    assert log.lines.get("skipped", 0) == len({skipped.line for skipped in log.all_skipped()})


def refusal(data, **arguments):
    with pytest.raises(LogError) as caught:
        read_log(data, **arguments)
    assert caught.value.message.endswith(".")
    assert "\n" not in caught.value.message
    return caught.value


# ---------------------------------------------------------------------------------------
# One fixture per quirk


@pytest.mark.parametrize("name", QUIRKS)
def test_a_quirk_changes_nothing_that_is_read(name):
    made = QUIRKS[name]
    log = read(made)
    (run,) = log.runs
    assert (run.op, run.n_ranks, run.n_nodes) == (made.op, made.n_ranks, made.n_nodes)
    assert (run.hardware, run.version) == (made.hardware, made.version)
    assert run.collective == collective_of(made.op)
    assert [row.nbytes for row in run.rows] == [nbytes for nbytes, _, _ in made.rows]
    for row, (_, out, again) in zip(run.rows, made.rows, strict=True):
        assert row.seconds * 1e6 == pytest.approx(out, rel=made.tolerance)
        if again is None:
            assert row.in_place_seconds is None
        else:
            assert row.in_place_seconds * 1e6 == pytest.approx(again, rel=made.tolerance)
        assert row.suspect is None
    assert len(log.all_skipped()) == made.n_skipped
    assert set(made.codes) <= codes(log)
    assert not codes(log) & {"contradiction", "count_mismatch", "error_in_log", "several_runs"}
    account_is_complete(log)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("n_ranks", [2, 3, 8, 80, 2160])
def test_every_test_is_read_on_any_number_of_ranks(op, n_ranks):
    made = sample(op, n_ranks, share=(n_ranks - 1) / n_ranks if op == "hypercube" else 1.0)
    (run,) = read(made).runs
    assert (run.op, run.n_ranks, run.n_nodes) == (op, n_ranks, -(-n_ranks // 8))
    assert run.inferred == ()
    assert [row.seconds * 1e6 for row in run.rows] == pytest.approx([row[1] for row in made.rows])
    assert not any(row.suspect for row in run.rows)


@pytest.mark.parametrize("n_ranks", [3, 4, 6, 8, 16, 24, 32, 64, 128])
@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "alltoall"])
def test_without_any_header_test_and_ranks_are_worked_out(op, n_ranks):
    (run,) = read(headerless(op, n_ranks)).runs
    assert (run.op, run.n_ranks) == (op, n_ranks)
    assert {"op", "n_ranks"} <= set(run.inferred)


def test_what_rows_cannot_tell_is_asked_for():
    unchecked = headerless("all_gather", 8, check=False)
    error = refusal(unchecked.data)
    assert error.code == "needs_op"
    assert "all_gather or alltoall" in error.message
    assert refusal(headerless("broadcast", 8).data).code == "needs_n_ranks"
    error = refusal(headerless("all_reduce", 2160).data)
    assert error.code == "needs_n_ranks"
    assert re.search(r"its rates fit \d+ to \d+:", error.message)
    (run,) = read_log(headerless("all_reduce", 2160).data, n_ranks=2160).runs
    assert run.n_ranks == 2160


def test_the_caller_counts_more_than_the_log():
    log = read_log(PLAIN.data, op="all_gather", n_ranks=16)
    assert (log.runs[0].op, log.runs[0].n_ranks) == ("all_gather", 16)
    assert {"overridden"} <= codes(log)
    # all_gather on 16 ranks has another factor: the rows say so once, not on every line.
    (said,) = [
        remark
        for remark in log.runs[0].remarks
        if remark.code in ("n_ranks_contradicted", "op_contradicted")
    ]
    assert said.line == log.runs[0].rows[0].line


def test_a_wrong_number_of_ranks_is_noticed():
    log = read_log(PLAIN.data, n_ranks=64)
    (remark,) = [one for one in log.runs[0].remarks if one.code == "n_ranks_contradicted"]
    assert "8 ranks" in remark.message


def test_several_runs_in_one_file_stay_apart():
    parts = [sample("all_reduce"), sample("sendrecv", 16), sample("alltoall", 4)]
    log = read_log("\n".join(part.data for part in parts))
    assert [(run.op, run.n_ranks) for run in log.runs] == [
        ("all_reduce", 8),
        ("sendrecv", 16),
        ("alltoall", 4),
    ]
    assert [len(run.rows) for run in log.runs] == [len(SIZES)] * 3
    assert "several_runs" in codes(log)
    assert log.runs[0].average_busbw == pytest.approx(12.3456e9)
    account_is_complete(log)


def test_rows_of_several_runs_without_any_header_are_told_apart():
    parts = [headerless("all_reduce", 8), headerless("all_gather", 8), headerless("all_reduce", 4)]
    log = read_log("\n".join(part.data for part in parts))
    assert [(run.op, run.n_ranks) for run in log.runs] == [(x.op, x.n_ranks) for x in parts]
    assert [len(run.rows) for run in log.runs] == [len(part.rows) for part in parts]
    account_is_complete(log)
    # Sweeps of one run, as -N makes them, stay together.
    (run,) = read_log("\n".join([parts[0].data] * 3)).runs
    assert len(run.rows) == 3 * len(SIZES)


def test_types_in_one_table_become_runs():
    one, two = sample(trailer=False), sample(dtype="double")
    rows = [line for line in two.lines() if is_row(line)]
    log = read_log(one.with_lines([*one.lines(), *rows]).data)
    assert [{row.dtype for row in run.rows} for run in log.runs] == [{"float"}, {"double"}]


def test_a_failed_first_try_is_said_and_the_second_read():
    failed = [line for line in PLAIN.lines() if not is_row(line) and "bandwidth" not in line]
    failed = [line for line in failed if "Out of bounds" not in line]
    failed.append("node0: Test NCCL failure common.cu:1012 'unhandled system error'")
    log = read_log("\n".join([*failed, PLAIN.text]))
    assert [run.op for run in log.runs] == ["all_reduce"]
    assert "error_in_log" in codes(log)
    assert len(log.runs[0].rows) == len(SIZES)


def test_groups_that_run_at_once_count_as_one_group():
    lines = [
        line.replace("Group  0", f"Group  {int(line.split()[2]) % 2}") if "Rank" in line else line
        for line in sample(n_ranks=8, per_node=4).lines()
    ]
    rows = [line for line in sample(n_ranks=4).lines() if is_row(line)]
    text = "\n".join([line for line in lines if not is_row(line)][:-4] + rows)
    (run,) = read_log(text).runs
    assert (run.n_ranks, run.n_nodes) == (4, 2)
    assert "split_groups" in {remark.code for remark in run.remarks}


def test_mixed_hardware_is_said():
    text = PLAIN.text.replace("Synthetic GPU", "Other GPU", 1)
    (run,) = read_log(text).runs
    assert run.hardware == "Synthetic GPU + Other GPU"
    assert "mixed_hardware" in {remark.code for remark in run.remarks}


def test_wrong_results_are_said_with_their_line():
    number, line = [(n, x) for n, x in enumerate(PLAIN.lines(), 1) if is_row(x)][3]
    text = PLAIN.text.replace(line, line[:86].rstrip()[:-1] + "7" + line[86:])
    log = read_log(text)
    (remark,) = [one for one in log.runs[0].remarks if one.code == "wrong_results"]
    assert remark.line == number
    assert log.runs[0].rows[3].n_wrong == 7


# ---------------------------------------------------------------------------------------
# Numbers that contradict each other


@pytest.mark.parametrize("column", ["time", "algbw", "busbw", "size"])
@pytest.mark.parametrize("which", [6, 8, 10])
def test_a_contradiction_is_reported_with_line_and_column(column, which):
    number, line = [(n, x) for n, x in enumerate(PLAIN.lines(), 1) if is_row(x)][which]
    words = line.split()
    at = {"size": 0, "time": 5, "algbw": 6, "busbw": 7}[column]
    words[at] = str(2 * int(words[0])) if column == "size" else f"{1.3 * float(words[at]):.2f}"
    run = read_log(PLAIN.text.replace(line, "  " + "  ".join(words))).runs[0]
    assert [row.suspect for row in run.rows if row.line == number] == [column]
    assert [row.line for row in run.rows if row.suspect] == [number]
    (remark,) = [
        one
        for one in run.remarks
        if one.code == "contradiction" and not one.message.startswith("In-place")
    ]
    assert remark.line == number
    assert f"{column} looks wrong" in remark.message


def test_rows_of_two_rates_at_once_are_not_called_wrong():
    """Digits as printed are no contradiction, from 8 B to 64 GiB."""
    made = sample(sizes=[2**k for k in range(3, 37)])
    assert not codes(read(made)) - {"op_inferred"}


def test_a_wrong_count_is_reported():
    text = PLAIN.text.replace(f"  {SIZES[4] // 4:12d}", f"  {SIZES[4] // 4 + 1:12d}")
    run = read_log(text).runs[0]
    assert [row.suspect for row in run.rows] == [None] * 4 + ["count"] + [None] * 6


# ---------------------------------------------------------------------------------------
# Nothing is skipped silently


@pytest.mark.parametrize(
    "line",
    [
        "MPICH Slingshot Network Summary: 3 network timeouts",
        "      262144         65536     float     sum      -1    142",
        "#     262144         65536     float     sum      -1    142.9    1.83    3.21      0",
        "# Reducing maxBytes to262144    65536     float     sum      -1    142.9    1.83    3.21",
        "lorem ipsum 17",
        "17.5 18.5",
    ],
)
def test_a_line_that_is_not_understood_is_shown(line):
    lines = PLAIN.lines()
    at = next(number for number, text in enumerate(lines) if is_row(text)) + 3
    log = read_log("\n".join([*lines[:at], line, *lines[at:]]))
    (skipped,) = log.runs[0].skipped
    assert (skipped.line, skipped.text) == (at + 1, line.strip())
    assert len(log.runs[0].rows) == len(SIZES)
    account_is_complete(log)


def test_a_row_cut_off_in_its_second_half_keeps_its_first():
    row = [line for line in PLAIN.lines() if is_row(line)][5]
    cut = row.index(row.split()[9], 85) + 4
    log = read_log(PLAIN.text[: PLAIN.text.index(row) + cut])
    assert log.runs[0].rows[5].in_place_seconds is None
    assert log.runs[0].rows[4].in_place_seconds is not None
    assert {"half_missing", "unfinished"} <= codes(log)


def test_columns_behind_the_titles_are_said():
    log = read_log(on_rows(PLAIN, lambda line: f"{line} 17 18").data)
    assert "extra_columns" in codes(log)
    assert [row.suspect for row in log.runs[0].rows] == [None] * len(SIZES)


def test_a_broken_row_beside_a_whole_one_is_shown():
    row = [line for line in PLAIN.lines() if is_row(line)][5]
    number = PLAIN.lines().index(row) + 1
    log = read_log(PLAIN.text.replace(row, f"{row} 2048 512 float sum"))
    assert len(log.runs[0].rows) == len(SIZES)
    assert [skipped.line for skipped in log.all_skipped()] == [number]
    account_is_complete(log)


def test_a_log_cut_off_in_a_row_keeps_the_whole_rows():
    rows = [line for line in PLAIN.lines() if is_row(line)]
    text = PLAIN.text[: PLAIN.text.index(rows[5]) + 60]
    log = read_log(text)
    assert [row.nbytes for row in log.runs[0].rows] == list(SIZES[:5])
    assert [skipped.reason for skipped in log.all_skipped()] == ["a row that is cut off"]
    assert "unfinished" in codes(log)


# ---------------------------------------------------------------------------------------
# Refusals: one sentence of reason and cure


def copies(n_copies, made, mix):
    """Logs of processes that each ran alone, as a launcher mixes them."""
    texts = [made.text.replace("node0", f"node{copy}").split("\n") for copy in range(n_copies)]
    if mix == "lines":
        return "\n".join(line for same in zip(*texts, strict=True) for line in same)
    first = [is_row(line) for line in texts[0]].index(True)
    heads = [line for text in texts for line in text[:first]]
    if mix == "heads":
        return "\n".join(heads + [line for text in texts for line in text[first:]])
    # One copy is three rows ahead of the other.
    left, right = texts[0][first:], texts[1][first:]
    woven = left[:3]
    for one, two in zip(left[3:], right, strict=False):
        woven += [one, two]
    return "\n".join([*texts[0][:first], *left[:1], *texts[1][:first], *woven[1:], *right[-3:]])


@pytest.mark.parametrize("mix", ["lines", "heads", "ahead"])
@pytest.mark.parametrize("n_ranks", [1, 8])
def test_mixed_copies_of_one_run_are_refused(mix, n_ranks):
    error = refusal(copies(2, sample(n_ranks=n_ranks), mix))
    assert error.code == "interleaved"
    assert "MPI=1" in error.message


@pytest.mark.parametrize("seed", range(8))
def test_copies_whose_headers_and_rows_are_mixed_at_random_are_refused(seed):
    rng = random.Random(seed)
    left = [PLAIN.lines(), PLAIN.text.replace("node0", "node1").split("\n")]
    mixed = []
    while all(left):
        one = left[rng.randrange(2)]
        n_lines = rng.randint(1, 3)
        mixed += one[:n_lines]
        del one[:n_lines]
    assert refusal("\n".join([*mixed, *left[0], *left[1]])).code == "interleaved"


@pytest.mark.parametrize("n_rows", [0, 1, 5])
@pytest.mark.parametrize("again", ["", "# Avg bus bandwidth    : 12.3456"])
def test_a_killed_run_and_its_repetitions_are_no_copies(n_rows, again):
    first = [is_row(line) for line in PLAIN.lines()].index(True)
    killed = PLAIN.lines()[: first + n_rows]
    log = read_log("\n".join([*killed, PLAIN.text, again, PLAIN.text]))
    assert [len(run.rows) for run in log.runs if len(run.rows) == len(SIZES)] == [len(SIZES)] * 2
    assert sum(len(run.rows) for run in log.runs) == 2 * len(SIZES) + n_rows


def test_copies_told_by_their_tags_are_refused():
    lines = []
    for number, line in enumerate(PLAIN.lines()):
        lines.append(f"[1,{number % 2 if is_row(line) else 0}]<stdout>:{line}")
    assert refusal("\n".join(lines)).code == "interleaved"


@pytest.mark.parametrize("n_rows", [1, 2, 5])
def test_copies_without_any_header_are_refused(n_rows):
    rows = [line for line in PLAIN.lines() if is_row(line)][: n_rows + 2]
    assert refusal("\n".join(row for row in rows for _ in range(2))).code == "interleaved"


def test_one_rank_is_refused():
    assert refusal(sample(n_ranks=1).data).code == "one_rank"
    assert refusal(PLAIN.data, n_ranks=1).code == "one_rank"
    assert refusal(headerless("all_reduce", 1).data).code == "one_rank"
    both = read_log(sample(n_ranks=1).data + "\n" + PLAIN.data)
    assert [run.n_ranks for run in both.runs] == [8]
    assert "one_rank" in codes(both)
    assert len(both.all_skipped()) == len(SIZES)
    account_is_complete(both)


@pytest.mark.parametrize(
    ("column", "value"),
    [(5, "0.00"), (5, "-3.21"), (5, "nan"), (5, "inf"), (6, "nan"), (7, "-1.00"), (7, "1e+07")],
)
def test_impossible_rates_are_refused_with_their_line(column, value):
    number, line = [(n, x) for n, x in enumerate(PLAIN.lines(), 1) if is_row(x)][4]
    words = line.split()
    words[column] = value
    error = refusal(PLAIN.text.replace(line, "  " + "  ".join(words)))
    assert error.code == "impossible_rates"
    assert f"Line {number} " in error.message


def test_a_time_that_no_machine_reaches_is_refused():
    line = row_text("all_reduce", 8, 2**30, 0.01, 0.01)[0]
    assert refusal(PLAIN.text.replace("# Out of", f"{line}\n# Out of")).code == "impossible_rates"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "no_rows"),
        ("", "no_rows"),
        ("\n".join(x for x in PLAIN.lines() if not is_row(x)), "no_rows"),
        ("a letter to a friend\n", "no_rows"),
        (bytes(range(256)) * 40, "not_text"),
        (b"\x1f\x8b\x08" + b"a" * 50, "not_text"),
        (b"\x89PNG\r\n\x1a\n", "not_text"),
        (b"x" * (MAX_BYTES + 1), "too_large"),
        ("{" * 100_000, "bad_json"),
        ('{"a": ' * 100_000, "bad_json"),
        ("[{" + "[" * 100_000, "bad_json"),
        ('{"a": ' + "9" * 5000 + "}", "bad_json"),
        ('{"a": 1}', "unknown_json"),
        ('{"results": [{"size": 8, "out_of_place": {"time":0.0,"alg_bw":inf}}]}',
         "impossible_rates"),
        ('{"results": []}', "no_rows"),
        ('{"results": [{"size": 1024, "out_of_place": {"time": 1e999}}]}', "impossible_rates"),
        ("9" * 5000, "no_rows"),
        ("\ud800 1024 256 float", "no_rows"),
    ],
)  # fmt: skip
def test_what_is_no_log_is_refused(data, code):
    assert refusal(data).code == code


def test_the_error_of_a_failed_run_is_in_the_refusal():
    text = "# nThread 1 nGpus 1 minBytes 8\nnode1: Test NCCL failure common.cu:1012 'boo'\n"
    assert "common.cu:1012" in refusal(text).message


@pytest.mark.parametrize(
    "arguments",
    [{"op": "gossip"}, {"n_ranks": 0}, {"n_ranks": 2.5}, {"n_nodes": -1}, {"n_ranks": True},
     {"n_ranks": 2, "n_nodes": 3}],
)  # fmt: skip
def test_nonsense_arguments_are_refused(arguments):
    assert refusal(PLAIN.data, **arguments).code == "bad_argument"


def test_a_file_is_read_and_a_missing_one_refused(tmp_path):
    path = tmp_path / "all_reduce.log"
    path.write_text(PLAIN.text)
    assert read_log_file(path) == read_log(PLAIN.text)
    for nowhere in (tmp_path, tmp_path / "none.log", "a\0b"):
        with pytest.raises(LogError) as caught:
            read_log_file(nowhere)
        assert caught.value.code == "no_file"


def test_a_huge_file_is_refused_unread(tmp_path):
    path = tmp_path / "huge.log"
    with path.open("wb") as file:
        file.truncate(100 * 2**20)
    with pytest.raises(LogError) as caught:
        read_log_file(path)
    assert caught.value.code == "too_large"


# ---------------------------------------------------------------------------------------
# JSON, and our own bench


def test_json_gives_the_same_run_as_text():
    (text,), (of_json,) = read_log(PLAIN.data).runs, read_log(json_of(PLAIN)).runs
    assert [row.nbytes for row in of_json.rows] == [row.nbytes for row in text.rows]
    assert [row.seconds for row in of_json.rows] == pytest.approx(
        [row.seconds for row in text.rows]
    )
    assert (of_json.library, of_json.average_busbw) == ("NCCL 2.29.2", pytest.approx(12.345678e9))


def test_several_json_documents_are_several_runs():
    assert len(read_log(json_of(PLAIN) + "\n" + json_of(PLAIN)).runs) == 2


def bench_of(n_ranks, collectives):
    """A result of `commlab bench`, of times that nobody measured."""
    from commlab.real import bench_result
    from commlab.real.bench_plan import plan_cases, read_sweep

    cases, skipped = plan_cases(read_sweep(collectives, "backend,ring", "64KiB..16MiB", 5), n_ranks)
    measured = [
        {
            "calls": 3,
            "seconds": [
                [1e-6 * times(case["nbytes"], n_ranks)[0] * (1 + 0.01 * k) for k in range(5)]
                for _ in case["algorithms"]
            ],
        }
        for case in cases
    ]
    hosts = [f"machine{rank // 2}" for rank in range(n_ranks)]
    return bench_result.make_result(cases, measured, hosts, 2, "gloo", "cpu", {}, skipped)


@pytest.mark.parametrize("form", ["table", "json"])
def test_what_bench_writes_is_read(form, tmp_path):
    from commlab.real import bench_result

    result = bench_of(4, "all_reduce,all_to_all")
    path = tmp_path / "bench"
    if form == "json":
        bench_result.write_result(path, result)
    else:
        path.write_text("\n".join(bench_result.table_lines(result)))
    log = read_log_file(path)
    assert len(log.runs) > 2
    for run, series in zip(log.runs, result["series"], strict=True):
        assert (run.collective, run.algorithm) == (series["collective"], series["algorithm"])
        assert (run.n_ranks, run.n_nodes, run.inferred) == (4, 2, ())
        assert run.version.startswith("commlab bench")
        assert [row.nbytes for row in run.rows] == [row["nbytes"] for row in series["rows"]]
        assert [row.seconds for row in run.rows] == pytest.approx(
            [row["median_s"] for row in series["rows"]], abs=5.1e-9
        )
        assert not any(row.suspect for row in run.rows)
    assert log.all_skipped() == ()


# ---------------------------------------------------------------------------------------
# Damage


def fuzz(n_mutants, seed):
    """Read damaged logs: refused with a code, or read with every line accounted for."""
    logs = [
        made.data if isinstance(made.data, bytes) else made.data.encode()
        for name, made in QUIRKS.items()
        if len(made.data) < 12_000
    ]
    rng = random.Random(seed)
    outcomes = {"read": 0, "refused": 0}
    for number in range(n_mutants):
        data = mutant(rng, logs)
        try:
            log = read_log(data)
        except LogError as error:
            outcomes["refused"] += 1
            assert error.code and error.message.endswith("."), (seed, number)
        else:
            outcomes["read"] += 1
            check_invariants(log)
    return outcomes


def check_invariants(log):
    assert isinstance(log, Log)
    assert log.runs
    for run in log.runs:
        assert run.n_ranks >= 2
        assert run.rows
        for row in run.rows:
            assert 0 < row.seconds < math.inf
            assert 0 < row.nbytes <= 2**60
            assert row.nbytes / row.seconds <= 1e14
            assert row.in_place_seconds is None or 0 < row.in_place_seconds < math.inf
            assert bus_factor(run.op, run.n_ranks) > 0
    account_is_complete(log)


def test_two_thousand_mutants():
    outcomes = fuzz(2000, seed=20260203)
    # Neither everything refused nor everything swallowed.
    assert outcomes["read"] > 600
    assert outcomes["refused"] > 200


@pytest.mark.night
@pytest.mark.parametrize("seed", range(20))
def test_hundred_thousand_mutants(seed):
    fuzz(5000, seed)


@pytest.mark.night
@pytest.mark.parametrize(
    "piece",
    ["1024 256 float ", "9", "Rank 0 device ", "a:1:1", "NCCL ", "# size time busbw ", "1024\n",
     "12:00:01 ", "[0]", "\x1b[", "{", "1,", "...", "| -- ", "<pre> ", "_perf -t "],
)  # fmt: skip
def test_ten_megabytes_of_anything_take_time_in_proportion(piece):
    """Twice as much takes about twice as long: ten times would be a pattern gone wild."""
    spent = []
    for n_bytes in (1_000_000, 10_000_000):
        begin = time.process_time()
        with pytest.raises(LogError):
            read_log(piece * (n_bytes // len(piece)))
        spent.append(time.process_time() - begin)
    assert spent[1] < 40 * max(spent[0], 0.05)


# ---------------------------------------------------------------------------------------
# Real logs, where the folder is at hand


def real_logs():
    """Every log of the folder, with what its INDEX.tsv says of it."""
    index = REAL_LOGS / "INDEX.tsv"
    lines = index.read_text(encoding="utf-8").splitlines() if index.is_file() else []
    titles = lines[0].split("\t") if lines else []
    rows = [dict(zip(titles, line.split("\t"), strict=False)) for line in lines[1:]]
    facts = {row["file"]: row for row in rows}
    return [(path, facts.get(path.name)) for path in REAL_LOG_FILES]


@pytest.mark.real_logs
@pytest.mark.parametrize(
    ("path", "facts"), [pytest.param(*one, id=one[0].name) for one in real_logs()]
)
def test_a_real_log_is_read_right(path, facts):
    if "failed" in path.name:
        with pytest.raises(LogError) as caught:
            read_log_file(path)
        assert caught.value.code == "no_rows"
        return
    if facts is None:
        with contextlib.suppress(LogError):
            check_invariants(read_log_file(path))
        return
    log = read_log_file(path)
    assert [run.op for run in log.runs] == facts["op"].split("+")
    for run in log.runs:
        assert (run.n_ranks, run.n_nodes) == (int(facts["nGPUs"]), int(facts["nNodes"]))
        assert run.hardware
        assert not any(row.suspect for row in run.rows)
        assert len(run.rows) >= 5
    data_lines = [
        line
        for line in path.read_text(encoding="utf-8").splitlines()
        if line[:1] == " " and line.split()[0].isdigit() and line.split()[0] != "0"
    ]
    assert sum(len(run.rows) for run in log.runs) == len(data_lines)
    account_is_complete(log)
