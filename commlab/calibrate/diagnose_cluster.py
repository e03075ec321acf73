"""What a run tells about nodes, network cards and line rates."""

from __future__ import annotations

import re

import numpy as np

from commlab.calibrate.fit import Fit
from commlab.calibrate.records import Remark
from commlab.hardware import A100, B200, H100, H200, INFINIBAND, INFINIBAND_HDR, MI300X, Accelerator
from commlab.units import format_rate

# Parts on PCIe have the name, and not the links.
_PRODUCTS = {"A100": A100, "H100": H100, "H200": H200, "B200": B200, "MI300X": MI300X}
_WITHOUT_LINKS = re.compile(r"pcie|\bnvl\b", re.IGNORECASE)

# Bytes/s in one direction of the port that usually goes with a GPU: 200 Gb/s of HDR for A100,
# 400 Gb/s of NDR for those after it.
_USUAL_PORTS = {A100.name: INFINIBAND_HDR}

# Clocks, rounding and GB/s of vendors leave this much room above a line rate.
ABOVE = 1.02
# One NIC, if β lies in this range of its rate.
ONE_NIC = (0.85, ABOVE)
# Below this share of one port something else than the port is the limit. In an all-to-all
# all GPUs of a node use the ports at once, and may share them.
BELOW_ONE_NIC = 0.6
BELOW_SHARED_NIC = 0.3
# Rows at the end of a sweep that say what it ends at.
LAST_ROWS = 3

RINGS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
EXCHANGES = ("alltoall", "alltoallv")


def accelerator_named(hardware: str | None) -> Accelerator | None:
    """Return the accelerator that a log names, None if it is not in `commlab.hardware`."""
    if hardware is None or _WITHOUT_LINKS.search(hardware):
        return None
    for product, accelerator in _PRODUCTS.items():
        if re.search(rf"\b{product}\b", hardware):
            return accelerator
    return None


def usual_port(accelerator: Accelerator) -> float:
    """Return bytes/s, in one direction, of the network port that usually goes with it."""
    return _USUAL_PORTS.get(accelerator.name, INFINIBAND)


def gpus_per_node(fit: Fit) -> int | None:
    """Return how many ranks a node has, None if the log does not say or they differ."""
    n_nodes = fit.run.n_nodes
    if not n_nodes or fit.run.n_ranks % n_nodes:
        return None
    return fit.run.n_ranks // n_nodes


def above_line_rate(fit: Fit) -> Remark | None:
    """More bus bandwidth than the links of the GPU have."""
    accelerator = accelerator_named(fit.run.hardware)
    if accelerator is None:
        return None
    busbw = np.where(fit.used, fit.busbw, 0.0)
    top = int(busbw.argmax())
    if busbw[top] <= ABOVE * accelerator.scale_up:
        return None
    row = fit.rows[top]
    fact = (
        f"busbw {format_rate(busbw[top])} in line {row.line} is above the line rate of "
        f"{fit.run.hardware}, {format_rate(accelerator.scale_up)} in one direction"
    )
    if fit.run.op not in RINGS:
        return Remark(
            "above_line_rate",
            f"{fact}, and {fit.run.op} cannot send fewer bytes: check the size, the time and how "
            "many ranks really took part.",
            row.line,
        )
    return Remark(
        "above_line_rate",
        f"{fact}: the switches reduce or copy the data (NVLS, SHARP), so that fewer bytes "
        "cross a link than the formula of busbw counts. β here is no rate of a link: "
        f"algbw is {format_rate(row.nbytes / row.seconds)}. Measure with NCCL_ALGO=Ring for "
        "the link's own β.",
        row.line,
    )


def one_rank_per_node(fit: Fit) -> Remark | None:
    """Each node has one rank: the network alone is measured."""
    if gpus_per_node(fit) != 1:
        return None
    return Remark(
        "one_rank_per_node",
        f"{fit.run.n_ranks} ranks on {fit.run.n_nodes} nodes, one on each: all traffic crosses the "
        "network, and busbw is one GPU's share of it. It says nothing of a job with all GPUs of "
        "the nodes. If more GPUs were meant, start more ranks per node (-g, or mpirun -N).",
    )


def two_nodes(fit: Fit) -> Remark | None:
    """Two nodes flatter: half of the data need not leave its node."""
    gpus = gpus_per_node(fit)
    if fit.run.n_nodes != 2 or gpus is None or gpus < 2:
        return None
    share = _network_share(fit, 2, gpus)
    many = _network_share(fit, np.inf, gpus)
    if share is None or many is None:
        return None
    largest = fit.rows[-1]
    rate = share * largest.nbytes / largest.seconds
    return Remark(
        "two_nodes",
        f"Two nodes flatter: a library that works by node sends {share:.3g}·S per GPU over the "
        f"network, {format_rate(rate)} in line {largest.line}; with many nodes that "
        f"nears {many:.3g}·S, twice as much for the same S. Don't take β for larger jobs: "
        "measure with four nodes or more.",
        largest.line,
    )


def one_nic(fit: Fit) -> Remark | None:
    """A ring over several nodes of several GPUs runs at the rate of one network card."""
    accelerator = accelerator_named(fit.run.hardware)
    gpus = gpus_per_node(fit)
    n_nodes = fit.run.n_nodes
    if accelerator is None or gpus is None or gpus < 2 or n_nodes is None or n_nodes < 2:
        return None
    if fit.run.op not in RINGS:
        return None
    rate = _last_busbw(fit)
    for port in (usual_port(accelerator), usual_port(accelerator) / 2):
        if ONE_NIC[0] * port <= rate <= ONE_NIC[1] * port:
            return Remark(
                "one_nic",
                f"busbw ends at {format_rate(rate)}, which is one NIC of {format_rate(port)}, "
                f"with {gpus} GPUs in each of {n_nodes} nodes. A ring over all "
                "NICs of a node adds up their rates: check NCCL_IB_HCA, the topology that "
                "NCCL_DEBUG=INFO prints, and that every NIC is up.",
                fit.rows[-1].line,
            )
    return None


def below_one_nic(fit: Fit) -> Remark | None:
    """Between nodes not even the rate of one network card is reached."""
    accelerator = accelerator_named(fit.run.hardware)
    gpus = gpus_per_node(fit)
    n_nodes, n_ranks = fit.run.n_nodes, fit.run.n_ranks
    if accelerator is None or gpus is None or n_nodes is None or n_nodes < 2:
        return None
    port = usual_port(accelerator)
    rate, limit, what = _last_busbw(fit), BELOW_ONE_NIC, "The network carries"
    if fit.run.op in EXCHANGES:
        rate *= (n_ranks - gpus) / (n_ranks - 1)  # the part that leaves the node
        limit, what = BELOW_SHARED_NIC, "Each GPU sends over the network"
    if rate >= limit * port:
        return None
    return Remark(
        "below_one_nic",
        f"{what} {format_rate(rate)} at the end of the sweep, {rate / port:.0%} of one port of "
        f"{format_rate(port)} as {fit.run.hardware} usually has it. See in NCCL_DEBUG=INFO "
        "whether it runs over sockets instead of RDMA (a plugin missing, NCCL_IB_DISABLE), "
        "and look at link errors and congestion.",
        fit.rows[-1].line,
    )


def _network_share(fit: Fit, n_nodes: float, gpus: int) -> float | None:
    """Parts of S that a GPU sends to other nodes if the library works by node; None if unknown."""
    leaves = 1.0 if np.isinf(n_nodes) else (n_nodes - 1) / n_nodes
    if fit.run.op == "all_reduce":
        return 2 * leaves / gpus
    if fit.run.op in ("all_gather", "reduce_scatter"):
        return leaves / gpus
    if fit.run.op in EXCHANGES:
        return leaves
    return None


def _last_busbw(fit: Fit) -> float:
    return float(np.median(fit.busbw[-LAST_ROWS:]))
