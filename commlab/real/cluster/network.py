"""Build the network of a virtual cluster from namespaces, virtual cables and shapers.

Runs inside of a fresh network and mount namespace, as its root; see `namespaces`. There the
network between the nodes is a bridge. Each node is a namespace with a bridge that stands for
NVSwitch and one bridge for each of its network interfaces. Each GPU is a namespace with one
cable to the switch and one to its network interface::

    GPU ── nvlink ── nvswitch                     (node)
    GPU ── nic ───── rail 0 ── uplink ── network  (node, then the space between nodes)

A shaper limits what leaves an interface, so each cable has one at both ends.

Why a GPU has a namespace of its own: gloo opens its connections without saying from which
address, so the kernel would send those of all GPUs of a node through the first interface.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from commlab.real.cluster.description import NIC_MTU, NVLINK_MTU, VirtualCluster

# Bytes of the largest piece that a GPU hands to the network at once; the headers of its packets
# count as if they were apart.
NIC_PIECE = 16 * 1024
NVLINK_PIECE = 64 * 1024
# A shaper lets so much more than a piece pass at once after a pause. Pieces stay in one then,
# which saves much CPU, and beside a message it is little.
BURST_ROOM = 2 * 1024
# Bytes that may wait in a shaper. More than all windows of TCP together: nothing is dropped.
QUEUE = 32 * 1024 * 1024

# No packet is lost here, so TCP need not feel its way to the rate of a link, as it usually
# does: it starts with a wide window of its own ...
TCP_OPTIONS = ("congctl", "reno", "initcwnd", "1000")
# ... and what the receiver grants, in bytes, is the limit, much like the credits of InfiniBand:
# enough to keep a shaper busy, and so little that nothing waits long behind the data of others.
NIC_WINDOW = 64 * 1024
NVLINK_WINDOW = 1024 * 1024


def build(cluster: VirtualCluster, folder: Path) -> None:
    """Build the network of a cluster; its namespaces are then files in ``folder``.

    Raises
    ------
    CalledProcessError
        If ``ip`` or ``tc`` refuse; the message is on stderr.
    """
    # The ranks first meet on this namespace's own loopback.
    command("ip", "link", "set", "lo", "up")
    _bridge("network", None)
    for node in range(cluster.n_nodes):
        build_node(cluster, node, folder)


def namespace_file(folder: Path, node: int, gpu: int) -> Path:
    """Return the file that stands for the namespace of a GPU."""
    return folder / f"node{node}.gpu{gpu}.net"


def address(node: int, gpu: int) -> str:
    """Return the one address of a GPU, used on both of its links."""
    return f"10.0.{node}.{gpu + 1}"


def build_node(cluster: VirtualCluster, node: int, folder: Path) -> None:
    """Make a node: a switch for its GPUs, its network interfaces, and the GPUs."""
    namespace = _make_namespace(folder / f"node{node}.net")
    _bridge("nvswitch", namespace)
    for rail in range(cluster.rails):
        _bridge(f"rail{rail}", namespace)
        uplink, port = f"uplink{rail}", f"node{node}.nic{rail}"
        _cable(uplink, namespace, port, None, NIC_MTU)
        command("ip", "link", "set", uplink, "master", f"rail{rail}", inside=namespace)
        command("ip", "link", "set", port, "master", "network")
        shape(uplink, namespace, cluster.nic_rate, NIC_PIECE)
        shape(port, None, cluster.nic_rate, NIC_PIECE)
    for gpu in range(cluster.gpus_per_node):
        rail = gpu * cluster.rails // cluster.gpus_per_node
        build_gpu(cluster, node, gpu, rail, namespace, folder)


def build_gpu(
    cluster: VirtualCluster, node: int, gpu: int, rail: int, node_namespace: Path, folder: Path
) -> None:
    """Make a GPU: cables to its node's switch and to a network interface, and who is where."""
    namespace = _make_namespace(namespace_file(folder, node, gpu))
    own = address(node, gpu)
    for link, bridge, mtu in (("nvlink", "nvswitch", NVLINK_MTU), ("nic", f"rail{rail}", NIC_MTU)):
        port = f"gpu{gpu}.{link}"
        _cable(link, namespace, port, node_namespace, mtu)
        command("ip", "link", "set", port, "master", bridge, inside=node_namespace)
    shape("nvlink", namespace, cluster.nvlink_rate, NVLINK_PIECE)
    shape(f"gpu{gpu}.nvlink", node_namespace, cluster.nvlink_rate, NVLINK_PIECE)
    command("ip", "link", "set", "nic", "gso_max_size", str(NIC_PIECE), inside=namespace)
    # Everything is reached through the NIC, but the GPUs of this node through NVLink.
    command("ip", "address", "add", f"{own}/32", "dev", "nic", inside=namespace)
    for destination, link, window in (
        ("10.0.0.0/16", "nic", NIC_WINDOW),
        (f"10.0.{node}.0/24", "nvlink", NVLINK_WINDOW),
    ):
        command(
            *("ip", "route", "add", destination, "dev", link, "src", own),
            *("window", str(window), *TCP_OPTIONS),
            inside=namespace,
        )


def _make_namespace(file: Path) -> Path:
    """Make a network namespace that lives as long as the mount on this file."""
    file.touch()
    command("unshare", f"--net={file}", "ip", "link", "set", "lo", "up")
    return file


def _bridge(name: str, namespace: Path | None) -> None:
    command("ip", "link", "add", name, "type", "bridge", inside=namespace)
    command("ip", "link", "set", name, "up", inside=namespace)


def _cable(name: str, inside: Path, other: str, other_inside: Path | None, mtu: int) -> None:
    """Join two namespaces (None: the one we are in) by a virtual cable; both ends are up."""
    # Made here and moved: a name that is taken in either place would be an error at once.
    temporary = "moving0", "moving1"
    command("ip", "link", "add", temporary[0], "type", "veth", "peer", "name", temporary[1])
    for here, final, namespace in zip(
        temporary, (name, other), (inside, other_inside), strict=True
    ):
        if namespace is not None:
            command("ip", "link", "set", here, "netns", str(namespace))
        command("ip", "link", "set", here, "name", final, "mtu", str(mtu), inside=namespace)
        command("ip", "link", "set", final, "up", inside=namespace)


def shape(interface: str, namespace: Path | None, rate: float, piece: int) -> None:
    """Limit what leaves an interface, in bits per second, by a token bucket filter."""
    command(
        *("tc", "qdisc", "replace", "dev", interface, "root", "tbf"),
        *("rate", f"{rate:.0f}bit", "burst", str(piece + BURST_ROOM), "limit", str(QUEUE)),
        inside=namespace,
    )


def command(*words: str, inside: Path | None = None) -> None:
    """Run one command, in another network namespace if one is given."""
    enter = () if inside is None else ("nsenter", f"--net={inside}")
    subprocess.run(
        [*enter, *words], check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
