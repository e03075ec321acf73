from __future__ import annotations

import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commlab import collectives as simulated
from commlab.algorithms import REGISTRY
from commlab.calibrate.bus import bus_factor
from commlab.real import RankError, bench, bench_plan, bench_result, memory, run
from commlab.real.bench_plan import BACKEND, COLLECTIVES, plan_cases, read_sweep
from commlab.real.bench_result import make_result, table_lines, write_result
from commlab.units import GIB, KIB, MIB


def sweep(collectives="all_reduce", algorithms="backend", sizes="1KiB", blocks=2):
    return read_sweep(collectives, algorithms, sizes, blocks)


# ---------------------------------------------------------------------------------------
# What was asked for


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("1KiB", [KIB]),
        ("1KiB..8KiB", [KIB, 2 * KIB, 4 * KIB, 8 * KIB]),
        ("1 MiB .. 3 MiB", [MIB, 2 * MIB]),
        ("4MiB,1KiB,4MiB", [KIB, 4 * MIB]),
        ("64, 1kB..2kB", [64, 1000, 2000]),
    ],
)
def test_sizes_are_read(text, sizes):
    assert list(sweep(sizes=text).sizes) == sizes


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"sizes": "many"}, "cannot read the size"),
        ({"sizes": ""}, "cannot read the size"),
        ({"sizes": "1MiB..1KiB"}, "backwards"),
        ({"sizes": "0"}, "no number"),
        ({"sizes": "1e999"}, "too large for any memory"),
        ({"sizes": "1B..1e300B"}, "more than 64 sizes"),
        ({"collectives": "allreduce"}, "no collective 'allreduce'"),
        ({"collectives": ","}, "at least one collective"),
        ({"algorithms": "rign"}, "no algorithm 'rign'"),
        ({"algorithms": "ring,all"}, "no algorithm 'all'"),
        ({"collectives": "broadcast", "algorithms": "ring"}, "no algorithm 'ring' for broadcast"),
        ({"blocks": 0}, "once or more"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(asked, word):
    with pytest.raises(ValueError, match=word) as caught:
        sweep(**asked)
    assert "\n" not in str(caught.value)


def test_all_takes_everything_that_supports_the_number_of_ranks():
    for n_ranks in range(2, 9):
        cases, skipped = plan_cases(sweep("all", "all"), n_ranks)
        planned = {(case["collective"], a["name"]) for case in cases for a in case["algorithms"]}
        supported = {key for key, entry in REGISTRY.items() if entry.supports(n_ranks)}
        assert planned == supported | {(collective, BACKEND) for collective in COLLECTIVES}
        assert len(skipped) == len(REGISTRY) - len(supported)


def test_an_algorithm_is_used_where_its_collective_has_it():
    cases, _ = plan_cases(sweep("all_reduce,broadcast", "backend,ring"), 3)
    assert [[a["name"] for a in case["algorithms"]] for case in cases] == [
        ["backend", "ring"],
        ["backend"],
    ]
    # A collective for which nothing was named is left out.
    (case,) = plan_cases(sweep("all_reduce,broadcast", "ring"), 3)[0]
    assert case["collective"] == "all_reduce"


def test_a_named_algorithm_that_does_not_support_n_is_refused():
    with pytest.raises(ValueError, match=r"all_gather by recursive_doubling: .*power of two"):
        plan_cases(sweep("all_reduce,all_gather", "recursive_doubling"), 3)


def test_nodes_reach_the_algorithms_that_know_them():
    (case,) = plan_cases(sweep(algorithms="ring,hierarchical"), 8, gpus_per_node=2)[0]
    assert [a["options"] for a in case["algorithms"]] == [{}, {"gpus_per_node": 2}]
    assert plan_cases(sweep(algorithms="hierarchical"), 8)[0][0]["algorithms"][0]["options"] == {}


@given(st.integers(2, 70), st.integers(1, 10**9))
def test_sizes_are_cut_so_that_n_divides_them(n_ranks, size):
    asked = bench_plan.Sweep(("all_reduce",), ("backend",), (size,), 1)
    if size < 4 * n_ranks:
        with pytest.raises(ValueError, match=f"from {4 * n_ranks} B up"):
            plan_cases(asked, n_ranks)
        return
    (case,) = plan_cases(asked, n_ranks)[0]
    assert case["n_elements"] % n_ranks == 0
    assert case["nbytes"] == 4 * case["n_elements"]
    assert size - 4 * n_ranks < case["nbytes"] <= size


def test_one_rank_is_refused():
    with pytest.raises(ValueError, match="2 ranks or more"):
        plan_cases(sweep(), 1)


def test_sizes_beyond_the_memory_are_refused_before_anything_starts(monkeypatch):
    monkeypatch.setattr(bench_plan, "available_bytes", lambda: 4 * GIB)
    monkeypatch.setattr(bench, "run_job", None)  # would fail if it were called
    with pytest.raises(ValueError, match="need about 641 GiB of memory, and 4 GiB are free"):
        bench.run_here(sweep(sizes="1KiB..16GiB"), ranks=4, timeout=60)
    with pytest.raises(ValueError, match="fewer ranks"):
        bench.run_here(sweep(sizes="1MiB"), ranks=1000, timeout=60)
    assert bench_plan.why_too_large(sweep(sizes="1MiB"), 4) is None
    monkeypatch.setattr(bench_plan, "available_bytes", lambda: None)
    assert bench_plan.why_too_large(sweep(sizes="1TiB"), 4) is None


def test_free_memory_is_that_of_machine_or_container(monkeypatch, tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:   7 kB\n")
    monkeypatch.setattr(memory, "_MEMINFO", meminfo)
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    assert memory.available_bytes() == 7 * KIB
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert memory.available_bytes() == 4000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_bytes() == 7 * KIB


# ---------------------------------------------------------------------------------------
# The run


def test_everything_is_checked_and_timed(capfd):
    result = bench.run_here(sweep("all", "all", "64,4KiB"), ranks=4, timeout=300)
    assert {(s["collective"], s["algorithm"]) for s in result["series"]} == {
        *((c, BACKEND) for c in COLLECTIVES),
        *REGISTRY,
    }
    for series in result["series"]:
        assert (series["n_ranks"], series["n_nodes"]) == (4, 1)
        assert [row["nbytes"] for row in series["rows"]] == [64, 4 * KIB]
        for row in series["rows"]:
            assert 0 < row["low_s"] <= row["median_s"] <= row["high_s"]
            assert row["algbw_Bps"] == row["nbytes"] / row["median_s"]
            assert row["busbw_Bps"] == pytest.approx(series["bus_factor"] * row["algbw_Bps"])
            assert row["blocks"] == 2
            assert row["calls"] == 10
    assert (result["backend"], result["device"], result["n_ranks"]) == ("gloo", "cpu", 4)
    assert json.loads(json.dumps(result)) == result
    out, err = capfd.readouterr()
    assert out == ""
    progress = err.splitlines()
    assert len(progress) == 2 * len(COLLECTIVES)
    assert progress[0].startswith("[1/12] all_reduce 64 B: backend, naive, ring")


def test_a_wrong_collective_is_not_timed(monkeypatch):
    make_job = bench.make_job

    def make_lazy_job(worker, *rest):
        return make_job("bench_broken_workers:sweep_with_a_lazy_ring", *rest)

    monkeypatch.setattr(bench, "make_job", make_lazy_job)
    # Of a ring without its last step, each of 4 ranks lacks a quarter of the sum.
    with pytest.raises(RankError, match=r"all_reduce by ring at 4 KiB gave \d+ wrong numbers") as e:
        bench.run_here(sweep(algorithms="backend,ring", sizes="4KiB"), ranks=4, timeout=120)
    assert "\n" not in str(e.value)


@pytest.fixture(scope="module")
def believed():
    """What each rank must hold in the bench's opinion, and the numbers that it starts from."""
    from commlab.real.bench_workers import _numbers_of, tiled

    own = [tiled(_numbers_of(rank), 24).numpy() for rank in range(3)]
    held = {
        collective: run(
            "bench_broken_workers:believed_right",
            ranks=3,
            collective=collective,
            n_elements=24,
        )
        for collective in ("all_gather", "all_to_all", "reduce_scatter")
    }
    return own, held


def test_the_check_knows_what_is_right(believed):
    own, held = believed
    gathered = simulated.all_gather([buffer[:8] for buffer in own])
    for collective, right in (
        ("all_gather", gathered),
        ("all_to_all", simulated.all_to_all(own)),
        ("reduce_scatter", simulated.reduce_scatter(own)),
    ):
        for rank in range(3):
            assert np.array_equal(held[collective][rank], right[rank]), (collective, rank)


# ---------------------------------------------------------------------------------------
# The result


@pytest.mark.parametrize("n_ranks", range(1, 65))
def test_bus_factors_are_those_of_nccl_tests(n_ranks):
    assert bus_factor("all_reduce", n_ranks) == pytest.approx(2 - 2 / n_ranks)
    for collective in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        assert bus_factor(collective, n_ranks) == pytest.approx(1 - 1 / n_ranks)
    for collective in ("broadcast", "reduce", "sendrecv"):
        assert bus_factor(collective, n_ranks) == 1
    with pytest.raises(ValueError, match="no collective 'gossip'"):
        bus_factor("gossip", n_ranks)


def sample_result(seconds=(0.005, 0.004, 0.006, 0.005, 0.009)):
    cases, _ = plan_cases(sweep("all_reduce", "backend,ring", "1GiB"), 8)
    measured = [{"calls": 1, "seconds": [list(seconds), [2 * s for s in seconds]]}]
    hosts = ["a"] * 4 + ["b"] * 4
    return make_result(cases, measured, hosts, 2, "gloo", "cpu", {}, ["a reason."])


def test_a_row_has_median_quartiles_and_rates():
    backend, ring = sample_result()["series"]
    (row,) = backend["rows"]
    assert (row["low_s"], row["median_s"], row["high_s"]) == (0.005, 0.005, 0.006)
    assert row["algbw_Bps"] / 1e9 == pytest.approx(214.75, abs=0.005)
    assert row["busbw_Bps"] / 1e9 == pytest.approx(214.75 * 7 / 4, abs=0.01)
    assert ring["rows"][0]["median_s"] == 0.010
    assert (ring["algorithm"], ring["n_nodes"]) == ("ring", 2)


def test_the_table_has_the_columns_of_nccl_tests():
    lines = list(table_lines(sample_result()))
    assert lines[1] == "# nranks 8 on 2 nodes, backend gloo, device cpu"
    assert lines[2] == "# left out: a reason."
    head = next(line for line in lines if "algbw" in line)
    assert head.lstrip("#").split() == (
        "size count type redop root time algbw busbw #wrong time-25% time-75%".split()
    )
    first, second = [line.split() for line in lines if not line.startswith("#")]
    assert first == (
        "1073741824 268435456 float sum -1 5000.00 214.75 375.81 0 5000.00 6000.00".split()
    )
    assert second[5] == "10000.00"
    assert {len(line) for line in lines if line.startswith("#  ")} == {len(head)}


def test_small_rates_do_not_print_as_zero():
    row = next(line for line in table_lines(sample_result([3e5])) if not line.startswith("#"))
    assert row.split()[6:8] == ["3.58e-06", "6.26e-06"]


def test_the_result_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    output = tmp_path / "bench.json"
    output.write_text("the one before")

    def fail(*paths):
        raise OSError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="disk"):
            write_result(output, sample_result())
    assert output.read_text() == "the one before"
    write_result(output, sample_result())
    assert json.loads(output.read_text())["format"] == bench_result.FORMAT
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    assert bench_result.why_not_writable(None) is None
    assert bench_result.why_not_writable(tmp_path / "new.json") is None
    assert "is a folder" in bench_result.why_not_writable(tmp_path)
    assert "no folder" in bench_result.why_not_writable(tmp_path / "gone" / "new.json")
