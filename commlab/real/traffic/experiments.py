"""One step of each kind of parallelism, run for real and counted.

An experiment is a small frozen value: what is run, and what the formula says that it sends.
`count` runs one; `count_together` runs several in one start of the ranks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from commlab.budget import (
    BF16_BYTES,
    FP32_BYTES,
    expert_loads,
    pipeline_parallel,
    sent_matrix,
    sharded_volume,
    tensor_parallel,
)
from commlab.checks import check_n_ranks
from commlab.models import TransformerShape
from commlab.real.launch import run
from commlab.real.measure import about_this_machine
from commlab.real.traffic.results import Operation, SentBytes

# By their names in `commlab.real.traffic.tensor_parallel` and `pipeline`, which import torch.
PLANS = ("shared input", "naive")
SCHEDULES = ("gpipe", "1f1b")
WORKER = "commlab.real.traffic.steps:run_steps"
RANKS = 4
TIMEOUT = 90.0


@dataclass(frozen=True)
class Experiment(ABC):
    """A step of training that can be run on several ranks."""

    step: ClassVar[str]
    """Its name in `commlab.real.traffic.steps`."""
    unit: ClassVar[str]

    @property
    @abstractmethod
    def title(self) -> str:
        """One line that names it."""

    @property
    @abstractmethod
    def unit_nbytes(self) -> float:
        """Bytes of one `unit`."""

    @abstractmethod
    def arguments(self, n_ranks: int) -> dict[str, Any]:
        """Return what the step is called with."""

    @abstractmethod
    def formula(self, n_ranks: int) -> tuple[float, ...]:
        """Return the bytes that each rank should send."""

    def count(self, ranks: int = RANKS, timeout: float = TIMEOUT) -> SentBytes:
        """Run it on ``ranks`` processes of this machine, and count what each sends.

        Raises
        ------
        ValueError
            If it cannot be cut over so many ranks.
        RankError
            If a rank fails, or ``timeout`` seconds are over.
        """
        return count_together([self], ranks, timeout)[0]


def count_together(
    experiments: Sequence[Experiment], ranks: int = RANKS, timeout: float = TIMEOUT
) -> list[SentBytes]:
    """Run experiments one after the other in the same processes.

    Parameters
    ----------
    experiments : sequence of Experiment
    ranks : int
        Processes, 2 or more.
    timeout : float
        Seconds for all of them.

    Returns
    -------
    list of SentBytes
        In the order of the experiments.
    """
    if check_n_ranks(ranks, "ranks") < 2:
        raise ValueError("one rank has nobody to send to: give ranks=2 or more.")
    steps = [(each.step, each.arguments(ranks)) for each in experiments]
    formulas = [each.formula(ranks) for each in experiments]
    by_rank = run(WORKER, ranks=ranks, timeout=timeout, steps=steps)
    machine = about_this_machine()
    return [
        _result(experiment, formula, answers, machine)
        for experiment, formula, *answers in zip(experiments, formulas, *by_rank, strict=True)
    ]


def _result(
    experiment: Experiment,
    formula: tuple[float, ...],
    answers: Sequence[dict[str, Any]],
    machine: str,
) -> SentBytes:
    sockets = [answer["sent"] for answer in answers]
    counted = "sent", "operations"
    return SentBytes(
        title=experiment.title,
        unit=experiment.unit,
        unit_nbytes=experiment.unit_nbytes,
        formula=formula,
        operations=tuple(
            tuple(Operation(*call) for call in answer["operations"]) for answer in answers
        ),
        sockets=None if None in sockets else tuple(sockets),
        machine=machine,
        seen={
            name: [answer[name] for answer in answers] for name in answers[0] if name not in counted
        },
    )


@dataclass(frozen=True)
class StackOfMatrices(Experiment):
    """A model for data parallelism: square BF16 matrices, one after the other."""

    n_layers: int = 4
    hidden: int = 1024
    unit: ClassVar[str] = "P"

    @property
    def n_parameters(self) -> int:
        """Parameters of the model."""
        return self.n_layers * self.hidden**2

    @property
    def unit_nbytes(self) -> float:
        """P, the bytes of the parameters."""
        return BF16_BYTES * self.n_parameters


@dataclass(frozen=True)
class DDP(StackOfMatrices):
    """Data parallelism: the matrices in DistributedDataParallel."""

    step: ClassVar[str] = "ddp"

    @property
    def title(self) -> str:
        """One line that names it."""
        return "DDP"

    def arguments(self, n_ranks: int) -> dict[str, Any]:
        """Return what the step is called with."""
        return {"n_layers": self.n_layers, "hidden": self.hidden}

    def formula(self, n_ranks: int) -> tuple[float, ...]:
        """Return 2(N−1)/N · P for each rank."""
        return (sharded_volume(self.n_parameters, n_ranks, zero_stage=0).total,) * n_ranks


@dataclass(frozen=True)
class FSDP(StackOfMatrices):
    """FSDP2: the same matrices, each a unit that is gathered before use.

    Parameters
    ----------
    reshard_after_forward : bool or int
        As for ``fully_shard``.
    own_reduce_scatter : bool
        True: the reduce-scatter of the formula, made from an all-to-all. False: gloo's own.
    float32_gradients : bool
        Reduce the gradients in FP32.
    """

    reshard_after_forward: bool | int = True
    own_reduce_scatter: bool = True
    float32_gradients: bool = False
    step: ClassVar[str] = "fsdp"

    @property
    def title(self) -> str:
        """One line that names it."""
        how = f"FSDP2, reshard_after_forward={self.reshard_after_forward}"
        if self.float32_gradients:
            how += ", FP32 gradients"
        return how if self.own_reduce_scatter else f"{how}, gloo's reduce-scatter"

    def arguments(self, n_ranks: int) -> dict[str, Any]:
        """Return what the step is called with."""
        if self.hidden % n_ranks:
            raise ValueError(
                f"{self.hidden} rows cannot be cut evenly over {n_ranks} ranks: FSDP would pad "
                "them, so choose a multiple."
            )
        return {
            "n_layers": self.n_layers,
            "hidden": self.hidden,
            "reshard_after_forward": self.reshard_after_forward,
            "own_reduce_scatter": self.own_reduce_scatter,
            "float32_gradients": self.float32_gradients,
        }

    def formula(self, n_ranks: int) -> tuple[float, ...]:
        """Return 3(N−1)/N · P for each rank, less where a layer is not gathered again."""
        volume = sharded_volume(
            self.n_parameters,
            n_ranks,
            zero_stage=3,
            reshard_after_forward=self.reshard_after_forward,
            gradient_bytes=FP32_BYTES if self.float32_gradients else BF16_BYTES,
        )
        return (volume.total,) * n_ranks


@dataclass(frozen=True)
class TensorParallel(Experiment):
    """Tensor parallelism: layers of attention and a two-matrix MLP, BF16.

    Parameters
    ----------
    plan : {"shared input", "naive"}
        Whether the query, key and value matrices share their input as one distributed
        tensor, or each takes it for itself.
    """

    plan: str = "shared input"
    n_layers: int = 2
    hidden: int = 512
    heads: int = 8
    tokens: int = 1024
    step: ClassVar[str] = "tensor"
    unit: ClassVar[str] = "activations per layer"

    @property
    def title(self) -> str:
        """One line that names it."""
        return f"tensor parallelism, {self.plan} plan"

    @property
    def unit_nbytes(self) -> float:
        """One layer's output, times the layers."""
        return BF16_BYTES * self.tokens * self.hidden * self.n_layers

    def arguments(self, n_ranks: int) -> dict[str, Any]:
        """Return what the step is called with."""
        _check_choice("plan", self.plan, PLANS)
        if self.hidden % self.heads:
            raise ValueError(
                f"{self.heads} heads cannot share a width of {self.hidden}: choose a divisor."
            )
        return {
            "plan": self.plan,
            "n_layers": self.n_layers,
            "hidden": self.hidden,
            "heads": self.heads,
            "tokens": self.tokens,
        }

    def formula(self, n_ranks: int) -> tuple[float, ...]:
        """Return the bytes of four all-reduces per layer."""
        shape = small_transformer(self.n_layers, self.hidden, self.heads)
        return (tensor_parallel(shape, self.tokens, n_ranks).sent,) * n_ranks


@dataclass(frozen=True)
class Pipeline(Experiment):
    """Pipeline parallelism: one stage on each rank, FP64.

    Parameters
    ----------
    schedule : {"gpipe", "1f1b"}
    n_microbatches : int
    rows : int
        Rows of a micro-batch.
    """

    schedule: str = "1f1b"
    n_microbatches: int = 8
    rows: int = 256
    hidden: int = 256
    step: ClassVar[str] = "pipeline"
    unit: ClassVar[str] = "micro-batches"

    # Double precision, so that gradients can be compared; the budget counts BF16.
    _times_bf16: ClassVar[int] = 8 // BF16_BYTES

    @property
    def title(self) -> str:
        """One line that names it."""
        return f"pipeline, {self.schedule}"

    @property
    def unit_nbytes(self) -> float:
        """Output of a stage for one micro-batch."""
        return self._times_bf16 * BF16_BYTES * self.rows * self.hidden

    def arguments(self, n_ranks: int) -> dict[str, Any]:
        """Return what the step is called with."""
        _check_choice("schedule", self.schedule, SCHEDULES)
        return {
            "schedule": self.schedule,
            "n_microbatches": self.n_microbatches,
            "rows": self.rows,
            "hidden": self.hidden,
        }

    def formula(self, n_ranks: int) -> tuple[float, ...]:
        """Return one transfer per micro-batch and neighbour: the end stages have only one."""
        shape = small_transformer(n_ranks, self.hidden, heads=1)
        step = pipeline_parallel(
            shape, self.rows, n_ranks, self.n_microbatches, schedule=self.schedule
        )
        inner = self._times_bf16 * step.sent
        return tuple(inner / 2 if rank in (0, n_ranks - 1) else inner for rank in range(n_ranks))


@dataclass(frozen=True)
class Experts(Experiment):
    """Dispatch and combine of one layer of a mixture of experts, BF16, one expert per rank.

    Parameters
    ----------
    hottest_share : float, optional
        Part of all tokens that goes to the expert of rank 0; None for equal parts.
    tokens : int
        Tokens of each rank.
    """

    hottest_share: float | None = None
    tokens: int = 1200
    hidden: int = 256
    step: ClassVar[str] = "experts"
    unit: ClassVar[str] = "token buffers"

    @property
    def title(self) -> str:
        """One line that names it."""
        if self.hottest_share is None:
            return "experts, equally loaded"
        return f"experts, {self.hottest_share:.0%} of the tokens to rank 0"

    @property
    def unit_nbytes(self) -> float:
        """The tokens of one rank."""
        return BF16_BYTES * self.tokens * self.hidden

    def arguments(self, n_ranks: int) -> dict[str, Any]:
        """Return what the step is called with."""
        return {"rows_to_rank": self._rows(n_ranks).tolist(), "hidden": self.hidden}

    def formula(self, n_ranks: int) -> tuple[float, ...]:
        """Return what each rank sends out in dispatch, and sends back in combine."""
        sent = self.unit_nbytes * self._parts(n_ranks)
        travels = sent - np.diag(np.diag(sent))
        return tuple(float(nbytes) for nbytes in travels.sum(axis=1) + travels.sum(axis=0))

    def _parts(self, n_ranks: int) -> np.ndarray:
        return sent_matrix(expert_loads(n_ranks, self.hottest_share), n_ranks)

    def _rows(self, n_ranks: int) -> np.ndarray:
        rows = self.tokens * self._parts(n_ranks)
        if not np.allclose(rows, np.round(rows)):
            raise ValueError(
                f"{self.tokens} tokens cannot be sent in parts of {self._parts(n_ranks)[0]}: "
                "choose a number of tokens that gives whole numbers."
            )
        return np.round(rows).astype(int)


def small_transformer(n_layers: int, hidden: int, heads: int) -> TransformerShape:
    """Return the shape of a model of this size, with an MLP four times as wide."""
    return TransformerShape("small", n_layers, hidden, heads, heads, hidden // heads, 4 * hidden, 1)


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        listed = " or ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} is {value!r}: choose {listed}.")
