"""Check all links of the built book: ``python -m tools.links _build/html``.

A link to a page or an anchor of the book has a target there. A link to the book's repository,
on GitHub or on Colab, names the repository and branch of ``_config.yml`` and a file that exists
here; on Colab a notebook. Links to other sites are not opened: that needs a network and says
little about the book.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tools.notebooks import read
from tools.publish import COLAB, GITHUB, ROOT, Stamp
from tools.publish import read as read_stamp

# What the theme offers where no repository is configured, and code that runs on a stranger's
# server: neither belongs on a page.
FOREIGN = ("binder-examples", "executablebooks/jupyter-book", "initThebe", "launch-thebe")
_IN_REPOSITORY = re.compile(r"(?P<repository>[^/]+/[^/]+)/(?:blob|edit|tree)/(?P<rest>.+)")


class Page(HTMLParser):
    """The links and anchors of one HTML file."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag points to and what can be pointed to."""
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.add(value)
            elif name == "id" and value:
                self.anchors.add(value)


def read_pages(html: Path) -> dict[Path, Page]:
    """Read all pages of a built book; vendored files are no pages of it."""
    pages = {}
    for path in sorted(html.rglob("*.html")):
        if {"_static", "vendor"}.intersection(path.relative_to(html).parts):
            continue
        pages[path] = Page(path.read_text(encoding="utf-8"))
    return pages


def inside(link: str, page: Path, html: Path, pages: dict[Path, Page]) -> str:
    """Say what is wrong with a link within the book, or nothing."""
    parts = urlsplit(link)
    path = unquote(parts.path)
    target = (page.parent / path).resolve() if path else page
    if target.is_dir():
        target /= "index.html"
    if not target.is_relative_to(html) or not target.is_file():
        return "leads to no file of the book"
    anchor = unquote(parts.fragment)
    if anchor and target in pages and anchor not in pages[target].anchors:
        return "leads to an anchor that does not exist"
    return ""


def in_repository(link: str, stamp: Stamp, root: Path) -> str:
    """Say what is wrong with a link to a file of the repository, or nothing."""
    on_colab = link.startswith(COLAB)
    match = _IN_REPOSITORY.fullmatch(link.removeprefix(COLAB).removeprefix(GITHUB))
    if on_colab and (match is None or match["repository"] != stamp.repository):
        return f"offers another repository than {stamp.repository or 'none'}"
    if match is None or match["repository"] != stamp.repository:
        return ""  # somebody else's repository, cited by a page
    if not match["rest"].startswith(f"{stamp.branch}/"):
        return f"is not on the branch {stamp.branch}"
    path = root / unquote(urlsplit(match["rest"]).path).removeprefix(f"{stamp.branch}/")
    if not path.is_file():
        return "leads to a file that the repository lacks"
    if on_colab:
        if path.suffix != ".ipynb":
            return "is no notebook"
        try:
            read(path)
        except ValueError as error:
            return str(error)
    return ""


def wrong_link(
    link: str, page: Path, html: Path, pages: dict[Path, Page], stamp: Stamp, root: Path = ROOT
) -> str:
    """Say what is wrong with one link of a page, or nothing."""
    if stamp.site and link.startswith(stamp.site):
        return inside(link.removeprefix(stamp.site), html / "index.html", html, pages)
    if link.startswith((COLAB, GITHUB)):
        return in_repository(link, stamp, root)
    if re.match(r"[a-z][a-z0-9+.-]*:|//", link, re.IGNORECASE):
        return ""
    return inside(link, page, html, pages)


def complaints(html: Path, stamp: Stamp, root: Path = ROOT) -> list[str]:
    """Return one sentence for each thing that is wrong with the links of a built book."""
    html = html.resolve()
    pages = read_pages(html)
    found = [] if pages else [f"There is no page in {html}: run `make book` first."]
    for path, page in pages.items():
        name = path.relative_to(html)
        for link in sorted(page.links):
            wrong = wrong_link(link, path, html, pages, stamp, root)
            if wrong:
                found.append(f"{name}: the link {link} {wrong}")
        text = path.read_text(encoding="utf-8")
        found += [f"{name}: offers {word}" for word in FOREIGN if word in text]
        if stamp.repository and path.parent.name == "notebooks" and COLAB not in text:
            found.append(f"{name}: does not offer Colab")
    return found


def main() -> int:
    """Check the folder named on the command line."""
    html = Path(sys.argv[1])
    found = complaints(html, read_stamp())
    print("\n".join(found) or f"All links of the pages in {html} lead somewhere.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
