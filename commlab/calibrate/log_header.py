"""What the lines before the table say: version, test, threads, ranks."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, fields, replace

_NCCL = re.compile(r"nccl-tests:?\s{1,9}[Vv]ersion\s{1,9}(\S{1,60})")
_NCCL_LIBRARY = re.compile(r"nccl-library=(\d{1,9})", re.A)
_RCCL = re.compile(r"rccl-tests:?\s{1,9}[Vv]ersion\s{1,9}(\S{1,60})")
_LIBRARY = re.compile(r"\b([NR]CCL)\s{1,3}version\s{0,3}:?\s{0,3}(\d\S{0,60})", re.A)
_TEST = re.compile(r"Collective test starting:\s{0,9}([\w-]{1,60})", re.A)
_THREADS = re.compile(r"nThread\s{1,9}(\d{1,6})\s{1,9}nGpus\s{1,9}(\d{1,6})", re.A)
_BENCH = re.compile(r"\bcommlab bench, ([^,]{1,40}), (.{1,200})")
_BENCH_RANKS = re.compile(
    r"\bnranks (\d{1,7}) on (\d{1,7}) nodes?, backend (\w{1,30}), device (\S{1,60})", re.A
)
_SERIES = re.compile(r"\bcollective (\w{1,40}), algorithm (\w{1,60})", re.A)
_COMMAND = re.compile(r"(?:^|[\s/])([a-z_]{4,30})_perf\b", re.A)
_PROCESSES = re.compile(r"\s(?:-np|-n|--np|--ntasks)[\s=](\d{1,6})(?!\S)", re.A)
_THREADS_ASKED = re.compile(r"_perf\b.{0,300}?\s(?:-t|--nthreads)[\s=](\d{1,4})(?!\S)", re.A)
_GPUS_ASKED = re.compile(r"_perf\b.{0,300}?\s(?:-g|--ngpus)[\s=](\d{1,4})(?!\S)", re.A)


@dataclass
class Header:
    """What a log states about a run; None for what it does not state."""

    op: str | None = None
    algorithm: str | None = None
    n_ranks: int | None = None
    n_nodes: int | None = None
    hardware: str | None = None
    version: str | None = None
    library: str | None = None
    n_threads: int | None = None
    n_gpus: int | None = None
    command_op: str | None = None
    command_ranks: int | None = None
    command: Header | None = None
    seen: Counter[str] = field(default_factory=Counter)

    def copy(self) -> Header:
        """Return the same facts for another run of the same file."""
        return replace(self, seen=Counter())

    def update(self, other: Header) -> None:
        """Take over what another header states."""
        for one in fields(self):
            value = getattr(other, one.name)
            if value is not None and one.name != "seen":
                setattr(self, one.name, value)


def read_header(header: Header, line: str) -> str | None:
    """Put what a line states into ``header``.

    Returns
    -------
    str or None
        Which line it is, where it stands once in the header of a run ("version", "test",
        "threads", "devices", "bench", "ranks", "series", "rccl"); None for other lines.
    """
    for pattern, reader in _READERS:
        found = pattern.search(line)
        if found:
            return reader(header, found, line)
    return "devices" if "Using devices" in line else None


def _read_nccl(header: Header, found: re.Match[str], line: str) -> str:
    header.version = f"nccl-tests {found[1]}"
    library = _NCCL_LIBRARY.search(line)
    if library:
        header.library = f"NCCL {dotted_version(int(library[1]))}"
    return "version"


def dotted_version(code: int) -> str:
    """Return 2.29.2 for 22902, as nccl.h codes it (until 2.8 with three digits: 2708)."""
    if code < 10000:
        return f"{code // 1000}.{code // 100 % 10}.{code % 100}"
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"


def _read_rccl(header: Header, found: re.Match[str], line: str) -> str:
    header.version = f"rccl-tests {found[1]}"
    return "rccl"


def _read_test(header: Header, found: re.Match[str], line: str) -> str:
    header.op = found[1].removesuffix("_perf")
    return "test"


def _read_threads(header: Header, found: re.Match[str], line: str) -> str:
    header.n_threads, header.n_gpus = int(found[1]), int(found[2])
    return "threads"


def _read_bench(header: Header, found: re.Match[str], line: str) -> str:
    header.version = "commlab bench"
    header.hardware = found[2].strip()
    return "bench"


def _read_bench_ranks(header: Header, found: re.Match[str], line: str) -> str:
    header.n_ranks, header.n_nodes = int(found[1]), int(found[2])
    header.library = found[3]
    return "ranks"


def _read_series(header: Header, found: re.Match[str], line: str) -> str:
    header.op, header.algorithm = found[1], found[2]
    return "series"


def _read_command(header: Header, found: re.Match[str], line: str) -> None:
    header.command_op = found[1]
    processes, gpus = _PROCESSES.search(line), _GPUS_ASKED.search(line)
    threads = _THREADS_ASKED.search(line)
    if processes or gpus:
        header.command_ranks = (
            int(processes[1] if processes else 1)
            * int(gpus[1] if gpus else 1)
            * int(threads[1] if threads else 1)
        )


def _read_library(header: Header, found: re.Match[str], line: str) -> None:
    header.library = f"{found[1]} {found[2]}"


_READERS = (
    (_NCCL, _read_nccl),
    (_RCCL, _read_rccl),
    (_TEST, _read_test),
    (_THREADS, _read_threads),
    (_BENCH, _read_bench),
    (_BENCH_RANKS, _read_bench_ranks),
    (_SERIES, _read_series),
    (_COMMAND, _read_command),
    (_LIBRARY, _read_library),
)
