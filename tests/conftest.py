"""Hypothesis profiles: the same examples on every run in CI, many new ones at night."""

from __future__ import annotations

import os

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
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
