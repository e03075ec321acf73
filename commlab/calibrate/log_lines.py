"""What kind of line a line of a log is, apart from rows and titles."""

from __future__ import annotations

import re
from typing import NamedTuple


class Device(NamedTuple):
    """One line of "Using devices": a rank, where it runs and on what."""

    rank: int
    group: int
    host: str | None
    pid: int | None
    name: str
    gpu: int | None = None


_DEVICE = re.compile(
    r"\bRank\s{0,9}(\d{1,9})\s{1,40}(?:Group\s{0,9}(-?\d{1,9})\s{1,40})?"
    r"(?:Pid\s{0,9}(\d{1,12})\s{1,40})?(?:on\s{1,60}|uses\s{1,9})"
    r"(?:(?!device\s)(\S{1,255})\s{1,60})?device\s{0,9}(\d{1,9})\s{0,40}"
    r"(?:\[[^\]\n]{0,99}\])?([^#\n]*)",
    re.A,
)
_TIMES = (
    r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?:?"
    r"|\[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?:?"
    r"|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s{1,3}\d{1,2} \d\d:\d\d:\d\d"
)
# What comes before a line: a quote, a time, the number of a task, a host, a pod.
PREFIX = re.compile(
    rf"\s{{0,200}}(?:{_TIMES}|\d{{1,6}}:(?=[\s#.…]|$)|\[?\d{{9,10}}\.\d{{1,9}}\]?:?(?=\s|$)"
    r"|[A-Za-z][\w.\-]{0,99}(?:\[\d{1,9}\])?(?::(?=[\s#.…]|$)|\s{0,20}\|)"
    r"|\[[A-Za-z][\w.\-/]{0,199}\]:?|(?:DEBUG|INFO|WARNING|ERROR)\b:?|-(?=\s)|>(?=\s|$)|&gt;(?=\s|$)"
    r"|(?:stdout|stderr)\s[FP](?=\s|$)|(?:out|err|stdout|stderr)[:>])",
    re.A,
)
# mpirun's --tag-output, or its short form, anywhere in a line.
TAG = re.compile(
    r"\[(?:[\w.\-]{1,99}@)?(?:\d{1,9},)?(\d{1,9})\](?:<std(?:out|err|diag)>)?:?"
    r"|<std(?:out|err|diag)>:?",
    re.A,
)
_BEFORE_NCCL = re.compile(r"[A-Za-z][\w.\-]{0,200}:\d{1,9}:\d{1,9}\s?(?:\[\d{1,4}\])?\s?$", re.A)
_ELISION = re.compile(
    r"[#\s|]*(?:(?:\.\s?){2,40}|(?:(?:\.{2,40}|…{1,9}|⋮|:)[\s|]{1,99}){1,60}(?:\.{2,40}|…|⋮|:)?|…{1,9}"
    r"|⋮{1,9}|:|\[\.\.\.\]|\[…\]|<snip>|\(?snip\)?|-+ ?snip ?-+"
    r"|[\[(<]?(?:\.\.\.|…)?\s?\(?\d{0,9}\s?(?:more )?(?:lines?|rows?|ranks?|others?)\s?"
    r"(?:omitted|skipped|elided|more|cut|truncated|not shown)[^\n]{0,40})\s*",
    re.I | re.A,
)
_MARKUP = re.compile(
    r"(?:`{3,9}|~{3,9})[\w+-]{0,20}|(?:</?(?:pre|code|details|summary|div|p|br)\b[^>]{0,200}>\s?){1,9}"
    r"|\|?(?::?-{2,40}:?\|){1,40}:?(?:-{2,40}:?)?",
    re.A,
)
_RULE = re.compile(r"[-=*_~+#.\s]{3,400}")
_TRAILER = re.compile(
    r"Out of bounds values|Bitwise mismatches|Avg bus bandwidth|GPU memory usage"
    r"|Errors with asterisks|Collective test concluded"
)
_HEADER = re.compile(
    r"Using devices|nThread\s{1,9}\d|(?:nccl|rccl)-tests:?\s{1,9}[Vv]ersion"
    r"|Collective test starting|Reducing maxBytes|Blocking Enabled|Parallel Init Enabled"
    r"|Per-Iteration Report|Writing JSON output|skipping json output|Color: \d|group ranks"
    r"|\bcommlab bench, \d|\bnranks \d{1,7} on \d|\bcollective \w{1,40}, algorithm \w"
    r"|# left out:|\bgloo runs an all_reduce inside"
)
# Said by the test, the launcher or the shell when a run goes wrong.
_ERROR = re.compile(
    r"Test (?:NCCL |CUDA |HIP |RCCL )?[Ff]ailure|NCCL WARN|[Ee]rror[:\s]|ERROR|FAILED|CANCELLED"
    r"|Segmentation fault|core dumped|[Oo]ut of memory|\bKilled\b|\bAborted\b|DUE TO TIME LIMIT"
    r"|non-zero (?:status|exit)|[Ee]xit code|[Ee]xited with|Invalid number of GPUs|timed out"
    r"|Connection refused|invalid usage|causing\s{1,9}the job|Traceback"
)
_NOISE = re.compile(
    r"NCCL (?:INFO|TRACE|version)|RCCL version|(?:HIP|ROCm) version|Librccl path|Hostname\s{0,9}:"
    r"|NET/|\bUCX\b|\blibfabric\b|\bOFI\b|\bprterun\b|\bmpirun\b|\bmpiexec\b|\borterun\b|\bsrun\b"
    r"|\bsbatch\b|\bslurmstepd\b|Process name:|Permanently added|\bNCCL_[A-Z]|\bUCX_[A-Z]"
    r"|\bRCCL_[A-Z]|\bOMPI_|\bMPICH_[A-Z]|\bSLURM_|\w_perf\b"
)
_AT_THE_START = re.compile(
    r"\s{0,200}(?:\$\s|\+\s|%\s|(?:export|module|source|cd|echo|set|ulimit)\s"
    r"|[A-Za-z_]\w{0,99}=|\[[A-Za-z][\w.\-]{0,99}:\d{1,9}\]"
    r"|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\s{1,3}\w{3}\s{1,3}\d|\[?(?:WARN|WARNING|INFO|DEBUG|NOTICE)\b\]?|(?:real|user|sys)\s{1,9}\d)",
    re.A,
)
_LONGEST_PROSE = 4000


def devices_in(line: str) -> list[Device]:
    """Return the ranks that a line of "Using devices" names (two where lines were merged)."""
    if "device" not in line or "Rank" not in line:
        return []
    return [
        Device(
            int(found[1]),
            int(found[2] or 0),
            found[4],
            int(found[3]) if found[3] else None,
            " ".join(found[6].split()).rstrip("."),
            int(found[5]),
        )
        for found in _DEVICE.finditer(line)
    ]


def where_noise_begins(line: str) -> int:
    """Return where a message of NCCL begins in a line; its length if there is none."""
    at = line.find("NCCL ")
    if at < 0:
        return len(line)
    before = line[max(0, at - 300) : at]
    host = _BEFORE_NCCL.search(before)
    return at - len(before) + host.start() if host else at


def where_the_test_speaks(noise: str) -> int:
    """Return where a line of the test begins that is glued to noise; its length if none is."""
    at = noise.find("#")
    if at < 0:
        return len(noise)
    own = noise[at : at + _LONGEST_PROSE]
    known = devices_in(own) or "busbw" in own or _HEADER.search(own) or _TRAILER.search(own)
    return at if known else len(noise)


def without_prefix(line: str) -> str:
    """Return a line without times, task numbers, hosts or quotation marks before it."""
    start = 0
    for _ in range(5):
        found = PREFIX.match(line, start)
        if not found or found.end() == start:
            break
        start = found.end()
    return line[start:]


def kind_of_line(line: str, bare: str) -> str | None:
    """Return the kind of a line that is no row and no title; None if it is not understood.

    Parameters
    ----------
    line : str
        The line.
    bare : str
        The same without prefixes and tags.
    """
    stripped = bare.strip()
    if not stripped:
        return "blank"
    head = line[:_LONGEST_PROSE]
    if _TRAILER.search(head):
        return "trailer"
    if _HEADER.search(head):
        return "header"
    if len(stripped) <= _LONGEST_PROSE:
        if _MARKUP.fullmatch(stripped):
            return "markup"
        if _ELISION.fullmatch(stripped):
            return "elision"
        # An empty comment, also behind a prefix that nobody knows.
        if stripped.strip("#| \t") == "" or stripped.endswith((" #", "\t#")):
            return "comment"
        if _RULE.fullmatch(stripped):
            return "noise"
    if "NCCL INFO" in head:
        return "noise"
    if _ERROR.search(head):
        return "error"
    if _NOISE.search(head):
        return "noise"
    if stripped.startswith("#"):
        return "comment"
    if _AT_THE_START.match(head):
        return "noise"
    return None
