"""Write the address of the published book into the repository: called by ``make publish``.

    make publish REPO=owner/name                      the site is https://owner.github.io/name/
    make publish REPO=owner/name BRANCH=dev SITE=https://book.example.org/
    make publish REPO=                                takes the address out again

``_config.yml`` holds the address; everything else on the site follows from it at build time.
Two more files cannot ask it, since they are read alone, and are written here: the setup cell
(the template and each notebook) and ``CITATION.cff``. The result depends on the arguments only,
not on what was written before.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from tools import setup_cells

ROOT = Path(__file__).resolve().parent.parent
CONFIG = "_config.yml"
CITATION = "CITATION.cff"
DEFAULT_BRANCH = "main"
GITHUB = "https://github.com/"
COLAB = "https://colab.research.google.com/github/"

_REPO = re.compile(
    r"(?:https?://(?:www\.)?github\.com/|(?:ssh://)?git@github\.com[:/])?"
    r"(?P<owner>[A-Za-z0-9][A-Za-z0-9_-]*)/(?P<name>[A-Za-z0-9._-]*[A-Za-z0-9_-])/?"
)
_BRANCH = re.compile(r"[A-Za-z0-9_][\w./-]*")
_SITE = re.compile(r"https?://[A-Za-z0-9.-]+(?::\d+)?(?:/[\w.~-]+)*/?")


@dataclass(frozen=True)
class Stamp:
    """Where the book is published; all empty but the branch if it is not.

    Attributes
    ----------
    repository : str
        ``owner/name`` on GitHub.
    branch : str
        The branch that readers open notebooks from.
    site : str
        Address of the built book, with a slash at its end.
    """

    repository: str = ""
    branch: str = DEFAULT_BRANCH
    site: str = ""

    @property
    def url(self) -> str:
        """Address of the repository."""
        return GITHUB + self.repository if self.repository else ""


def parse(repo: str, branch: str = "", site: str = "") -> Stamp:
    """Return the stamp for what the command line says; an empty ``repo`` takes it away.

    Raises
    ------
    ValueError
        If one of them makes no sense; the message says what is expected.
    """
    repo, branch, site = repo.strip(), branch.strip(), site.strip()
    if not repo:
        if branch or site:
            raise ValueError("REPO= takes the address out; BRANCH and SITE make no sense then.")
        return Stamp()
    match = _REPO.fullmatch(repo.removesuffix("/").removesuffix(".git"))
    if match is None:
        raise ValueError(
            f"REPO={repo!r} is no repository on GitHub: write it as owner/name, "
            "for example REPO=octocat/multi-gpu."
        )
    branch = branch or DEFAULT_BRANCH
    if not _BRANCH.fullmatch(branch) or ".." in branch or branch.endswith(("/", ".")):
        raise ValueError(f"BRANCH={branch!r} is no name of a branch: write it like BRANCH=main.")
    if site and not _SITE.fullmatch(site):
        raise ValueError(
            f"SITE={site!r} is no address of a site: write it like SITE=https://book.example.org/."
        )
    owner, name = match["owner"], match["name"]
    return Stamp(f"{owner}/{name}", branch, site.rstrip("/") + "/" if site else pages(owner, name))


def pages(owner: str, name: str) -> str:
    """Return the address that GitHub Pages gives a repository."""
    host = f"{owner.lower()}.github.io"
    return f"https://{host}/" if name.lower() == host else f"https://{host}/{name}/"


def read(root: Path = ROOT) -> Stamp:
    """Return the stamp that ``_config.yml`` holds."""
    config = yaml.safe_load((root / CONFIG).read_text(encoding="utf-8"))
    repository = config["repository"]
    return Stamp(
        repository["url"].removeprefix(GITHUB), repository["branch"], config["html"]["baseurl"]
    )


# ---------------------------------------------------------------------------------------
# The stamped files, as texts


def _with_value(text: str, key: str, value: str) -> str:
    """Replace the value of a key that stands once in a YAML text."""
    line = re.compile(rf'^(  {key}: )"[^"\n]*"', re.MULTILINE)
    if len(line.findall(text)) != 1:
        raise ValueError(f'{CONFIG} must have one line "  {key}: …" with its value in quotes.')
    return line.sub(lambda match: match[1] + json.dumps(value), text)


def stamped_config(text: str, stamp: Stamp) -> str:
    """Return ``_config.yml`` with a stamp."""
    text = _with_value(text, "baseurl", stamp.site)
    text = _with_value(text, "url", stamp.url)
    return _with_value(text, "branch", stamp.branch)


def stamped_citation(text: str, stamp: Stamp) -> str:
    """Return ``CITATION.cff`` with a stamp: two lines behind the licence, or none."""
    text = re.sub(r"^(?:repository-code|url): .*\n", "", text, flags=re.MULTILINE)
    if not stamp.repository:
        return text
    lines = f'repository-code: "{stamp.url}"\nurl: "{stamp.site}"\n'
    return re.sub(r"^license: .*\n", lambda match: match[0] + lines, text, flags=re.MULTILINE)


def write(stamp: Stamp, root: Path = ROOT) -> list[Path]:
    """Stamp the repository in the folder ``root``; return the files that changed."""
    texts = {
        root / CONFIG: stamped_config,
        root / CITATION: stamped_citation,
        root / setup_cells.TEMPLATE: lambda text, stamp: setup_cells.for_site(text, stamp.site),
    }
    changed = []
    for path, stamped in texts.items():
        before = path.read_text(encoding="utf-8")
        after = stamped(before, stamp)
        if after != before:
            path.write_text(after, encoding="utf-8", newline="\n")
            changed.append(path)
    return changed + setup_cells.refresh(root)


def main() -> int:
    """Stamp the repository with what the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repo", required=True, help="owner/name on GitHub; empty for none")
    parser.add_argument("--branch", default="", help=f"default {DEFAULT_BRANCH}")
    parser.add_argument("--site", default="", help="default: the repository's GitHub Pages")
    arguments = parser.parse_args()
    try:
        stamp = parse(arguments.repo, arguments.branch, arguments.site)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    for path in write(stamp):
        print(f"stamped {path.relative_to(ROOT)}")
    if stamp.repository:
        print(f"The book is that of {stamp.url}, branch {stamp.branch}, published at {stamp.site}")
    else:
        print("The book names no repository: no page offers Colab.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
