"""Accelerators and links, every rate in **one direction**, every figure with its source.

Data sheets like to add both directions of a link (NVLink "900 GB/s", PCIe "128 GB/s").
A collective sends and receives at the same time, so the rate that a cost model needs is the
one-directional one: 450 GB/s and 64 GB/s. Sizes and rates of hardware are decimal.

The three constants at the top are the ones that the whole book computes with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ALPHA = 5e-6
"""Seconds per message: an order of magnitude, not a measurement."""

NVLINK = 450e9
"""Bytes/s, one direction: NVLink 4 of an H100, line rate."""

INFINIBAND = 50e9
"""Bytes/s, one direction and GPU: one NDR port of 400 Gb/s."""

INFINIBAND_HDR = INFINIBAND / 2
"""Bytes/s, one direction: one HDR port of 200 Gb/s, the generation before."""


@dataclass(frozen=True)
class Source:
    """Where a figure was read.

    Parameters
    ----------
    title : str
        Author or publisher and what it is.
    url : str
        Address.
    date : str
        ISO date of the statement, or "read …" and the day where the page has none.
    """

    title: str
    url: str
    date: str

    def __str__(self) -> str:
        return f"{self.title}, {self.date}: {self.url}"


_READ = "read 2026-11-29"

SOURCES: dict[str, Source] = {
    "network": Source(
        "Bekman, Machine Learning Engineering, network",
        "https://github.com/stas00/ml-engineering/blob/"
        "0030e63f5275afee38233676690ce10478647cca/network/README.md",
        _READ,
    ),
    "accelerators": Source(
        "Bekman, Machine Learning Engineering, accelerators",
        "https://github.com/stas00/ml-engineering/tree/master/compute/accelerator",
        _READ,
    ),
    "a100": Source(
        "Lockwood, A100 (after NVIDIA's data sheet)",
        "https://glennklockwood.com/garden/processors/A100",
        _READ,
    ),
    "h100": Source(
        "Lockwood, H100 (after NVIDIA's white paper)",
        "https://glennklockwood.com/garden/processors/h100",
        _READ,
    ),
    "b200": Source(
        "Lockwood, B200 (after NVIDIA's architecture brief)",
        "https://glennklockwood.com/garden/processors/B200",
        _READ,
    ),
    "h200_system": Source(
        "MLCommons, inference v4.1 system description of 8 x H200",
        "https://github.com/mlcommons/inference_results_v4.1/blob/main/closed/NVIDIA/"
        "systems/H200-SXM-141GBx8_TRT_MaxQ.json",
        "2024",
    ),
    "h100_system": Source(
        "MLCommons, inference v3.1 system description of 8 x H100 with 8 x 400 Gb/s",
        "https://github.com/mlcommons/inference_results_v3.1/blob/main/closed/Dell/"
        "systems/XE9680_H100_SXM_80GBx8_TRT.json",
        "2023",
    ),
    "b200_cloud": Source(
        "Vultr, HGX B200 hardware overview",
        "https://docs.vultr.com/inference-cookbook/cuda/getting-started/hardware-overview",
        "2026-03-11",
    ),
    "nccl_usable": Source(
        "NCCL maintainer: 900 GB/s is both directions, 370 GB/s per direction reach NCCL",
        "https://github.com/NVIDIA/nccl/issues/1442",
        "2025-01-06",
    ),
    "nccl_a100": Source(
        "NCCL maintainer: about 230 GB/s of the A100's 300 reach NCCL",
        "https://github.com/NVIDIA/nccl-tests/issues/149",
        "2023-07-05",
    ),
    "mi300x": Source(
        "Romero, MI300X against H200: methodology (dense peaks and memory of both)",
        "https://github.com/alpharomercoma/MI300X-vs-H200/blob/"
        "6077fdc7bfc215171c33435b7cd76ca4c5f2b236/METHODOLOGY.md",
        _READ,
    ),
    "tpu_v5p": Source(
        "Google Cloud documentation, TPU v5p",
        "https://docs.cloud.google.com/tpu/docs/v5p",
        _READ,
    ),
}


@dataclass(frozen=True)
class LinkKind:
    """A kind of link that joins two GPUs, or a GPU and its host.

    Parameters
    ----------
    name : str
        Kind and generation.
    joins : str
        What it joins.
    beta : float
        Line rate in bytes/s, one direction, per GPU.
    headline : float or None
        Bytes/s of both directions together, where vendors print that number.
    usable : float or None
        Bytes/s, one direction, that NCCL reaches with large messages; None: no source here.
    sources : mapping from field name to key of :data:`SOURCES`
    """

    name: str
    joins: str
    beta: float
    headline: float | None
    usable: float | None
    sources: Mapping[str, str]


NVLINK3_A100 = LinkKind(
    "NVLink 3 (A100)",
    "GPU-GPU in a node",
    300e9,
    600e9,
    230e9,
    {"beta": "network", "headline": "network", "usable": "nccl_a100"},
)
NVLINK4_H100 = LinkKind(
    "NVLink 4 (H100)",
    "GPU-GPU in a node",
    NVLINK,
    900e9,
    370e9,
    {"beta": "network", "headline": "network", "usable": "nccl_usable"},
)
NVLINK5_B200 = LinkKind(
    "NVLink 5 (B200)",
    "GPU-GPU in a node",
    900e9,
    1800e9,
    None,
    {"beta": "network", "headline": "network"},
)
PCIE4_X16 = LinkKind(
    "PCIe 4 x16",
    "GPU-host",
    32e9,
    64e9,
    None,
    {"beta": "a100", "headline": "a100"},
)
PCIE5_X16 = LinkKind(
    "PCIe 5 x16",
    "GPU-host",
    64e9,
    128e9,
    None,
    {"beta": "network", "headline": "h100"},
)
INFINIBAND_NDR = LinkKind(
    "InfiniBand NDR",
    "node-node, per GPU",
    INFINIBAND,
    None,
    None,
    {"beta": "h100_system"},
)

LINKS = (NVLINK3_A100, NVLINK4_H100, NVLINK5_B200, PCIE4_X16, PCIE5_X16, INFINIBAND_NDR)


@dataclass(frozen=True)
class Accelerator:
    """One accelerator as a cost model sees it.

    Parameters
    ----------
    name : str
        Product.
    bf16_flops : float
        Peak dense BF16 FLOP/s. (Numbers twice as large are with 2:4 sparsity.)
    memory_bytes : float
        Capacity of the memory on the package (HBM) as it is sold, decimal bytes.
    memory_rate : float
        Bytes/s of that memory.
    scale_up : float
        Bytes/s in one direction to the other accelerators of the node, per accelerator.
    sources : mapping from field name to key of :data:`SOURCES`
    conflict : str
        What other sources say, and which of them this table follows; empty if they agree.
    """

    name: str
    bf16_flops: float
    memory_bytes: float
    memory_rate: float
    scale_up: float
    sources: Mapping[str, str]
    conflict: str = ""


A100 = Accelerator(
    "A100 80 GB SXM",
    312e12,
    80e9,
    2.039e12,
    NVLINK3_A100.beta,
    {
        "bf16_flops": "a100",
        "memory_bytes": "a100",
        "memory_rate": "a100",
        "scale_up": "network",
    },
    "Memory: nvidia-smi shows 81920 MiB, 80 GiB or 85.9 GB; the 80 GB of its name are used.",
)
H100 = Accelerator(
    "H100 SXM",
    989e12,
    80e9,
    3.35e12,
    NVLINK,
    {
        "bf16_flops": "accelerators",
        "memory_bytes": "h100",
        "memory_rate": "h100",
        "scale_up": "network",
    },
    "Memory: nvidia-smi shows 81559 MiB, 79.6 GiB or 85.5 GB; the 80 GB of its name are used. "
    "BF16: 989.4 TFLOP/s at the 1830 MHz boost clock; the rounded 989 is used.",
)
H200 = Accelerator(
    "H200 SXM",
    989e12,
    141e9,
    4.8e12,
    NVLINK,
    {
        "bf16_flops": "accelerators",
        "memory_bytes": "h200_system",
        "memory_rate": "accelerators",
        "scale_up": "h200_system",
    },
    "Memory: nvidia-smi shows 143771 MiB, 140.4 GiB or 150.8 GB; the 141 GB of its data sheet "
    "are used.",
)
B200 = Accelerator(
    "B200 SXM (HGX, 1000 W)",
    2250e12,
    180e9,
    8.0e12,
    NVLINK5_B200.beta,
    {
        "bf16_flops": "b200",
        "memory_bytes": "b200_cloud",
        "memory_rate": "b200",
        "scale_up": "b200",
    },
    "Memory: 192 GB on the package, 179 to 180 GB visible in HGX systems; the visible size "
    "is used. BF16: 2500 TFLOP/s is the 1200 W part of the GB200.",
)
MI300X = Accelerator(
    "MI300X",
    1307.4e12,
    192e9,
    5.3e12,
    448e9,
    {
        "bf16_flops": "mi300x",
        "memory_bytes": "mi300x",
        "memory_rate": "mi300x",
        "scale_up": "network",
    },
    "448 GB/s is the sum of seven links of 64 GB/s: a pair of GPUs has only 64. "
    "BF16 is also printed as 1300, and 2615 is with sparsity.",
)
TPU_V5P = Accelerator(
    "TPU v5p",
    459e12,
    95 * 2**30,
    2.765e12,
    600e9,
    {
        "bf16_flops": "tpu_v5p",
        "memory_bytes": "tpu_v5p",
        "memory_rate": "tpu_v5p",
        "scale_up": "tpu_v5p",
    },
    "Interconnect: documented as 1200 GB/s in both directions, in older pages as 4800 Gb/s; "
    "both make 600 GB/s in one. Memory: 95 GiB in newer pages, 95 GB in older ones.",
)

ACCELERATORS = (A100, H100, H200, B200, MI300X, TPU_V5P)
