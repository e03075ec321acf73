"""Execute notebooks and store them in one normal form: called by ``make notebooks``.

    python -m tools.notebooks notebooks            execute all, store outputs in place
    python -m tools.notebooks --check notebooks    execute nothing, say what is not normal
    python -m tools.notebooks --live notebooks     execute all as a reader does, store nothing

The normal form has nothing that changes from run to run or from machine to machine, so that
executing twice gives the same bytes. Outputs of cells tagged ``nbval-ignore-output`` (measured
times) are kept as stored while a new run differs from them in numbers only.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
NOTEBOOK_METADATA = {"kernelspec": KERNELSPEC, "language_info": {"name": "python"}}
CELL_METADATA = ("jupyter", "tags")
# Seconds for one cell, as in the book's build and nbval: four processes importing torch on a
# slow machine need more than the default of 30.
CELL_TIMEOUT = 180
VOLATILE_TAG = "nbval-ignore-output"

# A number with its unit: a measurement that passes 1000 µs comes back as 1 ms.
_NUMBER = re.compile(
    r"[-+]?\d[\d.,]*(?:e[-+]?\d+)?(?:\s?(?:ns|µs|ms|s|B/s|kB/s|MB/s|GB/s)\b)?", re.IGNORECASE
)


def is_volatile(cell: NotebookNode) -> bool:
    """Say whether a cell's outputs are measurements, which differ from run to run."""
    return VOLATILE_TAG in cell.metadata.get("tags", [])


def shape_of(outputs: Iterable[NotebookNode]) -> list[Any]:
    """Return outputs with each number, its unit and each picture masked."""
    shape: list[Any] = []
    for output in outputs:
        data = output.get("data", {})
        texts = {"stream": output.get("text", ""), "text/plain": data.get("text/plain", "")}
        masked = {key: " ".join(_NUMBER.sub("#", text).split()) for key, text in texts.items()}
        shape.append((output.output_type, output.get("name"), sorted(data), masked))
    return shape


def keep_measurements(executed: NotebookNode, stored: NotebookNode) -> None:
    """Put the stored outputs of measuring cells back where only numbers differ."""
    before = {cell.id: cell for cell in stored.cells if cell.cell_type == "code"}
    for cell in executed.cells:
        old = before.get(cell.id)
        if cell.cell_type != "code" or old is None or not is_volatile(cell):
            continue
        if shape_of(cell.outputs) == shape_of(old.outputs):
            cell.outputs = old.outputs


def normal_output(output: NotebookNode, count: int) -> NotebookNode:
    """Return an output without what the front end or the run adds."""
    output = nbformat.from_dict(output)
    if "metadata" in output:
        # What describes one form of the output (an alt text) stays.
        kept = {key: value for key, value in output.metadata.items() if key in output.data}
        output.metadata = NotebookNode(kept)
    if output.output_type == "execute_result":
        output.execution_count = count
    if "data" in output:
        # A model id is random and means nothing without the state of the kernel.
        output.data.pop("application/vnd.jupyter.widget-view+json", None)
    return output


def normal(notebook: NotebookNode) -> NotebookNode:
    """Return a notebook in normal form: minimal metadata, cells counted from 1."""
    result = nbformat.v4.new_notebook(metadata=NOTEBOOK_METADATA)
    result.nbformat_minor = 5
    count = 0
    for cell in notebook.cells:
        metadata = {key: cell.metadata[key] for key in CELL_METADATA if cell.metadata.get(key)}
        new = NotebookNode(id=cell.id, cell_type=cell.cell_type, metadata=metadata)
        new.source = cell.source.strip("\n")
        if cell.cell_type == "code":
            count += 1
            new.execution_count = count
            new.outputs = [normal_output(output, count) for output in cell.outputs]
        elif cell.get("attachments"):
            new.attachments = cell.attachments
        result.cells.append(new)
    return result


def canonical_text(notebook: NotebookNode) -> str:
    """Return the text of a notebook's file in normal form."""
    result = normal(notebook)
    nbformat.validate(result)
    return nbformat.writes(result, version=nbformat.NO_CONVERT).rstrip("\n") + "\n"


def read_text(path: Path) -> str:
    """Return a file's text with its line ends as they are."""
    return path.read_bytes().decode("utf-8")


def read(path: Path) -> NotebookNode:
    """Read a notebook; cells of the format before 4.5 (what Colab saves) are given ids.

    Raises
    ------
    ValueError
        If the file is no notebook; the message says where it is damaged.
    """
    try:
        notebook = nbformat.reads(read_text(path), as_version=4)
        notebook = nbformat.v4.upgrade(notebook)
        nbformat.validate(notebook)
    # What nbformat raises depends on the damage: KeyError, AttributeError, its own.
    except Exception as error:
        reason = str(error).partition("\n")[0][:200]
        raise ValueError(f"is not a readable notebook: {type(error).__name__}: {reason}") from error
    return notebook


def execute(path: Path) -> NotebookNode:
    """Run a notebook from scratch in a fresh kernel and return it with its outputs."""
    notebook = read(path)
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT,
        kernel_name=KERNELSPEC["name"],
        resources={"metadata": {"path": str(path.parent)}},
        coalesce_streams=True,
        record_timing=False,
        store_widget_state=False,
    )
    return client.execute()


def try_live(path: Path) -> str:
    """Execute a notebook with live widgets; raise if a cell does, store nothing."""
    execute(path)
    return "ran"


def refresh(path: Path) -> str:
    """Execute a notebook, store its normal form and say whether the file changed."""
    stored = read(path)
    executed = execute(path)
    keep_measurements(executed, stored)
    text = canonical_text(executed)
    changed = read_text(path) != text
    if changed:
        path.write_text(text, encoding="utf-8", newline="\n")
    return "stored" if changed else "unchanged"


def complaints(path: Path) -> list[str]:
    """Say what keeps a stored notebook from being in normal form, without executing it."""
    try:
        notebook = read(path)
    except ValueError as error:
        return [f"{path}: {error}"]
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                found.append(f"{path}: cell {cell.id} stores the error {output.ename}")
            elif output.get("name") == "stderr":
                found.append(f"{path}: cell {cell.id} stores something written to stderr")
    if not found and read_text(path) != canonical_text(notebook):
        found.append(f"{path}: not in the normal form; run `make notebooks` and commit the result")
    return found


def find_notebooks(paths: Iterable[Path]) -> list[Path]:
    """Return the notebooks among and directly in the given paths."""
    return [
        notebook
        for path in paths
        for notebook in (sorted(path.glob("*.ipynb")) if path.is_dir() else [path])
    ]


def main() -> int:
    """Execute or check the notebooks named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, help="notebooks, or folders of them")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--check", action="store_true", help="execute nothing, check the form")
    only.add_argument("--live", action="store_true", help="execute with widgets, store nothing")
    parser.add_argument("--jobs", type=int, default=2, help="notebooks executed at a time")
    arguments = parser.parse_args()
    paths = find_notebooks(arguments.paths)
    if not paths:
        parser.error("there is no notebook in the given paths")
    if arguments.check:
        found = [line for path in paths for line in complaints(path)]
        print("\n".join(found) or f"{len(paths)} notebooks are in the normal form")
        return 1 if found else 0
    # Stored are pictures and summaries instead of widgets, whose state cannot be compared.
    os.environ["COMMLAB_EXPLORE"] = "live" if arguments.live else "check"
    work = try_live if arguments.live else refresh
    failed = 0
    with ProcessPoolExecutor(max_workers=arguments.jobs) as pool:
        for path, job in [(path, pool.submit(work, path)) for path in paths]:
            error = job.exception()
            if error is not None:
                failed += 1
                print(f"{path}: FAILED\n{error}", file=sys.stderr)
            else:
                print(f"{path}: {job.result()}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
