"""The commands that the README shows print what it says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SESSIONS = re.findall(r"^```console\n\$ (.+)\n((?:.*\n)*?)```$", README, re.MULTILINE)


def test_there_are_five_questions() -> None:
    assert len(SESSIONS) == 5


@pytest.mark.parametrize(("command", "shown"), SESSIONS)
def test_a_line_of_the_readme_prints_what_it_shows(command: str, shown: str) -> None:
    program, *arguments = shlex.split(command)
    assert program == "python"
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert result.stdout == shown
