"""Which link joins two ranks, and what it costs.

A topology is a set of ranks on nodes. Ranks of one node are joined by the links inside it
(NVLink), ranks of different nodes by network interfaces, the rails of a node (InfiniBand).
On the way, messages may have to share further links: the wires of a ring, the uplinks of
switches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from commlab.checks import check_alpha, check_beta, check_n_ranks, only_one
from commlab.schedule import Schedule, ScheduleError, check_structure
from commlab.shared_links import RingWires, SharedLinks, Uplinks


@dataclass(frozen=True)
class Link:
    """A link between two ranks.

    Attributes
    ----------
    alpha : float
        Seconds per message.
    beta : float
        Bytes per second, one direction.
    """

    alpha: float
    beta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", only_one(check_alpha(self.alpha), "alpha"))
        object.__setattr__(self, "beta", only_one(check_beta(self.beta), "beta"))


@dataclass(frozen=True, eq=False)
class Topology:
    """Ranks, the nodes they sit on, and the links between them.

    Attributes
    ----------
    node_of : numpy.ndarray of int, shape (n_ranks,)
        The node of each rank.
    nic_of : numpy.ndarray of int, shape (n_ranks,)
        The network interface that each rank's traffic to other nodes goes through. Ranks
        with the same number share it.
    inside, between : Link
        The link of two ranks on one node, and of two ranks on different nodes.
    ports : int
        Messages that a rank can send at once, and receive at once. More of them pay their
        latency in turn; the bandwidth of a rank is that of its link, however many ports.
    shared : SharedLinks or None
        Further links that messages of different ranks share, for example `RingWires`.
    """

    node_of: np.ndarray
    nic_of: np.ndarray
    inside: Link
    between: Link
    ports: int = 1
    shared: SharedLinks | None = None

    def __post_init__(self) -> None:
        check_n_ranks(self.ports, "ports")
        for name in ("node_of", "nic_of"):
            numbers = np.asarray(getattr(self, name))
            if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or (numbers < 0).any():
                raise ValueError(
                    f"{name} must give one whole number, zero or more, for every rank; "
                    f"got {getattr(self, name)!r}."
                )
            object.__setattr__(self, name, numbers)
        for name in ("inside", "between"):
            if not isinstance(getattr(self, name), Link):
                raise ValueError(
                    f"{name} must be a Link(alpha, beta); got {getattr(self, name)!r}."
                )
        if self.node_of.size != self.nic_of.size or not self.node_of.size:
            raise ValueError("node_of and nic_of must have one entry for each rank.")
        nodes_of_nic = {(nic, node) for nic, node in zip(self.nic_of, self.node_of, strict=True)}
        if len(nodes_of_nic) != len(set(self.nic_of.tolist())):
            raise ValueError("a network interface belongs to one node: number them across nodes.")
        if self.shared is not None and self.shared.n_ranks != self.node_of.size:
            raise ValueError(
                f"the shared links are for {self.shared.n_ranks} ranks and the topology has "
                f"{self.node_of.size}: make both for the same number."
            )

    @property
    def n_ranks(self) -> int:
        """The number of ranks."""
        return self.node_of.size

    def check(self, schedule: Schedule) -> None:
        """Refuse a schedule that needs more ports than a rank has.

        Raises
        ------
        ValueError
            If the numbers of ranks differ.
        ScheduleError
            Naming the first step and rank that sends or receives too many messages at once.
        """
        self.check_size(schedule)
        for index in range(len(schedule.steps)):
            messages = schedule.messages(index)
            for ends, verb in ((messages.src, "sends"), (messages.dst, "receives")):
                load = np.bincount(ends, minlength=self.n_ranks)
                rank = int(np.argmax(load))
                if load[rank] > self.ports:
                    raise ScheduleError(
                        f"step {index}: rank {rank} {verb} {load[rank]} messages at once, but "
                        f"the topology has {self.ports} port(s) per rank and direction. "
                        "Spread them over more steps, or give the topology more ports.",
                        step=index,
                        rank=rank,
                    )

    def check_size(self, schedule: Schedule) -> None:
        """Refuse a schedule for another number of ranks, or whose rows make no sense."""
        check_structure(schedule)
        if schedule.n_ranks != self.n_ranks:
            raise ValueError(
                f"the schedule is for {schedule.n_ranks} ranks and the topology has "
                f"{self.n_ranks}: build both for the same number."
            )


def flat_topology(n_ranks: int, alpha: float, beta: float, ports: int = 1) -> Topology:
    """All ranks joined by equal links, as by one switch.

    Parameters
    ----------
    n_ranks : int
    alpha : float
        Seconds per message.
    beta : float
        Bytes per second, one direction.
    ports : int
        Messages that a rank can send (and receive) at once; its bandwidth stays `beta`.
    """
    n_ranks = check_n_ranks(n_ranks)
    link = Link(alpha, beta)
    return Topology(np.zeros(n_ranks, dtype=int), np.arange(n_ranks), link, link, ports)


def ring_topology(n_ranks: int, alpha: float, beta: float) -> Topology:
    """Every rank wired to its two neighbours only, as on a ring or one row of a torus.

    A rank can use both wires at once (two ports). Messages to ranks further on pass over the
    wires between and share them with others; passing a rank adds no latency here.

    Parameters
    ----------
    n_ranks : int
    alpha : float
        Seconds per message.
    beta : float
        Bytes per second of one wire in one direction.
    """
    n_ranks = check_n_ranks(n_ranks)
    wires = RingWires(n_ranks, beta)
    both_wires = Link(alpha, 2 * wires.beta)
    return Topology(
        np.zeros(n_ranks, dtype=int), np.arange(n_ranks), both_wires, both_wires, 2, wires
    )


def node_topology(
    n_nodes: int,
    gpus_per_node: int,
    alpha: float,
    beta_intra: float,
    beta_inter: float,
    *,
    rails: int | None = None,
    alpha_inter: float | None = None,
    ports: int = 1,
    rank_order: Sequence[int] | None = None,
    nodes_per_switch: int | None = None,
    oversubscription: float = 1.0,
) -> Topology:
    """Nodes of GPUs: fast links inside, one network interface per rail between.

    Parameters
    ----------
    n_nodes, gpus_per_node : int
        m and g; there are m * g ranks, node by node.
    alpha : float
        Seconds per message, inside a node and (unless `alpha_inter` is given) between nodes.
    beta_intra, beta_inter : float
        Bytes per second in one direction: of a GPU inside its node, and of one rail.
    rails : int, optional
        Network interfaces per node; one per GPU by default. With fewer, neighbouring GPUs
        share one, and transfers of one step that use the same one share its bandwidth.
    rank_order : sequence of int, optional
        A permutation: rank r sits where rank ``rank_order[r]`` would sit.
    nodes_per_switch : int, optional
        Neighbouring nodes that hang on one leaf switch; a divisor of `n_nodes`. By default
        one switch serves all nodes, and nothing is shared beyond the network interfaces.
    oversubscription : float
        How much narrower a leaf switch's uplink is than all network interfaces below it
        together; 1 is a network that never blocks.
    """
    n_nodes = check_n_ranks(n_nodes, "n_nodes")
    gpus_per_node = check_n_ranks(gpus_per_node, "gpus_per_node")
    rails = gpus_per_node if rails is None else check_n_ranks(rails, "rails")
    if rails > gpus_per_node:
        raise ValueError(f"rails ({rails}) cannot exceed gpus_per_node ({gpus_per_node}).")
    n_ranks = n_nodes * gpus_per_node
    order = range(n_ranks) if rank_order is None else rank_order
    places = [*order] if isinstance(order, Iterable) else []
    if len(places) != n_ranks or set(places) != set(range(n_ranks)):
        raise ValueError(f"rank_order must name each of the ranks 0 to {n_ranks - 1} once.")
    node_of, local = np.divmod(np.array(places), gpus_per_node)
    nic_of = node_of * rails + local * rails // gpus_per_node
    between = Link(alpha if alpha_inter is None else alpha_inter, beta_inter)
    uplinks = None
    if nodes_per_switch is not None:
        per_switch = check_n_ranks(nodes_per_switch, "nodes_per_switch")
        if n_nodes % per_switch:
            raise ValueError(f"nodes_per_switch ({per_switch}) must divide n_nodes ({n_nodes}).")
        below = per_switch * rails * between.beta
        uplinks = Uplinks(node_of // per_switch, below / _ratio(oversubscription))
    elif oversubscription != 1.0:
        raise ValueError(
            "oversubscription needs nodes_per_switch: say which nodes share an uplink."
        )
    return Topology(node_of, nic_of, Link(alpha, beta_intra), between, ports, uplinks)


def _ratio(oversubscription: float) -> float:
    if not np.isfinite(oversubscription) or oversubscription < 1:
        raise ValueError(
            f"oversubscription is a ratio, 1 or more; got {oversubscription!r}. Two to one is 2.0."
        )
    return float(oversubscription)
