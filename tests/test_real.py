from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import nbformat
import numpy as np
import pytest
from jupyter_client.manager import start_new_kernel
from leftovers import ROOT, TESTS, processes_of, python, wait_until
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError

import commlab
from commlab.algorithms import ring_reduce_scatter
from commlab.real import RankError, launch, measure, run
from commlab.units import KIB, MIB

# What a cell of a notebook needs to find the same as `python` does.
CELL_PATHS = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(TESTS)!r}]"
RUNS_AT_ONCE = 30 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 2


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A folder of this test alone for everything that `run` puts on the disk."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


# ---------------------------------------------------------------------------------------
# What comes back


def test_prints_come_out_by_rank_and_nothing_is_left(scratch, capsys):
    results = run("commlab.real.workers:first_program")
    assert results == [[64.0, 68.0, 72.0, 76.0]] * 4
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        f"[rank {r}] before {[10.0 * r + k for k in (1, 2, 3, 4)]}" for r in range(4)
    ]
    assert err == ""
    assert list(scratch.iterdir()) == []
    assert processes_of(scratch) == []


def test_what_ranks_write_to_stderr_is_passed_on(capsys):
    assert run("real_workers:warn", ranks=2) == [None, None]
    assert capsys.readouterr().err.splitlines() == ["[rank 0] careful", "[rank 1] careful"]


@pytest.mark.parametrize("n_ranks", [1, 4, 16])
def test_five_collectives_equal_the_simulated_ones(n_ranks):
    by_rank = run("commlab.real.workers:five_collectives", ranks=n_ranks)
    own = [np.arange(1.0, n_ranks + 1) + 10 * rank for rank in range(n_ranks)]
    simulated = {
        "all_reduce": commlab.all_reduce(own),
        "broadcast": commlab.broadcast(own, root=0),
        "all_gather": commlab.all_gather(own),
        "reduce_scatter": commlab.reduce_scatter(own),
        "all_to_all": commlab.all_to_all(own),
    }
    for rank in range(n_ranks):
        expected = {name: results[rank].tolist() for name, results in simulated.items()}
        assert by_rank[rank] == expected
    # torch gives rank r chunk r; the first half of the textbook ring leaves it chunk r+1.
    textbook = commlab.simulate(ring_reduce_scatter(n_ranks, owner_shift=1), own).buffers
    for rank in range(n_ranks):
        assert by_rank[(rank + 1) % n_ranks]["reduce_scatter"] == textbook[rank].tolist()


def test_ddp_broadcasts_once_and_keeps_all_ranks_bitwise_equal():
    by_rank = run("commlab.real.ddp:train_with_ddp", n_steps=20, batch_size=256)
    assert len({rank["at_start"] for rank in by_rank}) == 4
    assert {rank["once_wrapped"] for rank in by_rank} == {by_rank[0]["at_start"]}
    assert len({rank["trained"] for rank in by_rank}) == 1
    assert by_rank[0]["trained"] != by_rank[0]["at_start"]
    assert max(rank["difference"] for rank in by_rank) < 1e-6


def test_ddp_divides_first_and_broadcasts_buffers():
    for rank in run("commlab.real.ddp:ddp_details", huge=3e38):
        assert rank["ddp_gradient"] == float(np.float32(3e38))
        assert rank["sum_then_divide"] == float("inf")
        assert rank["buffer"] == 0.0
        assert rank["first_bucket_bytes"] == MIB
        assert rank["bucket_bytes"] == 25 * MIB


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=pytest.mark.night)])
def test_ranks_that_are_not_forked_give_the_same(monkeypatch, scratch, method):
    # spawn is the way of macOS and Windows.
    monkeypatch.setattr(launch, "_start_method", lambda: method)
    assert run("real_workers:add_one", ranks=2, start=0.5) == [2.0, 2.0]
    with pytest.raises(RankError, match="rank 1 was ended by signal 9"):
        run("real_workers:kill_rank_1", ranks=2)
    assert processes_of(scratch) == []
    assert list(scratch.iterdir()) == []


# ---------------------------------------------------------------------------------------
# The line that says how far a run is

ADD_ONE = "from commlab.real import run; print(run('real_workers:add_one', ranks=2, start=0.5))"


def last_line_on_screen(written: str) -> str:
    """What a terminal shows in the end: a carriage return goes back, and text overwrites."""
    screen: list[str] = []
    for part in written.split("\r"):
        screen[: len(part)] = part
    return "".join(screen)


@pytest.mark.skipif(os.name != "posix", reason="needs the pseudo-terminals of Unix")
def test_a_terminal_shows_a_line_that_vanishes():
    ours, theirs = os.openpty()
    done = subprocess.run(**python(ADD_ONE), stdout=subprocess.PIPE, stderr=theirs, timeout=60)
    os.close(theirs)
    written = b""
    with contextlib.suppress(OSError):  # Linux says in this way that the other end is closed.
        while part := os.read(ours, 4096):
            written += part
    os.close(ours)
    text = written.decode()
    assert done.stdout == "[2.0, 2.0]\n"
    assert "2 ranks are starting, " in text and " s (at most 60 s)" in text
    assert last_line_on_screen(text).strip() == ""
    assert "\n" not in text


@pytest.mark.parametrize("somebody_watches", [True, False])
def test_a_notebook_shows_a_line_only_to_somebody_who_watches(somebody_watches):
    script = f"{CELL_PATHS}; from commlab.real import _progress\n"
    script += f"_progress.NOTEBOOK_DELAY_SECONDS = 0\n{ADD_ONE}"
    messages: list[dict] = []
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        client.execute_interactive(
            script, allow_stdin=somebody_watches, output_hook=messages.append, timeout=60
        )
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    kinds = [m["msg_type"] for m in messages if m["msg_type"] not in ("status", "execute_input")]
    shown = [m["content"]["data"]["text/html"] for m in messages if "data" in m["content"]]
    printed = "".join(m["content"]["text"] for m in messages if m["msg_type"] == "stream")
    assert printed == "[2.0, 2.0]\n"
    if somebody_watches:
        assert kinds.count("display_data") == 1
        assert "2 ranks are starting" in shown[0]
        assert shown[-1] == ""
    else:
        # What nbclient and nbval would store, or compare.
        assert kinds == ["stream"]


# ---------------------------------------------------------------------------------------
# Surroundings that break other launchers

HOSTILE = {
    "environment": "",
    "forkserver": "import multiprocessing; multiprocessing.set_start_method('forkserver')",
    "matmul before": "import numpy; numpy.ones((1500, 1500)) @ numpy.ones((1500, 1500))",
}
ENVIRONMENT = {
    "http_proxy": "http://192.0.2.1:9",
    "ALL_PROXY": "socks5://192.0.2.1:9",
    # What another launcher, or a cluster, may have left behind.
    "RANK": "7",
    "WORLD_SIZE": "8",
    "MASTER_ADDR": "192.0.2.1",
    "MASTER_PORT": "29500",
    "GLOO_SOCKET_IFNAME": "no_such_interface",
    "OMP_NUM_THREADS": "4",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_run_survives(case):
    script = f"""
import sys
{HOSTILE[case]}
from commlab.real import run
assert run("real_workers:add_one", ranks=3, start=1.0) == [6.0] * 3
assert "torch" not in sys.modules and "matplotlib" not in sys.modules
"""
    environment = ENVIRONMENT if case == "environment" else {}
    with socket.socket() as occupant:
        occupant.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # Somebody else's is as good.
            occupant.bind(("127.0.0.1", 29500))  # torch's usual port
            occupant.listen()
        done = subprocess.run(**python(script, **environment), capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_two_runs_at_once():
    with ThreadPoolExecutor(2) as pool:
        for turn in range(RUNS_AT_ONCE):
            starts = [float(turn), float(turn + 100)]
            sums = pool.map(lambda start: run("real_workers:add_one", ranks=2, start=start), starts)
            assert list(sums) == [[2 * start + 1] * 2 for start in starts]


@pytest.mark.skipif(sys.platform != "linux", reason="needs the namespaces of Linux")
def test_run_survives_a_host_name_that_does_not_resolve():
    script = """
import fcntl, socket, struct
socket.sethostname("nowhere.invalid")
UP, SET_FLAGS = 1, 0x8914  # the loopback interface of a new namespace is down
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sH14x", b"lo", UP))
try:
    socket.getaddrinfo(socket.gethostname(), None)
except OSError:
    pass
else:
    raise SystemExit("this host name resolves: the test tests nothing")
from commlab.real import run
assert run("real_workers:add_one", ranks=2, start=0.5) == [2.0, 2.0]
"""
    command = python(script)
    command["args"] = ["unshare", "--user", "--map-root-user", "--net", "--uts", *command["args"]]
    done = subprocess.run(**command, capture_output=True, timeout=60)
    if "unshare failed" in done.stderr:
        pytest.skip(f"no namespaces here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


# ---------------------------------------------------------------------------------------
# Failures


@pytest.mark.parametrize(
    ("worker", "rank", "sentence"),
    [
        ("raise_in_rank_2", 2, r"rank 2 failed: ValueError: the cause \(real_workers.py, line"),
        ("kill_rank_1", 1, r"rank 1 was ended by signal 9"),
        ("return_a_tensor", None, r"not plain data .*tensor\.tolist\(\)"),
    ],
)
def test_the_first_failing_rank_is_named(scratch, worker, rank, sentence):
    with pytest.raises(RankError, match=sentence) as caught:
        run(f"real_workers:{worker}")
    assert rank is None or caught.value.rank == rank
    if worker == "raise_in_rank_2":
        assert 'raise ValueError("the cause")' in caught.value.details
    assert processes_of(scratch) == []
    assert list(scratch.iterdir()) == []


def test_time_out_names_who_had_not_finished_and_ends_all(scratch, capsys):
    with pytest.raises(RankError, match=r"within 10 s: ranks 1 and 2 had not finished, rank 0 had"):
        run("real_workers:hang_except_rank_0", ranks=3, timeout=10)
    assert capsys.readouterr().out.splitlines() == [f"[rank {r}] here" for r in range(3)]
    assert processes_of(scratch) == []
    assert list(scratch.iterdir()) == []


def test_time_out_before_the_ranks_exist(scratch):
    with pytest.raises(RankError, match="had not started yet"):
        run("real_workers:hang_except_rank_0", timeout=0.05)
    assert processes_of(scratch) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_the_caller(tmp_path, how):
    script = """
import signal
from commlab.real import run
# A test run in the background of a shell would inherit that Ctrl-C is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
run('real_workers:hang_except_rank_0', ranks=3)
"""
    command = python(script, TMPDIR=str(tmp_path))
    with subprocess.Popen(**command, stderr=subprocess.PIPE) as caller:

        def all_ranks_are_there() -> bool:
            texts = [path.read_text() for path in tmp_path.glob("*/rank*.out.txt")]
            return texts == ["here\n"] * 3

        assert wait_until(all_ranks_are_there, 40)
        assert len(processes_of(tmp_path)) >= 3  # the helper and the ranks that sleep
        caller.send_signal(how)
        assert wait_until(lambda: not processes_of(tmp_path), 5)
        assert wait_until(lambda: not list(tmp_path.iterdir()), 5)
        _, err = caller.communicate(timeout=10)
    assert caller.returncode != 0
    assert ("KeyboardInterrupt" in err) == (how == signal.SIGINT)


def test_nothing_outlives_a_caller_that_is_killed_at_once(tmp_path):
    # The helper is still importing torch, which takes it seconds.
    script = "from commlab.real import run; run('real_workers:hang_except_rank_0', ranks=3)"
    with subprocess.Popen(**python(script, TMPDIR=str(tmp_path))) as caller:
        assert wait_until(lambda: processes_of(tmp_path), 40)
        caller.kill()
        assert wait_until(lambda: not processes_of(tmp_path), 5)
        assert wait_until(lambda: not list(tmp_path.iterdir()), 5)


@pytest.mark.parametrize("interrupt", [False, True])
def test_nothing_outlives_a_cell_that_runs_out_of_time(tmp_path, interrupt):
    cell = f"""{CELL_PATHS}
import tempfile
tempfile.tempdir = {str(tmp_path)!r}
from commlab.real import run
run("real_workers:hang_except_rank_0", ranks=3, timeout=600)
"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    client = NotebookClient(
        notebook, timeout=6, kernel_name="python3", interrupt_on_timeout=interrupt
    )
    errors: list[BaseException] = []

    def execute() -> None:
        try:
            client.execute()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=execute)
    thread.start()
    assert wait_until(lambda: processes_of(tmp_path), 40)
    thread.join()
    assert wait_until(lambda: not processes_of(tmp_path), 5)
    assert wait_until(lambda: not list(tmp_path.iterdir()), 5)
    if interrupt:
        # The cell is told by an interrupt, and the notebook keeps what it raised.
        assert notebook.cells[0].outputs[-1].ename == "KeyboardInterrupt"
    else:
        assert isinstance(errors[0], CellTimeoutError)


@pytest.mark.parametrize(
    ("worker", "options", "sentence"),
    [
        ("real_workers:add_one", {"ranks": 0}, "ranks is 0: give a whole number"),
        ("real_workers:add_one", {"ranks": 2.0}, "ranks is 2.0"),
        ("real_workers:add_one", {"timeout": float("nan")}, "timeout is nan"),
        ("real_workers", {}, "not of the form 'module:function'"),
        ("no_such_module:add_one", {}, "no module 'no_such_module'"),
        ("real_workers:no_such_worker", {}, "'real_workers' has no function 'no_such_worker'"),
        (lambda: None, {}, "exists only in this notebook or function"),
        ("real_workers:add_one", {"start": np.ones(2)}, r"'start' \(ndarray\) cannot travel"),
    ],
)
def test_nonsense_is_refused(worker, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        run(worker, **options)


def test_a_missing_torch_is_said(monkeypatch):
    monkeypatch.setattr(launch, "_is_installed", lambda module: module != "torch")
    with pytest.raises(RankError, match="PyTorch is not installed"):
        run("real_workers:add_one", start=0.0)


# ---------------------------------------------------------------------------------------
# The rule that every rank calls every collective


def test_one_call_too_many_gives_a_wrong_number_silently():
    assert run("real_workers:one_call_too_many") == [1.0, 2110.0, 2110.0, 2110.0]


def test_rank_0_alone_blames_those_that_left():
    sentence = "ranks 1, 2 and 3 had finished while rank 0 still waited"
    with pytest.raises(RankError, match=sentence) as caught:
        run("real_workers:rank_0_alone")
    assert caught.value.rank == 1


def test_only_the_monitored_barrier_names_the_missing_ranks(capsys):
    timed_out, monitored = run("commlab.real.workers:rank_0_waits", patience=0.5)[0]
    assert "Timed out" in timed_out and "ank" not in timed_out
    assert "Ranks 1, 2, 3 failed to pass" in monitored
    assert capsys.readouterr().err == ""


# ---------------------------------------------------------------------------------------
# Measuring


def test_measurement_has_quartiles_of_each_size():
    measured = measure.measure_all_reduce([KIB, 64 * KIB], ranks=2, blocks=3)
    assert measured["nbytes"] == [KIB, 64 * KIB]
    for low, median, high in zip(
        measured["low"], measured["median"], measured["high"], strict=True
    ):
        assert 0 < low <= median <= high
    assert "torch" in measured["machine"]


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_fit_finds_alpha_and_beta(noise):
    random = np.random.default_rng(0)
    times = commlab.alpha_beta_ring_allreduce(np.array(measure.SIZES), 4, 150e-6, 1.5e9)
    times = times * np.exp(noise * random.standard_normal(len(times)))
    alpha, beta = measure.fit_alpha_beta(measure.SIZES, times, n_ranks=4)
    tolerance = 1e-9 if noise == 0 else 0.2
    assert alpha == pytest.approx(150e-6, rel=tolerance)
    assert beta == pytest.approx(1.5e9, rel=tolerance)


def test_fit_refuses_what_it_cannot_fit():
    with pytest.raises(ValueError, match="two different sizes"):
        measure.fit_alpha_beta([KIB, KIB], [1e-3, 1e-3], n_ranks=4)
    with pytest.raises(ValueError, match="no positive"):
        measure.fit_alpha_beta([KIB, MIB], [1e-3, 1e-4], n_ranks=4)


def test_measuring_refuses_one_rank_and_empty_vectors():
    with pytest.raises(ValueError, match="nobody to talk to"):
        measure.measure_all_reduce([KIB], ranks=1)
    with pytest.raises(ValueError, match="less than one float32"):
        measure.measure_all_reduce([0, KIB])


def test_stored_measurement_is_complete_and_plausible():
    stored = measure.stored_measurement()
    assert stored["nbytes"] == measure.SIZES
    assert stored["date"] and "torch" in stored["machine"]
    alpha, beta = measure.fit_alpha_beta(stored["nbytes"], stored["median"], stored["ranks"])
    assert 1e-5 < alpha < 1e-2
    assert 1e8 < beta < 1e11


def test_table_is_printed_and_stored(tmp_path, monkeypatch, capsys):
    stored = measure.stored_measurement()
    monkeypatch.setattr(measure, "measure_all_reduce", lambda sizes, ranks: stored)
    monkeypatch.setattr(sys, "argv", ["measure", "--output", str(tmp_path / "new.json")])
    measure.main()
    assert (tmp_path / "new.json").read_text().startswith("{")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 + len(measure.SIZES)
    assert "64 MiB" in lines[-1] and "fitted α" in lines[1]
