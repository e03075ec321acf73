"""Host name, interfaces, ports: whether the ranks can find one another."""

from __future__ import annotations

import os
import socket
import threading
import time

from commlab.real.doctor.finding import Finding, error, note, ok, warning
from commlab.real.interfaces import interface_address, interface_names, is_loopback

# A name that takes longer to look up makes every start slow, or look like a hang.
RESOLVE_SECONDS = 5.0
SLOW_SECONDS = 1.0
CONNECT_SECONDS = 3.0
# torchrun's own default for --master-port.
DEFAULT_PORT = 29500
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def host_name() -> list[Finding]:
    """Whether this machine's own name leads to an address, as gloo and torchrun expect."""
    name = socket.gethostname()
    start = time.monotonic()
    addresses = resolve(name)
    seconds = time.monotonic() - start
    if not addresses:
        return [
            warning(
                "host name",
                f"The host name {name} does not resolve to an address.",
                f"主机名 {name} 解析不到地址。",
                "torchrun --standalone may hang: give --master-addr (and --local-addr) as an IP "
                "address, and set GLOO_SOCKET_IFNAME to the interface that leads to the other "
                "nodes; or add the name to /etc/hosts.",
                "torchrun --standalone 可能卡住：用 IP 地址给出 --master-addr"
                "（以及 --local-addr），并把 GLOO_SOCKET_IFNAME 设成通往其他节点的网络接口；"
                "或者把主机名写进 /etc/hosts。",
            )
        ]
    told = ", ".join(addresses)
    if seconds > SLOW_SECONDS:
        return [
            warning(
                "host name",
                f"Looking up the host name {name} took {seconds:.1f} s ({told}).",
                f"解析主机名 {name} 用了 {seconds:.1f} s（{told}）。",
                "Every rank waits for that: add the name to /etc/hosts or repair the DNS server.",
                "每个 rank 都要等这么久：把主机名写进 /etc/hosts，或者修好 DNS 服务器。",
            )
        ]
    only_here = all(is_loopback(address) for address in addresses)
    if only_here and has_several_nodes() and not os.environ.get("GLOO_SOCKET_IFNAME"):
        return [
            warning(
                "host name",
                f"The host name {name} resolves to {told}, which other nodes cannot reach.",
                f"主机名 {name} 解析到 {told}，其他节点连不上这个地址。",
                "Set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to the interface that leads to "
                "them, or correct /etc/hosts.",
                "把 GLOO_SOCKET_IFNAME 和 NCCL_SOCKET_IFNAME 设成通往它们的网络接口，"
                "或者改正 /etc/hosts。",
            )
        ]
    return [
        ok(
            "host name",
            f"The host name {name} resolves to {told}.",
            f"主机名 {name} 解析到 {told}。",
        )
    ]


def loopback() -> list[Finding]:
    """Whether this machine can connect to itself, as all ranks of one machine must."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = server.getsockname()
            socket.create_connection(address, timeout=CONNECT_SECONDS).close()
    except OSError as fault:
        return [
            error(
                "loopback",
                f"This machine cannot connect to itself on 127.0.0.1 ({fault.strerror}).",
                f"这台机器连不上自己的 127.0.0.1（{fault.strerror}）。",
                "Bring the loopback interface up: ip link set lo up.",
                "启用回环接口：ip link set lo up。",
            )
        ]
    return [
        ok(
            "loopback",
            "This machine can connect to itself on 127.0.0.1.",
            "这台机器能连上自己的 127.0.0.1。",
        )
    ]


def gloo_interface() -> list[Finding]:
    """Whether GLOO_SOCKET_IFNAME names interfaces that exist and have an address."""
    variable = "GLOO_SOCKET_IFNAME"
    value = os.environ.get(variable, "")
    if not value:
        return [_unset(variable)]
    names = [name.strip() for name in value.split(",")]
    return _judge_interfaces(variable, value, [name for name in names if name], names)


def nccl_interface() -> list[Finding]:
    """Whether NCCL_SOCKET_IFNAME selects an interface.

    It lists beginnings of names; ^ in front excludes them, = asks for the whole name.
    """
    variable = "NCCL_SOCKET_IFNAME"
    value = os.environ.get(variable, "")
    if not value:
        return [_unset(variable)]
    excluded = value.startswith("^")
    exact = value.lstrip("^").startswith("=")
    patterns = [part for part in value.lstrip("^").lstrip("=").split(",") if part]

    def matches(name: str) -> bool:
        return any(name == part if exact else name.startswith(part) for part in patterns)

    selected = [name for name in interface_names() if matches(name) != excluded]
    return _judge_interfaces(variable, value, selected, selected)


def _unset(variable: str) -> Finding:
    said = (
        variable,
        f"{variable} is not set: the library chooses an interface itself.",
        f"没有设置 {variable}：由通信库自己选网络接口。",
    )
    if not has_several_nodes():
        return note(*said)
    names = interface_names()
    return note(
        *said,
        f"If ranks do not connect, set it to one of: {', '.join(names)}.",
        f"如果 rank 之间连不上，把它设成其中之一：{'、'.join(names)}。",
    )


def _judge_interfaces(
    variable: str, value: str, selected: list[str], named: list[str]
) -> list[Finding]:
    known = interface_names()
    unknown = [name for name in named if name not in known]
    if unknown or not selected:
        which = unknown[0] if unknown else value
        return [
            error(
                variable,
                f"{variable} is {value!r}, and there is no interface {which!r} here.",
                f"{variable} 是 {value!r}，但这里没有网络接口 {which!r}。",
                f"Set it to one of: {', '.join(known)}; or unset it.",
                f"把它设成其中之一：{'、'.join(known)}；或者取消设置。",
            )
        ]
    if has_several_nodes() and all(name.rstrip("0123456789") == "lo" for name in selected):
        return [
            error(
                variable,
                f"{variable} is {value!r}: the loopback interface does not lead to other nodes.",
                f"{variable} 是 {value!r}：回环接口到不了其他节点。",
                "Set it to the interface that does (`ip route get ADDRESS` names it).",
                "把它设成能到的那个接口（ip route get 地址 会告诉你是哪个）。",
            )
        ]
    # Only Linux tells the address; elsewhere nothing can be said about it.
    silent = [name for name in selected if interface_address(name) is None]
    if len(silent) == len(selected) and interface_address(known[0]) is not None:
        return [
            warning(
                variable,
                f"{variable} is {value!r}, and that interface has no IPv4 address.",
                f"{variable} 是 {value!r}，而这个网络接口没有 IPv4 地址。",
                "Give it one, or name another interface.",
                "给它一个地址，或者换一个网络接口。",
            )
        ]
    return [
        ok(
            variable,
            f"{variable} is {value!r}, which selects {', '.join(selected)}.",
            f"{variable} 是 {value!r}，选中 {'、'.join(selected)}。",
        )
    ]


def master() -> list[Finding]:
    """Whether the ranks can meet where MASTER_ADDR and MASTER_PORT say, or torchrun's default."""
    address = os.environ.get("MASTER_ADDR", "")
    text = os.environ.get("MASTER_PORT", str(DEFAULT_PORT))
    if not text.isdecimal() or not 0 < int(text) < 2**16:
        return [
            error(
                "MASTER_PORT",
                f"MASTER_PORT is {text!r}, which is no port.",
                f"MASTER_PORT 是 {text!r}，不是端口号。",
                "Give a number from 1024 to 65535.",
                "给一个 1024 到 65535 之间的数。",
            )
        ]
    port = int(text)
    if not address:
        return [_own_port(port)]
    addresses = resolve(address)
    if not addresses:
        return [
            error(
                "MASTER_ADDR",
                f"MASTER_ADDR {address} does not resolve to an address.",
                f"MASTER_ADDR {address} 解析不到地址。",
                "Give the IP address of the node that has rank 0.",
                "改成 rank 0 所在节点的 IP 地址。",
            )
        ]
    if is_this_machine(addresses[0]):
        return [_own_port(port)]
    return [_distant_port(address, addresses[0], port)]


def _own_port(port: int) -> Finding:
    """Whether rank 0 could listen on this port here."""
    if "RANK" in os.environ or _is_free(port):
        return ok(
            "port",
            f"Port {port}, where the ranks meet, can be used on this machine.",
            f"rank 会合用的端口 {port} 在这台机器上可用。",
        )
    return warning(
        "port",
        f"Port {port}, where the ranks would meet, is taken by another program here.",
        f"rank 会合要用的端口 {port} 在这台机器上已被别的程序占用。",
        "Give torchrun another one with --master-port, the same on every node.",
        "用 --master-port 给 torchrun 换一个端口，各节点要一致。",
    )


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As torch does: a port that was in use a minute ago is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
            probe.listen()
        except OSError:
            return False
    return True


def _distant_port(name: str, address: str, port: int) -> Finding:
    """Whether a connection to rank 0's node gets there."""
    try:
        socket.create_connection((address, port), timeout=CONNECT_SECONDS).close()
    except ConnectionRefusedError:
        return ok(
            "MASTER_ADDR",
            f"{name} port {port} can be reached; nothing listens there yet.",
            f"{name} 的端口 {port} 连得到，只是还没有程序在监听。",
        )
    except OSError as fault:
        why = fault.strerror or str(fault)
        return error(
            "MASTER_ADDR",
            f"{name} port {port} cannot be reached from here ({why}).",
            f"从这里连不到 {name} 的端口 {port}（{why}）。",
            "Check the address, the cable and the firewall; the ranks also need the ports above "
            "1023 between all nodes.",
            "检查地址、网线和防火墙；所有节点之间 1023 以上的端口也必须放行。",
        )
    return ok(
        "MASTER_ADDR",
        f"Something listens on {name} port {port}.",
        f"{name} 的端口 {port} 上有程序在监听。",
    )


def proxies() -> list[Finding]:
    """Proxies are harmless to the ranks; their values may hold passwords and are not shown."""
    names = [name for name in PROXIES if os.environ.get(name)]
    if not names:
        return []
    told = ", ".join(names)
    return [
        note(
            "proxies",
            f"{told} set: the ranks connect directly and ignore it, downloads do not.",
            f"设置了 {told}：rank 之间直接连接，不受影响；下载会走代理。",
        )
    ]


def resolve(name: str) -> list[str]:
    """Return the addresses of a name, none if it has none or takes too long."""
    answers: list[str] = []

    def look_up() -> None:
        try:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return
        answers.extend(dict.fromkeys(str(entry[4][0]) for entry in found))

    # A lookup cannot be interrupted; the thread is left to its fate.
    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(RESOLVE_SECONDS)
    return list(answers)


def is_this_machine(address: str) -> bool:
    """Whether an address is one of this machine's own: only then can it be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def has_several_nodes() -> bool:
    """Whether the environment says that the job has more than one node."""
    for name in ("SLURM_JOB_NUM_NODES", "SLURM_NNODES", "GROUP_WORLD_SIZE"):
        text = os.environ.get(name, "")
        if text.isdecimal() and int(text) > 1:
            return True
    return False
