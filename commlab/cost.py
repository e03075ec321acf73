"""The alpha-beta cost model: closed forms, and the price of any schedule.

A message of n bytes takes ``alpha + n / beta`` seconds. Everywhere: `alpha` in seconds per
message, `beta` in bytes per second in one direction, sizes in bytes. The closed forms
broadcast over numpy arrays and return a float where every argument is a number. One rank
has nobody to talk to: its time is 0.

The model is lock-step: a step is over when its slowest rank is done.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commlab.checks import (
    check_alpha,
    check_beta,
    check_count,
    check_n_ranks,
    check_nbytes,
    only_one,
    warn_if_absurd,
)
from commlab.schedule import MessageTable, Schedule
from commlab.topology import Topology

# A closed form takes a number or an array, and gives the same.
Scalars = float | np.ndarray


@dataclass(frozen=True)
class Price:
    """What a schedule costs on a topology, in seconds.

    Attributes
    ----------
    by_step : numpy.ndarray, shape (n_steps,)
    """

    by_step: np.ndarray

    @property
    def total(self) -> float:
        """The sum over all steps, in seconds."""
        return float(self.by_step.sum())

    def __float__(self) -> float:
        return self.total


def price(schedule: Schedule, topology: Topology, nbytes: float) -> Price:
    """Price a schedule, step by step.

    Parameters
    ----------
    schedule : Schedule
    topology : Topology
        For the same number of ranks.
    nbytes : float
        S, the bytes of the full vector of one rank. All-gather and reduce-scatter count the
        whole array, as nccl-tests does.

    Returns
    -------
    Price

    Notes
    -----
    A step takes as long as its slowest rank, direction or shared network interface. A rank
    that sends k messages of n bytes in all needs ``ceil(k / ports) * alpha + n / beta``.
    If its messages of a step leave over both kinds of link, they overlap where the ports
    take all of them at once; otherwise each round of messages pays the larger alpha, and the
    bytes follow each other. The transfers of a step that go through one network interface
    share its bandwidth.
    """
    if not isinstance(topology, Topology):
        raise TypeError(
            f"price(schedule, topology, nbytes) needs a Topology, not a "
            f"{type(topology).__name__}: make one, for example with flat_topology."
        )
    topology.check_size(schedule)
    size = only_one(check_nbytes(nbytes), "nbytes")
    by_step = np.zeros(len(schedule.steps))
    bytes_per_unit = size / schedule.unit_denominator
    for index in range(len(schedule.steps)):
        messages = schedule.messages(index)
        if messages.src.size:
            by_step[index] = _step_seconds(messages, topology, bytes_per_unit)
    warn_if_absurd(by_step.sum(keepdims=True))
    return Price(by_step)


def _step_seconds(messages: MessageTable, topology: Topology, bytes_per_unit: float) -> float:
    crossing = topology.node_of[messages.src] != topology.node_of[messages.dst]
    inside, between = topology.inside, topology.between
    slowest = 0.0
    for ends in (messages.src, messages.dst):
        counts, moving = [], []
        for chosen, link in ((~crossing, inside), (crossing, between)):
            counts.append(np.bincount(ends[chosen], minlength=topology.n_ranks))
            units = _sum_at(ends[chosen], messages.units[chosen], topology.n_ranks)
            moving.append(units * bytes_per_unit / link.beta)
        alphas = (counts[0] > 0) * inside.alpha, (counts[1] > 0) * between.alpha
        rounds = -(-(counts[0] + counts[1]) // topology.ports)
        at_once = np.maximum(alphas[0] + moving[0], alphas[1] + moving[1])
        in_turn = rounds * np.maximum(*alphas) + moving[0] + moving[1]
        seconds = np.where(rounds <= 1, at_once, in_turn)
        slowest = max(slowest, float(seconds.max()))
        if crossing.any():
            nic = topology.nic_of[ends[crossing]]
            units = _sum_at(nic, messages.units[crossing], int(nic.max()) + 1)
            shared = between.alpha + units.max() * bytes_per_unit / between.beta
            slowest = max(slowest, float(shared))
    return slowest


def _sum_at(index: np.ndarray, units: np.ndarray, length: int) -> np.ndarray:
    """Sum whole units by index, exactly (bincount's weights are floats)."""
    totals = np.zeros(length, dtype=np.int64)
    np.add.at(totals, index, units)
    return totals


def alpha_beta_naive_allreduce(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars
) -> Scalars:
    """Time of an all-reduce through rank 0, which receives and sends one vector at a time.

    ``2 (N-1) (alpha + S/beta)``

    Parameters
    ----------
    nbytes : float or array
        S, the bytes that each rank holds.
    n_ranks : int or array
    alpha : float or array
        Seconds per message.
    beta : float or array
        Bytes per second, one direction.

    Returns
    -------
    float or array
        Seconds.

    Raises
    ------
    ValueError
        If an argument is not finite, N < 1, S or alpha below 0, or beta not above 0.
    """
    size, n, latency, bandwidth = _arguments(nbytes, n_ranks, alpha, beta)
    return _seconds(2 * (n - 1) * (latency + size / bandwidth))


def alpha_beta_ring_allreduce(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars
) -> Scalars:
    """Time of a ring all-reduce.

    ``2 (N-1) (alpha + S/(N beta))``: 2(N-1) steps, each with one message of S/N bytes.

    Parameters and errors as in `alpha_beta_naive_allreduce`.

    References
    ----------
    Patarasuk and Yuan (2009), "Bandwidth Optimal All-reduce Algorithms for Clusters of
    Workstations".
    """
    size, n, latency, bandwidth = _arguments(nbytes, n_ranks, alpha, beta)
    return _seconds(2 * (n - 1) * (latency + size / (n * bandwidth)))


def alpha_beta_tree_allreduce(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars
) -> Scalars:
    """Time of a binomial-tree reduce followed by a binomial-tree broadcast.

    ``2 ceil(log2 N) (alpha + S/beta)``: few steps, each with the whole vector. Real
    libraries pipeline their trees and do better.

    Parameters and errors as in `alpha_beta_naive_allreduce`.

    References
    ----------
    Thakur, Rabenseifner and Gropp (2005), "Optimization of Collective Communication
    Operations in MPICH".
    """
    size, n, latency, bandwidth = _arguments(nbytes, n_ranks, alpha, beta)
    return _seconds(2 * _ceil_log2(n) * (latency + size / bandwidth))


def alpha_beta_recursive_doubling_allreduce(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars
) -> Scalars:
    """Time of a recursive-doubling all-reduce.

    ``(log2 p + 2 f) (alpha + S/beta)`` with p the largest power of two up to N, and f = 1
    where N is not a power of two (one step folds the surplus ranks in, one hands the result
    back), else 0.

    Parameters and errors as in `alpha_beta_naive_allreduce`. Source: Thakur et al. (2005).
    """
    size, n, latency, bandwidth = _arguments(nbytes, n_ranks, alpha, beta)
    power, folded = _largest_power_of_two(n)
    return _seconds((np.log2(power) + 2 * folded) * (latency + size / bandwidth))


def alpha_beta_halving_doubling_allreduce(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars
) -> Scalars:
    """Time of Rabenseifner's all-reduce: recursive halving, then recursive doubling.

    ``2 log2 p alpha + 2 (p-1)/p S/beta``, and ``2 (alpha + S/beta)`` more where N is not a
    power of two; p as in `alpha_beta_recursive_doubling_allreduce`.

    Parameters and errors as in `alpha_beta_naive_allreduce`. Source: Thakur et al. (2005).
    """
    size, n, latency, bandwidth = _arguments(nbytes, n_ranks, alpha, beta)
    power, folded = _largest_power_of_two(n)
    core = 2 * np.log2(power) * latency + 2 * (power - 1) / power * size / bandwidth
    return _seconds(core + 2 * folded * (latency + size / bandwidth))


def alpha_beta_reduce_scatter(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars
) -> Scalars:
    """Time of a ring reduce-scatter: ``(N-1) (alpha + S/(N beta))``; S is the whole array.

    Parameters and errors as in `alpha_beta_naive_allreduce`.
    """
    size, n, latency, bandwidth = _arguments(nbytes, n_ranks, alpha, beta)
    return _seconds((n - 1) * (latency + size / (n * bandwidth)))


def alpha_beta_all_gather(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars
) -> Scalars:
    """Time of a ring all-gather: ``(N-1) (alpha + S/(N beta))``; S is the gathered array.

    Parameters and errors as in `alpha_beta_naive_allreduce`.
    """
    return alpha_beta_reduce_scatter(nbytes, n_ranks, alpha, beta)


def alpha_beta_broadcast(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars
) -> Scalars:
    """Time of a binomial-tree broadcast (or reduce): ``ceil(log2 N) (alpha + S/beta)``.

    Parameters and errors as in `alpha_beta_naive_allreduce`.
    """
    size, n, latency, bandwidth = _arguments(nbytes, n_ranks, alpha, beta)
    return _seconds(_ceil_log2(n) * (latency + size / bandwidth))


def alpha_beta_all_to_all(
    nbytes: Scalars,
    n_ranks: Scalars,
    alpha: Scalars,
    beta: Scalars,
    algorithm: str = "pairwise",
) -> Scalars:
    """Time of an all-to-all in which each rank's S bytes go to N ranks in equal parts.

    "pairwise" talks to one partner after the other: ``(N-1) (alpha + S/(N beta))``.
    "direct" sends to all at once and assumes N-1 ports, which share the rank's bandwidth:
    ``alpha + (N-1)/N S/beta``.

    Parameters and errors as in `alpha_beta_naive_allreduce`.
    """
    size, n, latency, bandwidth = _arguments(nbytes, n_ranks, alpha, beta)
    per_partner = size / (n * bandwidth)
    if algorithm == "pairwise":
        return _seconds((n - 1) * (latency + per_partner))
    if algorithm == "direct":
        return _seconds(np.where(n > 1, latency, 0.0) + (n - 1) * per_partner)
    raise ValueError(f"algorithm must be 'pairwise' or 'direct'; got {algorithm!r}.")


def hierarchical_allreduce_time(
    nbytes: Scalars,
    n_nodes: Scalars,
    gpus_per_node: Scalars,
    alpha: Scalars,
    beta_intra: Scalars,
    beta_inter: Scalars,
) -> Scalars:
    """Time of a two-level all-reduce over m nodes of g GPUs.

    Ring reduce-scatter inside each node, ring all-reduce of the 1/g that each GPU then owns
    across nodes (every GPU through its own network interface), ring all-gather inside:
    ``2 (g-1) (alpha + S/(g beta_intra)) + 2 (m-1) (alpha + S/(g m beta_inter))``.

    Parameters
    ----------
    nbytes : float or array
        S, the bytes that each rank holds.
    n_nodes, gpus_per_node : int or array
        m and g.
    alpha : float or array
        Seconds per message, on both kinds of link.
    beta_intra, beta_inter : float or array
        Bytes per second in one direction, of a GPU inside its node and of its network
        interface.

    Returns
    -------
    float or array
        Seconds.
    """
    size, m, g, latency, intra, inter = _node_arguments(
        nbytes, n_nodes, gpus_per_node, alpha, beta_intra, beta_inter
    )
    inside = 2 * (g - 1) * (latency + size / (g * intra))
    across = 2 * (m - 1) * (latency + size / (g * m * inter))
    return _seconds(inside + across)


def flat_ring_over_nodes_time(
    nbytes: Scalars,
    n_nodes: Scalars,
    gpus_per_node: Scalars,
    alpha: Scalars,
    beta_intra: Scalars,
    beta_inter: Scalars,
    rails: Scalars = 1,
) -> Scalars:
    """Time of one flat ring through all GPUs of m nodes.

    ``2 (N-1) (alpha + S/(N beta))`` with N = m g and beta the slowest stretch of the ring:
    `beta_inter` times the network interfaces (`rails`) that carry it across a node boundary,
    or `beta_intra` if that is less. ``rails=1`` is a ring that leaves each node through one
    interface; with all rails it is how NCCL's Ring algorithm runs, whose channels are rings
    that each leave through another one. NCCL may choose Tree or NVLSTree instead.

    Parameters as in `hierarchical_allreduce_time`; `rails` counts interfaces per node.
    """
    size, m, g, latency, intra, inter = _node_arguments(
        nbytes, n_nodes, gpus_per_node, alpha, beta_intra, beta_inter
    )
    per_node = check_count(rails, "rails")
    if np.any(per_node > g):
        raise ValueError(
            f"rails ({rails!r}) cannot exceed gpus_per_node ({gpus_per_node!r}): "
            "a rail is the network interface of one GPU or more."
        )
    boundary = per_node * inter
    slowest = np.where(m > 1, np.minimum(intra, boundary), intra)
    n = m * g
    return _seconds(2 * (n - 1) * (latency + size / (n * slowest)))


def bucketed_allreduce_time(
    nbytes: Scalars, bucket_nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars
) -> Scalars:
    """Time of all ring all-reduces, one after the other, of a gradient cut into buckets.

    ``ceil(S/b) 2 (N-1) alpha + 2 (N-1)/N S/beta``: the last bucket may be smaller. Nothing
    is said of what hides behind the backward pass.

    Parameters
    ----------
    nbytes : float or array
        S, the bytes of the whole gradient.
    bucket_nbytes : float or array
        b, the bytes of one bucket, above zero.
    n_ranks, alpha, beta
        As in `alpha_beta_ring_allreduce`.
    """
    size, n, latency, bandwidth = _arguments(nbytes, n_ranks, alpha, beta)
    bucket = check_nbytes(bucket_nbytes, "bucket_nbytes")
    if np.any(bucket <= 0):
        raise ValueError(f"bucket_nbytes must be above zero; got {bucket_nbytes!r}.")
    n_buckets = np.ceil(size / bucket)
    return _seconds(2 * (n - 1) * (n_buckets * latency + size / (n * bandwidth)))


def ring_tree_crossover(n_ranks: int, alpha: float, beta: float) -> float:
    """Message size at which ring and binomial-tree all-reduce take the same time.

    Below it the tree is faster, above it the ring.

    Returns
    -------
    float
        Bytes. ``(N - 1 - d) alpha beta / (d - (N-1)/N)`` with d = ceil(log2 N); 0 where the
        ring is never slower (N = 2 and 3, where both take the same number of steps).

    Raises
    ------
    ValueError
        For one rank, where both take no time.
    """
    n = check_n_ranks(n_ranks)
    if n == 1:
        raise ValueError("one rank communicates nothing: ring and tree cross for 2 ranks or more.")
    latency = only_one(check_alpha(alpha), "alpha")
    bandwidth = only_one(check_beta(beta), "beta")
    depth = float(_ceil_log2(np.asarray(float(n))))
    return (n - 1 - depth) * latency * bandwidth / (depth - (n - 1) / n)


def hierarchical_ring_crossover(
    n_nodes: int, gpus_per_node: int, alpha: float, beta_intra: float, beta_inter: float
) -> float | None:
    """Size below which the hierarchical scheme beats the ring over all rails.

    Both times are straight lines in S, so two points of each are enough.

    Parameters
    ----------
    n_nodes, gpus_per_node : int
        The cluster; each GPU has its own NIC.
    alpha : float
        Seconds per message.
    beta_intra, beta_inter : float
        Bytes per second and direction, in the node and per NIC.

    Returns
    -------
    float or None
        The size in bytes; None if the two lines do not cross at a positive size.
    """
    sizes = np.array([0.0, 2.0**30])
    gpus_per_node = check_n_ranks(gpus_per_node, "gpus_per_node")
    cluster = (
        check_n_ranks(n_nodes, "n_nodes"),
        gpus_per_node,
        only_one(check_alpha(alpha), "alpha"),
        only_one(check_beta(beta_intra, "beta_intra"), "beta_intra"),
        only_one(check_beta(beta_inter, "beta_inter"), "beta_inter"),
    )
    two_level = np.asarray(hierarchical_allreduce_time(sizes, *cluster))
    rails = np.asarray(flat_ring_over_nodes_time(sizes, *cluster, gpus_per_node))
    head_start = rails[0] - two_level[0]
    loss_per_byte = ((two_level[1] - two_level[0]) - (rails[1] - rails[0])) / sizes[1]
    if head_start <= 0 or loss_per_byte <= 0:
        return None
    return float(head_start / loss_per_byte)


def _arguments(
    nbytes: object, n_ranks: object, alpha: object, beta: object
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    return (
        check_nbytes(nbytes),
        check_count(n_ranks, "n_ranks"),
        check_alpha(alpha),
        check_beta(beta),
    )


def _node_arguments(
    nbytes: object,
    n_nodes: object,
    gpus_per_node: object,
    alpha: object,
    beta_intra: object,
    beta_inter: object,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    return (
        check_nbytes(nbytes),
        check_count(n_nodes, "n_nodes"),
        check_count(gpus_per_node, "gpus_per_node"),
        check_alpha(alpha),
        check_beta(beta_intra, "beta_intra"),
        check_beta(beta_inter, "beta_inter"),
    )


def _seconds(seconds: np.ndarray) -> Scalars:
    warn_if_absurd(seconds)
    return float(seconds) if np.ndim(seconds) == 0 else seconds


def _ceil_log2(n: np.ndarray) -> np.ndarray:
    """Exact ceil(log2 n) of whole numbers: log2 of 2^k may round up just above k."""
    mantissa, exponent = np.frexp(n)
    return np.where(mantissa == 0.5, exponent - 1, exponent)


def _largest_power_of_two(n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest power of two up to n, and 1.0 where n is not one itself."""
    _, exponent = np.frexp(n)
    power = np.ldexp(1.0, exponent - 1)
    return power, (power != n).astype(np.float64)
