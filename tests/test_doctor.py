from __future__ import annotations

import importlib.util
import json
import os
import re
import socket
import sys
import time
import tomllib
from importlib import metadata
from types import SimpleNamespace

import pytest

from commlab.real import doctor, interfaces
from commlab.real.doctor import gpus, network, software, system
from commlab.real.doctor.finding import ERROR, NOTE, OK, WARNING
from tools.lints.pages import ROOT

HANZI = re.compile("[一-鿿]")


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    """Start from an environment that says nothing about jobs, interfaces, proxies and GPUs."""
    for name in list(os.environ):
        if re.match(r"(SLURM|GLOO|NCCL|MASTER|GROUP|LOCAL|CUDA_VIS|RANK|WORLD_SIZE)", name):
            monkeypatch.delenv(name)
    for name in network.PROXIES:
        monkeypatch.delenv(name, raising=False)


def only(findings):
    """The one finding there is, after a look at its form."""
    (finding,) = findings
    for text in (finding.what, finding.advice):
        if text is not None:
            assert HANZI.search(text.zh)
            assert not HANZI.search(text.en)
            assert text.en.endswith(".") and "\n" not in text.en
    assert (finding.advice is not None) or finding.severity in (OK, NOTE)
    return finding


# ---------------------------------------------------------------------------------------
# Network


def lookup(monkeypatch, *addresses, seconds=0.0):
    """Make every name resolve to these addresses, after so many seconds."""

    def getaddrinfo(name, *rest, **options):
        time.sleep(seconds)
        if not addresses:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 0)) for one in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(socket, "gethostname", lambda: "node7")


def test_a_host_name_that_resolves_is_fine(monkeypatch):
    lookup(monkeypatch, "10.0.0.7")
    finding = only(network.host_name())
    assert finding.severity == OK
    assert finding.what.en == "The host name node7 resolves to 10.0.0.7."


def test_a_host_name_that_does_not_resolve(monkeypatch):
    lookup(monkeypatch)
    finding = only(network.host_name())
    assert finding.severity == WARNING
    assert "node7 does not resolve" in finding.what.en
    assert "--master-addr" in finding.advice.en
    assert "--master-addr" in finding.advice.zh


def test_a_black_hole_instead_of_dns_does_not_stop_the_doctor(monkeypatch):
    lookup(monkeypatch, "10.0.0.7", seconds=30)
    monkeypatch.setattr(network, "RESOLVE_SECONDS", 0.1)
    start = time.monotonic()
    assert only(network.host_name()).severity == WARNING
    assert time.monotonic() - start < 10


def test_a_slow_host_name(monkeypatch):
    lookup(monkeypatch, "10.0.0.7", seconds=0.2)
    monkeypatch.setattr(network, "SLOW_SECONDS", 0.1)
    finding = only(network.host_name())
    assert finding.severity == WARNING
    assert "took 0." in finding.what.en


def test_a_host_name_that_means_this_machine_only(monkeypatch):
    lookup(monkeypatch, "127.0.1.1")
    assert only(network.host_name()).severity == OK
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    finding = only(network.host_name())
    assert finding.severity == WARNING
    assert "which other nodes cannot reach" in finding.what.en
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")
    assert only(network.host_name()).severity == OK


def test_loopback(monkeypatch):
    assert only(network.loopback()).severity == OK

    def fail(*address, **options):
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket, "create_connection", fail)
    finding = only(network.loopback())
    assert finding.severity == ERROR
    assert "ip link set lo up" in finding.advice.en


@pytest.fixture
def two_interfaces(monkeypatch):
    addresses = {"lo": "127.0.0.1", "eth0": "10.0.0.7", "eth1": None, "docker0": "172.17.0.1"}
    monkeypatch.setattr(network, "interface_names", lambda: list(addresses))
    monkeypatch.setattr(network, "interface_address", addresses.__getitem__)


@pytest.mark.parametrize(
    ("check", "variable", "value", "severity", "word"),
    [
        (network.gloo_interface, "GLOO_SOCKET_IFNAME", "eth0", OK, "selects eth0"),
        (network.gloo_interface, "GLOO_SOCKET_IFNAME", "eth0,docker0", OK, "eth0, docker0"),
        (network.gloo_interface, "GLOO_SOCKET_IFNAME", "eth", ERROR, "no interface 'eth'"),
        (network.gloo_interface, "GLOO_SOCKET_IFNAME", "eth0,ib0", ERROR, "no interface 'ib0'"),
        (network.gloo_interface, "GLOO_SOCKET_IFNAME", "eth1", WARNING, "no IPv4 address"),
        (network.nccl_interface, "NCCL_SOCKET_IFNAME", "eth", OK, "selects eth0, eth1"),
        (network.nccl_interface, "NCCL_SOCKET_IFNAME", "=eth0", OK, "selects eth0."),
        (network.nccl_interface, "NCCL_SOCKET_IFNAME", "=eth", ERROR, "no interface '=eth'"),
        (network.nccl_interface, "NCCL_SOCKET_IFNAME", "^docker,lo", OK, "selects eth0, eth1"),
        (network.nccl_interface, "NCCL_SOCKET_IFNAME", "^=lo", OK, "eth0, eth1, docker0"),
        (network.nccl_interface, "NCCL_SOCKET_IFNAME", "ib", ERROR, "no interface 'ib'"),
        (network.nccl_interface, "NCCL_SOCKET_IFNAME", "eth1", WARNING, "no IPv4 address"),
    ],
)
def test_interface_variables(check, variable, value, severity, word, monkeypatch, two_interfaces):
    assert only(check()).severity == NOTE  # not set
    monkeypatch.setenv(variable, value)
    finding = only(check())
    assert finding.severity == severity
    assert word in finding.what.en
    assert value in finding.what.zh


@pytest.mark.parametrize("check", [network.gloo_interface, network.nccl_interface])
def test_interfaces_between_several_nodes(check, monkeypatch, two_interfaces):
    monkeypatch.setenv("SLURM_NNODES", "4")
    assert "lo, eth0" in only(check()).advice.en
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.setenv(variable, "lo")
    finding = only(check())
    assert finding.severity == ERROR
    assert "does not lead to other nodes" in finding.what.en


def test_the_port_where_ranks_meet(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        monkeypatch.setenv("MASTER_PORT", str(taken))
        for address in ("", "127.0.0.1"):
            monkeypatch.setenv("MASTER_ADDR", address)
            finding = only(network.master())
            assert finding.severity == WARNING
            assert f"Port {taken}" in finding.what.en
        # Under torchrun it is torchrun that has taken it.
        monkeypatch.setenv("RANK", "0")
        assert only(network.master()).severity == OK
        monkeypatch.delenv("RANK")
    assert only(network.master()).severity == OK


@pytest.mark.parametrize("port", ["http", "0", "65536", "-1", "²", ""])
def test_a_port_that_is_none(port, monkeypatch):
    monkeypatch.setenv("MASTER_PORT", port)
    finding = only(network.master())
    assert finding.severity == ERROR
    assert "no port" in finding.what.en


def test_a_master_without_address(monkeypatch):
    lookup(monkeypatch)
    monkeypatch.setenv("MASTER_ADDR", "node1")
    finding = only(network.master())
    assert finding.severity == ERROR
    assert "node1 does not resolve" in finding.what.en


@pytest.mark.parametrize(
    ("outcome", "severity", "word"),
    [
        (None, OK, "listens on node1 port 29500"),
        (ConnectionRefusedError(111, "Connection refused"), OK, "nothing listens there yet"),
        (OSError(113, "No route to host"), ERROR, "(No route to host)"),
        (TimeoutError("timed out"), ERROR, "(timed out)"),
    ],
)
def test_a_master_far_away(outcome, severity, word, monkeypatch):
    def create_connection(address, timeout):
        assert address == ("192.0.2.1", 29500)
        if outcome is not None:
            raise outcome
        return socket.socket()

    lookup(monkeypatch, "192.0.2.1")  # reserved for documentation: no machine has it
    monkeypatch.setattr(socket, "create_connection", create_connection)
    monkeypatch.setenv("MASTER_ADDR", "node1")
    finding = only(network.master())
    assert finding.severity == severity
    assert word in finding.what.en


def test_proxies_are_named_and_their_passwords_are_not(monkeypatch):
    assert network.proxies() == []
    monkeypatch.setenv("https_proxy", "http://me:secret@proxy:3128")
    finding = only(network.proxies())
    assert finding.severity == NOTE
    assert "https_proxy" in finding.what.en
    assert "secret" not in repr(finding)


def test_interfaces_of_this_machine():
    assert interfaces.local_address_towards("127.0.0.1") == "127.0.0.1"
    loopback = interfaces.interface_towards("127.0.0.1")
    if sys.platform == "linux":
        assert loopback == "lo"
        assert interfaces.interface_address("lo") == "127.0.0.1"
    assert interfaces.interface_address("nothing7") is None
    assert interfaces.interface_towards("no such name") is None


# ---------------------------------------------------------------------------------------
# Software


def test_python_version(monkeypatch):
    assert only(software.python()).severity == OK
    monkeypatch.setattr(sys, "version_info", (3, 10, 4, "final", 0))
    finding = only(software.python())
    assert finding.severity == ERROR
    assert "This is Python 3.10.4; the package needs 3.11" in finding.what.en


def test_oldest_versions_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == ">=" + ".".join(map(str, software.OLDEST_PYTHON))
    oldest_torch = ".".join(map(str, software.OLDEST_TORCH))
    assert project["optional-dependencies"]["real"] == [f"torch>={oldest_torch}"]


def test_somebody_elses_package(monkeypatch):
    assert only(software.package()).severity == OK
    asked = []

    def distributions(name):
        asked.append(name)
        return iter([SimpleNamespace(version="1.0")])

    monkeypatch.setattr(metadata, "distributions", distributions)
    finding = only(software.package())
    assert asked == ["commlab"]
    assert finding.severity == ERROR
    assert "pip uninstall commlab" in finding.advice.en


def test_a_second_copy_of_the_package(monkeypatch, tmp_path):
    (tmp_path / "commlab").mkdir()
    (tmp_path / "commlab" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    finding = only(software.package())
    assert finding.severity == WARNING
    assert str(tmp_path / "commlab") in finding.what.en


CPU = {
    "version": "2.13.0+cpu",
    "cuda": None,
    "hip": None,
    "distributed": True,
    "gloo": True,
    "nccl": None,
    "gpus": [],
    "without_p2p": [],
}
CUDA = CPU | {"version": "2.13.0+cu128", "cuda": "12.8", "nccl": "2.27.5"}
H100 = "NVIDIA H100 80GB HBM3"


def test_what_torch_says_of_itself():
    facts = software.ask_torch()
    assert set(facts) == set(CPU)
    assert facts["version"] == metadata.version("torch")
    assert facts["gloo"] is True


def test_torch_that_is_not_there(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    finding = only(software.torch(software.ask_torch()))
    assert finding.severity == ERROR
    assert "not installed" in finding.what.en


def test_torch_that_is_broken(monkeypatch):
    monkeypatch.setattr(software, "_ASK_TORCH", "raise ImportError('libcudart.so.12')")
    finding = only(software.torch(software.ask_torch()))
    assert finding.severity == ERROR
    assert "libcudart.so.12" in finding.what.zh


def test_torch_that_kills_its_process_or_hangs(monkeypatch):
    monkeypatch.setattr(software, "_ASK_TORCH", "import os; os.kill(os.getpid(), 9)")
    assert "exit status -9" in only(software.torch(software.ask_torch())).what.en
    monkeypatch.setattr(software, "_ASK_TORCH", "import time; time.sleep(60)")
    monkeypatch.setattr(software, "TORCH_SECONDS", 0.3)
    assert "more than 0.3 s" in only(software.torch(software.ask_torch())).what.en


@pytest.mark.parametrize(
    ("facts", "severity", "word"),
    [
        (CPU, OK, "2.13.0+cpu, built for the CPU, with gloo"),
        (CPU | {"hip": "6.4"}, OK, "built for ROCm 6.4"),
        (CPU | {"version": "2.9.1"}, WARNING, "older than 2.11"),
        (CPU | {"gloo": False}, ERROR, "without torch.distributed or gloo"),
        (CPU | {"distributed": False}, ERROR, "without torch.distributed or gloo"),
    ],
)
def test_builds_of_torch(facts, severity, word):
    finding = only(software.torch(facts))
    assert finding.severity == severity
    assert word in finding.what.en


def test_nccl_is_named_to_be_compared():
    torch_finding, nccl = software.torch(CUDA)
    assert "CUDA 12.8" in only([torch_finding]).what.en
    assert only([nccl]).what.en == "PyTorch brings NCCL 2.27.5."
    assert "same version" in nccl.advice.en


# ---------------------------------------------------------------------------------------
# GPUs: none here, so their drivers are played by scripts


@pytest.fixture
def driver(monkeypatch, tmp_path):
    """Install an nvidia-smi that says what a test wants."""

    def install(gpu_list="", matrix="", status=0):
        (tmp_path / "list").write_text(gpu_list)
        (tmp_path / "matrix").write_text(matrix)
        program = tmp_path / "nvidia-smi"
        program.write_text(
            f'#!/bin/sh\n[ "$1" = topo ] && cat "{tmp_path}/matrix" || cat "{tmp_path}/list"\n'
            f"exit {status}\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    return install


EIGHT = "".join(f"{i}, {H100}, 570.86, 81559 MiB\n" for i in range(8))


def test_no_gpu_is_no_fault(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert gpus.ask_driver() is None
    finding = only(gpus.visible(CPU, gpus.ask_driver()))
    assert finding.severity == NOTE
    assert gpus.links(gpus.ask_topology()) == []


def test_gpus_that_all_see(driver):
    driver(EIGHT)
    finding = only(gpus.visible(CUDA | {"gpus": [H100] * 8}, gpus.ask_driver()))
    assert finding.severity == OK
    assert f"8 × {H100}" in finding.what.en


@pytest.mark.parametrize(
    ("gpu_list", "status", "facts", "word"),
    [
        ("", 9, CUDA, "finds no GPU or no driver"),
        (EIGHT, 0, CPU, "has 8 GPUs, and this PyTorch was built for the CPU"),
        (EIGHT, 0, CUDA, "has 8 GPUs, and PyTorch (CUDA 12.8) sees none"),
        (EIGHT, 0, CUDA | {"gpus": [H100] * 8, "nccl": None}, "built without NCCL"),
    ],
)
def test_gpus_that_cannot_be_used(gpu_list, status, facts, word, driver):
    driver(gpu_list, status=status)
    finding = only(gpus.visible(facts, gpus.ask_driver()))
    assert finding.severity == ERROR
    assert word in finding.what.en


@pytest.mark.parametrize(("value", "seen", "severity"), [("", 0, ERROR), ("0,1", 2, WARNING)])
def test_gpus_that_are_hidden(value, seen, severity, driver, monkeypatch):
    driver(EIGHT)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    *_, finding = gpus.visible(CUDA | {"gpus": [H100] * seen}, gpus.ask_driver())
    assert only([finding]).severity == severity
    assert f"PyTorch sees {seen} (CUDA_VISIBLE_DEVICES is {value!r})" in finding.what.en


def test_gpus_of_two_kinds_and_without_p2p():
    facts = CUDA | {"gpus": [H100, "NVIDIA A100"], "without_p2p": [[0, 1], [1, 0]]}
    first, kinds, p2p = gpus.visible(facts, None)
    assert only([first]).severity == OK
    assert "not all of one kind" in only([kinds]).what.en
    assert "GPU 0 cannot read GPU 1 directly" in only([p2p]).what.en


def test_a_broken_torch_says_nothing_about_gpus():
    assert gpus.visible({"missing": True}, None) == []
    assert gpus.visible({"broken": "x"}, None) == []


# The form of `nvidia-smi topo -m`: tabs, network cards as rows and columns, a legend.
NVLINK = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tNV18\tPIX\t0-47\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tNV18\tSYS\t0-47\t0\t\tN/A\n"
    "GPU2\tNV18\tNV18\t X \tSYS\t48-95\t1\t\tN/A\n"
    "NIC0\tPIX\tSYS\tSYS\t X \t\t\t\t\n\n"
    "Legend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe\n  NV#  = a bonded set\n"
)
PCIE = (
    "        GPU0    GPU1    GPU2    GPU3    mlx4_0  CPU Affinity\n"
    "GPU0     X      PIX     PHB     SYS     PHB     0-9,20-29\n"
    "GPU1    PIX      X      NODE    SYS     PHB     0-9,20-29\n"
    "GPU2    PHB     NODE     X      PXB     PHB     0-9,20-29\n"
    "GPU3    SYS     SYS     PXB      X      SYS     10-19\n"
)


def test_links_between_gpus_are_read(driver):
    driver(matrix=NVLINK)
    assert gpus.read_links(gpus.ask_topology()) == {
        (0, 1): "NV18",
        (0, 2): "NV18",
        (1, 2): "NV18",
    }
    finding = only(gpus.links(gpus.ask_topology()))
    assert finding.severity == OK
    assert "3 NV18" in finding.what.en


def test_slow_links_are_explained():
    assert gpus.read_links(PCIE) == {
        (0, 1): "PIX",
        (0, 2): "PHB",
        (1, 2): "NODE",
        (0, 3): "SYS",
        (1, 3): "SYS",
        (2, 3): "PXB",
    }
    finding = only(gpus.links(PCIE))
    assert finding.severity == NOTE
    assert "1 NODE, 1 PHB, 1 PIX, 1 PXB, 2 SYS" in finding.what.en


def test_a_driver_that_hangs_is_left(driver, monkeypatch, tmp_path):
    driver(EIGHT)
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(gpus, "SMI_SECONDS", 0.2)
    assert gpus.ask_driver() == []


def test_nccl_variables(monkeypatch):
    assert gpus.nccl_variables() == []
    for name in gpus.NCCL_SWITCHES:
        monkeypatch.setenv(name, "0")
    assert gpus.nccl_variables() == []
    for name in gpus.NCCL_SWITCHES:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    *switches, choice = gpus.nccl_variables()
    assert {only([finding]).severity for finding in switches} == {WARNING}
    assert "InfiniBand" in switches[2].what.en
    assert only([choice]).severity == NOTE
    assert "'Ring'" in choice.what.en


# ---------------------------------------------------------------------------------------
# System


@pytest.mark.parametrize(
    ("nbytes", "severity", "word"), [(64 * 2**20, WARNING, "only 64 MiB"), (2**33, OK, "8 GiB")]
)
def test_shared_memory(nbytes, severity, word, monkeypatch, tmp_path):
    monkeypatch.setattr(system, "SHARED_MEMORY", tmp_path)
    disk = SimpleNamespace(f_blocks=nbytes // 4096, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda path: disk)
    finding = only(system.shared_memory())
    assert finding.severity == severity
    assert word in finding.what.en


@pytest.mark.parametrize(
    ("limit", "cards", "severity", "word"),
    [
        (8 * 2**20, ["mlx5_1", "mlx5_0"], WARNING, "Only 8 MiB may be locked"),
        (-1, ["mlx5_0"], OK, "mlx5_0; memory that may be locked: unlimited"),
        (8 * 2**20, [], OK, "cards: none"),
    ],
)
def test_locked_memory(limit, cards, severity, word, monkeypatch, tmp_path):
    import resource

    for card in cards:
        (tmp_path / card).mkdir()
    monkeypatch.setattr(system, "INFINIBAND", tmp_path)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    finding = only(system.locked_memory())
    assert finding.severity == severity
    assert word in finding.what.en


def test_clocks(monkeypatch, tmp_path):
    source = tmp_path / "clocksource"
    source.write_text("tsc\n")
    monkeypatch.setattr(system, "CLOCK_SOURCE", source)
    assert only(system.clocks()).severity == OK
    source.write_text("hpet\n")
    assert "slow or coarse (hpet)" in only(system.clocks()).what.en
    source.unlink()
    coarse = SimpleNamespace(resolution=0.015)
    monkeypatch.setattr(time, "get_clock_info", lambda name: coarse)
    assert "slow or coarse (15 ms)" in only(system.clocks()).what.en


def test_a_clock_of_the_past(monkeypatch, tmp_path):
    monkeypatch.setattr(system, "CLOCK_SOURCE", tmp_path / "none")
    monkeypatch.setattr(time, "time", lambda: 0.0)
    finding = only(system.clocks())
    assert finding.severity == WARNING
    assert "date of this machine lies before" in finding.what.en


def test_namespaces_that_are_forbidden(monkeypatch, tmp_path):
    program = tmp_path / "unshare"
    program.write_text("#!/bin/sh\necho unshare: Operation not permitted >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    finding = only(system.namespaces())
    assert finding.severity == NOTE
    if sys.platform == "linux":
        assert "(unshare: Operation not permitted)" in finding.what.en
        monkeypatch.setenv("PATH", "")
        assert "there is no program unshare" in only(system.namespaces()).what.en
        monkeypatch.setattr(sys, "platform", "darwin")
    assert f"(this is {sys.platform})" in only(system.namespaces()).what.en


# ---------------------------------------------------------------------------------------
# All together


def test_the_worst_comes_first_and_both_languages_are_complete(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth77")
    monkeypatch.setenv("NCCL_IB_DISABLE", "1")
    monkeypatch.setattr(software, "ask_torch", lambda: CPU)
    findings = doctor.examine()
    order = [doctor.SEVERITIES.index(finding.severity) for finding in findings]
    assert order == sorted(order)
    assert order[0] == 0
    assert doctor.has_faults(findings)
    for finding in findings:
        only([finding])
    reports = {lang: list(doctor.report_lines(findings, lang)) for lang in ("en", "zh")}
    assert len(reports["en"]) == len(reports["zh"])
    assert reports["en"][1].startswith("[error] GLOO_SOCKET_IFNAME is 'eth77'")
    assert reports["zh"][1].startswith("[错误] GLOO_SOCKET_IFNAME")
    assert re.fullmatch(r"Errors: 1, warnings: \d+\.", reports["en"][-1])
    data = json.loads(doctor.as_json(findings))
    assert [one["severity"] for one in data["findings"]] == [f.severity for f in findings]
    assert set(data["findings"][0]["what"]) == {"en", "zh"}


@pytest.mark.parametrize(
    ("settings", "language"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ({}, "en"),
    ],
)
def test_the_language_is_that_of_the_terminal(settings, language, monkeypatch):
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert doctor.usual_language() == language
