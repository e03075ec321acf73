"""Find the browser that the tests of the built book drive."""

from __future__ import annotations

import os
import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MISSING = (
    "make test drives the built book in Chromium, and none was found: install it "
    "(Debian, Ubuntu: apt-get install chromium; Fedora: dnf install chromium; "
    "macOS: brew install --cask chromium) or name one: CHROMIUM=/path/to/chrome make test."
)


def find_chromium() -> str | None:
    """Return the path of a Chromium or Chrome: $CHROMIUM, or one on the PATH; None without."""
    named = os.environ.get("CHROMIUM")
    candidates = (named,) if named else NAMES
    return next((path for path in map(shutil.which, candidates) if path), None)
