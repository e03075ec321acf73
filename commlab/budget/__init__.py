"""A communication budget: what a training step stores, computes and sends.

Estimates on purpose. Every result carries its assumptions and prints them; times come from
the closed forms of :mod:`commlab.cost`, memory and FLOPs from counting. Only
:func:`training_step` overlaps communication with computation, by a rule that it states; links
run at line rate: a time is neither an upper nor a lower bound.

Sizes are bytes, times seconds, rates bytes/s in one direction. BF16 takes 2 bytes.
"""

from __future__ import annotations

from commlab.budget.activations import (
    Activations,
    StoredTensor,
    activation_memory,
    gpt_layer_tensors,
    head_tensors,
    kept_bytes,
    llama_layer_tensors,
)
from commlab.budget.cluster import H100_CLUSTER, MFU, Cluster, compute_time
from commlab.budget.data import DataParallel, data_parallel
from commlab.budget.experts import (
    ExpertParallel,
    all_to_all_seconds,
    expert_loads,
    expert_parallel,
    expert_slots,
    sent_matrix,
)
from commlab.budget.groups import (
    Group,
    Traffic,
    all_reduce_seconds,
    gather_seconds,
    place,
    traffic_table,
)
from commlab.budget.memory import ParameterShare, TrainingState, parameter_share, training_state
from commlab.budget.pipeline import PipelineParallel, bubble_fraction, pipeline_parallel
from commlab.budget.pipeline_schedule import PipelineTimeline, simulate_pipeline, stage_order
from commlab.budget.plan import Overlap, Plan
from commlab.budget.sharded import (
    ShardedDataParallel,
    StepVolume,
    sharded_data_parallel,
    sharded_volume,
)
from commlab.budget.step import TrainingStep, training_step
from commlab.budget.step_memory import StepMemory, gathered_bytes
from commlab.budget.step_traffic import exposed_seconds
from commlab.budget.tensor import TensorParallel, tensor_parallel
from commlab.models import BF16_BYTES, FP32_BYTES

__all__ = [
    "BF16_BYTES",
    "FP32_BYTES",
    "H100_CLUSTER",
    "MFU",
    "Activations",
    "Cluster",
    "DataParallel",
    "ExpertParallel",
    "Group",
    "Overlap",
    "ParameterShare",
    "PipelineParallel",
    "PipelineTimeline",
    "Plan",
    "ShardedDataParallel",
    "StepMemory",
    "StepVolume",
    "StoredTensor",
    "TensorParallel",
    "Traffic",
    "TrainingState",
    "TrainingStep",
    "activation_memory",
    "all_reduce_seconds",
    "all_to_all_seconds",
    "bubble_fraction",
    "compute_time",
    "data_parallel",
    "expert_loads",
    "expert_parallel",
    "expert_slots",
    "exposed_seconds",
    "gather_seconds",
    "gathered_bytes",
    "gpt_layer_tensors",
    "head_tensors",
    "kept_bytes",
    "llama_layer_tensors",
    "parameter_share",
    "pipeline_parallel",
    "place",
    "sent_matrix",
    "sharded_data_parallel",
    "sharded_volume",
    "simulate_pipeline",
    "stage_order",
    "tensor_parallel",
    "traffic_table",
    "training_state",
    "training_step",
]
