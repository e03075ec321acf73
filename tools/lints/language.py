"""Rules for text in two languages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tools.lints.pages import outside_code_blocks
from tools.lints.quantities import quantities

HANZI = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
CJK_PUNCTUATION = "，。：；！？、（）「」『』《》〈〉【】“”‘’…—"

_OPEN = re.compile(r'<div lang="([^"]*)">')
# Headings, tables, tags, directives and comments stand outside the blocks.
_SHOWN_IN_BOTH = ("#", "|", "<", ":", "%")
_HEADING = re.compile(r"(#{1,6})\s+(.*)")

# ---------------------------------------------------------------------------------------
# Blocks


@dataclass(frozen=True)
class Block:
    """The text of one language block and the lines (from 1) of its two tags."""

    lang: str
    text: str
    line: int
    end: int


def read_blocks(text: str) -> tuple[list[Block], list[str]]:
    """Return the language blocks of a Markdown text, and complaints about how they stand."""
    lines = text.split("\n")
    blocks: list[Block] = []
    complaints = []
    lang, start, depth = "", 0, 0
    for number, line in outside_code_blocks(text):
        opening = _OPEN.fullmatch(line.strip())
        if not lang:
            if opening:
                lang, start, depth = opening[1], number, 1
                if number < len(lines) and lines[number].strip():
                    complaints.append(f"line {number}: leave a blank line after {line.strip()}")
            elif "<div lang=" in line:
                complaints.append(f"line {number}: a language block's tag stands alone on its line")
            continue
        if opening:
            complaints.append(f"line {number}: this block opens inside the one of line {start}")
        depth += line.count("<div") - line.count("</div>")
        if depth <= 0:
            if lines[number - 2].strip():
                complaints.append(f"line {number}: leave a blank line before </div>")
            blocks.append(Block(lang, "\n".join(lines[start : number - 1]).strip(), start, number))
            lang = ""
    if lang:
        complaints.append(f"line {start}: this language block is not closed")
    return blocks, complaints


def unpaired_blocks(text: str) -> list[str]:
    """Each Chinese block is followed at once by its English one, and neither is empty."""
    blocks, complaints = read_blocks(text)
    for block in blocks:
        if block.lang not in ("zh", "en"):
            complaints.append(f'line {block.line}: lang="{block.lang}" is neither zh nor en')
        if not block.text:
            complaints.append(f"line {block.line}: this block is empty")
        elif block.lang == "zh" and not HANZI.search(block.text):
            complaints.append(f"line {block.line}: the zh block has no Chinese")
    langs = [block.lang for block in blocks]
    if langs != ["zh", "en"] * (len(blocks) // 2):
        complaints.append(f"blocks must come in pairs, zh first; here they are {', '.join(langs)}")
        return complaints
    lines = text.split("\n")
    for zh, en in zip(blocks[::2], blocks[1::2], strict=True):
        if any(line.strip() for line in lines[zh.end : en.line - 1]):
            complaints.append(f"line {en.line}: something stands between the zh and the en block")
    return complaints


def text_without_language(text: str) -> list[str]:
    """No paragraph with Chinese stands outside the blocks, where both readers would see it."""
    inside = set()
    for block in read_blocks(text)[0]:
        inside.update(range(block.line, block.end + 1))
    complaints = []
    for number, line in outside_code_blocks(text):
        prose = line.strip()
        if (
            number in inside
            or not HANZI.search(prose)
            or prose.startswith(("#", "|", "<", ":", "%"))
        ):
            continue
        if "·" not in prose:
            complaints.append(f"line {number}: Chinese outside a zh block: {prose[:30]}")
    return complaints


def misplaced_headings(text: str) -> list[str]:
    """Headings stand outside the blocks and say "English · 中文".

    Below the second level one may be a bare term, the same in both languages.
    """
    complaints = []
    for block in read_blocks(text)[0]:
        for number, line in outside_code_blocks(block.text):
            if _HEADING.match(line):
                complaints.append(
                    f"line {block.line + 1 + number}: move the heading '{line}' out of the block"
                )
    for number, line in outside_code_blocks(text):
        heading = _HEADING.match(line)
        if heading:
            english, dot, chinese = heading[2].partition(" · ")
            bare_term = len(heading[1]) > 2 and not dot
            if HANZI.search(english) or not (chinese.strip() or bare_term):
                complaints.append(f"line {number}: write the heading as 'English · 中文': {line}")
    return complaints


def polite_you(text: str) -> list[str]:
    """The reader is 你."""
    polite = "\u60a8"
    return [
        f"line {number}: write 你, not {polite}"
        for number, line in enumerate(text.split("\n"), start=1)
        if polite in line
    ]


# ---------------------------------------------------------------------------------------
# Numbers

_ENGLISH_NUMERALS = {
    1: "one once single first",
    2: "two twice both double doubles doubled half halve halves second pair",
    3: "three third thirds",
    4: "four fourth quarter",
    5: "five fifth",
    6: "six sixth",
    7: "seven seventh",
    8: "eight eighth",
    9: "nine ninth",
    10: "ten tenth",
    11: "eleven",
    12: "twelve",
    16: "sixteen",
    100: "hundred",
    1000: "thousand",
}
_CHINESE_NUMERALS = {
    1: "一 首 单",
    2: "二 两 双 半 倍 俩",
    3: "三",
    4: "四",
    5: "五",
    6: "六",
    7: "七",
    8: "八",
    9: "九",
    10: "十",
    11: "十一",
    12: "十二",
    16: "十六",
    100: "百",
    1000: "千",
}


def _units_by_value(text: str) -> dict[Fraction, set[str]]:
    """Return the numbers that a text states in digits, each with its units.

    "Times" is no unit here: one language says "4 times", the other "a factor of 4".
    """
    numbers: dict[Fraction, set[str]] = {}
    for quantity in quantities(text):
        units = numbers.setdefault(quantity.value, set())
        if quantity.unit and quantity.unit.name != "×":
            units.add(quantity.unit.name)
    return numbers


def _in_words(value: Fraction, block: Block) -> bool:
    if value.denominator != 1:
        return False
    if block.lang == "en":
        words = _ENGLISH_NUMERALS.get(int(value), "").split()
        return any(re.search(rf"\b{word}\b", block.text, re.IGNORECASE) for word in words)
    return any(word in block.text for word in _CHINESE_NUMERALS.get(int(value), "").split())


def _printed(value: Fraction) -> str:
    return str(value) if value.denominator == 1 else f"{float(value):g}"


def differing_numbers(text: str) -> list[str]:
    """Both blocks of a pair state the same numbers, in digits or in words, in the same units."""
    blocks = read_blocks(text)[0]
    complaints = []
    for zh, en in zip(blocks[::2], blocks[1::2], strict=False):
        if (zh.lang, en.lang) != ("zh", "en"):
            continue
        numbers = {block.lang: _units_by_value(block.text) for block in (zh, en)}
        for here, there in ((zh, en), (en, zh)):
            for value, units in numbers[here.lang].items():
                if value not in numbers[there.lang] and not _in_words(value, there):
                    unit = " ".join(sorted(units))
                    stated = f"{_printed(value)} {unit}".strip()
                    complaints.append(
                        f"line {here.line}: only the {here.lang} block states {stated}"
                    )
        for value in numbers["zh"].keys() & numbers["en"].keys():
            units_zh, units_en = numbers["zh"][value], numbers["en"][value]
            if units_zh and units_en and units_zh != units_en:
                complaints.append(
                    f"line {zh.line}: {_printed(value)} is {', '.join(sorted(units_zh))} in zh "
                    f"and {', '.join(sorted(units_en))} in en"
                )
    return complaints


# ---------------------------------------------------------------------------------------
# Emphasis

_MATH = re.compile(r"\$\$.*?\$\$|\$[^$\n]+\$", re.DOTALL)
_ESCAPED_STAR = re.compile(r"\\\*")


def _inner_texts(children: list[Token]) -> Iterator[str]:
    """Yield the text of each emphasised span among inline tokens."""
    open_spans: list[list[str]] = []
    for token in children:
        if token.type in ("strong_open", "em_open"):
            open_spans.append([])
        elif token.type in ("strong_close", "em_close"):
            yield "".join(open_spans.pop())
        else:
            for span in open_spans:
                span.append(token.content)


def broken_emphasis(text: str) -> list[str]:
    """No star is left over, and no emphasis begins or ends with Chinese punctuation.

    CommonMark does not close ``**`` between Chinese punctuation and a letter: a reader sees
    the stars, or the wrong words in bold.
    """
    prepared = _ESCAPED_STAR.sub("x", _MATH.sub("x", text))
    complaints = []
    for token in MarkdownIt("commonmark").enable("table").parse(prepared):
        if token.type != "inline" or token.children is None:
            continue
        line = token.map[0] + 1 if token.map else 0
        for child in token.children:
            if child.type == "text" and "*" in child.content:
                complaints.append(f"line {line}: a reader sees the star in '{child.content[:40]}'")
        for inner in _inner_texts(token.children):
            if inner and (inner[0] in CJK_PUNCTUATION or inner[-1] in CJK_PUNCTUATION):
                complaints.append(f"line {line}: move the punctuation out of **{inner[:40]}**")
    return complaints
