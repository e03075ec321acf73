"""Read a log of nccl-tests, rccl-tests or `commlab bench`, in whatever state it is."""

from __future__ import annotations

import numbers
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from commlab.calibrate.bus import OPS, op_named
from commlab.calibrate.log_apart import apart
from commlab.calibrate.log_blocks import Scanner
from commlab.calibrate.log_copies import refuse_mixed_headers
from commlab.calibrate.log_decide import Asked
from commlab.calibrate.log_json import blocks_of_json, json_in
from commlab.calibrate.log_remarks import BlockRows
from commlab.calibrate.log_rows import read_rows
from commlab.calibrate.log_runs import runs_of
from commlab.calibrate.log_text import lines_of, refuse_if_too_large
from commlab.calibrate.records import Log, LogError, Remark, Run, SkippedLine

# With other runs in the file, these cost the run and not the file.
_COST_ONE_RUN = ("one_rank", "needs_op", "needs_n_ranks", "no_rows")


def read_log(
    data: bytes | str,
    *,
    op: str | None = None,
    n_ranks: int | None = None,
    n_nodes: int | None = None,
) -> Log:
    """Read the runs of a log: text of nccl-tests or rccl-tests, their JSON, `commlab bench`.

    Parameters
    ----------
    data : bytes or str
        The whole file, in any encoding that `log_text.lines_of` knows.
    op : str, optional
        The test (``all_reduce``, ``alltoall`` …), where the log does not name it. It counts more
        than what the log says.
    n_ranks, n_nodes : int, optional
        The same for the number of ranks and of nodes.

    Returns
    -------
    Log
        Its runs with their rows, what is odd about them, and every line that was not understood.

    Raises
    ------
    LogError
        With one sentence of reason and cure. Codes: ``no_rows``, ``one_rank``, ``interleaved``,
        ``impossible_rates``, ``needs_op``, ``needs_n_ranks``, ``not_text``, ``too_large``,
        ``bad_json``, ``unknown_json``, ``bad_argument``.
    """
    asked = _asked(op, n_ranks, n_nodes)
    lines = lines_of(data)
    text = "\n".join(lines)
    remarks: list[Remark] = []
    blocks: list[BlockRows] = []
    as_json = json_in(text)
    if as_json:
        blocks, remarks = blocks_of_json(as_json)
        runs, skipped = _runs(blocks, asked, remarks, "")
        return Log(tuple(runs), tuple(skipped), tuple(remarks), len(lines), {"json": len(lines)})
    scanner = Scanner()
    scanner.scan(lines)
    skipped = scanner.skipped
    for block in scanner.blocks:
        read = read_rows(block)
        for fragment in read.zero_size:
            scanner.marks[fragment.number - 1] = "zero_size"
        for fragment in read.misfits:
            reason = "numbers that fit no column"
            block.skipped += [
                SkippedLine(number, fragment.text.strip(), reason)
                for number in (fragment.number, *fragment.joined)
            ]
        blocks += apart(BlockRows(block, read), asked)
    refuse_mixed_headers(scanner.blocks)
    runs, more = _runs(blocks, asked, remarks, scanner.errors[0][1] if scanner.errors else "")
    log = Log(tuple(runs), tuple(sorted(skipped + more, key=_line)), tuple(remarks), len(lines))
    for skipped_line in log.all_skipped():
        scanner.marks[skipped_line.line - 1] = "skipped"
    log.lines.update(Counter(scanner.marks))
    return log


def read_log_file(
    path: str | Path,
    *,
    op: str | None = None,
    n_ranks: int | None = None,
    n_nodes: int | None = None,
) -> Log:
    """Read the runs of a log file; parameters and errors as in `read_log`.

    Raises
    ------
    LogError
        Also ``no_file``.
    """
    try:
        refuse_if_too_large(Path(path).stat().st_size)
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        if isinstance(error, LogError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise LogError("no_file", f"Cannot read {path}: {reason}. Name a log file.") from None
    return read_log(data, op=op, n_ranks=n_ranks, n_nodes=n_nodes)


def _line(skipped: SkippedLine) -> int:
    return skipped.line


def _asked(op: str | None, n_ranks: int | None, n_nodes: int | None) -> Asked:
    test = None
    if op is not None:
        test = op_named(op)
        if test is None:
            raise LogError("bad_argument", f"There is no test {op!r}: one of {', '.join(OPS)}.")
    for what, value, least in (("n_ranks", n_ranks, 2), ("n_nodes", n_nodes, 1)):
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if value is not None and (not whole or not least <= value <= 10_000_000):
            raise LogError(
                "one_rank" if value == 1 and whole else "bad_argument",
                f"{what} must be a whole number, {least} or more; got {value!r}.",
            )
    if n_ranks and n_nodes and n_nodes > n_ranks:
        raise LogError(
            "bad_argument", f"{n_nodes} nodes cannot hold {n_ranks} ranks: each has at least one."
        )
    return Asked(test, n_ranks, n_nodes)


def _runs(
    blocks: Sequence[BlockRows], asked: Asked, remarks: list[Remark], error: str
) -> tuple[list[Run], list[SkippedLine]]:
    """Return the runs of all blocks, and the lines of those that give none."""
    runs: list[Run] = []
    skipped: list[SkippedLine] = []
    refused: list[LogError] = []
    for found in blocks:
        block = found.block
        if not found.read.rows:
            skipped += block.skipped
            error = error or (block.errors[0][1] if block.errors else "")
            if block.n_headers:
                why = f": {block.errors[0][1]}" if block.errors else "."
                remarks.append(Remark("run_without_rows", f"A run has no rows{why}", block.started))
            continue
        try:
            runs += runs_of(found, asked)
        except LogError as refusal:
            if refusal.code not in _COST_ONE_RUN:
                raise
            refused.append(refusal)
            remarks.append(Remark(refusal.code, refusal.message, block.started))
            skipped += block.skipped
            skipped += [
                SkippedLine(number, fragment.text.strip(), "its run is refused")
                for fragment in [*block.rows, *found.read.zero_size]
                for number in (fragment.number, *fragment.joined)
            ]
    if runs:
        if len(runs) > 1:
            remarks.append(Remark("several_runs", f"The file holds {len(runs)} runs."))
        return runs, skipped
    if refused:
        raise refused[0]
    if any(found.read.zero_size for found in blocks):
        raise LogError("no_rows", "All rows have size 0: measure larger sizes (-b 1K).")
    raise LogError(
        "no_rows",
        "There is no row of a table in it"
        + (f", and the run failed ({error[:120]})" if error else "")
        + ": pass what the test printed, from its header to its last line.",
    )
