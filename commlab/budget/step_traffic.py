"""What the stages of a training step exchange, and what of it shows after overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from commlab.budget.cluster import Cluster
from commlab.budget.experts import all_to_all_seconds, expert_loads, sent_matrix
from commlab.budget.groups import Traffic
from commlab.budget.memory import ParameterShare
from commlab.budget.pipeline import send_seconds
from commlab.budget.plan import Plan, check_plan
from commlab.budget.shards import state_traffic
from commlab.budget.tensor import tensor_traffic
from commlab.models import BF16_BYTES, TransformerShape


def step_traffic(
    shape: TransformerShape,
    plan: Plan,
    cluster: Cluster,
    share: ParameterShare,
    embedding: float,
) -> dict[str, tuple[Traffic, ...]]:
    """List every kind of exchange of a GPU with these parameters, by kind of parallelism.

    Parameters
    ----------
    share : ParameterShare
        Parameters of the GPU.
    embedding : float
        Those of the embedding on a GPU of the first stage, which is the last to compute.

    Returns
    -------
    dict
        ``tensor``, ``expert``, ``pipeline`` and ``data``.
    """
    return {
        "tensor": tuple(_tensor(shape, plan, cluster, share.layers)),
        "expert": tuple(_expert(shape, plan, cluster, share.layers)),
        "pipeline": tuple(_pipeline(shape, plan, cluster)),
        "data": tuple(_data(plan, cluster, share, embedding)),
    }


def _tensor(shape: TransformerShape, plan: Plan, cluster: Cluster, layers: int) -> list[Traffic]:
    group = plan.group("tensor", cluster)
    tokens = plan.micro_batch * plan.sequence
    forward, backward = (
        tensor_traffic(
            tokens, shape.hidden, layers, group, cluster, is_backward, plan.sequence_parallel
        )
        for is_backward in (False, True)
    )
    return _every_microbatch(plan, forward, backward)


def _expert(shape: TransformerShape, plan: Plan, cluster: Cluster, layers: int) -> list[Traffic]:
    group = plan.group("expert", cluster)
    if group.n_ranks == 1:
        return []
    # With sequence parallelism each GPU of a tensor-parallel group sends its own tokens.
    tokens = plan.micro_batch * plan.sequence / (plan.tensor if plan.sequence_parallel else 1)
    nbytes = BF16_BYTES * tokens * shape.hidden * shape.experts_per_token
    sent = nbytes * sent_matrix(expert_loads(shape.n_experts), group.n_ranks)
    seconds = all_to_all_seconds(sent, group, cluster, plan.all_to_all)
    what = "tokens to experts and back"
    forward = Traffic(what, "all-to-all", nbytes, group, 2 * layers, seconds, "forward")
    return _every_microbatch(plan, [forward], [replace(forward, when="backward")])


def _every_microbatch(plan: Plan, forward: list[Traffic], backward: list[Traffic]) -> list[Traffic]:
    """Repeat the exchanges of one micro-batch; recomputation runs the forward ones again."""
    again = [
        replace(item, what=f"{item.what}, recomputed", when="backward")
        for item in (forward if plan.recompute == "full" else [])
    ]
    return [
        replace(item, count=item.count * plan.n_microbatches)
        for item in (*forward, *backward, *again)
    ]


def _pipeline(shape: TransformerShape, plan: Plan, cluster: Cluster) -> list[Traffic]:
    group = plan.group("pipeline", cluster)
    if group.n_ranks == 1:
        return []
    tokens = plan.micro_batch * plan.sequence / (plan.tensor if plan.sequence_parallel else 1)
    nbytes = BF16_BYTES * tokens * shape.hidden
    seconds = send_seconds(nbytes, group, cluster)
    count = plan.n_microbatches * plan.n_chunks
    return [
        Traffic("activations to the next stage", "send", nbytes, group, count, seconds, "forward"),
        Traffic("their gradients back", "send", nbytes, group, count, seconds, "backward"),
    ]


def _data(plan: Plan, cluster: Cluster, share: ParameterShare, embedding: float) -> list[Traffic]:
    layers, algorithm = share.layers, plan.algorithm
    shards = plan.shards(cluster)
    whole = share.layer if plan.expert == 1 else share.layer - share.experts
    traffic = state_traffic(whole, layers, share.root, shards, cluster, algorithm, last=embedding)
    if plan.expert == 1:
        return traffic
    shards = plan.shards(cluster, of_experts=True)
    for item in state_traffic(share.experts, layers, 0.0, shards, cluster, algorithm):
        traffic.append(replace(item, what=f"{item.what} (experts)"))
    return traffic


def exposed_seconds(
    data: Sequence[Traffic], plan: Plan, forward: float, backward: float
) -> dict[str, float]:
    """Return what shows of the data-parallel traffic, by the rule of :class:`Overlap`.

    Parameters
    ----------
    data : sequence of Traffic
    plan : Plan
    forward, backward : float
        Seconds that a GPU computes in the passes of one micro-batch.

    Returns
    -------
    dict
        Seconds for each value of ``Traffic.when``: "forward" and "backward" per micro-batch,
        "last backward" and "update" once per step.
    """
    overlap, passes = check_plan(plan).overlap, plan.n_microbatches
    comm = dict.fromkeys(("forward", "backward", "last backward", "update"), 0.0)
    for item in data:
        repeats = passes if item.when in ("forward", "backward") else 1
        comm[item.when] += item.seconds / repeats
    edge = _edges(data, plan.zero_stage)
    part = overlap.prefetch if plan.zero_stage == 3 else overlap.gradients

    def shows(seconds: float, unhidden: float, window: float) -> float:
        return max(unhidden, seconds - window)

    each_backward = shows(comm["backward"], edge["backward"], part * backward)
    # The last backward pass has its own gathers to hide before the gradients of all.
    everything = comm["backward"] + comm["last backward"]
    last_backward = shows(everything, edge["last backward"], part * backward)
    return {
        "forward": shows(comm["forward"], edge["forward"], part * forward),
        "backward": each_backward,
        "last backward": last_backward - each_backward,
        "update": shows(comm["update"], 0.0, overlap.update * forward),
    }


def _edges(data: Sequence[Traffic], zero_stage: int) -> dict[str, float]:
    """Seconds of what has nothing to hide behind.

    Stages 0 to 2: the last bucket of gradients. Stage 3: the first gather of each pass, and the
    last reduce-scatter. Each group has its own; in the list a group's layers come before its
    root.
    """
    edge = dict.fromkeys(("forward", "backward", "last backward", "update"), 0.0)
    seen = set()
    for item in data:
        edge[item.when] += item.last_seconds
        kind = (item.collective, item.when, item.group)
        if zero_stage == 3 and item.collective != "all-reduce" and kind not in seen:
            seen.add(kind)
            edge[item.when] += item.seconds_each
    edge["last backward"] += edge["backward"]
    return edge
