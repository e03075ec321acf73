"""Several experiments in one start of the ranks."""

from __future__ import annotations

from typing import Any

from commlab.real.traffic import data_parallel, experts, pipeline, tensor_parallel

STEPS = {
    "ddp": data_parallel.ddp_step,
    "fsdp": data_parallel.fsdp_step,
    "tensor": tensor_parallel.tensor_parallel_step,
    "pipeline": pipeline.pipeline_step,
    "experts": experts.expert_step,
}


def run_steps(steps: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Run steps one after the other, each given by its name and its arguments."""
    return [STEPS[name](**arguments) for name, arguments in steps]
