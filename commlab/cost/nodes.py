"""Closed forms over m nodes of g GPUs, with fast links inside and slow ones between.

Conventions as in :mod:`commlab.cost.closed_forms`.
"""

from __future__ import annotations

import numpy as np

from commlab.checks import check_alpha, check_beta, check_count, check_n_ranks, only_one
from commlab.cost.arguments import Scalars, arguments, as_seconds, node_arguments


def hierarchical_allreduce_time(
    nbytes: Scalars,
    n_nodes: Scalars,
    gpus_per_node: Scalars,
    alpha: Scalars,
    beta_intra: Scalars,
    beta_inter: Scalars,
    alpha_inter: Scalars | None = None,
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
        Seconds per message, inside a node and (unless `alpha_inter` is given) between nodes.
    beta_intra, beta_inter : float or array
        Bytes per second in one direction, of a GPU inside its node and of its network
        interface.
    alpha_inter : float or array, optional
        Seconds per message between nodes.

    Returns
    -------
    float or array
        Seconds.
    """
    size, m, g, latency, intra, inter, latency_inter = node_arguments(
        nbytes, n_nodes, gpus_per_node, alpha, beta_intra, beta_inter, alpha_inter
    )
    inside = 2 * (g - 1) * (latency + size / (g * intra))
    across = 2 * (m - 1) * (latency_inter + size / (g * m * inter))
    return as_seconds(inside + across)


def flat_ring_over_nodes_time(
    nbytes: Scalars,
    n_nodes: Scalars,
    gpus_per_node: Scalars,
    alpha: Scalars,
    beta_intra: Scalars,
    beta_inter: Scalars,
    rails: Scalars = 1,
    alpha_inter: Scalars | None = None,
) -> Scalars:
    """Time of one flat ring through all GPUs of m nodes.

    ``2 (N-1) (alpha + S/(N beta))`` with N = m g and beta the slowest stretch of the ring:
    `beta_inter` times the network interfaces (`rails`) that carry it across a node boundary,
    or `beta_intra` if that is less. With a latency of its own between nodes, the slower of
    the two kinds of step counts. ``rails=1`` is a ring that leaves each node through one
    interface; with all rails it is how NCCL's Ring algorithm runs, whose channels are rings
    that each leave through another one. NCCL may choose Tree or NVLSTree instead.

    Parameters as in `hierarchical_allreduce_time`; `rails` counts interfaces per node.
    """
    size, m, g, latency, intra, inter, latency_inter = node_arguments(
        nbytes, n_nodes, gpus_per_node, alpha, beta_intra, beta_inter, alpha_inter
    )
    per_node = check_count(rails, "rails")
    if np.any(per_node > g):
        raise ValueError(
            f"rails ({rails!r}) cannot exceed gpus_per_node ({gpus_per_node!r}): "
            "a rail is the network interface of one GPU or more."
        )
    n = m * g
    inside = np.where(g > 1, latency + size / (n * intra), 0.0)
    across = np.where(m > 1, latency_inter + size / (n * per_node * inter), 0.0)
    return as_seconds(2 * (n - 1) * np.maximum(inside, across))


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
    rails = np.asarray(multi_rail_ring_time(sizes, *cluster, gpus_per_node))
    head_start = rails[0] - two_level[0]
    loss_per_byte = ((two_level[1] - two_level[0]) - (rails[1] - rails[0])) / sizes[1]
    if head_start <= 0 or loss_per_byte <= 0:
        return None
    return float(head_start / loss_per_byte)


def multi_rail_ring_time(
    nbytes: Scalars,
    n_nodes: Scalars,
    gpus_per_node: Scalars,
    alpha: Scalars,
    beta_intra: Scalars,
    beta_inter: Scalars,
    rails: Scalars,
    alpha_inter: Scalars | None = None,
) -> Scalars:
    """Time of R rings at once, each leaving every node through another network interface.

    ``2 (N-1) (alpha + S/N max(f/beta_intra, 1/(R beta_inter)))``: what the schedule
    `multi_rail_ring_all_reduce` costs. f is the part of the rings that a GPU hands on inside
    its node: (R-1)/R where every GPU has an interface of its own, else 1, since some GPU has
    none. `flat_ring_over_nodes_time` sets f = 1; both agree where the interfaces are the
    narrow place.

    Parameters as in `flat_ring_over_nodes_time`; `rails` divides `gpus_per_node`.
    """
    size, m, g, latency, intra, inter, latency_inter = node_arguments(
        nbytes, n_nodes, gpus_per_node, alpha, beta_intra, beta_inter, alpha_inter
    )
    per_node = check_count(rails, "rails")
    if np.any(g % per_node != 0):
        raise ValueError(f"rails ({rails!r}) must divide gpus_per_node ({gpus_per_node!r}).")
    n = m * g
    handed_on = np.where((m > 1) & (per_node == g), (g - 1) / g, 1.0)
    inside = np.where(g > 1, latency + size / n * handed_on / intra, 0.0)
    across = np.where(m > 1, latency_inter + size / (n * per_node * inter), 0.0)
    return as_seconds(2 * (n - 1) * np.maximum(inside, across))


def two_level_all_to_all_time(
    nbytes: Scalars,
    n_nodes: Scalars,
    gpus_per_node: Scalars,
    alpha: Scalars,
    beta_intra: Scalars,
    beta_inter: Scalars,
    alpha_inter: Scalars | None = None,
) -> Scalars:
    """Time of an all-to-all that first regroups inside nodes, then goes between them.

    ``(g-1) (alpha + S/(g beta_intra)) + (m-1) (alpha + S/(m beta_inter))``: few large
    messages, in pairs, every GPU through its own network interface.

    Parameters as in `hierarchical_allreduce_time`; S is the send buffer of one rank.
    """
    size, m, g, latency, intra, inter, latency_inter = node_arguments(
        nbytes, n_nodes, gpus_per_node, alpha, beta_intra, beta_inter, alpha_inter
    )
    inside = (g - 1) * (latency + size / (g * intra))
    across = (m - 1) * (latency_inter + size / (m * inter))
    return as_seconds(inside + across)


def in_network_allreduce_time(
    nbytes: Scalars, n_ranks: Scalars, alpha: Scalars, beta: Scalars
) -> Scalars:
    """Time of an all-reduce whose sums a switch computes (NVLink SHARP, "NVLS").

    ``2 alpha + (N+1)/N S/beta``. Each rank owns 1/N of the result: it has the switch read and
    add that part from all N ranks, then has it written to all N. So a rank's link carries
    S + S/N in each direction, where a ring's carries 2(N-1)/N S: below the bound that holds
    for ranks which add themselves. That is why a bus bandwidth above the line rate is no
    error of measurement.

    Parameters and errors as in `alpha_beta_naive_allreduce`. This is a closed form only: a
    Schedule has ranks and no switch.

    References
    ----------
    The bytes: NCCL's maintainers in NVIDIA/nccl#1083. The two latencies are this model's.
    """
    size, n, latency, bandwidth = arguments(nbytes, n_ranks, alpha, beta)
    seconds = 2 * latency + (n + 1) / n * size / bandwidth
    return as_seconds(np.where(n > 1, seconds, 0.0))
