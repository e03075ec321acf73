"""What a checker answers: right, wrong or open, and why, in both languages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

RIGHT, WRONG, OPEN = "right", "wrong", "open"

_MARKS = {
    RIGHT: ("✓ right", "✓ 对了"),
    WRONG: ("✗ not right", "✗ 不对"),
    OPEN: ("… not answered yet", "… 还没有作答"),
}


# Of an object without a text of its own; it says nothing and changes from run to run.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class Words(NamedTuple):
    """One text in both languages."""

    en: str
    zh: str


@dataclass(frozen=True)
class Verdict:
    """The answer of a checker.

    Attributes
    ----------
    status : str
        ``RIGHT``, ``WRONG``, or ``OPEN`` for a blank that is still there.
    reason : str
        A short code of the reason, the same in both languages.
    words : Words
        The reason as one sentence.
    evidence : str
        A Markdown table that both readers see, or nothing.
    """

    status: str
    reason: str
    words: Words
    evidence: str = ""


class Refused(Exception):
    """A judge has seen enough: carries the verdict."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.words.en)
        self.verdict = verdict


def right(en: str, zh: str, evidence: str = "") -> Verdict:
    """Return the verdict that the answer is right."""
    return Verdict(RIGHT, "right", Words(en, zh), evidence)


def refuse(reason: str, en: str, zh: str, evidence: str = "") -> Refused:
    """Return the exception that ends a check with "not right", for ``raise``."""
    return Refused(Verdict(WRONG, reason, Words(en, zh), evidence))


def unanswered(
    en: str = "Put your answer in place of `...`.",
    zh: str = "把 `...` 换成你的答案。",
) -> Refused:
    """Return the exception that ends a check because there is no answer yet."""
    return Refused(Verdict(OPEN, "open", Words(en, zh)))


def is_blank(answer: object) -> bool:
    """Whether the blank of the notebook is still there."""
    return answer is None or answer is Ellipsis


def in_code(text: object, at_most: int = 200) -> str:
    """Quote what a reader wrote, or an error, so that Markdown leaves it alone."""
    line = " ".join(_ADDRESS.sub("", str(text)).split()).replace("`", "'")
    return f"`{line[:at_most]}…`" if len(line) > at_most else f"`{line or ' '}`"


def paired(words: Words) -> str:
    """Return both languages as the blocks that the page's switch shows and hides."""
    return f'<div lang="zh">\n\n{words.zh}\n\n</div>\n<div lang="en">\n\n{words.en}\n\n</div>'


@dataclass(frozen=True)
class Report:
    """The verdicts on the parts of one exercise; the last value of a cell shows it.

    Attributes
    ----------
    name : str
        The exercise.
    parts : dict of str to Verdict
        By the name of the part; the name is "" where an exercise has one answer.
    """

    name: str
    parts: Mapping[str, Verdict]

    @property
    def status(self) -> str:
        """``RIGHT`` if all parts are; else ``WRONG`` if one is; else ``OPEN``."""
        statuses = {verdict.status for verdict in self.parts.values()}
        if statuses == {RIGHT}:
            return RIGHT
        return WRONG if WRONG in statuses else OPEN

    @property
    def solved(self) -> bool:
        """Whether every part is right."""
        return self.status == RIGHT

    @property
    def reasons(self) -> dict[str, str]:
        """The code of each part's reason."""
        return {part: verdict.reason for part, verdict in self.parts.items()}

    def __repr__(self) -> str:
        lines = [line for words in self._lines() for line in (words.zh, words.en)]
        return "\n".join([*lines, *self._tables()])

    def _repr_markdown_(self) -> str:
        marked = self._lines()
        bullet = "- " if len(marked) > 1 else ""
        text = paired(
            Words(
                "\n".join(bullet + words.en for words in marked),
                "\n".join(bullet + words.zh for words in marked),
            )
        )
        return "\n\n".join([text, *self._tables()])

    def _lines(self) -> list[Words]:
        """Return one text for each part; one for all while none is answered."""
        parts = list(self.parts.items())
        if len(parts) > 1 and all(verdict.status == OPEN for _, verdict in parts):
            return [_marked("", unanswered().verdict)]
        return [_marked(part, verdict) for part, verdict in parts]

    def _tables(self) -> list[str]:
        return [verdict.evidence for verdict in self.parts.values() if verdict.evidence]


def _marked(part: str, verdict: Verdict) -> Words:
    mark_en, mark_zh = _MARKS[verdict.status]
    name = f"`{part}` " if part else ""
    sentence = verdict.words.en[:1].upper() + verdict.words.en[1:]
    return Words(f"{name}**{mark_en}**. {sentence}", f"{name}**{mark_zh}**：{verdict.words.zh}")
