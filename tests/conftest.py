"""Hypothesis profiles: the same examples on every run in CI, many new ones at night."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# No deadline: a slow machine is no error of the code. A red test prints how to repeat it.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile(
    "nightly",
    deadline=None,
    max_examples=1000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")
settings.load_profile(PROFILE)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests marked `night` to `make test-full`, which sets the nightly profile."""
    if PROFILE == "nightly":
        return
    for_the_night = [item for item in items if item.get_closest_marker("night")]
    config.hook.pytest_deselected(items=for_the_night)
    items[:] = [item for item in items if item not in for_the_night]
