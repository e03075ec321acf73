"""Keep a page light, and let it be painted before any of its scripts has arrived.

Two small scripts that decide how the page looks stand in its head as text. All others wait
until the page has been read (``defer``), in their order. Of Font Awesome's icons, which
the theme brings as 1.5 MB of script, a page gets only those in use, as a font in icons.css;
of the theme's styles it gets the rules that can apply to a page of this book.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont
from sphinx.application import Sphinx

HEAD_SCRIPTS = ("before_paint.js", "lang.js")
_AWESOME = r"/fontawesome/[^\"]*/all\.min\."
_AWESOME_LINK = re.compile(rf'\s*<link [^>]*href="[^"]*{_AWESOME}[^"]*"[^>]*>')
_AWESOME_SCRIPT = re.compile(rf'\s*<script [^>]*src="[^"]*{_AWESOME}[^"]*"[^>]*></script>')
_WAITING_SCRIPT = re.compile(r"<script (?=[^>]*\bsrc=)(?![^>]*\b(?:defer|async)\b)")
# The only script whose result is used by one that is written into the page.
_OPTIONS_SCRIPT = re.compile(r'<script src="[^"]*documentation_options\.js[^"]*"></script>')
# Names, punctuation and spaces of code have the colour of the code around them.
_PLAIN_TOKEN = re.compile(r'<span class="[npw]">([^<]*)</span>')
_ICON_NAME = re.compile(r"\bfa-([a-z0-9-]+)")
_ICON_RULE = re.compile(r'([^{}]+)\{content:"\\([0-9a-f]+)"\}')
_THEME_STYLES = ("styles/bootstrap.css", "styles/pydata*.css", "mystnb.*.css", "sphinx-design*.css")
_STYLE_RULE = re.compile(r"([^{}@;]+)\{[^{}]*\}")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_CLASS = re.compile(r"\.(-?[A-Za-z_][\w-]*)")
_WORD = re.compile(r"[A-Za-z_][\w-]*")
_PRIVATE_USE = re.compile("[\ue000-\uf8ff]")


def add_head_scripts(app: Sphinx) -> None:
    """Write the scripts that run before the first paint into each page's head."""
    for name in HEAD_SCRIPTS:
        text = (Path(app.srcdir) / "book" / "_static" / name).read_text(encoding="utf-8")
        app.add_js_file(None, body=text, priority=100)


def lighten(app: Sphinx, error: Exception | None) -> None:
    """Take from each built page what it does not need before it is painted, or at all."""
    if error is not None or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    options = (static / "documentation_options.js").read_text(encoding="utf-8")
    pages = {path: path.read_text(encoding="utf-8") for path in Path(app.outdir).rglob("*.html")}
    scripts = [path.read_text("utf-8") for path in static.glob("*.js")]
    scripts += [path.read_text("utf-8") for path in (static / "scripts").glob("*.js")]
    users = [*pages.values(), *scripts]
    prune_styles(static, users)
    write_icons(Path(app.srcdir) / "book" / "_static" / "icons.css", static, users)
    for path, text in pages.items():
        path.write_text(light_page(text, options), encoding="utf-8")


def light_page(text: str, options: str) -> str:
    """Return a page without what it does not use and with scripts that do not block it.

    Parameters
    ----------
    text : str
        The page's HTML.
    options : str
        Content of ``documentation_options.js``, which becomes part of the page.
    """
    text = _AWESOME_SCRIPT.sub("", _AWESOME_LINK.sub("", text))
    text = _OPTIONS_SCRIPT.sub(lambda _: f"<script>{options}</script>", text)
    text = _PLAIN_TOKEN.sub(r"\1", text)
    return _WAITING_SCRIPT.sub('<script defer="defer" ', text)


def prune_styles(static: Path, users: Iterable[str]) -> None:
    """Drop the theme's rules for classes that neither a page nor a script names.

    Parameters
    ----------
    static : Path
        The built book's ``_static``.
    users : iterable of str
        The text of all pages and scripts.
    """
    words = {word for text in users for word in _WORD.findall(text)}

    def can_apply(selector: str) -> bool:
        # Bootstrap's script puts names that start with bs- together.
        return all(name in words or name.startswith("bs-") for name in _CLASS.findall(selector))

    def keep(rule: re.Match[str]) -> str:
        selectors = _COMMENT.sub("", rule[1])
        if ":not(" in selectors or any(map(can_apply, selectors.split(","))):
            return rule[0]
        return "".join(_COMMENT.findall(rule[1]))  # licences stay

    for path in (path for pattern in _THEME_STYLES for path in static.glob(pattern)):
        path.write_text(_STYLE_RULE.sub(keep, path.read_text("utf-8")), encoding="utf-8")


def write_icons(source: Path, static: Path, users: Iterable[str]) -> None:
    """Add to icons.css the icons that the pages, the scripts and the theme's styles name."""
    (awesome,) = (static / "vendor" / "fontawesome").iterdir()
    used = {name for text in users for name in _ICON_NAME.findall(text)}
    styles = "".join(path.read_text("utf-8") for path in (static / "styles").glob("*.css"))
    codes = {ord(letter) for letter in _PRIVATE_USE.findall(styles)}
    rules = []
    for selectors, code in _ICON_RULE.findall((awesome / "css" / "all.min.css").read_text("utf-8")):
        names = [name for name in _ICON_NAME.findall(selectors) if name in used]
        codes |= {int(code, 16)} if names else set()
        rules += [f'.fa-{name}::before {{ content: "\\{code}"; }}' for name in names]
    font = subset_font(awesome / "webfonts" / "fa-solid-900.ttf", codes)
    face = (
        '@font-face {{ font-family: "{}"; font-weight: 900; font-display: block; '
        "src: url(data:font/woff;base64," + base64.b64encode(font).decode() + "); }}"
    )
    families = [face.format(f"Font Awesome {version} Free") for version in (5, 6)]
    text = "\n".join([source.read_text("utf-8"), *families, *rules, ""])
    (static / source.name).write_text(text, encoding="utf-8")


def subset_font(path: Path, codes: set[int]) -> bytes:
    """Return the glyphs of some code points as a WOFF font; codes it lacks are left out."""
    font = TTFont(path, recalcTimestamp=False)  # the same build gives the same bytes
    options = subset.Options(layout_features=[], hinting=False, notdef_outline=True)
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=codes)
    subsetter.subset(font)
    font.flavor = "woff"
    stream = io.BytesIO()
    font.save(stream)
    return stream.getvalue()


def setup(app: Sphinx) -> dict[str, object]:
    """Run on whole pages, after the last of them has been written."""
    app.connect("builder-inited", add_head_scripts)
    app.connect("build-finished", lighten, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
