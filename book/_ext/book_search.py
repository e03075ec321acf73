"""Search in Chinese and English: CJK bigrams and English stems, in the index and the query.

Sphinx splits Chinese with jieba when it builds the index, but the browser does not split
the query, so that a word inside a sentence is never found. Two-character pieces on both
sides need no dictionary and always agree.

Sphinx also ranks a page that mentions a word once like one that is about it. So the book
counts how often each page has each word, headings more than text, and `search_scorer.js`
puts the page with the highest count first.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import snowballstemmer
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.builders import Builder
from sphinx.search import SearchLanguage
from sphinx.search.en import english_stopwords, js_porter_stemmer

_CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_TOKEN = re.compile(rf"[{_CJK}]+|[^\W{_CJK}]+")
_IS_CJK = re.compile(rf"[{_CJK}]")
# Counted as one word too: "all-to-all" would otherwise be no more than "all".
_COMPOUND = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)+")
_WEIGHTS_FILE = "search_weights.js"
_HEADING_WEIGHT = 8
_TITLE_WEIGHT = 100

# The same splitting for the query, in JavaScript.
_SPLIT_QUERY = r"""
function splitQuery(query) {
  const tokens = query.match(/[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+|(?:(?![\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])[\p{L}\p{N}_])+/gu) || [];
  return tokens.flatMap((token) => {
    if (!/^[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]/.test(token) || token.length < 3) return [token];
    return Array.from({ length: token.length - 1 }, (_, i) => token.slice(i, i + 2));
  });
}
"""  # noqa: E501


class ChineseEnglishSearch(SearchLanguage):
    """Splits text into CJK bigrams and English words."""

    lang = "zh-en"
    language_name = "Chinese and English"
    js_stemmer_code = js_porter_stemmer
    js_splitter_code = _SPLIT_QUERY
    stopwords = english_stopwords

    def init(self, options: dict[str, str]) -> None:
        """Make the stemmer whose JavaScript twin runs in the browser."""
        self._stemmer = snowballstemmer.stemmer("porter")

    def split(self, input: str) -> list[str]:
        """Split text into the words of the index."""
        words = []
        for token in _TOKEN.findall(input):
            if _IS_CJK.match(token) and len(token) > 1:
                words += [token[i : i + 2] for i in range(len(token) - 1)]
                # One-character queries find pages too.
                words += list(token)
            else:
                words.append(token)
        return words

    def word_filter(self, word: str) -> bool:
        """Keep single Chinese characters, which the default would drop."""
        return word not in self.stopwords and not word.isdigit()

    def stem(self, word: str) -> str:
        """Reduce an English word to its stem; a CJK bigram stays as it is."""
        return self._stemmer.stemWord(word.lower())


def count_words(doctree: nodes.document, language: ChineseEnglishSearch) -> Counter[str]:
    """Count the words of a page's prose, headings with more weight; code is left out."""
    counts: Counter[str] = Counter()
    headings = list(doctree.findall(nodes.title))
    texts = [
        (text.astext(), 1)
        for text in doctree.findall(nodes.Text)
        if not isinstance(text.parent, (nodes.literal_block, nodes.raw))
    ]
    texts += [(heading.astext(), _HEADING_WEIGHT) for heading in headings]
    texts += [(heading.astext(), _TITLE_WEIGHT) for heading in headings[:1]]
    for text, weight in texts:
        for compound in _COMPOUND.findall(text.lower()):
            counts[compound] += weight
        for word in language.split(text):
            stem = language.stem(word)
            if language.word_filter(stem):
                counts[stem] += weight
    return counts


def write_weights(app: Sphinx, builder: Builder) -> None:
    """Write the counts of all pages for the search page."""
    if builder.format != "html":
        return
    language = ChineseEnglishSearch({})
    weights = {
        page: {
            word: count
            for word, count in sorted(count_words(app.env.get_doctree(page), language).items())
            if count > 1  # what is not listed counts as one
        }
        for page in sorted(app.env.found_docs)
    }
    static = Path(app.outdir) / "_static"
    static.mkdir(parents=True, exist_ok=True)
    text = json.dumps(weights, ensure_ascii=False, separators=(",", ":"))
    (static / _WEIGHTS_FILE).write_text(f"const SEARCH_WEIGHTS = {text};\n", encoding="utf-8")


def load_weights(
    app: Sphinx, page: str, template: str, context: dict[str, object], doctree: object
) -> None:
    """Load the counts on the search page, and on no other."""
    if page == "search":
        app.add_js_file(_WEIGHTS_FILE)


def setup(app: Sphinx) -> dict[str, object]:
    """Register the search language and the counts for its ranking."""
    app.add_search_language(ChineseEnglishSearch)
    app.connect("write-started", write_weights)
    app.connect("html-page-context", load_weights)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
