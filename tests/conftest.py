"""Hypothesis profiles: the same examples on every run in CI, many new ones at night."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from synthetic_runs import REAL_LOG_FILES

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
    """Leave out what does not run here: a test that is skipped would count as a failure.

    Tests marked `night` are left to `make test-full`, which sets the nightly profile; those
    marked `real_logs` run where the logs are.
    """
    left_out = []
    if PROFILE != "nightly":
        left_out += [item for item in items if item.get_closest_marker("night")]
    if not REAL_LOG_FILES:
        left_out += [item for item in items if item.get_closest_marker("real_logs")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
