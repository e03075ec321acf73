"""What a check of `commlab doctor` says: how bad, what is so, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

OK, NOTE, WARNING, ERROR = "ok", "note", "warning", "error"
# The worst first.
SEVERITIES = (ERROR, WARNING, NOTE, OK)


class Text(NamedTuple):
    """One sentence or two in both languages."""

    en: str
    zh: str


@dataclass(frozen=True)
class Finding:
    """One thing that a check has found.

    Attributes
    ----------
    check : str
        What was looked at, such as "host name".
    severity : str
        "error": ranks will not start, or not find one another. "warning": they may not, or
        be slow. "note": good to know. "ok".
    what : Text
    advice : Text, optional
        What to do. Errors and warnings have one.
    """

    check: str
    severity: str
    what: Text
    advice: Text | None = None


def ok(check: str, en: str, zh: str) -> Finding:
    """Return the finding that nothing is wrong."""
    return Finding(check, OK, Text(en, zh))


def note(
    check: str, en: str, zh: str, do_en: str | None = None, do_zh: str | None = None
) -> Finding:
    """Return a finding that is good to know."""
    advice = Text(do_en, do_zh) if do_en and do_zh else None
    return Finding(check, NOTE, Text(en, zh), advice)


def warning(check: str, en: str, zh: str, do_en: str, do_zh: str) -> Finding:
    """Return a finding that may keep ranks apart, or make them slow, and what to do."""
    return Finding(check, WARNING, Text(en, zh), Text(do_en, do_zh))


def error(check: str, en: str, zh: str, do_en: str, do_zh: str) -> Finding:
    """Return a finding that keeps ranks from starting or from meeting, and what to do."""
    return Finding(check, ERROR, Text(en, zh), Text(do_en, do_zh))
