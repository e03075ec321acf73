"""Figures of §7: growth, memory, tensor parallelism, pipelines, experts and whole plans."""

from commlab.figures.budget.experts import CAPACITIES, HOTTEST_SHARES, hot_expert
from commlab.figures.budget.growth import GPUS, GROUP, data_parallel_step, paid_off_by_tokens
from commlab.figures.budget.memory import STAGE_NAMES, memory_by_stage
from commlab.figures.budget.pipeline import pipeline_lanes
from commlab.figures.budget.plans import ORDERS, PLANS, plan_placement
from commlab.figures.budget.tensor import TENSOR_RANKS, tensor_parallel_size

__all__ = [
    "CAPACITIES",
    "GPUS",
    "GROUP",
    "HOTTEST_SHARES",
    "ORDERS",
    "PLANS",
    "STAGE_NAMES",
    "TENSOR_RANKS",
    "data_parallel_step",
    "hot_expert",
    "memory_by_stage",
    "paid_off_by_tokens",
    "pipeline_lanes",
    "plan_placement",
    "tensor_parallel_size",
]
