"""Update rules: what a training step does with the gradient of the global batch.

A rule holds its settings only. The state that it carries from step to step is passed in and
out, one per rank, so that a page can compare the states of all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from commlab.setting_checks import check_part, check_positive, described

Array = NDArray[np.float64]
State = tuple[Array, ...]


class Optimizer(Protocol):
    """What a training loop asks of an update rule."""

    def start(self, weights: Array) -> State:
        """Return the state before the first step."""

    def step(self, weights: Array, gradient: Array, state: State) -> tuple[Array, State]:
        """Return the weights and the state after a step; change neither argument."""


def check_optimizer(optimizer: Any) -> Optimizer:
    """Return the update rule, or say that something else was passed, such as its class."""
    usable = callable(getattr(optimizer, "start", None)) and hasattr(optimizer, "step")
    if not usable or isinstance(optimizer, type):
        raise TypeError(
            "optimizer must be an update rule with start and step, for example "
            f"commlab.training.Adam(), with its brackets; got {described(optimizer)}."
        )
    return optimizer


def check_rule(rule: Any) -> None:
    """Refuse settings that are no numbers or out of range: all are above zero, decays below 1."""
    for setting in fields(rule):
        value = getattr(rule, setting.name)
        if not setting.name.startswith("decay"):
            check_positive(value, setting.name)
        elif check_part(value, setting.name) == 1:
            raise ValueError(f"{setting.name} must be below 1: the past would never fade.")


@dataclass(frozen=True)
class GradientDescent:
    """Plain gradient descent: no state.

    Parameters
    ----------
    learning_rate : float
        Step size.
    """

    learning_rate: float = 0.5

    def __post_init__(self) -> None:
        check_rule(self)

    def start(self, weights: Array) -> State:
        """No state."""
        return ()

    def step(self, weights: Array, gradient: Array, state: State) -> tuple[Array, State]:
        """Go against the gradient."""
        return weights - self.learning_rate * gradient, ()


@dataclass(frozen=True)
class Momentum:
    """Gradient descent with momentum: the state is one array, the velocity.

    Parameters
    ----------
    learning_rate : float
        Step size.
    decay : float
        Part of the velocity that is kept from one step to the next.

    Notes
    -----
    The form of PyTorch's SGD: v ← decay·v + g, w ← w − learning_rate·v.
    """

    learning_rate: float = 0.1
    decay: float = 0.9

    def __post_init__(self) -> None:
        check_rule(self)

    def start(self, weights: Array) -> State:
        """At rest."""
        return (np.zeros_like(weights),)

    def step(self, weights: Array, gradient: Array, state: State) -> tuple[Array, State]:
        """Add the gradient to the velocity, then move with it."""
        velocity = self.decay * state[0] + gradient
        return weights - self.learning_rate * velocity, (velocity,)


@dataclass(frozen=True)
class Adam:
    """Adam: the state is two moments and the number of steps so far.

    Parameters
    ----------
    learning_rate : float
        Step size.
    decay_first, decay_second : float
        Part of the first and second moment that is kept from one step to the next (β₁ and
        β₂ of the paper; in this book β is a bandwidth).
    epsilon : float
        Keeps the division finite.

    Notes
    -----
    Source: Kingma and Ba (2015), "Adam: A Method for Stochastic Optimization", algorithm 1.
    """

    learning_rate: float = 0.05
    decay_first: float = 0.9
    decay_second: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        check_rule(self)

    def start(self, weights: Array) -> State:
        """Moments of zero, no steps."""
        return np.zeros_like(weights), np.zeros_like(weights), np.zeros(())

    def step(self, weights: Array, gradient: Array, state: State) -> tuple[Array, State]:
        """Update the moments, then move by their ratio."""
        first, second, n_steps = state
        first = self.decay_first * first + (1 - self.decay_first) * gradient
        second = self.decay_second * second + (1 - self.decay_second) * gradient**2
        n_steps = n_steps + 1
        # Both moments start at zero: without the correction early steps would be off.
        mean = first / (1 - self.decay_first**n_steps)
        square = second / (1 - self.decay_second**n_steps)
        weights = weights - self.learning_rate * mean / (np.sqrt(square) + self.epsilon)
        return weights, (first, second, n_steps)
