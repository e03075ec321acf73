"""Models and clusters by name, and shapes read from a model's configuration file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from commlab.budget import H100_CLUSTER, Cluster
from commlab.hardware import A100, B200, H200, INFINIBAND_HDR
from commlab.models import LLAMA3_8B, LLAMA3_70B, LLAMA3_405B, MIXTRAL_8X7B, TransformerShape

MODELS: dict[str, TransformerShape] = {
    "llama-8b": LLAMA3_8B,
    "llama-70b": LLAMA3_70B,
    "llama-405b": LLAMA3_405B,
    "mixtral-8x7b": MIXTRAL_8X7B,
}

CLUSTERS: dict[str, Cluster] = {
    "h100": H100_CLUSTER,
    "h200": replace(
        H100_CLUSTER,
        name="H200 nodes of 8, NVLink 4, one NDR InfiniBand port per GPU",
        peak_flops=H200.bf16_flops,
        gpu_memory=H200.memory_bytes,
    ),
    "b200": replace(
        H100_CLUSTER,
        name="B200 nodes of 8, NVLink 5, one NDR InfiniBand port per GPU",
        beta_intra=B200.scale_up,
        peak_flops=B200.bf16_flops,
        gpu_memory=B200.memory_bytes,
    ),
    "a100": replace(
        H100_CLUSTER,
        name="A100 80 GB nodes of 8, NVLink 3, one HDR InfiniBand port per GPU",
        beta_intra=A100.scale_up,
        beta_inter=INFINIBAND_HDR,
        peak_flops=A100.bf16_flops,
        gpu_memory=A100.memory_bytes,
    ),
}

MAX_CONFIG_BYTES = 2**20

# The names that Hugging Face's config.json of Llama- and Mixtral-like models gives a dimension.
_CONFIG_NAMES = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "ffn": "intermediate_size",
    "vocab": "vocab_size",
}


def find_model(name: str) -> TransformerShape:
    """Return a model by name, or read its shape from a ``config.json``.

    Parameters
    ----------
    name : str
        A key of `MODELS`, or the path of a configuration file of a Llama- or Mixtral-like
        model, as Hugging Face stores it.

    Returns
    -------
    TransformerShape

    Raises
    ------
    ValueError
        If there is no such model or file, or if the file describes none of this kind.

    Notes
    -----
    The input embedding and the output head count as two matrices, also where a configuration
    ties them: `TransformerShape` has no tied head, so such a model is counted too large.
    """
    if name in MODELS:
        return MODELS[name]
    path = Path(name)
    if not path.is_file():
        raise ValueError(
            f"there is no model and no file {name!r}: choose one of {', '.join(MODELS)}, or give "
            "the path of a model's config.json."
        )
    return read_model(path)


def read_model(path: Path) -> TransformerShape:
    """Read the shape of a model from its ``config.json``: see :func:`find_model`."""
    config = read_json(path)
    if not isinstance(config, dict):
        raise ValueError(f"{path} holds no JSON object: give the config.json of a model.")
    missing = [theirs for theirs in _CONFIG_NAMES.values() if theirs not in config]
    if missing:
        raise ValueError(
            f"{path} does not say {', '.join(missing)}: give the config.json of a Llama- or "
            "Mixtral-like model."
        )
    sizes = {ours: config[theirs] for ours, theirs in _CONFIG_NAMES.items()}
    whole = all(isinstance(size, int) and size > 0 for size in sizes.values())
    return TransformerShape(
        path.parent.name if path.stem == "config" and path.parent.name else path.stem,
        **sizes,
        kv_heads=config.get("num_key_value_heads") or sizes["heads"],
        head_dim=config.get("head_dim") or (sizes["hidden"] // sizes["heads"] if whole else 0),
        n_experts=config.get("num_local_experts") or 1,
        experts_per_token=config.get("num_experts_per_tok") or 1,
    )


def find_cluster(name: str) -> Cluster:
    """Return a cluster by name.

    Raises
    ------
    ValueError
        If there is none of that name.
    """
    if name not in CLUSTERS:
        raise ValueError(f"there is no cluster {name!r}: choose one of {', '.join(CLUSTERS)}.")
    return CLUSTERS[name]


def read_json(path: Path) -> object:
    """Read a small JSON file; ValueError in one sentence if it cannot be read."""
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise ValueError(f"{path} is larger than 1 MiB: that is no file of this kind.")
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON file: {type(error).__name__}.") from error
