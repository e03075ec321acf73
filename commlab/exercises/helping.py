"""Hints and worked solutions: folded up until a reader opens them."""

from __future__ import annotations

from dataclasses import dataclass

from commlab.exercises.verdicts import Words, paired


@dataclass(frozen=True)
class Folded:
    """A text that shows its title only, until it is opened.

    Attributes
    ----------
    title : Words
    words : Words
    rest : str
        Markdown below the words, for both readers.
    """

    title: Words
    words: Words
    rest: str = ""

    def __repr__(self) -> str:
        lines = [f"{self.title.zh}：{self.words.zh}", f"{self.title.en}: {self.words.en}"]
        return "\n".join([*lines, *([self.rest] if self.rest else [])])

    def _repr_markdown_(self) -> str:
        summary = f'<span lang="zh">{self.title.zh}</span> <span lang="en">{self.title.en}</span>'
        blocks = [f"<details><summary>{summary}</summary>", paired(self.words)]
        return "\n\n".join([*blocks, *([self.rest] if self.rest else []), "</details>"])
