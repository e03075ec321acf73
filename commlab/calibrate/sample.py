"""Logs to practise on: nccl-tests output that is made up, so that its α and β are known.

No GPU was measured. The times follow T(S) = α + factor·S/β in pieces that are written down here,
with a little noise; around them stands what real logs have around their rows. Printed with
``python -m commlab.calibrate.sample NAME``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from commlab.calibrate.bus import bus_factor
from commlab.units import GIB, KIB, MIB

HARDWARE = "NVIDIA H100 80GB HBM3"
ELEMENT_BYTES = 4
GPUS_PER_NODE = 8
# Columns of a line: before its first time, and after it.
WHERE_CUT = 50
WHERE_BROKEN = 61

_COLUMNS = (
    "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    "     time   algbw   busbw #wrong",
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)       "
    "     (us)  (GB/s)  (GB/s)       ",
)
_INFO = "node0:4107:4180 [3] NCCL INFO Channel 05/0 : 3[3] -> 4[4] via P2P/CUMEM/read"
_PREFIX = "[1,0]<stdout>:"


@dataclass(frozen=True)
class Regime:
    """Up to and with the size `last`, in bytes, a call takes `alpha` + factor·S/`beta`."""

    last: int
    alpha: float
    beta: float


@dataclass(frozen=True)
class Sample:
    """A made-up run of all_reduce.

    Parameters
    ----------
    regimes : tuple of Regime
        By size.
    n_nodes : int
        Nodes of 8 GPUs.
    smallest, largest : int
        Bytes; the sizes double from one to the other.
    noise : float
        Standard deviation of the relative noise.
    seed : int
    slow : tuple of (int, float)
        Sizes whose rows something disturbed, and by which factor they are slower.
    prefixed, cut, broken : int or None
        A size whose row carries mpirun's prefix, ends in the middle, or has a line of NCCL INFO
        inside it.
    """

    regimes: tuple[Regime, ...]
    n_nodes: int = 1
    smallest: int = KIB
    largest: int = 8 * GIB
    noise: float = 0.02
    seed: int = 2026
    slow: tuple[tuple[int, float], ...] = ()
    prefixed: int | None = None
    cut: int | None = None
    broken: int | None = None

    @property
    def n_ranks(self) -> int:
        """GPUs of all nodes."""
        return GPUS_PER_NODE * self.n_nodes

    @property
    def alpha(self) -> float:
        """Seconds per call of the smallest sizes: what a fit should find."""
        return self.regimes[0].alpha

    @property
    def beta(self) -> float:
        """Bus bandwidth of the largest sizes, bytes/s: what a fit should find."""
        return self.regimes[-1].beta


SAMPLES: dict[str, Sample] = {
    # One node. Below 512 KiB a protocol with less latency and less bandwidth.
    "one_node": Sample(
        (Regime(512 * KIB, 32e-6, 60e9), Regime(8 * GIB, 46e-6, 365e9)),
        seed=1,
        slow=((KIB, 2.6), (64 * MIB, 3.0)),
        cut=32 * KIB,
        broken=4 * MIB,
    ),
    # Four nodes, all eight network cards of each in use.
    "several_nodes": Sample(
        (Regime(MIB, 75e-6, 20e9), Regime(8 * GIB, 170e-6, 320e9)), n_nodes=4, seed=2027
    ),
    # The same nodes, but all traffic leaves each of them through one card.
    "one_nic": Sample(
        (Regime(MIB, 78e-6, 20e9), Regime(8 * GIB, 175e-6, 48e9)),
        n_nodes=4,
        seed=2028,
        prefixed=2 * MIB,
    ),
    # From 256 MiB on something gives way: three sizes later half of the rate is gone.
    "collapse": Sample(
        (
            Regime(MIB, 76e-6, 20e9),
            Regime(256 * MIB, 170e-6, 318e9),
            Regime(8 * GIB, 0.0, 150e9),
        ),
        n_nodes=4,
        seed=2029,
    ),
}


def true_seconds(sample: Sample, nbytes: np.ndarray) -> np.ndarray:
    """Return the time of a call at each size, in seconds, without noise."""
    which = np.searchsorted([regime.last for regime in sample.regimes], nbytes)
    alpha = np.array([regime.alpha for regime in sample.regimes])
    beta = np.array([regime.beta for regime in sample.regimes])
    return alpha[which] + bus_factor("all_reduce", sample.n_ranks) * nbytes / beta[which]


def sample_log(name: str) -> str:
    """Return a made-up log, as nccl-tests' all_reduce_perf prints it.

    Parameters
    ----------
    name : str
        A key of `SAMPLES`.

    Raises
    ------
    ValueError
        If there is no such sample.
    """
    if name not in SAMPLES:
        raise ValueError(f"there is no sample {name!r}: choose one of {', '.join(SAMPLES)}.")
    sample = SAMPLES[name]
    sizes = [sample.smallest]
    while 2 * sizes[-1] <= sample.largest:
        sizes.append(2 * sizes[-1])
    nbytes = np.array(sizes, dtype=float)
    noise = np.random.default_rng(sample.seed).standard_normal((2, len(sizes)))
    seconds = true_seconds(sample, nbytes) * (1 + sample.noise * noise)
    disturbed = dict(sample.slow)
    seconds[0] *= [disturbed.get(size, 1.0) for size in sizes]
    factor = bus_factor("all_reduce", sample.n_ranks)
    rows = []
    for size, out_of_place, in_place in zip(sizes, *seconds, strict=True):
        count = size // ELEMENT_BYTES
        halves = [_half(size, time, factor) for time in (out_of_place, in_place)]
        rows.append(f"{size:12d}  {count:12d}     float     sum      -1" + "".join(halves))
    lines = [*_header(sample), *_COLUMNS]
    for size, row in zip(sizes, rows, strict=True):
        lines += _with_quirk(sample, size, row)
    mean = float(np.mean(factor * nbytes / seconds)) / 1e9
    lines += ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {mean:.4f}", "#", ""]
    return "\n".join(lines)


def _half(size: int, seconds: float, factor: float) -> str:
    algbw = size / seconds / 1e9
    return f"  {seconds * 1e6:9.2f} {algbw:7.2f} {factor * algbw:7.2f}      0"


def _header(sample: Sample) -> list[str]:
    lines = [
        "# A made-up log of this book: no GPU was measured.",
        "# nccl-tests version 2.17.8 nccl-headers=22902 nccl-library=22902",
        "# Collective test starting: all_reduce_perf",
        f"# nThread 1 nGpus 1 minBytes {sample.smallest} maxBytes {sample.largest} step: 2(factor) "
        "warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0",
        "#",
        "# Using devices",
    ]
    for rank in range(sample.n_ranks):
        node, device = divmod(rank, GPUS_PER_NODE)
        lines.append(
            f"#  Rank {rank:2d} Group  0 Pid {4100 + rank:6d} on      node{node} device "
            f"{device:2d} [0000:{device + 16:02x}:00] {HARDWARE}"
        )
    return [*lines, "#"]


def _with_quirk(sample: Sample, size: int, row: str) -> list[str]:
    if size == sample.prefixed:
        return [_PREFIX + row]
    if size == sample.cut:
        return [row[:WHERE_CUT]]
    if size == sample.broken:
        return [row[:WHERE_BROKEN], _INFO, row[WHERE_BROKEN:]]
    return [row]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a sample log."""
    parser = argparse.ArgumentParser(description="Print a made-up log of nccl-tests.")
    parser.add_argument("name", choices=SAMPLES, help="which log")
    sys.stdout.write(sample_log(parser.parse_args(arguments).name))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
