"""The explorer on the built page: every state drawn beforehand, swapped by a small script."""

from __future__ import annotations

import base64
import gzip
import json
from html import escape
from typing import TYPE_CHECKING

from commlab.explore.render import Frame

if TYPE_CHECKING:
    from commlab.explore.explorer import Explorer

PAYLOAD_LIMIT = 200_000
_PIXELS_PER_INCH = 112


def static_html(explorer: Explorer, frames: list[Frame], anchor: str) -> str:
    """Write an explorer with all its frames as one piece of HTML.

    Parameters
    ----------
    explorer : Explorer
        What is shown.
    frames : list of Frame
        One for each state, in the order of `Explorer.states`.
    anchor : str
        Prefix of the element ids, unique on the page.

    Raises
    ------
    ValueError
        If the result is larger than 200 kB.
    """
    first = frames[explorer.states().index(explorer.start)]
    width = round(explorer.figsize[0] * _PIXELS_PER_INCH)
    alt_en, alt_zh = explorer.alt
    parts = [
        f'<figure class="explore" id="{anchor}" style="max-width:{width}px">',
        f'<figcaption class="explore-title">{_both(explorer.title)}</figcaption>',
    ]
    if explorer.knobs:
        parts += ['<div class="explore-knobs">', *_knobs(explorer, anchor), "</div>"]
        if explorer.play:
            parts.append(_play_button())
    parts += [
        f'<div class="explore-figure" role="img" aria-label="{escape(f"{alt_zh} · {alt_en}")}" '
        f'data-alt-zh="{escape(alt_zh)}" data-alt-en="{escape(alt_en)}">{first.svg}</div>'
    ]
    if explorer.knobs:
        parts += [
            f'<script type="application/gzip+base64">{pack([f.svg for f in frames])}</script>',
            f'<p class="explore-fallback" hidden>{_both(_NOT_LOADED)}</p>',
            f'<noscript><p class="explore-fallback">{_both(_NO_SCRIPT)}</p></noscript>',
        ]
    html = "\n".join([*parts, "</figure>"])
    size = len(html.encode())
    if size > PAYLOAD_LIMIT:
        raise ValueError(
            f'the explorer "{explorer.title[0]}" weighs {size / 1000:.0f} kB on the page, more '
            f"than {PAYLOAD_LIMIT // 1000} kB: use fewer stops or fewer points per curve."
        )
    return html


_NOT_LOADED = (
    "The other states of this figure did not load; you see its start state.",
    "这幅图的其余状态没有载入，此处只显示起始状态。",
)
_NO_SCRIPT = (
    "This slider needs JavaScript; you see the start state.",
    "这个滑块需要 JavaScript，此处只显示起始状态。",
)
_PLAY = ("Play", "播放")
_PAUSE = ("Pause", "暂停")


def _both(pair: tuple[str, str]) -> str:
    english, chinese = (escape(text) for text in pair)
    return f'<span lang="zh">{chinese}</span> <span lang="en">{english}</span>'


def _knobs(explorer: Explorer, anchor: str) -> list[str]:
    rows = []
    for name, knob in explorer.knobs.items():
        texts = json.dumps(knob.texts, ensure_ascii=False)
        text = escape(knob.texts[knob.index])
        longest = max(map(len, knob.texts))
        field = escape(f"{anchor}-{name}")
        rows.append(
            f'<label for="{field}">{_both(knob.label)}</label>'
            f'<input type="range" id="{field}" name="{escape(name)}" min="0" '
            f'max="{len(knob) - 1}" step="1" value="{knob.index}" autocomplete="off" '
            f'aria-valuetext="{text}" data-texts="{escape(texts)}">'
            f'<span class="explore-readout" aria-hidden="true" style="min-width:{longest}ch">'
            f"{text}</span>"
        )
    return rows


def _play_button() -> str:
    return (
        '<button type="button" class="explore-play">'
        f'<span class="when-paused">▶ {_both(_PLAY)}</span>'
        f'<span class="when-playing" hidden>⏸ {_both(_PAUSE)}</span></button>'
    )


def pack(texts: list[str]) -> str:
    """Compress texts that share most of their lines.

    Lines are numbered once; a text is stored as the number of lines that it shares with
    the first text at its head and tail, and the lines in between. The whole is gzipped
    and written in base64; `explore.js` undoes it.
    """
    numbers: dict[str, int] = {}
    coded = [[numbers.setdefault(line, len(numbers)) for line in t.split("\n")] for t in texts]
    base = coded[0]
    frames = []
    for lines in coded:
        shortest = min(len(lines), len(base))
        head = 0
        while head < shortest and lines[head] == base[head]:
            head += 1
        tail = 0
        while tail < shortest - head and lines[-1 - tail] == base[-1 - tail]:
            tail += 1
        frames.append([head, tail, lines[head : len(lines) - tail]])
    packed = {"lines": list(numbers), "base": base, "frames": frames}
    raw = json.dumps(packed, separators=(",", ":"), ensure_ascii=False).encode()
    return base64.b64encode(gzip.compress(raw, 9, mtime=0)).decode()


def unpack(packed: str) -> list[str]:
    """Undo `pack`, as the page's script does."""
    stored = json.loads(gzip.decompress(base64.b64decode(packed)))
    base, lines = stored["base"], stored["lines"]
    texts = []
    for head, tail, middle in stored["frames"]:
        numbers = base[:head] + middle + base[len(base) - tail :]
        texts.append("\n".join(lines[number] for number in numbers))
    return texts
