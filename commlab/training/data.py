"""Random samples to train on, one batch per step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commlab.checks import check_n_ranks
from commlab.setting_checks import check_kind, check_part, check_whole_from_zero


@dataclass(frozen=True)
class Batches:
    """The samples of a training run, one batch per step.

    Attributes
    ----------
    features : numpy.ndarray
        Shape (steps, batch size, features), float64.
    labels : numpy.ndarray
        Shape (steps, batch size), integers from 0 to ``n_classes - 1``.
    n_classes : int
        Number of classes.
    """

    features: NDArray[np.float64]
    labels: NDArray[np.int64]
    n_classes: int

    @property
    def batch_size(self) -> int:
        """Samples per step, over all ranks together."""
        return self.features.shape[1]

    def initial_weights(self) -> NDArray[np.float64]:
        """The start of every run: zeros of shape (features, classes)."""
        return np.zeros((self.features.shape[2], self.n_classes))


def check_batches(batches: Batches) -> Batches:
    """Return the batches, or say that something else was passed."""
    check_kind(batches, Batches, "batches", "commlab.training.make_batches(10, 256)")
    return batches


def make_batches(
    n_steps: int,
    batch_size: int,
    *,
    n_features: int = 32,
    n_classes: int = 8,
    seed: int = 0,
    sorted_share: float = 0.0,
) -> Batches:
    """Draw random samples that a linear model can partly learn.

    Labels come from a random linear map plus noise, so the loss has a minimum away from
    zero, as real data have.

    Parameters
    ----------
    n_steps, batch_size, n_features, n_classes : int
        Shape of the data.
    seed : int
        Seed of numpy's generator; the same seed gives the same samples.
    sorted_share : float
        Part of every batch, from 0 to 1, that is put in order of its labels. With 0 the
        shards of a batch look alike; with 1 each shard sees other classes.

    Returns
    -------
    Batches
        All samples of the run.

    Raises
    ------
    ValueError
        If a size is not a positive integer, ``seed`` is no whole number from 0 up, or
        ``sorted_share`` is not from 0 to 1.
    """
    for name, value in (
        ("n_steps", n_steps),
        ("batch_size", batch_size),
        ("n_features", n_features),
        ("n_classes", n_classes),
    ):
        check_n_ranks(value, name)
    check_part(sorted_share, "sorted_share")
    check_whole_from_zero(seed, "seed")
    rng = np.random.default_rng(seed)
    teacher = rng.normal(size=(n_features, n_classes))
    features = rng.normal(size=(n_steps, batch_size, n_features))
    noise = rng.gumbel(scale=2.0, size=(n_steps, batch_size, n_classes))
    labels = np.argmax(features @ teacher + noise, axis=2)

    n_sorted = round(sorted_share * batch_size)
    for step in range(n_steps):
        # A random subset of places keeps its places, but its samples come in label order.
        places = np.sort(rng.permutation(batch_size)[:n_sorted])
        order = places[np.argsort(labels[step, places], kind="stable")]
        features[step, places] = features[step, order]
        labels[step, places] = labels[step, order]
    return Batches(features, labels, n_classes)
