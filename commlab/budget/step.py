"""A whole training step: memory, every collective, and the time that all of it takes."""

from __future__ import annotations

from dataclasses import dataclass

from commlab.budget.cluster import H100_CLUSTER, Cluster, check_cluster, compute_time
from commlab.budget.groups import Group, Traffic, traffic_table
from commlab.budget.memory import parameter_share
from commlab.budget.pipeline import check_chunks
from commlab.budget.pipeline_schedule import PipelineTimeline, simulate_pipeline
from commlab.budget.plan import Plan, check_plan
from commlab.budget.report import Report, gpus
from commlab.budget.step_memory import StepMemory, step_memory
from commlab.budget.step_traffic import exposed_seconds, step_traffic
from commlab.budget.tensor import check_shape
from commlab.models import TransformerShape
from commlab.tables import Table
from commlab.units import format_bytes, format_seconds


@dataclass(frozen=True, eq=False)
class TrainingStep(Report):
    """What a training step stores, sends, and how long it takes.

    The times below add up to the step. Those of communication are what shows after overlap.

    Attributes
    ----------
    compute, recompute : float
        Seconds of useful computation per GPU, and of the forward pass run again.
    tensor, expert : float
        Seconds of tensor- and expert-parallel collectives, none of them hidden.
    data : float
        Seconds of gradients, gathered layers and updated parameters that nothing hides.
    bubble : float
        Seconds in which a stage waits for others or for transfers.
    traffic : dict
        Every kind of exchange of the stage with the most parameters, under "tensor",
        "expert", "pipeline" and "data".
    timeline : PipelineTimeline or None
        The pipeline's operations; None without a pipeline.
    """

    plan: Plan
    groups: dict[str, Group]
    memory: StepMemory
    traffic: dict[str, tuple[Traffic, ...]]
    compute: float
    recompute: float
    tensor: float
    expert: float
    data: float
    bubble: float
    model_flops: float
    peak_flops: float
    timeline: PipelineTimeline | None
    assumptions: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Seconds of the step."""
        return self.compute + self.recompute + self.tensor + self.expert + self.data + self.bubble

    @property
    def data_seconds(self) -> float:
        """Seconds of data-parallel traffic before overlap."""
        return sum(item.seconds for item in self.traffic["data"])

    @property
    def exposed(self) -> float:
        """Part of the step in which communication shows."""
        return (self.tensor + self.expert + self.data) / self.seconds

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second, all GPUs together."""
        return self.plan.tokens / self.seconds

    @property
    def mfu(self) -> float:
        """Model FLOPs of the step over what all GPUs could do in its time."""
        return self.model_flops / (self.plan.n_gpus * self.peak_flops * self.seconds)

    @property
    def fits(self) -> bool:
        """Whether the memory of a GPU suffices."""
        return self.memory.fits

    @property
    def why_not(self) -> str | None:
        """Why the step cannot run and what helps; None if it can."""
        return self.memory.why_not

    @property
    def title(self) -> str:
        """One line that names the result."""
        return f"{gpus(self.plan.n_gpus)}: {self.plan}"

    @property
    def lines(self) -> dict[str, str]:
        """Each quantity by name."""
        times = {
            "compute": self.compute,
            "recomputation": self.recompute,
            "tensor parallelism": self.tensor,
            "expert parallelism": self.expert,
            "data parallelism, exposed": self.data,
            "pipeline bubble": self.bubble,
            "step": self.seconds,
        }
        memory = f"{format_bytes(self.memory.total)} of {format_bytes(self.memory.capacity)}"
        return {
            "memory of the fullest GPU": memory + ("" if self.fits else ": does not fit"),
            **{
                name: f"{format_seconds(seconds)}, {seconds / self.seconds:.1%}"
                for name, seconds in times.items()
            },
            "tokens per second": f"{self.tokens_per_second:,.0f}",
            "MFU of the step": f"{self.mfu:.1%}",
        }

    def traffic_table(self) -> Table:
        """Return one row per kind of exchange."""
        return traffic_table([item for kind in self.traffic.values() for item in kind])


def training_step(
    shape: TransformerShape, plan: Plan, cluster: Cluster = H100_CLUSTER
) -> TrainingStep:
    """Estimate memory, communication and time of one step of a parallel training run.

    Parameters
    ----------
    shape : TransformerShape
        The model.
    plan : Plan
        Sizes of the parallel axes, their order, batch, ZeRO stage and overlap.
    cluster : Cluster
        Links, node size, memory, peak FLOP/s and MFU.

    Returns
    -------
    TrainingStep
        Also where it does not fit: `why_not` says so.

    Raises
    ------
    TypeError
        If shape, plan or cluster is none, for example where two of them are swapped.
    ValueError
        If sizes do not divide each other, the model or the nodes.
    """
    check_shape(shape)
    check_plan(plan)
    check_cluster(cluster)
    check_chunks(shape, plan.pipeline, plan.n_chunks)
    shares = [
        parameter_share(shape, plan.tensor, plan.pipeline, plan.expert, stage)
        for stage in range(plan.pipeline)
    ]
    fullest = max(shares, key=lambda share: share.total)
    traffic = step_traffic(shape, plan, cluster, fullest, shares[0].embedding)
    tokens = plan.micro_batch * plan.sequence
    passes = plan.n_microbatches
    each = compute_time(shape.active_parameters, tokens, cluster, plan.tensor * plan.pipeline)
    again = each / 3 if plan.recompute == "full" else 0.0
    forward, backward = each / 3, each * 2 / 3 + again
    shown = exposed_seconds(traffic["data"], plan, forward, backward)

    # What stands between the computations of a micro-batch makes its passes longer.
    between = (*traffic["tensor"], *traffic["expert"])
    forward += sum(item.seconds for item in between if item.when == "forward") / passes
    backward += sum(item.seconds for item in between if item.when == "backward") / passes
    forward += shown["forward"]
    backward += shown["backward"]
    timeline, bubble, in_flight = None, 0.0, [1.0]
    if plan.pipeline > 1:
        timeline = simulate_pipeline(
            plan.pipeline,
            passes,
            forward,
            backward,
            transfer_seconds=traffic["pipeline"][0].seconds_each,
            schedule=plan.schedule,
            n_chunks=plan.n_chunks,
        )
        bubble = timeline.seconds - passes * (forward + backward)
        in_flight = [float(count) / plan.n_chunks for count in timeline.in_flight()]
    each_microbatch = shown["forward"] + shown["backward"]
    return TrainingStep(
        plan=plan,
        groups={axis: plan.group(axis, cluster) for axis in (*plan.order, "expert")},
        memory=step_memory(shape, plan, cluster, shares, in_flight),
        traffic=traffic,
        compute=passes * each,
        recompute=passes * again,
        tensor=sum(item.seconds for item in traffic["tensor"]),
        expert=sum(item.seconds for item in traffic["expert"]),
        data=passes * each_microbatch + shown["last backward"] + shown["update"],
        bubble=bubble,
        model_flops=shape.training_flops(plan.tokens),
        peak_flops=cluster.peak_flops,
        timeline=timeline,
        assumptions=(
            f"{shape.name} on {cluster.name}",
            f"{passes} x {plan.micro_batch} x {plan.sequence} tokens per copy; equal stages, "
            "experts equally loaded, links at full rate",
            f"overlap: gradients {plan.overlap.gradients:.0%}, prefetch "
            f"{plan.overlap.prefetch:.0%}, updated parameters {plan.overlap.update:.0%} of their "
            "pass; tensor and expert parallelism none",
            *_always_shown(plan),
            "no optimizer time, no attention scores in the FLOPs",
        ),
    )


def _always_shown(plan: Plan) -> list[str]:
    """Name what of the data-parallel traffic nothing can hide."""
    if plan.data == 1:
        return []
    if plan.zero_stage == 3:
        return ["shown in any case: the first gather and the last reduce-scatter of a pass"]
    return ["shown in any case: the embedding's gradient, which comes last"]
