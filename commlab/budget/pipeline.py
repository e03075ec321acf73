"""Pipeline parallelism: layers on stages, micro-batches through them, and the bubble."""

from __future__ import annotations

from dataclasses import dataclass

from commlab.budget.cluster import H100_CLUSTER, Cluster, check_cluster, compute_time
from commlab.budget.groups import Group
from commlab.budget.pipeline_schedule import PipelineTimeline, check_schedule, simulate_pipeline
from commlab.budget.report import Report
from commlab.budget.tensor import check_shape
from commlab.checks import check_n_ranks
from commlab.models import BF16_BYTES, TransformerShape
from commlab.setting_checks import check_flag, check_positive
from commlab.units import format_bytes, format_seconds


def bubble_fraction(n_stages: int, n_microbatches: int, n_chunks: int = 1) -> float:
    """Return the part of a pipelined step in which a stage waits, transfers taken as free.

    Parameters
    ----------
    n_stages, n_microbatches : int
        p and the number of micro-batches.
    n_chunks : int
        Parts of the model per stage, 1 unless interleaved.

    Returns
    -------
    float
        (p − 1) / (chunks · micro-batches + p − 1), for GPipe and for 1F1B.

    Notes
    -----
    Sources: Huang et al. (2019), "GPipe"; Narayanan et al. (2021), section 2.2, who state the
    bubble over the *ideal* time instead, (p − 1) / (chunks · micro-batches).
    """
    idle = check_n_ranks(n_stages, "n_stages") - 1
    useful = check_n_ranks(n_microbatches, "n_microbatches") * check_n_ranks(n_chunks, "n_chunks")
    return idle / (useful + idle)


@dataclass(frozen=True, eq=False)
class PipelineParallel(Report):
    """One pipelined step.

    Attributes
    ----------
    transfer_bytes : float
        One micro-batch's activations, or their gradients, between two stages.
    transfer_seconds : float
        Seconds of one such transfer.
    transfers : int
        Transfers that the busiest stage sends per step, both directions together: an inner
        stage, or either of two.
    in_flight : tuple of float
        Micro-batches whose activations each stage keeps at once, at most.
    compute_seconds : float
        Seconds that a stage computes per step.
    timeline : PipelineTimeline
        Every operation with its start and end.
    """

    n_stages: int
    n_microbatches: int
    schedule: str
    transfer_bytes: float
    transfer_seconds: float
    transfers: int
    in_flight: tuple[float, ...]
    compute_seconds: float
    timeline: PipelineTimeline
    assumptions: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Seconds of the step."""
        return self.timeline.seconds

    @property
    def bubble_fraction(self) -> float:
        """Part of the step in which a stage waits, for transfers too."""
        return self.timeline.bubble_fraction

    @property
    def sent(self) -> float:
        """Bytes that a GPU of the busiest stage sends per step."""
        return self.transfers * self.transfer_bytes

    @property
    def title(self) -> str:
        """One line that names the result."""
        return f"{self.schedule}: {self.n_stages} stages, {self.n_microbatches} micro-batches"

    @property
    def lines(self) -> dict[str, str]:
        """Each quantity by name."""
        return {
            "sent per micro-batch and boundary": format_bytes(self.transfer_bytes),
            "time of one transfer": format_seconds(self.transfer_seconds),
            "sent per step, busiest stage": format_bytes(self.sent),
            "micro-batches in flight, by stage": ", ".join(f"{n:g}" for n in self.in_flight),
            "compute per step": format_seconds(self.compute_seconds),
            "step": format_seconds(self.seconds),
            "bubble": f"{self.bubble_fraction:.1%}",
        }


def pipeline_parallel(
    shape: TransformerShape,
    tokens: int,
    n_stages: int,
    n_microbatches: int,
    cluster: Cluster = H100_CLUSTER,
    schedule: str = "1f1b",
    n_chunks: int = 1,
    across_nodes: bool = True,
) -> PipelineParallel:
    """Estimate a step of pipeline parallelism by simulating its schedule.

    Parameters
    ----------
    shape : TransformerShape
        The model.
    tokens : int
        Tokens of one micro-batch.
    n_stages : int
        Stages; must divide the layers.
    n_microbatches : int
        Micro-batches of the step.
    cluster : Cluster
        Links, peak FLOP/s and MFU.
    schedule : {"gpipe", "1f1b", "interleaved"}
    n_chunks : int
        Parts of the model per stage, for "interleaved" only.
    across_nodes : bool
        Whether neighbouring stages sit on different nodes.

    Returns
    -------
    PipelineParallel

    Raises
    ------
    TypeError
        If shape or cluster is none.
    ValueError
        If a number is out of range, the layers cannot be divided, or the schedule does not fit.
    """
    check_schedule(schedule, n_stages, n_microbatches, n_chunks)
    check_chunks(shape, n_stages, n_chunks)
    check_cluster(cluster)
    group = Group(1, n_stages) if check_flag(across_nodes, "across_nodes") else Group(n_stages)
    nbytes = BF16_BYTES * check_positive(tokens, "tokens") * shape.hidden
    transfer_seconds = send_seconds(nbytes, group, cluster)
    stage_seconds = compute_time(shape.active_parameters, tokens, cluster, n_stages)
    timeline = simulate_pipeline(
        n_stages,
        n_microbatches,
        forward_seconds=stage_seconds / 3,
        backward_seconds=stage_seconds * 2 / 3,
        transfer_seconds=transfer_seconds,
        schedule=schedule,
        n_chunks=n_chunks,
    )
    return PipelineParallel(
        n_stages=n_stages,
        n_microbatches=n_microbatches,
        schedule=schedule,
        transfer_bytes=nbytes,
        transfer_seconds=transfer_seconds,
        transfers=n_microbatches * _busiest_sends(n_stages, n_chunks),
        in_flight=tuple(float(count) / n_chunks for count in timeline.in_flight()),
        compute_seconds=n_microbatches * stage_seconds,
        timeline=timeline,
        assumptions=(
            f"{shape.name}, {tokens} tokens per micro-batch, equal stages (embedding and head "
            "counted as spread over all)",
            "backward takes twice as long as forward; transfers run beside the computation",
            f"neighbouring stages {'on different nodes' if across_nodes else 'in one node'}",
        ),
    )


def _busiest_sends(n_stages: int, n_chunks: int) -> int:
    """Transfers of one micro-batch that the stage with the most of them sends.

    Each part of the model sends its activations on and its gradients back. The first part has
    nothing before it, the last nothing after it; of two stages each holds one of them.
    """
    if n_stages == 1:
        return 0
    return 2 * n_chunks - (1 if n_stages == 2 else 0)


def send_seconds(nbytes: float, group: Group, cluster: Cluster) -> float:
    """Estimate one message between neighbours of a group: the slow link if any pair crosses."""
    if group.n_ranks == 1:
        return 0.0
    beta = cluster.beta_out if group.n_nodes > 1 else cluster.beta_intra
    return cluster.alpha + nbytes / beta


def check_chunks(shape: TransformerShape, n_stages: int, n_chunks: int) -> None:
    """Refuse layers that stages and their parts cannot share evenly."""
    parts = n_stages * n_chunks
    if check_shape(shape).layers % parts:
        raise ValueError(
            f"{shape.name} has {shape.layers} layers, which cannot be divided evenly by {parts} "
            "(stages times parts per stage): choose a divisor."
        )
