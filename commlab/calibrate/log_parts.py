"""What a log is cut into before its numbers are read: blocks, and the text of rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from commlab.calibrate.log_header import Header
from commlab.calibrate.log_lines import Device
from commlab.calibrate.records import SkippedLine


@dataclass
class Fragment:
    """The text of a row, or of the part of it that has been seen."""

    number: int
    text: str
    tokens: list[str]
    kinds: str
    gap: bool
    joined: list[int] = field(default_factory=list)
    recovered: bool = False


@dataclass
class Block:
    """One run as it stands in the log."""

    started: int
    header: Header = field(default_factory=Header)
    device_lists: list[list[Device]] = field(default_factory=list)
    rank_counts: Counter[int] = field(default_factory=Counter)
    elided_devices: list[int] = field(default_factory=list)
    elided_rows: list[int] = field(default_factory=list)
    n_headers: int = 0
    titles: tuple[str, ...] | None = None
    cpu_time: bool = False
    microseconds: float = 1.0
    rows: list[Fragment] = field(default_factory=list)
    skipped: list[SkippedLine] = field(default_factory=list)
    errors: list[tuple[int, str]] = field(default_factory=list)
    lost_hash: int | None = None
    n_trailers: int = 0
    average_busbw: float | None = None
    out_of_bounds: int = 0
    tags: set[int] = field(default_factory=set)
    inherits: bool = False

    def has_begun_to_measure(self) -> bool:
        """Tell whether a header that comes now belongs to the next run."""
        return bool(self.rows or self.n_trailers)
