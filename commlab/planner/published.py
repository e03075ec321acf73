"""Measurements that others have published, and what this book's model says of them.

Each is a few numbers with their source. The model is given nothing of what it is asked for:
where it must be told how fast the GPUs compute, it is told by one row of a table and asked for
another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from commlab.budget import H100_CLUSTER, Overlap, Plan, TrainingStep, training_step
from commlab.hardware import A100, INFINIBAND, INFINIBAND_HDR, MI300X, NVLINK, Source
from commlab.models import LLAMA3_8B

SEQUENCE = 8192

TORCHTITAN = Source(
    "torchtitan team, Llama 3.1 on 8 to 512 H100 (tables 1 and 3)",
    "https://github.com/pytorch/torchtitan/blob/"
    "31a17bfdb70bab6f62a13d21816a5339b911d6e3/benchmarks/llama3_h100_202412_torchtitan.md",
    "2024-12",
)
NVLS = Source(
    "NCCL issue 2140: all_reduce of 8 H100 with and without NVLink SHARP",
    "https://github.com/NVIDIA/nccl/issues/2140",
    "2026-04-28",
)
H100_LOGS = Source(
    "nccl-tests of a cluster of H100 with 8 NDR interfaces a node (example-cluster01)",
    "https://github.com/xxrjun/nccl-tests-cluster",
    "read 2026-11-29",
)
ALCF = Source(
    "Argonne Leadership Computing Facility, nccl-tests of Polaris and Sophia",
    "https://github.com/argonne-lcf/alcf-nccl-tests",
    "read 2026-11-29",
)
MI300X_LOG = Source(
    "rccl-tests of 8 MI300X",
    "https://github.com/hisohara/ai-scripts/blob/main/training/01_rccl-smoketest/README.md",
    "read 2026-11-29",
)


@dataclass(frozen=True)
class PublishedTraining:
    """Tokens per second and GPU of Llama 3.1 8B under FSDP, by number of GPUs.

    Two sequences of 8192 tokens per GPU, selective activation checkpointing, FP32 gradient
    reduction (torchtitan's defaults).
    """

    what: str
    tokens_per_second: dict[int, float]
    source: Source


FSDP_EAGER = PublishedTraining("FSDP", {8: 5762.0, 128: 5605.0}, TORCHTITAN)
FSDP_COMPILED = PublishedTraining("FSDP, torch.compile", {8: 6667.0, 128: 6514.0}, TORCHTITAN)


@dataclass(frozen=True)
class BlindPrediction:
    """What the model says of a row that it was not shown.

    Attributes
    ----------
    mfu : float
        Efficiency of the computation alone, taken from the row that was shown.
    predicted, without_overlap : float
        Tokens per second and GPU: with the overlap that the planner assumes, and with none.
    measured : float
        What was published.
    """

    mfu: float
    predicted: float
    without_overlap: float
    measured: float

    @property
    def error(self) -> float:
        """Relative error of the prediction; positive where the model is too optimistic."""
        return self.predicted / self.measured - 1


def fsdp_step(n_gpus: int, mfu: float, overlap: Overlap | None = None) -> TrainingStep:
    """Return the model's step of the published FSDP run on ``n_gpus`` H100."""
    plan = Plan(
        data=n_gpus,
        zero_stage=3,
        micro_batch=2,
        sequence=SEQUENCE,
        recompute="selective",
        gradient_bytes=4,
        overlap=Overlap() if overlap is None else overlap,
    )
    return training_step(LLAMA3_8B, plan, replace(H100_CLUSTER, mfu=mfu))


def mfu_from_row(n_gpus: int, tokens_per_second: float, overlap: Overlap | None = None) -> float:
    """Find the efficiency at which the model reaches a published speed.

    Parameters
    ----------
    n_gpus : int
    tokens_per_second : float
        Per GPU.
    overlap : Overlap, optional

    Returns
    -------
    float
        Part of the peak, by bisection to 1e-9.
    """
    low, high = 1e-3, 1.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        step = fsdp_step(n_gpus, middle, overlap)
        if step.tokens_per_second / n_gpus < tokens_per_second:
            low = middle
        else:
            high = middle
    return low


def predict_blind(
    published: PublishedTraining, shown: int = 8, asked: int = 128
) -> BlindPrediction:
    """Take the efficiency from one row of a table, predict another, compare.

    Parameters
    ----------
    published : PublishedTraining
    shown, asked : int
        GPUs of the two rows.

    Returns
    -------
    BlindPrediction
    """
    full, none = Overlap(), Overlap(gradients=0.0, prefetch=0.0)
    known = published.tokens_per_second
    mfu = {overlap: mfu_from_row(shown, known[shown], overlap) for overlap in (full, none)}
    speed = {
        overlap: fsdp_step(asked, mfu[overlap], overlap).tokens_per_second / asked
        for overlap in (full, none)
    }
    return BlindPrediction(mfu[full], speed[full], speed[none], known[asked])


@dataclass(frozen=True)
class PublishedBusbw:
    """Bus bandwidth of a large collective that somebody measured, and the links it ran on.

    Parameters
    ----------
    what : str
        The machine.
    op : str
        nccl-tests' name of the collective.
    n_nodes, gpus_per_node : int
    beta_intra : float
        Bytes/s in one direction, line rate of a GPU inside its node.
    node_rate : float
        Bytes/s in one direction of all network interfaces of a node together.
    measured : float
        Published bus bandwidth in bytes/s, at the largest size.
    source : Source
    in_switch : bool
        Whether the switches reduced (NVLink SHARP).
    """

    what: str
    op: str
    n_nodes: int
    gpus_per_node: int
    beta_intra: float
    node_rate: float
    measured: float
    source: Source
    in_switch: bool = False

    @property
    def predicted(self) -> float:
        """Bus bandwidth of a ring at line rate, or of reduction in the switches.

        Notes
        -----
        A ring's busbw is the rate of the narrowest link that it passes: inside the nodes a
        GPU's, between them all interfaces of a node, over which NCCL spreads the ring.

        In the switches each GPU sends and receives (1 + 1/N)·S where a ring has
        2(N−1)/N·S (counted like that in NCCL's issue 2140), and busbw, which divides by the
        ring's traffic, becomes the link's rate times 2(N−1)/(N+1).
        """
        links = []
        if self.gpus_per_node > 1:
            links.append(self.beta_intra)
        if self.n_nodes > 1:
            links.append(self.node_rate)
        n_ranks = self.n_nodes * self.gpus_per_node
        gain = 2 * (n_ranks - 1) / (n_ranks + 1) if self.in_switch else 1.0
        return min(links) * gain

    @property
    def error(self) -> float:
        """Relative error of the prediction; positive where the model is too optimistic."""
        return self.predicted / self.measured - 1


_NDR_NODE = 8 * INFINIBAND
_HDR_NODE = 8 * INFINIBAND_HDR
# Two Slingshot 11 interfaces of 200 Gb/s in each node of Polaris.
_SLINGSHOT_NODE = 2 * 25e9

GALLERY: tuple[PublishedBusbw, ...] = (
    PublishedBusbw("8 H100", "all_gather", 1, 8, NVLINK, _NDR_NODE, 361.86e9, H100_LOGS),
    PublishedBusbw("8 H100", "all_reduce", 1, 8, NVLINK, _NDR_NODE, 370e9, NVLS),
    PublishedBusbw("8 H100, NVLS", "all_reduce", 1, 8, NVLINK, _NDR_NODE, 480e9, NVLS, True),
    PublishedBusbw("10 x 1 H100", "all_reduce", 10, 1, NVLINK, INFINIBAND, 48.89e9, H100_LOGS),
    PublishedBusbw("10 x 8 H100", "all_gather", 10, 8, NVLINK, _NDR_NODE, 324.29e9, H100_LOGS),
    PublishedBusbw("2 x 8 A100", "all_reduce", 2, 8, A100.scale_up, _HDR_NODE, 178.25e9, ALCF),
    PublishedBusbw("8 x 4 A100", "all_reduce", 8, 4, A100.scale_up, _SLINGSHOT_NODE, 36.53e9, ALCF),
    PublishedBusbw(
        "540 x 4 A100", "all_reduce", 540, 4, A100.scale_up, _SLINGSHOT_NODE, 29.11e9, ALCF
    ),
    PublishedBusbw("8 MI300X", "all_reduce", 1, 8, MI300X.scale_up, 0.0, 315.69e9, MI300X_LOG),
)
"""At the largest size that was measured, 1 to 17 GiB or GB; the logs give GB/s."""
