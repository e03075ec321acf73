"""Groups on nodes: placed as counted, and as slow as their schedules are priced."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from commlab import Schedule, Step, node_topology, price, verify
from commlab.algorithms import (
    direct_all_to_all,
    hierarchical_all_reduce,
    multi_rail_ring_all_reduce,
    pairwise_all_to_all,
    ring_all_gather,
    ring_reduce_scatter,
)
from commlab.budget import (
    H100_CLUSTER,
    Cluster,
    Group,
    Plan,
    all_reduce_seconds,
    all_to_all_seconds,
    gather_seconds,
    place,
)

NBYTES = 3.7e8

# Small models of a cluster: node size, network interfaces, and the sizes of the three axes.
SHAPES = [
    (8, 8, Plan(data=8, tensor=4)),
    (8, 8, Plan(data=16, tensor=2)),
    (8, 8, Plan(data=4, tensor=8)),
    (8, 8, Plan(data=2, tensor=2, pipeline=2)),
    (8, 8, Plan(data=2, tensor=4, pipeline=4)),
    (8, 2, Plan(data=8, tensor=4)),
    (4, 2, Plan(data=12, tensor=2)),
    (4, 4, Plan(data=8, tensor=4, order=("data", "tensor", "pipeline"))),
    (6, 3, Plan(data=4, tensor=3, pipeline=2, order=("pipeline", "tensor", "data"))),
    (5, 5, Plan(data=15)),
]
AXES = ("tensor", "data", "pipeline")


def cluster_of(gpus_per_node: int, rails: int | None = None) -> Cluster:
    return replace(H100_CLUSTER, gpus_per_node=gpus_per_node, rails=rails)


def topology_of(cluster: Cluster, n_gpus: int, ports: int = 1):
    per_node = min(cluster.gpus_per_node, n_gpus)
    rails = min(cluster.rails or per_node, per_node)
    return node_topology(
        n_gpus // per_node,
        per_node,
        cluster.alpha,
        cluster.beta_intra,
        cluster.beta_inter,
        rails=rails,
        ports=ports,
    )


def all_groups_at_once(schedule: Schedule, groups: list[list[int]]) -> Schedule:
    """Let every group of a run follow one schedule, step by step."""
    n_ranks, n_chunks = len(groups) * len(groups[0]), schedule.n_chunks
    starts: list = [()] * n_ranks
    ends: list = [()] * n_ranks
    for index, members in enumerate(groups):
        for member, rank in enumerate(members):
            starts[rank] = [c + index * n_chunks for c in schedule.starts[member]]
            ends[rank] = [c + index * n_chunks for c in schedule.ends[member]]
    seat = np.array(groups)
    offset = np.arange(len(groups))[:, None] * n_chunks
    steps = [
        Step(
            seat[:, step.src].reshape(-1),
            seat[:, step.dst].reshape(-1),
            (step.chunk + offset).reshape(-1),
            np.tile(step.op, len(groups)),
        )
        for step in schedule.steps
    ]
    shares = list(schedule.shares) * len(groups)
    return Schedule(schedule.collective, n_ranks, shares, starts, ends, steps)


# ----------------------------------------------------------------- placement


def test_groups_sit_where_counting_their_ranks_says():
    """For all small axes and node sizes: the same answer as a count, or a refusal if uneven."""
    refused = 0
    for per_node, sizes in itertools.product(
        (1, 2, 3, 4, 6, 8), itertools.product(range(1, 6), repeat=3)
    ):
        plan = Plan(**dict(zip(AXES, sizes, strict=True)))
        if plan.n_gpus > per_node and plan.n_gpus % per_node:
            continue
        for axis in AXES:
            counts = {
                tuple(sorted(Counter(rank // per_node for rank in ranks).values()))
                for ranks in plan.ranks(axis)
            }
            even = len(counts) == 1 and len(set(next(iter(counts)))) == 1
            if even:
                group = plan.group(axis, cluster_of(per_node))
                assert counts == {(group.per_node,) * group.n_nodes}
            else:
                refused += 1
                with pytest.raises(ValueError, match="straddle nodes"):
                    plan.group(axis, cluster_of(per_node))
    assert refused > 100


def test_every_rank_is_in_one_group_of_each_axis():
    plan = Plan(data=6, tensor=2, pipeline=3, expert=3)
    for axis in (*AXES, "expert"):
        groups = plan.ranks(axis)
        assert {len(ranks) for ranks in groups} == {getattr(plan, axis)}
        assert sorted(itertools.chain(*groups)) == list(range(plan.n_gpus))
    assert plan.ranks("tensor")[0] == [0, 1]
    assert plan.ranks("expert")[0] == [0, 2, 4]
    assert plan.ranks("pipeline")[0] == [0, 12, 24]


def test_the_order_of_the_axes_decides_who_crosses():
    inner_first = Plan(data=8, tensor=8)
    swapped = Plan(data=8, tensor=8, order=("data", "tensor", "pipeline"))
    assert inner_first.group("tensor", H100_CLUSTER) == Group(8)
    assert inner_first.group("data", H100_CLUSTER) == Group(1, 8)
    assert swapped.group("tensor", H100_CLUSTER) == Group(1, 8)
    assert swapped.group("data", H100_CLUSTER) == Group(8)


@pytest.mark.parametrize(
    ("group", "text"),
    [
        (Group(1), "1 GPU"),
        (Group(8), "8 GPUs of one node"),
        (Group(1, 4), "4 GPUs, one per node"),
        (Group(2, 4), "4 nodes of 2"),
    ],
)
def test_a_group_says_where_it_sits(group, text):
    assert str(group) == text


# ----------------------------------------------------------------- times against schedules


@pytest.mark.parametrize(("per_node", "rails", "plan"), SHAPES, ids=str)
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("algorithm", ["hierarchical", "rails"])
def test_all_reduce_time_is_the_price_of_all_groups_at_once(per_node, rails, plan, axis, algorithm):
    cluster = cluster_of(per_node, rails)
    group = plan.group(axis, cluster)
    if algorithm == "hierarchical":
        schedule = hierarchical_all_reduce(group.n_ranks, group.per_node)
    else:
        schedule = multi_rail_ring_all_reduce(group.n_ranks, group.per_node)
        if group.n_nodes == 1:
            # One node has no interfaces to share: its ring is one, not one per rail.
            schedule = multi_rail_ring_all_reduce(group.n_ranks, group.per_node, 1)
    everyone = all_groups_at_once(schedule, plan.ranks(axis))
    verify(everyone)
    # A GPU of a ring over rails sends inside and out of its node at once.
    topology = topology_of(cluster, plan.n_gpus, ports=2)
    priced = price(everyone, topology, NBYTES).total
    assert all_reduce_seconds(NBYTES, group, cluster, algorithm) == pytest.approx(priced, rel=1e-12)


@pytest.mark.parametrize(("per_node", "rails", "plan"), SHAPES, ids=str)
@pytest.mark.parametrize("axis", AXES)
def test_gather_and_scatter_are_half_an_all_reduce(per_node, rails, plan, axis):
    cluster = cluster_of(per_node, rails)
    group = plan.group(axis, cluster)
    half = gather_seconds(NBYTES, group, cluster)
    assert 2 * half == pytest.approx(all_reduce_seconds(NBYTES, group, cluster), rel=1e-12)
    if group.n_nodes == 1 or group.per_node == 1:
        for build in (ring_all_gather, ring_reduce_scatter):
            everyone = all_groups_at_once(build(group.n_ranks), plan.ranks(axis))
            priced = price(everyone, topology_of(cluster, plan.n_gpus), NBYTES).total
            assert half == pytest.approx(priced, rel=1e-12)


@pytest.mark.parametrize("group", [Group(8), Group(1, 6), Group(2, 3), Group(3, 2), Group(4, 2)])
@pytest.mark.parametrize("algorithm", ["direct", "pairwise"])
@pytest.mark.parametrize("slow_inside", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_uneven_all_to_all_time_is_the_price_of_explicit_counts(
    group, algorithm, slow_inside, seed
):
    n_ranks = group.n_ranks
    cluster = cluster_of(group.per_node)
    if slow_inside:
        fast, slow = cluster.beta_intra, cluster.beta_inter
        cluster = replace(cluster, beta_intra=slow, beta_inter=fast)
    counts = np.random.default_rng(seed).integers(1, 1000, (n_ranks, n_ranks))
    build = direct_all_to_all if algorithm == "direct" else pairwise_all_to_all
    # S is what the fullest rank starts or ends with.
    fullest = max(counts.sum(axis=0).max(), counts.sum(axis=1).max())
    topology = node_topology(
        group.n_nodes,
        group.per_node,
        cluster.alpha,
        cluster.beta_intra,
        cluster.beta_inter,
        ports=n_ranks - 1,
    )
    element = 1e5
    priced = price(build(n_ranks, counts=counts), topology, element * fullest).total
    seconds = all_to_all_seconds(element * counts, group, cluster, algorithm)
    assert seconds == pytest.approx(priced, rel=1e-12)


@pytest.mark.parametrize("rails", range(1, 9))
@pytest.mark.parametrize("algorithm", ["direct", "pairwise"])
def test_all_to_alls_of_a_whole_node_share_its_interfaces(rails, algorithm):
    plan, cluster = Plan(data=4, tensor=8), cluster_of(8, rails)
    group = plan.group("data", cluster)
    build = direct_all_to_all if algorithm == "direct" else pairwise_all_to_all
    everyone = all_groups_at_once(build(group.n_ranks), plan.ranks("data"))
    priced = price(everyone, topology_of(cluster, plan.n_gpus, ports=3), NBYTES).total
    sent = np.full((4, 4), NBYTES / 4)
    assert all_to_all_seconds(sent, group, cluster, algorithm) == pytest.approx(priced, rel=1e-12)


@pytest.mark.parametrize(
    ("per_node", "rails"), [(g, rails) for g in range(1, 9) for rails in range(1, g + 1)]
)
def test_any_number_of_rails_is_as_slow_as_the_fullest_one(per_node, rails):
    """Rails that do not divide the GPUs have ceil(g / R) of them at most."""
    cluster = cluster_of(per_node, rails)
    for n_nodes in (2, 3):
        n_gpus = n_nodes * per_node
        schedule = hierarchical_all_reduce(n_gpus, per_node)
        priced = price(schedule, topology_of(cluster, n_gpus), NBYTES).total
        group = place(n_gpus, cluster)
        assert all_reduce_seconds(NBYTES, group, cluster) == pytest.approx(priced, rel=1e-12)


def test_fewer_network_interfaces_cost_what_they_share():
    full, half = (cluster_of(8, rails) for rails in (8, 4))
    group = Group(1, 4)
    no_latency = [replace(cluster, alpha=0.0) for cluster in (full, half)]
    times = [all_reduce_seconds(NBYTES, group, cluster) for cluster in no_latency]
    assert times[1] == pytest.approx(2 * times[0])
    inside = [all_reduce_seconds(NBYTES, Group(8), cluster) for cluster in (full, half)]
    assert inside[0] == inside[1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: place(12, H100_CLUSTER), "choose a multiple of 8"),
        (lambda: place(3, H100_CLUSTER, stride=1, n_gpus=24), "straddle nodes of 8 unevenly"),
        (lambda: all_reduce_seconds(1e6, Group(4), H100_CLUSTER, "tree"), "'hierarchical' or"),
        (lambda: all_to_all_seconds(np.ones((2, 2)), Group(2), H100_CLUSTER, "ring"), "pairwise"),
        (lambda: place(4, H100_CLUSTER, stride=-1), "stride must be a whole number"),
        (lambda: place(4, H100_CLUSTER, n_gpus=0), "n_gpus must be a whole number"),
        (lambda: place(4, H100_CLUSTER, n_gpus=float("nan")), "n_gpus must be a whole number"),
        (lambda: all_to_all_seconds(np.ones(2), Group(2), H100_CLUSTER), "as a square"),
        (lambda: Group(0), "per_node must be a whole number"),
        (lambda: cluster_of(8, 9), "at most one network interface per GPU"),
    ],
)
def test_bad_input_is_refused_with_the_fix(call, message):
    with pytest.raises(ValueError, match=message):
        call()
