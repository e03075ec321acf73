from __future__ import annotations

import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib

import pytest
from two_nodes import run_on_two_nodes

from commlab import cli
from commlab.real import _files, bench, bench_result, torchrun
from commlab.real.doctor.system import namespaces
from commlab.real.interfaces import interface_towards
from commlab.real.launch import make_job, run_job
from commlab.units import KIB
from tools.lints.pages import ROOT

PAGE = (ROOT / "book" / "own_cluster.md").read_text(encoding="utf-8")
TORCHRUN_VARIABLES = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT".split()
INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No test is taken for a rank of somebody's torchrun."""
    for name in (*TORCHRUN_VARIABLES, *INTERFACE_VARIABLES):
        monkeypatch.delenv(name, raising=False)


def commlab(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "commlab.cli", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


# ---------------------------------------------------------------------------------------
# The command


def test_the_command_loads_torch_only_when_it_measures():
    program = (
        "import sys, commlab.cli; commlab.cli.make_parser(); import commlab.real.doctor, "
        "commlab.real.bench; print([m for m in ('torch', 'matplotlib') if m in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"


@pytest.mark.parametrize("arguments", [[], ["bench"], ["doctor"]])
def test_help_names_what_was_not_run_on_gpus(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([*arguments, "--help"])
    assert ended.value.code == 0
    told = " ".join(capsys.readouterr().out.split())
    assert ("not run on GPUs here" in told) == bool(arguments)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "COMMAND"),
        (["bnech"], "invalid choice: 'bnech'"),
        (["bench", "--ranks", "four"], "invalid int value: 'four'"),
        (["doctor", "--lang", "fr"], "invalid choice: 'fr'"),
        (["bench", "--sizes", "64MB.1GB"], "cannot read the size"),
        (["bench", "--ranks", "1"], "2 ranks or more"),
        (["bench", "--ranks", "2", "--sizes", "1TiB"], "GiB are free"),
        (["bench", "--ranks", "100000", "--sizes", "1MiB"], "fewer ranks"),
        (["bench", "--algorithms", "magic"], "no algorithm 'magic'"),
        (["bench", "--backend", "nccl"], "start this command with torchrun"),
        (["bench", "--out", "gone/bench.json"], "there is no folder gone"),
        (["bench", "--timeout", "0"], "a number of seconds above 0"),
        (["bench", "--timeout", "nan"], "a number of seconds above 0"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(arguments, word, capsys, monkeypatch):
    monkeypatch.setattr(bench, "run_job", None)  # would fail if a process were started
    try:
        status = cli.main(arguments)
    except SystemExit as ended:
        status = ended.code
    assert status == cli.REFUSED
    out, err = capsys.readouterr()
    assert out == ""
    assert word in err
    (line,) = err.splitlines()
    assert re.fullmatch(r"commlab( \w+)?: .*\.", line)


def test_bench_prints_a_table_and_writes_the_same_numbers(tmp_path, capsys):
    output = tmp_path / "result.json"
    arguments = ["--ranks", "2", "--sizes", "1KiB..4KiB", "--blocks", "3", "--out", str(output)]
    collectives = ["--collectives", "all_reduce,all_gather"]
    algorithms = ["--algorithms", "backend,recursive_doubling"]
    assert cli.main(["bench", *arguments, *collectives, *algorithms]) == cli.DONE
    out, err = capsys.readouterr()
    result = json.loads(output.read_text(encoding="utf-8"))
    assert out.splitlines() == list(bench_result.table_lines(result))
    assert len(err.splitlines()) == 6
    assert list(tmp_path.iterdir()) == [output]
    rows = [line.split() for line in out.splitlines() if not line.startswith("#")]
    assert [int(row[0]) for row in rows] == 4 * [KIB, 2 * KIB, 4 * KIB]


def test_a_time_limit_ends_the_bench_and_leaves_no_file(tmp_path, capsys):
    output = tmp_path / "result.json"
    assert cli.main(["bench", "--timeout", "0.2", "--out", str(output)]) == cli.REFUSED
    assert "did not end within 0.2 s" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="signals of Unix")
def test_ctrl_c_ends_the_bench_in_one_line(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-m", "commlab.cli", "bench", "--sizes", "1MiB", "--blocks", "100000"],
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts a job in the background with Ctrl-C ignored, and all below inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("[1/6] all_reduce 1 MiB")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == cli.INTERRUPTED
    assert out == ""
    assert err.splitlines()[-1] == "commlab bench: interrupted, nothing was written."
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("unbuffered", ["", pytest.param("1", marks=pytest.mark.night)])
def test_a_pipe_that_closes_is_no_error(unbuffered):
    program = f"{sys.executable} -m commlab.cli doctor | head -n 1; exit ${{PIPESTATUS[0]}}"
    answer = subprocess.run(
        ["bash", "-c", program],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stderr == ""
    assert answer.stdout.startswith("commlab doctor")


def test_a_terminal_without_chinese_shows_something():
    answer = commlab("doctor", "--lang", "zh", PYTHONIOENCODING="ascii")
    assert answer.stderr == ""
    assert "\\u" in answer.stdout


def test_the_installed_command_is_this_one():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, function = project["scripts"]["commlab"].partition(":")
    assert getattr(importlib.import_module(module), function) is cli.command


def test_progress_goes_over_the_line_of_a_terminal(capsys, monkeypatch):
    bench._print_line("[1/2] all_reduce")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bench._print_line("[2/2] all_reduce")
    assert capsys.readouterr().err == "[1/2] all_reduce\n\r[2/2] all_reduce\x1b[K\n"


# ---------------------------------------------------------------------------------------
# Under torchrun


def place_variables(**changed: str) -> dict[str, str]:
    return {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
        **changed,
    }


def test_a_rank_reads_its_place():
    place = torchrun.read_place(place_variables())
    assert place == torchrun.Place(5, 8, 1, 4, 2, "10.0.0.1", "29500")


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"MASTER_ADDR": ""}, "MASTER_ADDR is not set"),
        ({"LOCAL_RANK": "x"}, "LOCAL_RANK is 'x'"),
        ({"RANK": "8"}, "do not go together"),
        ({"LOCAL_RANK": "4"}, "do not go together"),
        ({"LOCAL_WORLD_SIZE": "3"}, "the same --nproc-per-node"),
    ],
)
def test_a_place_that_makes_no_sense_is_refused(changed, word):
    with pytest.raises(ValueError, match=word):
        torchrun.read_place(place_variables(**changed))


def test_all_ranks_choose_the_same_backend():
    assert torchrun.choose_backend("auto", 4, [0] * 8) == "gloo"
    assert torchrun.choose_backend("auto", 4, [4] * 8) == "nccl"
    assert torchrun.choose_backend("auto", 4, [4] * 4 + [3] * 4) == "gloo"
    assert torchrun.choose_backend("gloo", 4, [4] * 8) == "gloo"
    assert torchrun.choose_backend("nccl", 4, [8] * 8) == "nccl"
    with pytest.raises(ValueError, match="PyTorch sees 3 where rank 4 is"):
        torchrun.choose_backend("nccl", 4, [4] * 4 + [3] * 4)
    with pytest.raises(ValueError, match="no backend 'mpi'"):
        torchrun.choose_backend("mpi", 1, [0])


def test_gloo_takes_the_interface_that_leads_to_the_others(monkeypatch):
    torchrun._give_gloo_an_interface("127.0.0.1", ["127.0.0.1"])
    assert os.environ.pop("GLOO_SOCKET_IFNAME", None) == interface_towards("127.0.0.1")
    torchrun._give_gloo_an_interface("no such name", [])
    assert "GLOO_SOCKET_IFNAME" not in os.environ
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    torchrun._give_gloo_an_interface("127.0.0.1", [])
    assert os.environ["GLOO_SOCKET_IFNAME"] == "eth7"


def test_a_node_that_knows_itself_as_127_0_1_1_looks_towards_the_others(monkeypatch):
    monkeypatch.setattr(torchrun, "interface_towards", {"10.0.0.2": "eth0"}.get)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")
    torchrun._give_gloo_an_interface("127.0.1.1", ["127.0.0.1", "", "10.0.0.2"])
    assert os.environ["GLOO_SOCKET_IFNAME"] == "eth0"


def test_a_lonely_rank_gives_up_in_one_sentence(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as closed_soon:
        port = str(closed_soon.getsockname()[1])
    variables = place_variables(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    output = tmp_path / "result.json"
    start = time.monotonic()
    answer = commlab("bench", "--timeout", "2", "--out", str(output), **variables)
    assert time.monotonic() - start < 60
    assert answer.returncode == cli.REFUSED
    (line,) = answer.stderr.splitlines()
    assert line.startswith("commlab bench: rank 5 on ")
    assert f"found no group through 127.0.0.1 port {port}" in line
    assert "run `commlab doctor` on every node." in line
    assert not output.exists()


def test_ranks_refuse_together_and_one_of_them_says_why():
    for rank in range(2):
        answer = commlab("bench", "--ranks", "4", **place_variables(RANK=str(rank), WORLD_SIZE="8"))
        assert answer.returncode == cli.REFUSED
        said = answer.stderr.splitlines()
        assert said == (
            ["commlab bench: torchrun has started 8 ranks, not 4: leave out --ranks."]
            if rank == 0
            else []
        )


def slurm_script() -> str:
    (script,) = re.findall(r"```bash\n(#!/bin/bash\n.*?)```", PAGE, flags=re.DOTALL)
    return script


def test_the_slurm_script_of_the_book_measures_between_two_nodes(tmp_path):
    (namespaces_finding,) = namespaces()
    separate = namespaces_finding.severity == "ok"
    # Without namespaces both nodes are this machine, and the doctor says so in a sentence.
    assert separate or "cannot play a cluster" in namespaces_finding.what.en
    script = slurm_script()
    for long, short in (("1KiB..1GiB", "1KiB,64KiB --blocks 3"), ("bench.json", "short.json")):
        assert long in script
        script = script.replace(long, short)
    if separate:
        script += "\nawk '/left:/ {print $10}' /proc/net/dev\n"
    answer = run_on_two_nodes(tmp_path, script)
    assert answer.returncode == 0, answer.stdout + answer.stderr

    result = json.loads((tmp_path / "short.json").read_text(encoding="utf-8"))
    assert (result["backend"], result["n_ranks"], result["n_nodes"]) == ("gloo", 4, 2)
    assert len(result["hosts"]) == 4
    assert [(s["collective"], s["algorithm"], s["options"]) for s in result["series"]] == [
        ("all_reduce", "backend", {}),
        ("all_reduce", "ring", {}),
        ("all_reduce", "hierarchical", {"gpus_per_node": 2}),
        ("all_gather", "backend", {}),
        ("all_gather", "ring", {}),
    ]
    for series in result["series"]:
        assert [row["nbytes"] for row in series["rows"]] == [KIB, 64 * KIB]
    lines = answer.stdout.splitlines()
    assert lines[0].startswith("commlab doctor")
    table = list(bench_result.table_lines(result))
    first = lines.index(table[0])
    assert lines[first : first + len(table)] == table
    if separate:
        assert "The host name nowhere-7 does not resolve" in answer.stdout
        # A rank sends 96 KiB in a ring all-reduce of 64 KiB, and it is called for the check,
        # and 10 times in each of 2 + 3 blocks; one of node 0's ranks sends to node 1.
        assert int(lines[-1]) > 96 * KIB * (1 + 10 * (2 + 3))


@pytest.mark.night
def test_a_fault_that_the_doctor_finds_stops_the_slurm_job(tmp_path):
    answer = run_on_two_nodes(tmp_path, slurm_script(), GLOO_SOCKET_IFNAME="eth77")
    assert answer.returncode == cli.FAULTS_FOUND
    assert "there is no interface 'eth77' here" in answer.stdout
    assert not (tmp_path / "bench.json").exists()


@pytest.mark.night
def test_the_same_worker_writes_the_same_files_under_torchrun(tmp_path):
    worker = "commlab.real.workers:five_collectives"
    here = tmp_path / "here"
    here.mkdir()
    run_job(here, make_job(worker, 4, 60, {}))
    (command,) = re.findall(r"```bash\n# on the first node.*?\n(torchrun .*?)```", PAGE, re.DOTALL)
    assert worker in command
    for of_page, of_test in (
        ("--node-rank 0", '--node-rank "$SLURM_NODEID"'),
        ("--nproc-per-node 8", "--nproc-per-node 2"),
        ("10.0.0.1", '"$HEAD"'),
        ("29500", "29511"),
    ):
        assert of_page in command
        command = command.replace(of_page, of_test)
    answer = run_on_two_nodes(tmp_path, f"srun bash -c '{command}'")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    for rank in range(4):
        name = _files.result(rank)
        assert (tmp_path / "results" / name).read_bytes() == (here / name).read_bytes()
    assert len(list((tmp_path / "results").iterdir())) == 4


@pytest.mark.night
def test_a_worker_that_fails_under_torchrun_leaves_a_report(tmp_path):
    command = (
        "torchrun --nnodes 1 --nproc-per-node 2 --master-addr 127.0.0.1 --master-port 29512 "
        "-m commlab.real.torchrun real_workers:return_a_tensor --output results"
    )
    answer = run_on_two_nodes(tmp_path, command)
    assert answer.returncode != 0
    assert "the worker failed: TypeError: the worker returned something that" in answer.stderr
    assert "(for a tensor, tensor.tolist())" in answer.stderr
    (report, *_) = (tmp_path / "results").glob("*.report.json")
    assert "is not JSON serializable" in _files.read_json(report)["traceback"]
    assert not list((tmp_path / "results").glob("*.result.json"))


@pytest.mark.parametrize(
    ("worker", "word"),
    [
        ("commlab.real.workers:gone", "no worker"),
        ("gone:gone", "no worker"),
        ("x", "no worker"),
        ("commlab.real.workers:first_program", "timeout is -1.0"),
    ],
)
def test_a_run_that_makes_no_sense_is_refused(worker, word, monkeypatch, tmp_path):
    for name, value in place_variables().items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=word):
        torchrun.run_worker(worker, tmp_path, {}, "gloo", -1.0)
