"""Logs as nccl-tests prints them, with synthetic times, and what happens to logs on their way.

`sample` prints a log of any version; each function in `QUIRKS` makes one oddity of it. All
numbers are computed here; no log of a real machine is in it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from commlab.calibrate.bus import NO_IN_PLACE, SHARE_OF_OTHERS, bus_factor

ALPHA, BETA = 20e-6, 100e9
SIZES = tuple(2**k for k in range(10, 31, 2))
SUMS = ("all_reduce", "reduce_scatter", "reduce", "sendrecv")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
WIDTH = {"float": 4, "double": 8, "half": 2, "int8": 1}


@dataclass(frozen=True)
class Sample:
    """A log, and what a reader has to find in it; times in µs as printed."""

    data: str | bytes
    op: str
    n_ranks: int
    n_nodes: int | None
    rows: tuple[tuple[int, float, float | None], ...]
    codes: tuple[str, ...] = ()
    n_skipped: int = 0
    arguments: tuple[tuple[str, object], ...] = ()
    version: str | None = None
    hardware: str | None = "Synthetic GPU"
    tolerance: float = 1e-12

    @property
    def text(self) -> str:
        assert isinstance(self.data, str)
        return self.data

    def lines(self) -> list[str]:
        return self.text.split("\n")

    def with_lines(self, lines: Sequence[str], **changes: object) -> Sample:
        return replace(self, data="\n".join(lines), **changes)


def float_text(value: float, width: int) -> str:
    """Print as nccl-tests does: fewer decimals the larger, an exponent at the end."""
    digits = len(str(int(value))) if value >= 1 else 0
    if digits < width - 2:
        return f"{value:{width}.2f}"
    if digits < width - 1:
        return f"{value:{width}.1f}"
    if digits < width + 1:
        return f"{value:{width}.0f}"
    return f"{value:{width}.1e}"


def half_text(
    nbytes: int, micro: float, factor: float, check: str, share: float = 1.0, pre_2022: bool = False
) -> str:
    rate = share * nbytes / micro / 1e3 if micro else 0.0
    bus = factor * nbytes / micro / 1e3 if micro else 0.0
    if pre_2022:
        return f"  {micro:7.2f}  {rate:6.2f}  {bus:6.2f}  {check:>5}"
    texts = (float_text(micro, 7), float_text(rate, 6), float_text(bus, 6))
    return "  {:>7}  {:>6}  {:>6}  {:>6}".format(*texts, check)


def times(nbytes: int, n_ranks: int) -> tuple[float, float]:
    """Times of out-of-place and in-place in µs, with deterministic unevenness."""
    steps = max(1, n_ranks - 1)
    wobble = 1 + 0.01 * ((nbytes // 1024 * 2654435761) % 7 - 3) / 3
    seconds = (steps * ALPHA + nbytes / BETA) * wobble
    return round(seconds * 1e6, 2), round(seconds * 1.01e6, 2)


def sample(
    op: str = "all_reduce",
    n_ranks: int = 8,
    per_node: int = 8,
    sizes: Sequence[int] = SIZES,
    *,
    banner: str | None = "2.17.8",
    devices: bool = True,
    titles: bool = True,
    trailer: bool = True,
    dtype: str = "float",
    wrong_title: str = "#wrong",
    with_redop: bool = True,
    with_root: bool = True,
    check: bool = True,
    stamps: bool = False,
    per_iteration: bool = False,
    cpu_time: bool = False,
    halves: str = "both",
    share: float = 1.0,
    one_process: bool = False,
    host: str = "node{}",
    old_devices: bool = False,
) -> Sample:
    """Print the log of one run."""
    lines = []
    if banner:
        lines += [
            f"# nccl-tests version {banner} nccl-headers=22902 nccl-library=22902",
            f"# Collective test starting: {op}_perf",
        ]
    gpus = n_ranks if one_process else 1
    lines += [
        f"# nThread 1 nGpus {gpus} minBytes {sizes[0]} maxBytes {sizes[-1]} step: 4(factor) "
        f"warmup iters: 5 iters: 20 agg iters: 1 validation: {int(check)} graph: 0",
        "#",
    ]
    if devices:
        lines.append("# Using devices")
        for rank in range(n_ranks):
            where = f"on {host.format(rank // per_node):>10} device {rank % per_node:2d}"
            pid = 4000 if one_process else 4000 + rank
            if old_devices:
                lines.append(
                    f"#   Rank {rank:2d} Pid {pid:6d} {where} [0x0{rank % 8}] Synthetic GPU"
                )
            else:
                lines.append(
                    f"#  Rank {rank:2d} Group  0 Pid {pid:6d} {where} "
                    f"[0000:{rank % per_node:02x}:00] Synthetic GPU"
                )
        lines.append("#")
    if titles:
        lines += title_lines(wrong_title, with_redop, with_root, stamps, per_iteration, cpu_time)
    rows, printed = [], []
    for nbytes in sizes_as_run(op, n_ranks, sizes, WIDTH[dtype]):
        out, again = times(nbytes, n_ranks)
        text, shown = row_text(
            op, n_ranks, nbytes, out, again, dtype, with_redop, with_root, check, halves, share,
            pre_2022=wrong_title != "#wrong", per_iteration=per_iteration, cpu_time=cpu_time,
        )  # fmt: skip
        if stamps:
            text += f"{'2026-02-03 04:05:06':>21}"
        printed.append(text)
        rows.append(shown)
    lines += printed
    if trailer:
        lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 12.3456 ", "#", ""]
    return Sample(
        "\n".join(lines),
        op,
        n_ranks,
        -(-n_ranks // per_node) if devices else None,
        tuple(rows),
        version=f"nccl-tests {banner}" if banner else None,
        hardware="Synthetic GPU" if devices else None,
    )


def sizes_as_run(op: str, n_ranks: int, sizes: Sequence[int], width: int) -> list[int]:
    """Round to what N ranks can share; what is left at 0 is not measured here."""
    unit = width * (n_ranks if op in SHARE_OF_OTHERS else 1)
    return [nbytes // unit * unit for nbytes in sizes if nbytes >= unit]


def title_lines(
    wrong: str, redop: bool, root: bool, stamps: bool, per_iteration: bool, cpu_time: bool
) -> list[str]:
    half = [("cputime" if cpu_time else "time", 7), ("algbw", 6), ("busbw", 6), (wrong, 6)]
    if per_iteration:
        half += [("i_min", 7), ("i_max", 7), ("i_p99", 7), ("i_cv%", 7)]
    columns = [("size", 10), ("count", 12), ("type", 8)]
    columns += [("redop", 6)] * redop + [("root", 6)] * root + half + half
    if stamps:
        columns.append(("timestamp", 19))
    units = {"size": "(B)", "count": "(elements)", "algbw": "(GB/s)", "busbw": "(GB/s)"}
    units |= {"time": "(us)", "cputime": "(us)"}
    return [
        f"# {'':10}  {'':12}  {'':8}  {'':6}           out-of-place                       in-place",
        "# " + "  ".join(f"{name:>{width}}" for name, width in columns),
        "# " + "  ".join(f"{units.get(name, ''):>{width}}" for name, width in columns),
    ]


def row_text(
    op: str,
    n_ranks: int,
    nbytes: int,
    out: float,
    again: float,
    dtype: str = "float",
    with_redop: bool = True,
    with_root: bool = True,
    check: bool = True,
    halves: str = "both",
    share: float = 1.0,
    pre_2022: bool = False,
    per_iteration: bool = False,
    cpu_time: bool = False,
) -> tuple[str, tuple[int, float, float | None]]:
    """Print one row, and return what it says."""
    count = nbytes // WIDTH[dtype] // (n_ranks if op in SHARE_OF_OTHERS else 1)
    text = f"{nbytes:12d}  {count:12d}  {dtype:>8}"
    if with_redop:
        text += f"  {'sum' if op in SUMS else 'none':>6}"
    if with_root:
        text += f"  {0 if op in ROOTED else -1:6d}"
    factor = bus_factor(op, n_ranks)
    zero = "0e+00" if pre_2022 else "0"
    checks = [zero if check else "N/A", zero if check and op not in NO_IN_PLACE else "N/A"]
    shown = []
    for micro, verdict, here in zip(
        (out, again), checks, (halves != "in", halves != "out"), strict=True
    ):
        if not here:
            text += " " * 32 if halves == "in" else ""
            continue
        half = half_text(nbytes, micro, factor, verdict, share, pre_2022)
        shown.append(float(half.split()[0]))
        if cpu_time:
            half = f"  {3.21:7.2f}" + half[9:]
        text += half
        if per_iteration:
            text += f"  {micro * 0.9:7.1f}  {micro * 1.2:7.1f}  {micro * 1.1:7.1f}  {4.25:7.2f}"
    in_place = shown[-1] if len(shown) == 2 and op not in NO_IN_PLACE else None
    if halves == "in":
        in_place = shown[0]
    return text, (nbytes, shown[0], in_place)


def json_of(made: Sample, *, per_process: int = 1) -> str:
    """Write the log as -J does: one line, numbers with six decimals, a device per process."""
    factor = bus_factor(made.op, made.n_ranks)

    def half(nbytes: int, micro: float | None) -> dict[str, object] | None:
        if micro is None:
            return None
        rate = round(nbytes / micro / 1e3, 6)
        bus = round(factor * nbytes / micro / 1e3, 6)
        return {"time": micro, "alg_bw": rate, "bus_bw": bus, "nwrong": 0.0}

    devices = [
        {
            "rank": rank,
            "group": 0,
            "pid": 4000 + rank,
            "hostname": f"node{rank // 8}",
            "device": rank % 8,
            "device_hex": "0000:1b:00",
            "device_info": "Synthetic GPU",
        }
        for rank in range(0, made.n_ranks, per_process)
    ]
    document = {
        "version": 1,
        "start_time": "2026-02-03 04:05:06",
        "args": [f"./build/{made.op}_perf", "-b", "1K"],
        "env": ["HOME=\\/home"],
        "nccl_version": 22902,
        "config": {"nthreads": 1, "ngpus": per_process, "devices": devices},
        "results": [
            {
                "size": nbytes,
                "count": nbytes // 4,
                "type": "float",
                "redop": "sum",
                "root": "    -1",
                "out_of_place": half(nbytes, out),
                "in_place": half(nbytes, again),
                "actual_iterations": 20,
                "experiment_name": "",
            }
            for nbytes, out, again in made.rows
        ],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 12.345678, "okay": "unchecked"},
    }
    return json.dumps(document, separators=(",", ":"))


# ---------------------------------------------------------------------------------------
# Quirks: a log that must still be read, and what must be said of it


def is_row(line: str) -> bool:
    return line[:1] == " " and line.split()[:1] != [] and line.split()[0].isdigit()


def on_rows(made: Sample, change: Callable[[str], str], **changes: object) -> Sample:
    return made.with_lines([change(x) if is_row(x) else x for x in made.lines()], **changes)


def on_lines(made: Sample, change: Callable[[str], str], **changes: object) -> Sample:
    return made.with_lines([change(x) for x in made.lines()], **changes)


INFO = "node0:4000:4022 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] via P2P/CUMEM"


def noise_between(made: Sample) -> Sample:
    noise = [INFO, "srun: job 17 queued", "export NCCL_DEBUG=INFO", "", "+ date"]
    lines = []
    for number, line in enumerate(made.lines()):
        lines += [line, noise[number % len(noise)]]
    return made.with_lines(lines)


def noise_inside(made: Sample, at: int) -> Sample:
    """Break every row at a letter, with a message of NCCL glued to its first part."""
    lines = []
    for line in made.lines():
        lines += [line[:at] + INFO, INFO, line[at:]] if is_row(line) else [line]
    return made.with_lines(lines, codes=("recovered_row",))


def noise_before(made: Sample) -> Sample:
    """A message without its newline, before every line of the test."""
    return made.with_lines([f"{INFO} {x}" if x else x for x in made.lines()])


def noise_and_newline_inside(made: Sample) -> Sample:
    """mpirun ends the broken part with a newline and tags every piece."""
    lines = []
    for line in made.lines():
        if is_row(line):
            lines += [
                f"[1,0]<stdout>:{line[:48]}",
                f"[1,1]<stderr>:{INFO}",
                f"[1,0]<stdout>:{line[48:]}",
            ]
        else:
            lines.append(f"[1,0]<stdout>:{line}")
    return made.with_lines(lines, codes=("recovered_row",))


def zero_rows(made: Sample) -> Sample:
    lines = made.lines()
    first = next(number for number, line in enumerate(lines) if is_row(line))
    zero = row_text("all_reduce", 8, 0, 9.41, 9.4)[0]
    return made.with_lines([*lines[:first], zero, zero, *lines[first:]], codes=("zero_size",))


def noise_in_the_size(made: Sample) -> Sample:
    """Break every row behind the first digit; the second part begins with a launcher's label."""
    lines = []
    for line in made.lines():
        at = len(line) - len(line.lstrip()) + 1
        lines += [line[:at] + INFO, f"0: {line[at:]}"] if is_row(line) else [line]
    return made.with_lines(lines, codes=("recovered_row",))


def elided_but_three(made: Sample) -> Sample:
    """Leave two ranks of the first node, and the last of the last."""
    lines = made.lines()
    first, *_, last = (number for number, line in enumerate(lines) if "Rank" in line)
    return made.with_lines([*lines[: first + 2], "...", *lines[last:]], codes=("elided_ranks",))


def elided(made: Sample, dots: str) -> Sample:
    lines = [x for x in made.lines() if "Rank" not in x or not 8 <= int(x.split()[2]) < 56]
    at = next(number for number, line in enumerate(lines) if "Rank 56" in line)
    return made.with_lines([*lines[:at], dots, *lines[at:]], codes=("elided_ranks",))


def reordered(made: Sample) -> Sample:
    """The same columns as another order: type first, count behind the rates."""
    lines = []
    for line in made.lines():
        words = line.split()
        if is_row(line):
            lines.append(" ".join([words[2], words[0], *words[5:8], words[1], *words[9:12]]))
        elif words[1:2] == ["size"]:
            lines.append("# type size time algbw busbw count time algbw busbw")
        elif "(B)" not in line and "out-of-place" not in line:
            lines.append(line)
    return made.with_lines(lines)


def quirks() -> dict[str, Sample]:
    """Make one log per quirk."""
    plain = sample()
    no_banner = sample(banner=None)
    in_place = headerless("all_reduce", 8, halves="in")
    commas = on_rows(
        plain, lambda x: x.replace(x.split()[0], f"{int(x.split()[0]):,}", 1).replace("|", "")
    )
    return {
        "plain": plain,
        "no_banner": replace(no_banner, codes=("op_inferred",)),
        "2.0_error_no_root": sample(
            banner=None, wrong_title="error", with_root=False, old_devices=True
        ),
        "2.0_no_redop": sample(
            "all_gather", banner=None, wrong_title="error", with_root=False, with_redop=False
        ),
        "2.0_no_labels": sample(
            banner=None, wrong_title="error", with_root=False, with_redop=False
        ),
        "no_root": replace(
            sample("all_gather", banner=None, with_root=False), codes=("op_inferred",)
        ),
        "blank_redop": replace(
            on_rows(sample("alltoall"), lambda x: x.replace("none", "    ")), codes=()
        ),
        "c_0": sample(check=False),
        "S_timestamps": sample(stamps=True),
        "I_per_iteration": sample(per_iteration=True),
        "I_and_S": sample(per_iteration=True, stamps=True),
        "I_out_of_place_only": sample(per_iteration=True, halves="out"),
        "C_cputime": replace(
            sample(cpu_time=True, sizes=[2**k for k in range(24, 31)]),
            codes=("cpu_time",),
            tolerance=0.02,
        ),
        "scientific_times": sample(sizes=[2**k for k in range(30, 41, 2)]),
        "in_place_only": replace(sample(halves="in"), codes=("in_place_only",)),
        "out_of_place_only": sample(halves="out"),
        "old_algbw": replace(sample("all_gather", share=7 / 8), codes=("old_algbw",)),
        "hypercube": sample("hypercube", share=7 / 8),
        "sendrecv": replace(sample("sendrecv"), codes=("in_place_ignored",)),
        "mpi_tag": on_lines(plain, lambda x: f"[1,0]<stdout>:{x}"),
        "mpi_tag_inside": on_rows(plain, lambda x: f"[1,0]<stdout>:{x[:30]}[1,0]<stdout>:{x[30:]}"),
        "rank_tag": on_lines(plain, lambda x: f"[0]{x}"),
        "srun_label": on_lines(plain, lambda x: f"0: {x}"),
        "label_without_blank": on_lines(plain, lambda x: f"0:{x}"),
        "label_inside": replace(
            on_rows(plain, lambda x: f"{x[:52]} node17: {x[52:]}"), codes=("recovered_row",)
        ),
        "label_of_prrte": on_lines(plain, lambda x: f"[prterun-node17-4711@1,0]<stdout>: {x}"),
        "logger_before": on_lines(plain, lambda x: f"2026-02-03 04:05:06,123 - INFO - {x}"),
        "epoch_before": on_lines(plain, lambda x: f"[1770091506.123] {x}"),
        "kubernetes_before": on_lines(plain, lambda x: f"2026-02-03T04:05:06.1Z stdout F {x}"),
        "unknown_before_titles": on_lines(
            plain, lambda x: f"a b {x}" if "size" in x or "out-of" in x else x
        ),
        "blanks_of_a_web_page": replace(plain, data=plain.text.replace("  ", "\u00a0\u3000")),
        "timestamps_before": on_lines(plain, lambda x: f"2026-02-03T04:05:06.123456Z {x}"),
        "bracketed_times": on_lines(plain, lambda x: f"[2026-02-03 04:05:06,123] {x}"),
        "host_before": on_lines(plain, lambda x: f"worker-0: {x}"),
        "pod_before": on_lines(plain, lambda x: f"worker-0  | {x}"),
        "ansi": on_lines(plain, lambda x: f"\x1b[0;32m{x}\x1b[0m"),
        "ansi_inside": on_rows(plain, lambda x: f"{x[:40]}\x1b[1m{x[40:60]}\x1b[0m{x[60:]}"),
        "crlf": replace(plain, data=plain.text.replace("\n", "\r\n")),
        "bare_cr": replace(plain, data=plain.text.replace("\n", "\r")),
        "utf8_bom": replace(plain, data=b"\xef\xbb\xbf" + plain.text.encode()),
        "str_bom": replace(plain, data="\ufeff" + plain.text),
        "utf16_le": replace(plain, data=plain.text.encode("utf-16-le")),
        "utf16_be": replace(plain, data=plain.text.encode("utf-16-be")),
        "utf16_bom": replace(plain, data=plain.text.encode("utf-16")),
        "gbk_comment": replace(plain, data=("# 测试机器：四号机房\n" + plain.text).encode("gbk")),
        "a_broken_byte": replace(plain, data=b"# \xff\xfe\x80 broken\n" + plain.text.encode()),
        "some_nuls": replace(plain, data=plain.text.replace("\n", "\n\x00").encode()),
        "noise_between": noise_between(plain),
        "noise_before": noise_before(plain),
        "noise_after_the_size": noise_inside(plain, 14),
        "noise_in_the_count": noise_inside(plain, 24),
        "noise_after_the_root": noise_inside(plain, 52),
        "noise_between_the_halves": noise_inside(plain, 87),
        "noise_before_the_last_column": noise_inside(plain, -6),
        "noise_in_the_size": noise_in_the_size(plain),
        "noise_and_newline_inside": noise_and_newline_inside(plain),
        "lost_hash": replace(
            on_lines(no_banner, lambda x: x.removeprefix("#")), codes=("lost_hash",)
        ),
        "elided_dots": elided(sample(n_ranks=64), "..."),
        "elided_ellipsis": elided(sample(n_ranks=64), "# …"),
        "elided_but_three": elided_but_three(sample(n_ranks=64)),
        "rows_elided_by_columns": plain.with_lines(
            plain.text.replace("# Out of", "   ..." * 13 + "\n# Out of").split("\n"),
            codes=("elided_rows",),
        ),
        "zero_size": zero_rows(plain),
        "no_header": replace(
            headerless("all_reduce", 8), codes=("op_inferred", "n_ranks_inferred")
        ),
        "no_header_alltoall": replace(
            headerless("alltoall", 16), codes=("op_inferred", "n_ranks_inferred")
        ),
        "no_header_op_given": replace(
            headerless("all_gather", 24, check=False), arguments=(("op", "all-gather"),)
        ),
        "no_header_in_place_only": replace(
            in_place, codes=("op_inferred", "n_ranks_inferred", "in_place_only")
        ),
        "no_header_all_given": replace(
            headerless("broadcast", 24), arguments=(("n_ranks", 24), ("n_nodes", 3)), n_nodes=3
        ),
        "command_line": replace(
            headerless("all_gather", 6, check=False),
            data="$ mpirun -np 6 ./build/all_gather_perf -b 1K -e 1G -f 4\n"
            + headerless("all_gather", 6, check=False).text,
        ),
        "reordered": reordered(plain),
        "thousands": commas,
        "markdown": replace(
            plain, data="```text\n" + "\n".join("    " + x for x in plain.lines()) + "\n```\n"
        ),
        "quoted": on_lines(plain, lambda x: f"> {x}"),
        "tabs": on_rows(plain, lambda x: "\t" + "\t".join(x.split())),
        "collapsed": on_lines(plain, lambda x: " ".join(x.split())),
        "commas": replace(
            on_rows(no_banner, lambda x: ",".join(x.split())), codes=("op_inferred",)
        ),
        "four_columns": replace(
            _four_columns(headerless("all_reduce", 24)),
            codes=("n_ranks_inferred",),
            arguments=(("op", "all_reduce"),),
        ),
        "table_bars": on_rows(plain, lambda x: "| " + " | ".join(x.split()) + " |"),
        "merged_rows": plain.with_lines(
            plain.text.replace("\n", "\0", 17).replace("\n ", " ").replace("\0", "\n").split("\n")
        ),
        "rccl": replace(
            no_banner,
            data=no_banner.text.replace(
                "# Using", "rccl-tests: Version develop:1a2b3c4\n# Using"
            ).replace("# Out of", "# Errors with asterisks indicate errors\n# Out of"),
            version="rccl-tests develop:1a2b3c4",
        ),
        "fqdn": sample(n_ranks=16, host="node{}.rack-3.example.org"),
        "one_process": sample(n_ranks=4, per_node=4, one_process=True),
        "one_process_list_cut": replace(
            _without(
                sample(n_ranks=32, per_node=32, one_process=True), "Rank 2", "Rank 3", "Rank 1"
            ),
            codes=("elided_ranks",),
        ),
        "double": sample("reduce_scatter", n_ranks=80, dtype="double"),
        "two_nodes_of_one": sample(n_ranks=2, per_node=1),
        "json": replace(plain, data=json_of(plain), version="nccl-tests"),
        "json_without_mpi": replace(
            plain, data=json_of(plain, per_process=8), version="nccl-tests"
        ),
        "json_of_4_gpus_each": replace(
            plain, data=json_of(plain, per_process=4), version="nccl-tests"
        ),
        "json_behind_a_comment": replace(
            plain,
            data="# Writing JSON output to out.json\n" + json_of(plain),
            version="nccl-tests",
        ),
        "json_cut_off": replace(
            plain,
            data=json_of(plain)[: json_of(plain).index('"size":16777216,') + 40],
            rows=tuple(row for row in plain.rows if row[0] < 2**24),
            version="nccl-tests",
            codes=("truncated_json",),
        ),
    }


def headerless(op: str, n_ranks: int, check: bool = True, halves: str = "both") -> Sample:
    made = sample(
        op, n_ranks, banner=None, devices=False, titles=False, trailer=False, check=check,
        halves=halves,
    )  # fmt: skip
    return made.with_lines([x for x in made.lines() if is_row(x)])


def _four_columns(made: Sample) -> Sample:
    """Keep size, time, algbw and busbw, without any title."""
    lines = [" ".join([x.split()[0], *x.split()[5:8]]) for x in made.lines()]
    rows = tuple((nbytes, out, None) for nbytes, out, _ in made.rows)
    return made.with_lines(lines, rows=rows)


def _without(made: Sample, *words: str) -> Sample:
    return made.with_lines([x for x in made.lines() if not any(word in x for word in words)])


# ---------------------------------------------------------------------------------------
# Mutants: what nobody planned


def mutant(rng: random.Random, logs: Sequence[bytes]) -> bytes:
    """Damage a log in one to three ways."""
    data = rng.choice(logs)
    for _ in range(rng.randint(1, 3)):
        data = rng.choice(_DAMAGES)(rng, data, logs)
    return data


def _on_lines(change: Callable[[random.Random, list[bytes]], None]) -> Callable[..., bytes]:
    def damage(rng: random.Random, data: bytes, logs: Sequence[bytes]) -> bytes:
        lines = data.split(b"\n")
        for _ in range(rng.randint(1, 4)):
            change(rng, lines)
        return b"\n".join(lines)

    return damage


def _delete(rng: random.Random, lines: list[bytes]) -> None:
    if len(lines) > 1:
        del lines[rng.randrange(len(lines))]


def _repeat(rng: random.Random, lines: list[bytes]) -> None:
    lines.insert(rng.randrange(len(lines)), rng.choice(lines))


def _swap(rng: random.Random, lines: list[bytes]) -> None:
    one, two = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[two] = lines[two], lines[one]


def _merge(rng: random.Random, lines: list[bytes]) -> None:
    if len(lines) > 1:
        at = rng.randrange(len(lines) - 1)
        lines[at : at + 2] = [lines[at] + lines[at + 1]]


def _break(rng: random.Random, lines: list[bytes]) -> None:
    at = rng.randrange(len(lines))
    cut = rng.randint(0, len(lines[at]))
    lines[at : at + 1] = [lines[at][:cut], lines[at][cut:]]


def _insert(rng: random.Random, data: bytes, logs: Sequence[bytes]) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + rng.choice(_STUFF) + data[at:]


def _cut_out(rng: random.Random, data: bytes, logs: Sequence[bytes]) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + data[at + rng.randint(1, 30) :]


def _digits(rng: random.Random, data: bytes, logs: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 20)):
        at = rng.randrange(len(changed) or 1)
        if changed and chr(changed[at]).isdigit():
            changed[at] = ord(rng.choice("0123456789.-e"))
    return bytes(changed)


def _splice(rng: random.Random, data: bytes, logs: Sequence[bytes]) -> bytes:
    other = rng.choice(logs)
    return data[: rng.randint(0, len(data))] + other[rng.randint(0, len(other)) :]


def _truncate(rng: random.Random, data: bytes, logs: Sequence[bytes]) -> bytes:
    return data[: rng.randint(0, len(data))]


def _recode(rng: random.Random, data: bytes, logs: Sequence[bytes]) -> bytes:
    text = data.decode("latin-1")
    return text.encode(rng.choice(("utf-16", "utf-16-le", "utf-16-be", "utf-8", "utf-8-sig")))


_STUFF = (
    b"\x00", b"\xff\xfe", b"\n", b"\r", b"\t", b" ", b"nan", b"-inf", b"1e999", b"9" * 400, b"#",
    b"# Using devices\n", INFO.encode(), b"[1,3]<stdout>:", b"...", b"\xe2\x80\xa6", b"{", b'"',
    b"Rank 0", b" 0 0 float sum -1 ", b"\x1b[31m", b"-1", b"N/A", b"\xa3\xac", b"1,024", b"|",
)  # fmt: skip
_DAMAGES = (
    *map(_on_lines, (_delete, _repeat, _swap, _merge, _break)),
    _insert,
    _cut_out,
    _digits,
    _splice,
    _truncate,
    _recode,
)
