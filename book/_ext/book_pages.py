"""Keep every page free of what it does not use or what fails without a server.

Jupyter Book loads Thebe on each page, with the address of a stranger's Binder and of a
content delivery network, even where it is switched off. The theme preloads its icon fonts
in a way that a browser refuses for a page opened from disk; they load without that too.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

_FONT_PRELOAD = re.compile(r'<link rel="preload" as="font"[^>]*>\s*')


def drop_unused_scripts(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Remove Thebe's scripts and those that are listed twice."""
    kept, seen = [], set()
    for script in context.get("script_files", []):
        # The file name of a script that stands in the page is None or empty: its text counts.
        identity = getattr(script, "attributes", {}).get("body") or str(script)
        if "thebe" in str(script).lower() or identity in seen:
            continue
        seen.add(identity)
        kept.append(script)
    context["script_files"] = kept
    context["css_files"] = [
        style for style in context.get("css_files", []) if "thebe" not in str(style).lower()
    ]


def drop_thebe_settings(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Remove the two scripts that Thebe appends to each page: a stranger's repository, a kernel."""
    for node in list(doctree.findall(nodes.raw)):
        text = node.astext().strip()
        if text.startswith(('<script type="text/x-thebe-config">', "<script>kernelName = ")):
            node.parent.remove(node)


def drop_back_links(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Remove the links from a source back to where it is cited.

    Each source is cited once in each language, and the link to the language that is not shown
    leads nowhere.
    """
    for citation in doctree.findall(nodes.citation):
        citation["backrefs"] = []


def make_sources_list_items(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Give the entries of a bibliography the role that their list asks for.

    Sphinx puts entries of the role doc-biblioentry, which is no longer in use, into a list.
    """
    if "body" in context:
        context["body"] = context["body"].replace('role="doc-biblioentry"', 'role="listitem"')


def drop_font_preloads(app: Sphinx, error: Exception | None) -> None:
    """Remove the theme's font preloads, which stand in a template that it does not expose."""
    if error is not None or app.builder.format != "html":
        return
    for path in Path(app.outdir).rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        slim = _FONT_PRELOAD.sub("", text)
        if slim != text:
            path.write_text(slim, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, object]:
    """Run after all extensions that add scripts to a page."""
    app.connect("doctree-resolved", drop_thebe_settings, priority=900)
    app.connect("doctree-resolved", drop_back_links, priority=900)
    app.connect("html-page-context", drop_unused_scripts, priority=900)
    app.connect("html-page-context", make_sources_list_items)
    app.connect("build-finished", drop_font_preloads)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
