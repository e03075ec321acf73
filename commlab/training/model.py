"""Softmax regression: the loss of each sample, and the gradient of their mean or sum."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Reduction = Literal["mean", "sum"]


def gradient(
    weights: NDArray[np.float64],
    features: NDArray[np.float64],
    labels: NDArray[np.int64],
    reduction: Reduction = "mean",
) -> NDArray[np.float64]:
    """Gradient of the cross-entropy of softmax regression.

    Parameters
    ----------
    weights : numpy.ndarray
        Shape (features, classes).
    features : numpy.ndarray
        Shape (samples, features).
    labels : numpy.ndarray
        Shape (samples,), integers.
    reduction : {"mean", "sum"}
        Whether the loss is averaged or summed over the samples.

    Returns
    -------
    numpy.ndarray
        Same shape as ``weights``.

    Raises
    ------
    ValueError
        If there is no sample, or ``reduction`` is unknown.
    """
    check_choice("reduction", reduction, Reduction)
    n_samples = len(labels)
    if n_samples == 0:
        raise ValueError("a mean over 0 samples is undefined: give each shard a sample.")
    logits = features @ weights
    logits -= logits.max(axis=1, keepdims=True)
    probabilities = np.exp(logits)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    # d loss / d logits = probabilities - one-hot label.
    probabilities[np.arange(n_samples), labels] -= 1.0
    total = features.T @ probabilities
    return total / n_samples if reduction == "mean" else total


def sample_losses(
    weights: NDArray[np.float64], features: NDArray[np.float64], labels: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Cross-entropy of each sample in nats, shape (samples,).

    The arguments are those of `gradient`.
    """
    logits = features @ weights
    logits -= logits.max(axis=1, keepdims=True)
    of_label = logits[np.arange(len(labels)), labels]
    return np.log(np.exp(logits).sum(axis=1)) - of_label


def mean_loss(
    weights: NDArray[np.float64], features: NDArray[np.float64], labels: NDArray[np.int64]
) -> float:
    """Cross-entropy of softmax regression in nats, averaged over the samples.

    The arguments are those of `gradient`.
    """
    return float(np.mean(sample_losses(weights, features, labels)))


def check_choice(name: str, value: str, choices: object) -> None:
    """Say which values there are, unless ``value`` is one of a ``Literal``'s."""
    known = get_args(choices)
    if not isinstance(value, str) or value not in known:
        listed = " or ".join(repr(choice) for choice in known)
        raise ValueError(f"{name} must be {listed}, got {value!r}.")
