from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from leftovers import processes_of, python, wait_until
from matplotlib.figure import Figure

from commlab import price, verify
from commlab.algorithms import direct_all_to_all, hierarchical_all_reduce, ring_all_reduce
from commlab.explore.render import FIGURE_RC
from commlab.figures.virtual_cluster import figure_size, measured_and_priced
from commlab.real import RankError
from commlab.real.cluster import (
    MBIT,
    ClusterError,
    ClusterUnavailable,
    Job,
    Task,
    VirtualCluster,
    launch,
    place_ranks,
    run_on_cluster,
    run_tasks,
    stored_cluster_measurement,
)
from commlab.real.cluster.description import NIC_MTU, payload_fraction
from commlab.real.cluster.experiments import BAD_ORDER, ONE_NIC, RAIL_PER_GPU, moe_counts
from commlab.real.cluster.namespaces import unshare_command
from commlab.real.cluster.overlap import ddp_overlap
from commlab.real.cluster.results import Row, from_plain, to_plain
from commlab.units import MIB
from tests.test_figures_inside import texts_at_the_edge

S = 2 * MIB


def has_namespaces() -> bool:
    try:
        unshare_command()
    except ClusterUnavailable:
        return False
    return True


HAS_NAMESPACES = has_namespaces()


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A folder of this test alone for everything that a cluster puts on the disk."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def refused(*job) -> bool:
    """Whether no cluster can be made here; then it must be said, and nothing may be left."""
    if HAS_NAMESPACES:
        return False
    with pytest.raises(ClusterUnavailable, match="needs Linux with network namespaces"):
        run_tasks(*job)
    return True


def nothing_is_left(scratch: Path) -> bool:
    def mounts() -> str:
        return Path("/proc/self/mountinfo").read_text() if sys.platform == "linux" else ""

    return (
        wait_until(lambda: not processes_of(scratch), 5)
        and wait_until(lambda: not list(scratch.iterdir()), 5)
        and str(scratch) not in mounts()
    )


# ---------------------------------------------------------------------------------------
# On a cluster, or a clear refusal where none can be made


def test_hierarchy_and_rank_order_show_on_shaped_links(scratch):
    interfaces = socket.if_nameindex()
    if refused(ONE_NIC, [], 60):
        return
    ring = ring_all_reduce(4)
    jobs = [
        Job("ring", ring, S),
        Job("hierarchical", hierarchical_all_reduce(4, gpus_per_node=2), S),
        Job("bad order", ring, S, rank_order=BAD_ORDER),
    ]
    # Each rank's result is compared with the simulation there; a wrong one raises.
    run = run_on_cluster(ONE_NIC, jobs, repeats=2)
    # No times, but which is faster, by at least half of what the model says.
    good, hierarchical, bad = (min(result.seconds) for result in run.results)
    priced_good, priced_hierarchical, priced_bad = (result.priced for result in run.results)
    assert good / hierarchical > 1 + (priced_good / priced_hierarchical - 1) / 2
    assert bad / good > 1 + (priced_bad / priced_good - 1) / 2
    assert nothing_is_left(scratch)
    assert socket.if_nameindex() == interfaces


def test_traffic_takes_the_link_it_should(scratch):
    cluster = VirtualCluster(2, 2, nic_rate=200 * MBIT)
    look = Task("cluster_workers:look_around", {})
    if refused(cluster, [look], 60):
        return
    ring = launch._timing(ring_all_reduce(4), S // 4, repeats=1, seed=0)
    before, _, after = run_tasks(cluster, [look, ring, look], 60)
    assert all(seen["interfaces"] == ["lo", "nic", "nvlink"] for seen in before)
    times = 1 + launch.WARM_UP
    for rank in range(4):
        got = {
            link: after[rank]["received"][link] - before[rank]["received"][link]
            for link in ("lo", "nic", "nvlink")
        }
        # The left neighbour of GPU 0 sits on the other node, that of GPU 1 on this one.
        busy, idle = ("nic", "nvlink") if rank % 2 == 0 else ("nvlink", "nic")
        sent = times * 6 * S / 4
        assert sent <= got[busy] < 1.1 * sent, f"rank {rank}: {got}"
        assert got[idle] < 0.1 * sent
        assert got["lo"] == 0


def test_buckets_start_before_the_last_gradient_is_there(scratch):
    if refused(RAIL_PER_GPU, [], 60):
        return
    _, (one, many) = ddp_overlap(VirtualCluster(2, 2, nic_rate=200 * MBIT), n_steps=1)
    assert (one.n_buckets, many.n_buckets) == (1, 8)
    assert not one.overlaps
    assert many.overlaps
    # One at a time and in order, as the model has it.
    for pair in (one, many):
        ends = [bucket.end for bucket in pair.measured.buckets]
        starts = [bucket.start for bucket in pair.measured.buckets]
        assert all(end <= start for end, start in zip(ends[:-1], starts[1:], strict=True))
        assert [b.nbytes for b in pair.model.buckets] == [b.nbytes for b in pair.measured.buckets]


def test_a_failing_rank_is_named_and_nothing_is_left(scratch):
    job = RAIL_PER_GPU, [Task("cluster_workers:fail_on_rank_1", {})], 60
    if refused(*job):
        return
    with pytest.raises(RankError, match="rank 1 failed: ValueError: the cause"):
        run_tasks(*job)
    assert nothing_is_left(scratch)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_the_caller(tmp_path, how):
    signs, scratch = tmp_path / "signs", tmp_path / "scratch"
    signs.mkdir()
    scratch.mkdir()
    task = Task("cluster_workers:say_here_and_sleep", {"folder": str(signs)})
    if refused(RAIL_PER_GPU, [task], 60):
        return
    script = f"""
import signal
from commlab.real.cluster import Task, VirtualCluster, run_tasks
signal.signal(signal.SIGINT, signal.default_int_handler)
run_tasks(VirtualCluster(2, 2), [{task!r}], 60)
"""
    interfaces = socket.if_nameindex()
    with subprocess.Popen(**python(script, TMPDIR=str(scratch)), stderr=subprocess.PIPE) as caller:
        assert wait_until(lambda: len(list(signs.iterdir())) == 4, 40)
        assert len(processes_of(scratch)) >= 5  # the first process, the helper and the ranks
        caller.send_signal(how)
        assert nothing_is_left(scratch)
        caller.communicate(timeout=10)
    assert caller.returncode != 0
    assert socket.if_nameindex() == interfaces


def test_time_out_ends_all(scratch):
    task = Task("cluster_workers:say_here_and_sleep", {"folder": str(scratch)})
    if refused(RAIL_PER_GPU, [task], 60):
        return
    with pytest.raises(RankError, match="did not end within 3 s"):
        run_tasks(RAIL_PER_GPU, [task], 3)
    for sign in scratch.glob("here*"):
        sign.unlink()
    assert nothing_is_left(scratch)


# ---------------------------------------------------------------------------------------
# Refusals


def fake_system(folder: Path, monkeypatch, programs: dict[str, str]) -> None:
    """Let the search path hold these programs only: a script, or "" for the real one."""
    real = {name: shutil.which(name) for name in programs}
    for name, script in programs.items():
        if script:
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)
        else:
            (folder / name).symlink_to(real[name])
    monkeypatch.setenv("PATH", str(folder))


def test_another_system_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ClusterUnavailable, match=r"needs Linux .* and here this is darwin"):
        run_tasks(RAIL_PER_GPU, [], 60)


@pytest.mark.skipif(os.name != "posix", reason="replaces programs by shell scripts")
@pytest.mark.parametrize(
    ("programs", "sentence"),
    [
        ({}, "the program unshare is missing .package util-linux"),
        ({"unshare": "echo 'sh: 1: ip: not found' >&2; exit 127"}, "install iproute2"),
        (
            {"unshare": "echo 'unshare: unshare failed: Operation not permitted' >&2; exit 1"},
            "the system refused: unshare: unshare failed: Operation not permitted",
        ),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(tmp_path, monkeypatch, programs, sentence):
    monkeypatch.setattr(sys, "platform", "linux")
    fake_system(tmp_path, monkeypatch, programs)
    with pytest.raises(ClusterUnavailable, match=sentence) as refusal:
        run_tasks(RAIL_PER_GPU, [], 60)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"n_nodes": 0}, "n_nodes must be a whole number"),
        ({"n_nodes": 5, "gpus_per_node": 4}, "20 processes: ask for 2 to 16"),
        ({"n_nodes": 1, "gpus_per_node": 1}, "1 processes: ask for 2 to 16"),
        ({"rails": 3, "gpus_per_node": 4}, "rails must divide"),
        ({"nic_rate": 100}, "give bits per second"),
        ({"nvlink_rate": "fast"}, "give bits per second"),
        ({"nic_rate": 1000 * MBIT}, "CPU is the bottleneck"),
    ],
)
def test_nonsense_clusters_are_refused(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        VirtualCluster(**arguments)


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        (Job("a", ring_all_reduce(8), S), "8 ranks, the cluster 4"),
        (Job("a", ring_all_reduce(4), 7), "multiple of 4"),
        (Job("a", ring_all_reduce(4), S, rank_order=(0, 1, 2, 2)), "each of the ranks 0 to 3"),
    ],
)
def test_nonsense_jobs_are_refused_before_anything_starts(job, sentence, monkeypatch):
    monkeypatch.setattr(launch, "run_tasks", None)
    with pytest.raises(ValueError, match=f"a: .*{sentence}"):
        run_on_cluster(RAIL_PER_GPU, [job])
    with pytest.raises(ValueError, match="timeout"):
        run_tasks(RAIL_PER_GPU, [], -1)


# ---------------------------------------------------------------------------------------
# The model's side, which needs no cluster


def test_rates_are_those_left_for_data():
    cluster = VirtualCluster(nic_rate=100 * MBIT, nvlink_rate=900 * MBIT)
    # A full frame: 1448 bytes of data in 1514.
    assert payload_fraction(NIC_MTU) == 1448 / 1514
    topology = cluster.topology(1e-4)
    assert topology.between.beta == pytest.approx(12.5e6 * 1448 / 1514)
    assert topology.inside.beta == pytest.approx(112.5e6, rel=2e-3)
    assert topology.nic_of.tolist() == [0, 1, 2, 3]
    assert VirtualCluster(rails=1).topology().nic_of.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("cluster", [VirtualCluster(2, 3), VirtualCluster(2, 2, rails=1)])
def test_placed_schedules_are_right_and_cost_what_the_placed_topology_says(cluster):
    random = np.random.default_rng(7)
    n = cluster.n_ranks
    counts = random.integers(1, 50, (n, n))
    for schedule in (ring_all_reduce(n), direct_all_to_all(n, counts)):
        for _ in range(5):
            order = random.permutation(n)
            placed = place_ranks(schedule, order)
            verify(placed)
            there = price(placed, cluster.topology(1e-3, ports=n), MIB).total
            topology = cluster.topology(1e-3, ports=n, rank_order=order.tolist())
            assert there == pytest.approx(price(schedule, topology, MIB).total, rel=1e-12)


def test_the_bad_order_is_priced_at_twice_the_good_one():
    topology, ring = ONE_NIC.topology(), ring_all_reduce(4)
    bad = price(place_ranks(ring, BAD_ORDER), topology, S).total
    assert bad == pytest.approx(2 * price(ring, topology, S).total, rel=1e-12)


def test_a_wrong_result_is_not_taken_for_a_time(monkeypatch):
    answer = [{"seconds": [1.0], "digest": "wrong"}] * 4
    monkeypatch.setattr(launch, "run_tasks", lambda cluster, tasks, timeout: [answer] * len(tasks))
    with pytest.raises(ClusterError, match="ring: the ranks' results differ from the simulation"):
        run_on_cluster(RAIL_PER_GPU, [Job("ring", ring_all_reduce(4), S)])


@pytest.mark.parametrize("n_ranks", [2, 4, 7])
@pytest.mark.parametrize("percent", [0, 25, 50, 100])
def test_tokens_are_shared_out_completely(n_ranks, percent):
    counts = moe_counts(n_ranks, 1001, percent)
    assert (counts.sum(axis=1) == 1001).all()
    assert (counts[:, 0] == 1001 * percent // 100).all()
    others = counts[:, 1:]
    assert others.max() - others.min() <= 1


def test_the_stored_measurement_is_complete_and_says_what_the_model_says():
    stored = stored_cluster_measurement()
    assert from_plain(json.loads(json.dumps(to_plain(stored)))) == stored
    assert "torch" in stored.machine
    # Measured once and stored: these are the numbers that the page shows.
    assert all(0.85 < row.ratio < 1.25 for row in stored.rows), str(stored)
    assert stored.row("rank order", "slow-down").priced == pytest.approx(2, rel=0.02)
    assert [pair.overlaps for pair in stored.overlap] == [False, True]
    with pytest.raises(ValueError, match="there is no row 'rails', 'nothing'"):
        stored.row("rails", "nothing")


def test_a_row_is_printed_with_its_unit():
    assert Row("a", "b", 0.2, 0.1).cells() == ("a", "b", "200 ms", "100 ms", "2.00")
    assert Row("a", "b", 3.0, 2.0, "×").cells() == ("a", "b", "3.00 ×", "2.00 ×", "1.50")


# ---------------------------------------------------------------------------------------
# The figure


def test_the_figure_shows_times_and_all_its_text_is_inside(monkeypatch):
    stored = stored_cluster_measurement()
    times = stored.times()
    with mpl.rc_context(FIGURE_RC):
        fig = Figure(figsize=figure_size(times["experiments"]), dpi=100)
        data = measured_and_priced(fig, **times)
        assert texts_at_the_edge(fig, monkeypatch) == []
    (points,) = fig.axes[0].get_lines()
    assert points.get_xdata().tolist() == times["measured"] == data["measured"]
    assert [bar.get_width() for bar in fig.axes[0].patches] == times["priced"]
    assert len(data["labels"]) == len(times["names"]) < len(stored.rows)
    assert data["labels"][0] == "hierarchy: flat ring"


def test_a_figure_without_times_is_refused():
    with pytest.raises(ValueError, match="at least one time"):
        figure_size([])
