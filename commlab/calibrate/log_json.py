"""JSON of nccl-tests (-J) and of `commlab bench`, as the blocks that a text log would give."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from commlab.calibrate.log_header import Header, dotted_version
from commlab.calibrate.log_lines import Device
from commlab.calibrate.log_parts import Block, Fragment
from commlab.calibrate.log_remarks import BlockRows
from commlab.calibrate.log_rows import Half, RawRow, ReadRows, refuse_impossible
from commlab.calibrate.records import LogError, Remark, SkippedLine

BENCH_FORMAT = "commlab bench"
_RESULTS = re.compile(r'"results"\s{0,9}:\s{0,9}\[')
_BETWEEN = re.compile(r"[\s,]*")
# -J prints doubles with six decimals.
_HALF_DIGIT = 5e-7
_COMMENTS = re.compile(r"(?:#[^\n]{0,999}\n|\s){0,999}")
# A text log may begin with a bracket, too.
_JSON = re.compile(r"\{|\[\s{0,99}[{\]]")
_MOST_DEVICES = 1_000_000
# C prints an infinite rate as inf, which JSON calls Infinity.
_INFINITE = re.compile(r"(:\s{0,9}-?)inf(?=\s{0,9}[,}])")


def json_in(text: str) -> str | None:
    """Return the JSON of a file, which may stand behind comments; None for a text log."""
    comments = _COMMENTS.match(text)
    start = comments.end() if comments else 0
    return text[start:] if _JSON.match(text, start) else None


def blocks_of_json(text: str) -> tuple[list[BlockRows], list[Remark]]:
    """Return the runs in one or several JSON documents; the last one may be cut off.

    Raises
    ------
    LogError
        ``bad_json`` or ``unknown_json``.
    """
    remarks: list[Remark] = []
    found: list[BlockRows] = []
    n_rows = 0
    for document in _documents(_INFINITE.sub(r"\1Infinity", text), remarks):
        reader = _reader_of(document)
        if reader is None:
            raise LogError(
                "unknown_json",
                "This JSON is neither that of nccl-tests (-J) nor that of commlab bench: pass the "
                "text that the test printed.",
            )
        for block in reader(document, n_rows):
            n_rows += len(block.read.rows) + len(block.read.zero_size) + len(block.block.skipped)
            found.append(block)
    return found, remarks


def _reader_of(document: Any) -> Any:
    if isinstance(document, dict):
        if str(document.get("format", "")).startswith(BENCH_FORMAT):
            return _bench
        if isinstance(document.get("results"), list):
            return _nccl_tests
    return None


def _documents(text: str, remarks: list[Remark]) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    at = 0
    found_any = False
    while True:
        between = _BETWEEN.match(text, at)
        at = between.end() if between else at
        if at >= len(text):
            return
        try:
            document, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            document = _what_is_left(text[at:], decoder)
            if document is None and not found_any:
                raise LogError(
                    "bad_json",
                    "The file begins like JSON and is none that can be read "
                    f"({_short(error)}): write it again, or pass the text that the test printed.",
                ) from None
            remarks.append(
                Remark("truncated_json", "The JSON is cut off: its complete rows are read.")
            )
            if document is not None:
                yield document
            return
        found_any = True
        yield from document if isinstance(document, list) else [document]


def _short(error: Exception) -> str:
    return "nested too deep" if isinstance(error, RecursionError) else str(error)[:99]


def _what_is_left(text: str, decoder: json.JSONDecoder) -> dict[str, Any] | None:
    """Save the rows of a document of nccl-tests that a killed run did not finish."""
    begin = _RESULTS.search(text)
    if begin is None:
        return None
    try:
        document = json.loads(text[: begin.start()].rstrip().rstrip(",") + "}")
    except (ValueError, RecursionError):
        return None
    rows = []
    at = begin.end()
    while True:
        between = _BETWEEN.match(text, at)
        try:
            row, at = decoder.raw_decode(text, between.end() if between else at)
        except (ValueError, RecursionError):
            break
        rows.append(row)
    document["results"] = rows
    return document


def _bench(document: dict[str, Any], n_before: int) -> Iterator[BlockRows]:
    number = n_before
    for series in _list(document.get("series")):
        if not isinstance(series, dict):
            continue
        block = Block(number + 1)
        versions = _dict(document.get("versions"))
        block.header = Header(
            op=_text(series.get("collective")),
            algorithm=_text(series.get("algorithm")),
            n_ranks=_whole(series.get("n_ranks")),
            n_nodes=_whole(series.get("n_nodes")),
            hardware=_text(document.get("machine")),
            version=f"commlab bench {versions.get('commlab', '')}".strip(),
            library=_text(document.get("backend")),
        )
        read = ReadRows([], [], [])
        for row in _list(series.get("rows")):
            number += 1
            values = _dict(row)
            nbytes, seconds = _whole(values.get("nbytes")), _real(values.get("median_s"))
            algbw, busbw = _real(values.get("algbw_Bps")), _real(values.get("busbw_Bps"))
            if nbytes is None or seconds is None:
                block.skipped.append(_skipped(number, row))
                continue
            half = Half(
                seconds,
                1e-9 * abs(seconds),
                algbw,
                1e-9 * abs(algbw or 0),
                busbw,
                1e-9 * abs(busbw or 0),
                0,
                False,
            )
            count = _whole(values.get("n_elements"))
            dtype = _text(document.get("dtype"))
            _add(block, read, RawRow(number, nbytes, count, dtype, None, None, half, None, False))
        yield BlockRows(block, read)


def _nccl_tests(document: dict[str, Any], n_before: int) -> Iterator[BlockRows]:
    block = Block(n_before + 1)
    config = _dict(document.get("config"))
    arguments = _list(document.get("args"))
    program = str(arguments[0]).replace("\\", "/").rpartition("/")[2] if arguments else ""
    library = _whole(document.get("nccl_version"))
    block.header = Header(
        op=program.removesuffix("_perf") or None,
        version="nccl-tests",
        library=f"NCCL {dotted_version(library)}" if library else None,
        n_threads=_whole(config.get("nthreads")),
        n_gpus=_whole(config.get("ngpus")),
    )
    devices = [
        Device(
            rank,
            _whole(device.get("group")) or 0,
            _text(device.get("hostname")),
            _whole(device.get("pid")),
            _text(device.get("device_info")) or "",
            _whole(device.get("device")),
        )
        for device in map(_dict, _list(config.get("devices")))
        if (rank := _whole(device.get("rank"))) is not None and rank >= 0
    ]
    devices = _all_devices(devices, (block.header.n_threads or 1) * (block.header.n_gpus or 1))
    if devices:
        block.device_lists.append(devices)
    block.n_headers = block.n_trailers = 1
    average = _dict(document.get("average_bus_bandwidth"))
    block.average_busbw = _real(average.get("bandwidth"))
    block.out_of_bounds = _whole(_dict(document.get("out_of_bounds")).get("count")) or 0
    read = ReadRows([], [], [])
    for number, row in enumerate(_list(document["results"]), start=n_before + 1):
        values = _dict(row)
        nbytes = _whole(values.get("size"))
        out = _half(block, values.get("out_of_place"))
        again = _half(block, values.get("in_place"))
        if nbytes is None or nbytes < 0 or (out is None and again is None):
            block.skipped.append(_skipped(number, row))
            continue
        root = _text(values.get("root")) or ""
        whole = re.fullmatch(r"\s{0,20}(-?\d{1,9})\s{0,20}", root, re.A)
        _add(
            block,
            read,
            RawRow(
                line=number,
                nbytes=nbytes,
                n_elements=_whole(values.get("count")),
                dtype=_text(values.get("type")),
                redop=_text(values.get("redop")) or None,
                root=int(whole[1]) if whole else _whole(values.get("root")),
                out=out,
                again=again,
                recovered=False,
            ),
        )
    yield BlockRows(block, read)


def _all_devices(devices: list[Device], per_process: int) -> list[Device]:
    """List every device of a process with several: -J names the first one only."""
    one_each = all(device.rank % per_process == 0 for device in devices)
    too_many = len(devices) * per_process > _MOST_DEVICES
    if per_process <= 1 or too_many or not one_each:
        return devices
    return [
        device._replace(
            rank=device.rank + more,
            gpu=None if device.gpu is None else device.gpu + more,
        )
        for device in devices
        for more in range(per_process)
    ]


def _half(block: Block, value: Any) -> Half | None:
    values = _dict(value)
    if "cpu_time" in values:
        block.cpu_time = True
    time = _real(values.get("cpu_time", values.get("time")))
    if time is None:
        return None
    algbw, busbw = _real(values.get("alg_bw")), _real(values.get("bus_bw"))
    wrong = _real(values.get("nwrong"))
    return Half(
        time * 1e-6,
        _HALF_DIGIT * 1e-6,
        None if algbw is None else algbw * 1e9,
        _HALF_DIGIT * 1e9,
        None if busbw is None else busbw * 1e9,
        _HALF_DIGIT * 1e9,
        int(wrong) if wrong is not None and math.isfinite(wrong) else None,
        values.get("nwrong") is None,
    )


def _add(block: Block, read: ReadRows, row: RawRow) -> None:
    if row.nbytes == 0:
        read.zero_size.append(Fragment(row.line, "", [], "", False))
    else:
        refuse_impossible(row, block.cpu_time)
        read.rows.append(row)


def _skipped(number: int, row: Any) -> SkippedLine:
    return SkippedLine(number, str(row)[:200], "not a row of a result")


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if abs(value) <= 2**60 else None


def _real(value: Any) -> float | None:
    """Return a number as a float; nccl-tests writes "nan" as text."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return math.nan if value.strip().lower() in ("nan", "-nan") else None
    if isinstance(value, int):
        return float(value) if abs(value) <= 2**100 else math.inf
    return value if isinstance(value, float) else None
