"""What a log of measurements holds: rows, grouped into runs, and what was not understood."""

from __future__ import annotations

from dataclasses import dataclass, field


class LogError(ValueError):
    """A log that is refused: ``code`` for programs, the message for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True)
class Remark:
    """Something a reader of the result should know: ``code`` for programs, text for people."""

    code: str
    message: str
    line: int | None = None


@dataclass(frozen=True)
class SkippedLine:
    """A line that looked like data and was not understood, and why."""

    line: int
    text: str
    reason: str


@dataclass(frozen=True)
class Row:
    """One size of a run.

    ``nbytes`` is the ``size`` column: for all_gather and reduce_scatter the full array.
    Rates are in bytes per second, recomputed from size and time; ``in_place_seconds`` is None
    where the log has none, or none that means anything (sendrecv, alltoall). ``line`` is the
    line in the file, from 1; in JSON, which row of the file it is, from 1. ``suspect`` names the
    column (``time``, ``size``, ``count``, ``algbw``, ``busbw`` or ``unclear``) that contradicts
    the others of its line; the row is kept as it is printed.
    """

    nbytes: int
    seconds: float
    line: int
    in_place_seconds: float | None = None
    dtype: str | None = None
    n_wrong: int | None = None
    suspect: str | None = None


@dataclass(frozen=True)
class Run:
    """One run of one collective over several sizes.

    ``op`` is nccl-tests' name of the test (``all_reduce``, ``alltoall``, ``sendrecv``),
    ``collective`` the name that this book uses (``all_to_all``), None for what the book has not.
    ``inferred`` names the fields that the log did not state: they were worked out, or given by
    the caller. ``average_busbw`` is the log's own mean over all sizes, in bytes per second.
    ``version`` is that of the test, ``library`` that of NCCL or RCCL; ``algorithm`` is stated by
    `commlab bench` only. ``started`` is the line on which the run begins.
    """

    op: str
    n_ranks: int
    rows: tuple[Row, ...]
    n_nodes: int | None = None
    collective: str | None = None
    hardware: str | None = None
    version: str | None = None
    average_busbw: float | None = None
    inferred: tuple[str, ...] = ()
    skipped: tuple[SkippedLine, ...] = ()
    remarks: tuple[Remark, ...] = ()
    library: str | None = None
    algorithm: str | None = None
    started: int = 1


@dataclass(frozen=True)
class Log:
    """All runs of one file, in its order, and the lines that belong to none of them.

    ``lines`` counts every line of the file by what it was taken for: ``row``, ``zero_size``,
    ``continuation`` (of a row that noise broke), ``title``, ``header``, ``device``, ``trailer``,
    ``comment``, ``noise``, ``error``, ``elision``, ``markup``, ``blank``, ``json`` and
    ``skipped``. They add up to ``n_lines``.
    """

    runs: tuple[Run, ...]
    skipped: tuple[SkippedLine, ...] = ()
    remarks: tuple[Remark, ...] = ()
    n_lines: int = 0
    lines: dict[str, int] = field(default_factory=dict)

    def all_skipped(self) -> tuple[SkippedLine, ...]:
        """Every line of the file that was not understood, in its order."""
        of_runs = [skipped for run in self.runs for skipped in run.skipped]
        return tuple(sorted([*self.skipped, *of_runs], key=lambda skipped: skipped.line))
