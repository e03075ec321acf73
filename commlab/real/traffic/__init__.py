"""What DDP, FSDP, tensor, pipeline and expert parallelism really send.

Bytes are counted twice: by the kernel, on the TCP connections of each rank (Linux, no
privilege needed), and by the sizes of the collectives that PyTorch dispatches (everywhere).
The numbers stand beside the formulas of `commlab.budget`. Nothing here imports torch, but the
modules in which the steps are written do: `data_parallel`, `tensor_parallel`, `pipeline`,
`experts` and `hooks`.
"""

from commlab.real.traffic.experiments import (
    DDP,
    FSDP,
    Experiment,
    Experts,
    Pipeline,
    TensorParallel,
    count_together,
)
from commlab.real.traffic.overlap import (
    MeasuredOverlap,
    SeenBuckets,
    measure_overlap,
    see_ddp_buckets,
)
from commlab.real.traffic.results import Operation, SentBytes, sent_table

__all__ = [
    "DDP",
    "FSDP",
    "Experiment",
    "Experts",
    "MeasuredOverlap",
    "Operation",
    "Pipeline",
    "SeenBuckets",
    "SentBytes",
    "TensorParallel",
    "count_together",
    "measure_overlap",
    "see_ddp_buckets",
    "sent_table",
]
