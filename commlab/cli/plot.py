"""What the subcommands that draw share."""

from __future__ import annotations


def check_matplotlib() -> None:
    """Refuse ``--plot`` in one sentence where matplotlib is missing."""
    try:
        import commlab.figures.style  # noqa: F401
    except ImportError as error:
        raise ValueError(f"--plot needs matplotlib: pip install matplotlib ({error}).") from error
