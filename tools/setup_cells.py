"""Put the setup cell of ``tools/setup_cell.txt`` into notebooks: ``python -m tools.setup_cells``.

Only the source of that one cell changes; outputs stay as they are. A notebook that has no setup
cell yet gets one behind its title.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = Path("tools") / "setup_cell.txt"
NOTEBOOKS = Path("notebooks")
FIRST_LINE = "# Setup · 准备"
_SITE = re.compile(r'^SITE = "[^"\n]*"', re.MULTILINE)


def text(root: Path = ROOT) -> str:
    """Return the setup cell's text."""
    return (root / TEMPLATE).read_text(encoding="utf-8").rstrip("\n")


def for_site(setup: str, site: str) -> str:
    """Return a setup cell's text with the address of the published book, or with none."""
    if len(_SITE.findall(setup)) != 1:
        raise ValueError(f'{TEMPLATE} must have one line that begins with SITE = "…".')
    return _SITE.sub(lambda _: f"SITE = {json.dumps(site)}", setup)


def setup_cell(notebook: dict[str, Any]) -> dict[str, Any] | None:
    """Return the notebook's setup cell, which is its first code cell, or None without one."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            return cell if "".join(cell["source"]).startswith(FIRST_LINE) else None
    return None


def with_setup_cell(notebook: str, setup: str) -> str:
    """Return a notebook's file text with the setup cell's source replaced, or added."""
    content = json.loads(notebook)
    cell = setup_cell(content)
    if cell is None:
        cell = {
            "cell_type": "code",
            "execution_count": None,
            "id": "setup",
            "metadata": {"tags": ["hide-input"]},
            "outputs": [],
            "source": [],
        }
        content["cells"].insert(1, cell)
    cell["source"] = setup.splitlines(keepends=True)
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def refresh(root: Path = ROOT) -> list[Path]:
    """Put the setup cell into all notebooks; return those that changed."""
    setup = text(root)
    changed = []
    for path in sorted((root / NOTEBOOKS).glob("*.ipynb")):
        before = path.read_text(encoding="utf-8")
        after = with_setup_cell(before, setup)
        if after != before:
            path.write_text(after, encoding="utf-8", newline="\n")
            changed.append(path)
    return changed


def main() -> None:
    """Refresh the setup cells and say which notebooks changed."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    for path in refresh():
        print(f"{path.relative_to(ROOT)}: setup cell replaced")


if __name__ == "__main__":
    main()
