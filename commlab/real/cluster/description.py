"""What a virtual cluster is made of, and the topology that it imitates."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass

from commlab.checks import check_n_ranks
from commlab.topology import Topology, node_topology

BITS_PER_BYTE = 8
MBIT = 1_000_000  # bit/s, as network hardware is sold

ETHERNET_HEADER = 14  # bytes; counted by the shaper, not by the MTU
IP_AND_TCP_HEADERS = 20 + 20 + 12  # bytes; TCP with its timestamp option
NIC_MTU = 1500
# The largest that a virtual interface takes: NVLink has headers, too, but not Ethernet's.
NVLINK_MTU = 65535

# Above this, it is the CPU that limits the virtual links, and not the shaper.
MAX_NIC_RATE = 200 * MBIT
MIN_RATE = 10 * MBIT
MAX_RANKS = 16


def payload_fraction(mtu: int) -> float:
    """Part of a shaped link's rate that is left for data: the rest are headers.

    The shaper counts Ethernet frames. Of a full one, ``mtu + 14`` bytes, the data are
    ``mtu - 52``: 0.956 at 1500. Acknowledgements go the other way, in few and small frames.
    """
    return (mtu - IP_AND_TCP_HEADERS) / (mtu + ETHERNET_HEADER)


@dataclass(frozen=True)
class VirtualCluster:
    """Nodes of "GPUs" that are processes, joined by links whose rate the kernel limits.

    Parameters
    ----------
    n_nodes, gpus_per_node : int
        m and g; N = m g ranks, node by node, 16 at most.
    nic_rate : float
        Bits per second of one network interface, one direction; at most 200 Mbit/s.
    nvlink_rate : float
        Bits per second of the link between a GPU and its node's switch, one direction. The
        default makes it 9 times a NIC, as 450 GB/s are to 50 GB/s.
    rails : int, optional
        Network interfaces per node, a divisor of g; one per GPU by default.

    Raises
    ------
    ValueError
        If a number makes no sense, or asks for more than one machine's CPU can carry.
    """

    n_nodes: int = 2
    gpus_per_node: int = 2
    nic_rate: float = 100 * MBIT
    nvlink_rate: float = 900 * MBIT
    rails: int | None = None

    def __post_init__(self) -> None:
        for name in ("n_nodes", "gpus_per_node"):
            object.__setattr__(self, name, check_n_ranks(getattr(self, name), name))
        rails = self.gpus_per_node if self.rails is None else check_n_ranks(self.rails, "rails")
        object.__setattr__(self, "rails", rails)
        if self.gpus_per_node % rails:
            raise ValueError(
                f"{rails} rails do not serve {self.gpus_per_node} GPUs evenly: rails must divide "
                "gpus_per_node."
            )
        if not 2 <= self.n_ranks <= MAX_RANKS:
            raise ValueError(
                f"{self.n_nodes} nodes of {self.gpus_per_node} GPUs are {self.n_ranks} "
                f"processes: ask for 2 to {MAX_RANKS}."
            )
        for name, rate in (("nic_rate", self.nic_rate), ("nvlink_rate", self.nvlink_rate)):
            usable = isinstance(rate, numbers.Real) and not isinstance(rate, bool)
            if not usable or not MIN_RATE <= rate < float("inf"):
                raise ValueError(
                    f"{name} is {rate!r}: give bits per second, 10 Mbit/s (1e7) or more."
                )
        if self.nic_rate > MAX_NIC_RATE:
            raise ValueError(
                f"nic_rate is {self.nic_rate / MBIT:g} Mbit/s: above {MAX_NIC_RATE // MBIT} "
                "Mbit/s this machine's CPU is the bottleneck and not the link; give less."
            )

    @property
    def n_ranks(self) -> int:
        """N."""
        return self.n_nodes * self.gpus_per_node

    @property
    def beta_inter(self) -> float:
        """Bytes of data per second that one network interface carries in one direction."""
        return self.nic_rate / BITS_PER_BYTE * payload_fraction(NIC_MTU)

    @property
    def beta_intra(self) -> float:
        """Bytes of data per second between a GPU and its node's switch, one direction."""
        return self.nvlink_rate / BITS_PER_BYTE * payload_fraction(NVLINK_MTU)

    def topology(
        self, alpha: float = 0.0, *, ports: int = 1, rank_order: Sequence[int] | None = None
    ) -> Topology:
        """Return the topology that this cluster imitates.

        Parameters
        ----------
        alpha : float
            Seconds per message. The virtual links add no delay of their own: α is what
            processes and kernel take, and `run_on_cluster` measures it.
        ports, rank_order
            As for `commlab.topology.node_topology`.
        """
        return node_topology(
            self.n_nodes,
            self.gpus_per_node,
            alpha,
            self.beta_intra,
            self.beta_inter,
            rails=self.rails,
            ports=ports,
            rank_order=rank_order,
        )

    def __str__(self) -> str:
        return (
            f"{self.n_nodes} nodes × {self.gpus_per_node} GPUs, {self.rails} NIC(s) of "
            f"{self.nic_rate / MBIT:g} Mbit/s per node, NVLink {self.nvlink_rate / MBIT:g} Mbit/s"
        )
