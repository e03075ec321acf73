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


def test_there_are_five_questions_and_two_commands() -> None:
    assert len(SESSIONS) == 7


@pytest.mark.parametrize(("command", "shown"), SESSIONS)
def test_a_line_of_the_readme_prints_what_it_shows(command: str, shown: str) -> None:
    printed = ""
    for part in command.split(" | "):
        printed = run(part, printed)
    assert printed == shown


def run(command: str, text: str) -> str:
    """Run one command of a pipe; return what it prints."""
    program, *arguments = shlex.split(command)
    assert program == "python"
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        input=text,
        capture_output=True,
        encoding="utf-8",
        check=True,
    ).stdout
