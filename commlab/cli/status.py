"""Exit statuses of the command line."""

from __future__ import annotations

DONE = 0
FAULTS_FOUND = 1
REFUSED = 2
INTERRUPTED = 130
