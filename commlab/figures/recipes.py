"""Figure of §1: what precision and optimizer add to the training state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from commlab.figures import style
from commlab.figures.memory_bars import SMALL, memory_bars
from commlab.hardware import H100
from commlab.models import BF16_BYTES, FP32_BYTES, LLAMA3_8B

INT8_BYTES = 1


@dataclass(frozen=True)
class Recipe:
    """Bytes that training keeps for one parameter, by kind."""

    parameter: int
    gradient: int
    master_copy: int
    moments: int

    @property
    def total(self) -> int:
        """All bytes of one parameter."""
        return self.parameter + self.gradient + self.master_copy + self.moments


# Source of the 8-bit moments: Dettmers et al. (2022), "8-bit Optimizers via Block-wise
# Quantization"; its scales, one for each block of 2048 values, are left out.
RECIPES: dict[str, Recipe] = {
    "Adam, all FP32": Recipe(FP32_BYTES, FP32_BYTES, 0, 2 * FP32_BYTES),
    "Adam, mixed": Recipe(BF16_BYTES, BF16_BYTES, FP32_BYTES, 2 * FP32_BYTES),
    "same, FP32 gradients": Recipe(BF16_BYTES, FP32_BYTES, FP32_BYTES, 2 * FP32_BYTES),
    "8-bit Adam, mixed": Recipe(BF16_BYTES, BF16_BYTES, FP32_BYTES, 2 * INT8_BYTES),
    "momentum, mixed": Recipe(BF16_BYTES, BF16_BYTES, FP32_BYTES, FP32_BYTES),
    "plain SGD, mixed": Recipe(BF16_BYTES, BF16_BYTES, FP32_BYTES, 0),
    "Adam, all BF16": Recipe(BF16_BYTES, BF16_BYTES, 0, 2 * BF16_BYTES),
}
PARTS = {
    "parameter": ("parameters", style.ALTERNATIVE),
    "gradient": ("gradients", style.COMMUNICATION),
    "master_copy": ("FP32 copy", style.WAIT),
    "moments": ("moments", style.THIRD),
}


def state_by_recipe(
    fig: Figure, *, parameters: float = LLAMA3_8B.parameters, n_gpus: int = 1
) -> dict[str, Any]:
    """Draw the training state of one GPU for several precisions and optimizers.

    Parameters
    ----------
    fig : Figure
        Drawn on.
    parameters : float
        Parameters Φ.
    n_gpus : int
        GPUs N over which the whole state is cut (ZeRO-3).

    Returns
    -------
    dict
        ``per_parameter`` (bytes by recipe), ``totals`` (bytes on one GPU by recipe) and
        ``fits``: the names of the recipes that fit in an H100.
    """
    memory = H100.memory_bytes
    ax = style.single_axes(fig, left=0.36, right=0.83, bottom=0.27)
    parts = {}
    for kind, (label, colour) in PARTS.items():
        sizes = [getattr(recipe, kind) * parameters / n_gpus for recipe in RECIPES.values()]
        parts[label] = (colour, sizes)
    names = [f"{name}, {recipe.total} B" for name, recipe in RECIPES.items()]
    totals = memory_bars(ax, names, parts, memory)
    fits = [name for name, total in zip(RECIPES, totals, strict=True) if total <= memory]
    ax.tick_params(axis="y", labelsize=SMALL)
    ax.set_xlabel(f"training state of one GPU; dashed: {memory / 1e9:g} GB")
    style.legend(
        ax,
        loc="upper right",
        bbox_to_anchor=(1.25, -0.24),
        ncols=len(PARTS),
        columnspacing=1.0,
        handlelength=1.2,
    )
    shards = "on one GPU" if n_gpus == 1 else f"on {n_gpus} GPUs"
    style.title(ax, f"{parameters / 1e9:.3g} B parameters {shards}: {_result(fits)}")
    return {
        "per_parameter": [recipe.total for recipe in RECIPES.values()],
        "totals": totals,
        "fits": fits,
    }


def _result(fits: list[str]) -> str:
    if len(fits) in (0, len(RECIPES)):
        return "all fit" if fits else "none fits"
    return f"{len(fits)} of {len(RECIPES)} fit"
