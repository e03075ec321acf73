"""Every figure that the lecture states is printed by a cell of its section.

The values are checked where they are computed; here only that no page loses one. Where a value
depends on data or on the machine, the page prints its own beside the lecture's, and the pattern
leaves the digits open.
"""

from __future__ import annotations

import re
from functools import cache

import nbformat
import pytest

from tools.lints.pages import notebooks

TRACE = r"""after step 1 \(reduce-scatter\)
  rank 0:      1     1     1  1001
(.*\n)*after step 3 \(reduce-scatter\)
  rank 0:      1  1111  1101  1001
  rank 1:     11    10  1111  1011
  rank 2:    111   110   100  1111
  rank 3:   1111  1110  1100  1000
(.*\n)*after step 6 \(all-gather\)
(  rank \d:   1111  1111  1111  1111\n){4}"""

# Section of the lecture, number of the notebook, what its outputs print.
FIGURES = [
    ("0.1", 1, ["119.7 GiB", r"7\.227e\+23 FLOP", "57.93 years"]),
    ("1.1", 1, ["1.027 TiB", "507,474 H100 hours", "3.02 weeks"]),
    ("1.3", 1, ["NVLink / InfiniBand = 9.0", r"HBM / NVLink +\= 7\.44"]),
    ("2", 2, [r"\[64, 68, 72, 76\]"]),
    ("3.2", 3, [TRACE]),
    ("3.3", 3, ["2.40 ms", "4.25 ms", "7.30 ms", "4.77 ms", "2.55 ms", "1.219 s", "1.217 s"]),
    ("3.4", 3, [r"ring: \d\d% of the elements differ"]),
    ("4.1", 4, ["sum of the steps: 85.9241 µs", "closed form: +85.9241 µs"]),
    ("4.2", 4, ["4.04 MiB", "ring there: 86.5 µs", "tree there: 86.5 µs"]),
    ("4.3", 4, [r"25 MB +\| +43 .* 1\.69 \|", r"25 MiB +\| +41 .* 1\.66 \|"]),
    ("4.4", 4, [r"42\.91 \| +42\.91", r"9\.01 \| +9\.01 \| +4\.76", r"5\.91 \| +5\.91"]),
    ("5.2", 5, ["4 ranks against one process, difference below 1e-15: True", "2.2e-16"]),
    ("5.4", 5, ["4 micro-batches against 4 ranks, difference below 1e-15: True"]),
    ("5.5", 5, [r"mean of means, 4 ranks: \d\.\de-02", "the lecture's run.*: 2.8e-02"]),
    ("6.2", 6, [r"difference now: \d\.\de-0[78] \(the lecture's run: 1\.2e-7\)"]),
    ("6.3", 6, ["1 KiB: .*the lecture's run: 880 µs", "64 MiB: .*the lecture's run: 3.3 GB/s"]),
    ("7.1", 7, ["14.96 GiB", "3.991 s", "62.5 ms", "132.9 ms", "143.5 ms"]),
    ("7.1", 7, ["1.567%", "3.329%", "3.595%", "12.534%", "26.633%", "28.760%", "79.7 ms"]),
    ("7.2", 7, ["1.50 x DDP"]),
    ("7.3", 7, [r"\| +256 \| +128 \| +142\.58 ms \| +498\.9 ms", "1211.55 ms"]),
    ("7.4", 7, ["112 MiB", "0.271 ms", "2.359 ms", "0.331 ms", "150.964 ms", "226.446 ms"]),
    ("exercise 1", 4, ["7.5 GiB", "60 GiB", "ring 17.9 ms; naive 286 ms", "16 times as long"]),
    ("exercise 4", 4, ["1.17 s", "0.27 s, twice; between nodes 0.62 s", "35.1 s", "3.3%"]),
    ("exercise 4", 7, [r"0\.274 \+ 0\.617 \+ 0\.274 = 1\.166 s", "35.06 s"]),
    ("exercise 10", 7, ["busiest GPU: 2.0 × balanced"]),
    ("parameters", 1, ["8 030 261 248", "70 553 706 496", "405 853 388 800"]),
    ("usable rate", 1, ["62.5 ms", "370 GB/s: 76.0 ms"]),
]


@cache
def printed(number: int) -> str:
    """Return all text that the stored outputs of a notebook show."""
    (path,) = (path for path in notebooks() if path.name.startswith(f"{number:02}_"))
    texts = []
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            texts.append(output.get("text") or data.get("text/markdown", data.get("text/plain")))
    return "\n".join(texts)


@pytest.mark.parametrize(
    ("number", "pattern"),
    [(number, pattern) for _, number, patterns in FIGURES for pattern in patterns],
    ids=[f"{section}: {p[:30]}" for section, _, patterns in FIGURES for p in patterns],
)
def test_the_section_prints_the_lectures_figure(number, pattern):
    assert re.search(pattern, printed(number)), f"§{number} no longer prints {pattern}"
