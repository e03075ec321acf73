"""Terms of the glossary: called by its names, and linked and translated at their first use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.lints.language import HANZI, read_blocks
from tools.lints.pages import ROOT, Text, markdown_of, outside_code_blocks

GLOSSARY = ROOT / "book" / "glossary.md"
# Words that each page needs and that §1 and §2 introduce; a page may use them without a link.
INTRODUCED_EARLY = ("Processes and libraries", "Hardware", "Operations")
# Everyday words, whose use is no use of the term.
EVERYDAY = frozenset(
    "step message chunk schedule ledger latency bandwidth lock-step overlap activation bubble "
    "pipelining crossover lower-bound".split()
)
# A term in passing needs no link; one that a language block of the page comes back to does.
MENTIONS_WITHOUT_LINK = 2

_ENTRY = re.compile(
    r"^### (?P<english>.+)\n+<div lang=\"zh\">\n+"
    r"\*\*(?P<chinese>[^*]+)\*\*(?:（(?P<others>[^）]+)）)?",
    re.MULTILINE,
)
_LINK = re.compile(r"\[(?P<text>[^\[\]]+)\]\((?:\.\./book/)?glossary\.md#(?P<anchor>[^)]+)\)")
_NO_PROSE = re.compile(r"`[^`]*`|\$\$.*?\$\$|\$[^$\n]*\$|\]\([^)]*\)|<[^>\n]*>", re.DOTALL)


@dataclass(frozen=True)
class Term:
    """An entry of the glossary: its anchor, its section, and its names in small letters."""

    anchor: str
    section: str
    english: str
    chinese: str
    others: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All names, small letters."""
        return (self.english.lower(), self.chinese.lower(), *self.others)

    def name_in(self, lang: str) -> str:
        """The name that prose in this language uses."""
        return self.chinese if lang == "zh" and HANZI.search(self.chinese) else self.english


def read_terms(glossary: str) -> dict[str, Term]:
    """Return the terms of a glossary by their anchors."""
    terms = {}
    for section in re.split(r"^## ", glossary, flags=re.MULTILINE)[1:]:
        heading = section.partition(" ·")[0]
        for entry in _ENTRY.finditer(section):
            english = entry["english"].strip()
            others = re.split(r"，|、", (entry["others"] or "").replace("也叫 ", ""))
            anchor = english.lower().replace(" ", "-")
            names = tuple(other.strip().lower() for other in others if other.strip())
            terms[anchor] = Term(anchor, heading, english, entry["chinese"], names)
    return terms


@cache
def glossary_terms() -> dict[str, Term]:
    """Return the terms of the book's glossary."""
    return read_terms(GLOSSARY.read_text(encoding="utf-8"))


def _plain(link_text: str) -> str:
    return re.sub(r"[*`’'“”]", "", link_text).lower().strip()


def _is_name(text: str, term: Term) -> bool:
    """Say whether a link's text is a name of the term, a longer form or a part of one."""
    said = re.sub(r"(?:es|s)$", "", _plain(text)) or text
    return any(said in name or name in _plain(text) for name in term.names)


def misnamed_terms(text: str) -> list[str]:
    """A link to the glossary leads to an entry and says its name, or a part of it."""
    terms = glossary_terms()
    complaints = []
    for link in _LINK.finditer(text):
        term = terms.get(link["anchor"])
        if term is None:
            complaints.append(f"the glossary has no entry #{link['anchor']}")
        elif not _is_name(link["text"], term):
            complaints.append(
                f"'{link['text']}' links to the glossary's entry {term.english}: use one of its "
                f"names ({', '.join(dict.fromkeys(term.names))})"
            )
    return complaints


# ---------------------------------------------------------------------------------------
# First uses


def _paragraphs(texts: Iterable[Text], lang: str) -> Iterator[str]:
    """Yield the paragraphs, items and rows in one language."""
    for text in texts:
        for block in read_blocks(text.source)[0]:
            if block.lang == lang:
                prose = "\n".join(line for _, line in outside_code_blocks(block.text))
                yield from re.split(r"\n\s*\n|\n(?=\s*[-*|])", prose)


def _pattern(name: str) -> re.Pattern[str]:
    if HANZI.search(name):
        return re.compile(re.escape(name), re.IGNORECASE)
    return re.compile(rf"(?<![\w-]){re.escape(name)}(?:s|es)?(?![\w-])", re.IGNORECASE)


def _uses(paragraphs: list[str], term: Term, lang: str) -> tuple[list[int], int | None]:
    """Return the paragraphs that use a term without linking it, and the first that links it."""
    pattern = _pattern(term.name_in(lang))
    without: list[int] = []
    for number, paragraph in enumerate(paragraphs):
        if any(link["anchor"] == term.anchor for link in _LINK.finditer(paragraph)):
            return without, number
        prose = _NO_PROSE.sub(" ", _LINK.sub(" ", paragraph))
        without += [number] * len(pattern.findall(prose))
    return without, None


def _longer_names(term: Term, lang: str) -> bool:
    name = term.name_in(lang).lower()
    return any(
        name in other.name_in(lang).lower() and other is not term
        for other in glossary_terms().values()
    )


def _checked(term: Term, lang: str) -> bool:
    return not (
        term.section in INTRODUCED_EARLY or term.anchor in EVERYDAY or _longer_names(term, lang)
    )


def unlinked_terms(path: Path) -> list[str]:
    """A term that a page uses more than in passing is linked, and where it is used first."""
    complaints = []
    texts = markdown_of(path)
    # The first cell of a notebook lists goals, which may name what only the page explains.
    goals = texts[:1] if len(texts) > 1 else []
    for lang in ("zh", "en"):
        linked_in_goals = {link["anchor"] for text in goals for link in _LINK.finditer(text.source)}
        paragraphs = list(_paragraphs(texts[len(goals) :], lang))
        for term in glossary_terms().values():
            if not _checked(term, lang) or term.anchor in linked_in_goals:
                continue
            before, linked = _uses(paragraphs, term, lang)
            name = term.name_in(lang)
            if linked is None and len(before) > MENTIONS_WITHOUT_LINK:
                complaints.append(
                    f"{path.name}, {lang}: uses '{name}' {len(before)} times, never with a link "
                    f"to the glossary's #{term.anchor}"
                )
            elif linked is not None and before:
                where = paragraphs[before[0]].strip()[:40]
                complaints.append(
                    f"{path.name}, {lang}: '{name}' is linked after its first use, in '{where}'"
                )
    return complaints


def untranslated_terms(path: Path) -> list[str]:
    """Where a Chinese text first links a term, its English name stands in the same paragraph."""
    complaints = []
    seen = set()
    for paragraph in _paragraphs(markdown_of(path), "zh"):
        prose = _LINK.sub(lambda link: link["text"], paragraph).lower()
        for link in _LINK.finditer(paragraph):
            term = glossary_terms().get(link["anchor"])
            if term is None or term.anchor in seen:
                continue
            seen.add(term.anchor)
            names = [
                name for name in (term.english.lower(), *term.others) if not HANZI.search(name)
            ]
            if not any(name in prose for name in names):
                complaints.append(
                    f"{path.name}: write the English name of {term.chinese}（{term.english}）"
                    f"where it is used first: '{paragraph.strip()[:40]}'"
                )
    return complaints
