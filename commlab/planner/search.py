"""Every way to place a model on a cluster: which fit, which is fastest, why the others lose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from commlab.budget import H100_CLUSTER, Cluster, Plan, TrainingStep, training_step
from commlab.budget.activations import RECOMPUTE
from commlab.checks import check_n_ranks
from commlab.models import TransformerShape
from commlab.setting_checks import check_choice
from commlab.units import format_bytes, format_seconds

ZERO_STAGES = (0, 1, 3)
"""Stages that are tried. Stage 2 reduces gradients after every micro-batch: it sends more than
stage 1 and keeps more than stage 3."""

MICRO_BATCHES = (1, 2, 4, 8)

# With more in a pipeline its bubble is nothing, and playing through its schedule takes minutes.
MOST_MICROBATCHES = 1024

# What a step consists of beside computation, as `TrainingStep` names it, and in words.
_PARTS = {
    "recompute": "the forward pass run again",
    "tensor": "tensor-parallel collectives",
    "expert": "the experts' all-to-all",
    "data": "gradients and gathered layers that show",
    "bubble": "the pipeline's bubble",
}


@dataclass(frozen=True)
class Request:
    """What is to be planned. Whatever is None is searched.

    Parameters
    ----------
    shape : TransformerShape
    n_gpus : int
        GPUs of the run.
    tokens_per_gpu : int
        Tokens of a step divided by all GPUs.
    sequence : int
        Tokens of a sequence.
    cluster : Cluster
    tensor, pipeline, data, expert : int, optional
        Sizes of the axes.
    zero_stage, recompute, micro_batch : optional
        As in :class:`commlab.budget.Plan`.

    Raises
    ------
    ValueError
        If a size is out of range, if given sizes do not make up ``n_gpus``, or if the step
        holds less than one sequence.
    """

    shape: TransformerShape
    n_gpus: int
    tokens_per_gpu: int
    sequence: int = 8192
    cluster: Cluster = H100_CLUSTER
    tensor: int | None = None
    pipeline: int | None = None
    data: int | None = None
    expert: int | None = None
    zero_stage: int | None = None
    recompute: str | None = None
    micro_batch: int | None = None

    def __post_init__(self) -> None:
        for name in ("n_gpus", "tokens_per_gpu", "sequence"):
            check_n_ranks(getattr(self, name), name)
        for name in ("tensor", "pipeline", "data", "expert", "micro_batch"):
            if getattr(self, name) is not None:
                check_n_ranks(getattr(self, name), name)
        if self.zero_stage is not None and self.zero_stage not in (0, 1, 2, 3):
            raise ValueError(f"zero_stage is {self.zero_stage!r}: choose 0, 1, 2 or 3.")
        if self.recompute is not None:
            check_choice(self.recompute, RECOMPUTE, "recompute")
        per_node = self.cluster.gpus_per_node
        if self.n_gpus > per_node and self.n_gpus % per_node:
            raise ValueError(
                f"{self.n_gpus} GPUs do not fill nodes of {per_node}: choose a multiple of "
                f"{per_node}."
            )
        if self.n_gpus * self.tokens_per_gpu < self.sequence:
            raise ValueError(
                f"{self.n_gpus} GPUs with {self.tokens_per_gpu} tokens each make less than one "
                f"sequence of {self.sequence} tokens: give more tokens per GPU."
            )
        known = [size for size in (self.tensor, self.pipeline, self.data) if size is not None]
        product = 1
        for size in known:
            product *= size
        if self.n_gpus % product or (len(known) == 3 and product != self.n_gpus):
            sizes = " x ".join(str(size) for size in known)
            raise ValueError(
                f"{sizes} GPUs do not make up {self.n_gpus}: choose sizes whose product is the "
                "number of GPUs."
            )


@dataclass(frozen=True, order=True)
class Placement:
    """Sizes of the axes: tensor is the innermost, then data, then pipeline."""

    tensor: int
    pipeline: int
    data: int
    expert: int = 1

    def __str__(self) -> str:
        experts = f" EP {self.expert}" if self.expert > 1 else ""
        return f"TP {self.tensor} PP {self.pipeline} DP {self.data}{experts}"


@dataclass(frozen=True)
class Outcome:
    """The best that a placement can do: a step, or why there is none.

    ``why`` says what stands against it; empty for the best placement of all. ``needs`` is the
    memory in bytes without which it does not fit; None where memory is not what it lacks.
    """

    placement: Placement
    step: TrainingStep | None
    why: str = ""
    needs: float | None = None


@dataclass(frozen=True)
class Ranking:
    """All placements of a request, fastest first; those that cannot run stand last."""

    request: Request
    outcomes: tuple[Outcome, ...]

    @property
    def best(self) -> TrainingStep | None:
        """The step of the fastest placement; None if no placement can run."""
        return self.outcomes[0].step


def placements(request: Request) -> Iterator[Placement]:
    """List the placements that a request leaves open.

    Yields
    ------
    Placement
        Every way to write the number of GPUs as tensor x pipeline x data, with at most one
        stage per layer, and experts over every divisor that data and experts have in common.
    """
    shape, n_gpus = request.shape, request.n_gpus
    for tensor in divisors(n_gpus):
        if request.tensor not in (None, tensor):
            continue
        for pipeline in divisors(n_gpus // tensor):
            data = n_gpus // tensor // pipeline
            if request.pipeline not in (None, pipeline) or request.data not in (None, data):
                continue
            if pipeline > shape.layers and request.pipeline is None:
                continue
            # Experts stay whole on their GPU unless there is more than one of them.
            shared = [size for size in divisors(data) if shape.n_experts % size == 0]
            for expert in shared if request.expert is None else [request.expert]:
                yield Placement(tensor, pipeline, data, expert)


def rank_placements(
    request: Request, progress: Callable[[int, int], None] | None = None
) -> Ranking:
    """Find the fastest step of every placement, and say why the slower ones are slower.

    Parameters
    ----------
    request : Request
    progress : callable, optional
        Called with how many placements are done and how many there are.

    Returns
    -------
    Ranking

    Notes
    -----
    Within a placement all combinations of ZeRO stage (0, 1, 3), recomputation and micro-batch
    (1, 2, 4, 8 sequences) that the request leaves open are tried; the fastest that fits counts,
    and of equally fast ones the one that needs least memory. Sequence parallelism goes with
    tensor parallelism, the pipeline runs 1F1B, with at most `MOST_MICROBATCHES`.
    """
    everything = list(placements(request))
    outcomes = []
    for done, placement in enumerate(everything):
        if progress is not None:
            progress(done, len(everything))
        outcomes.append(best_of_placement(request, placement))
    if progress is not None:
        progress(len(everything), len(everything))
    running = [(outcome.step, outcome) for outcome in outcomes if outcome.step is not None]
    running.sort(key=lambda pair: _order(pair[0]))
    judged = [
        replace(outcome, why=_why_slower(step, running[0][0]) if number else "")
        for number, (step, outcome) in enumerate(running)
    ]
    refused = [outcome for outcome in outcomes if outcome.step is None]
    return Ranking(request, (*judged, *refused))


def best_of_placement(request: Request, placement: Placement) -> Outcome:
    """Return the fastest step of one placement that fits, or the reason why none does."""
    copy_tokens = request.tokens_per_gpu * placement.tensor * placement.pipeline
    sequences, rest = divmod(copy_tokens, request.sequence)
    if rest or not sequences:
        return Outcome(
            placement,
            None,
            f"each of its {placement.data} copies has {copy_tokens} tokens a step, no whole "
            f"number of sequences of {request.sequence}",
        )
    best: TrainingStep | None = None
    smallest: TrainingStep | None = None
    refusal = ""
    for plan in _plans(request, placement, sequences):
        try:
            step = training_step(request.shape, plan, request.cluster)
        except ValueError as error:
            refusal = str(error)
            continue
        if smallest is None or step.memory.total < smallest.memory.total:
            smallest = step
        if step.fits and (best is None or _order(step) < _order(best)):
            best = step
    if best is not None:
        return Outcome(placement, best)
    if smallest is not None:
        return Outcome(
            placement,
            None,
            f"does not fit: at least {format_bytes(smallest.memory.total)} on a GPU of "
            f"{format_bytes(smallest.memory.capacity)}",
            needs=smallest.memory.total,
        )
    why = f"its copies have {sequences} sequences a step, in no way to be cut into micro-batches"
    if placement.pipeline > 1:
        why += f", of which a pipeline may have {MOST_MICROBATCHES}"
    return Outcome(placement, None, refusal.rstrip(".") or why)


def _plans(request: Request, placement: Placement, sequences: int) -> Iterator[Plan]:
    """List the plans of a placement whose copies compute so many sequences a step."""
    sizes = MICRO_BATCHES if request.micro_batch is None else (request.micro_batch,)
    stages = ZERO_STAGES if request.zero_stage is None else (request.zero_stage,)
    if placement.data == 1 and request.zero_stage is None:
        stages = (0,)  # nobody to share with
    for micro_batch in sizes:
        n_microbatches = sequences // micro_batch
        too_many = placement.pipeline > 1 and n_microbatches > MOST_MICROBATCHES
        if sequences % micro_batch or too_many:
            continue
        for zero_stage in stages:
            for recompute in RECOMPUTE if request.recompute is None else (request.recompute,):
                yield Plan(
                    data=placement.data,
                    tensor=placement.tensor,
                    pipeline=placement.pipeline,
                    expert=placement.expert,
                    sequence=request.sequence,
                    micro_batch=micro_batch,
                    n_microbatches=n_microbatches,
                    zero_stage=zero_stage,
                    # Below stage 2 whole gradients are kept anyway: reduce them once.
                    reduce_each_microbatch=zero_stage >= 2,
                    sequence_parallel=placement.tensor > 1,
                    recompute=recompute,
                )


def _order(step: TrainingStep) -> tuple[float, float]:
    return step.seconds, step.memory.total


def _why_slower(step: TrainingStep, best: TrainingStep) -> str:
    """Name the part of the step that costs most more than in the best one."""
    more = {name: getattr(step, name) - getattr(best, name) for name in _PARTS}
    worst = max(more, key=lambda name: more[name])
    if more[worst] <= 0:
        return "as fast as the best, but needs more memory"
    return (
        f"{step.seconds / best.seconds:.2f} x the time: {_PARTS[worst]} cost "
        f"{format_seconds(more[worst])} more"
    )


def divisors(number: int) -> list[int]:
    """Return the divisors of a whole number above zero, in order."""
    small = [size for size in range(1, int(number**0.5) + 1) if number % size == 0]
    return sorted({*small, *(number // size for size in small)})
