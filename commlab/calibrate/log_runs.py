"""From a block of a log to a run: test and ranks decided, rows checked, oddities remarked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from commlab.calibrate import log_check
from commlab.calibrate.bus import NO_IN_PLACE, collective_of
from commlab.calibrate.log_copies import refuse_interleaved
from commlab.calibrate.log_decide import Asked, Decision, decide
from commlab.calibrate.log_parts import Block
from commlab.calibrate.log_ranks import participants
from commlab.calibrate.log_remarks import BlockRows, remarks_on, these_lines
from commlab.calibrate.log_rows import Half, RawRow
from commlab.calibrate.records import LogError, Remark, Row, Run, SkippedLine


def runs_of(found: BlockRows, asked: Asked) -> list[Run]:
    """Turn a block into runs: one, or one for each type, reduction and root (-d all …).

    Raises
    ------
    LogError
        ``interleaved``, ``one_rank``, ``needs_op``, ``needs_n_ranks``, ``no_rows``.
    """
    block, rows = found.block, found.read.rows
    refuse_interleaved(block, rows)
    people = participants(block)
    skipped = list(block.skipped)
    remarks: list[Remark] = []
    rows = _times_of_calls(block, rows, skipped, remarks)
    decision = decide(block, rows, people, asked)
    remarks += people.remarks + decision.remarks + remarks_on(found)
    sweeps = _sweeps(rows)
    runs = []
    for number, sweep in enumerate(sweeps):
        first = number == 0
        own_remarks, checked = _checked(sweep, decision)
        in_place_only, own_skipped, good = _without_in_place(sweep, checked, decision.op)
        run_remarks = [*(remarks if first else people.remarks), *own_remarks, *in_place_only]
        if not good:
            raise LogError(
                "no_rows",
                f"All rows of the run from line {sweep[0].line} are in-place, which means nothing "
                f"for {decision.op}: measure out-of-place.",
            )
        runs.append(
            Run(
                op=decision.op,
                n_ranks=decision.n_ranks,
                rows=tuple(good),
                n_nodes=decision.n_nodes,
                collective=collective_of(decision.op),
                hardware=people.hardware or block.header.hardware,
                version=block.header.version,
                average_busbw=(
                    block.average_busbw * 1e9
                    if block.average_busbw is not None and len(sweeps) == 1
                    else None
                ),
                inferred=decision.inferred,
                skipped=tuple((skipped if first else []) + own_skipped),
                remarks=tuple(sorted(run_remarks, key=lambda remark: remark.line or 0)),
                library=block.header.library,
                algorithm=block.header.algorithm,
                started=block.started if first else sweep[0].line,
            )
        )
    return runs


def _times_of_calls(
    block: Block, rows: list[RawRow], skipped: list[SkippedLine], remarks: list[Remark]
) -> list[RawRow]:
    """With -C 1 the time is that of the CPU: take the call's time from algbw instead."""
    if not block.cpu_time or not log_check.time_of_cpu(rows):
        return rows
    good = []
    for row in rows:
        out = log_check.with_time_of_rate(row.nbytes, row.out)
        if out is None:
            reason = "its time is that of the CPU (-C 1), and its algbw has too few digits"
            skipped.append(SkippedLine(row.line, f"{row.nbytes} bytes", reason))
        else:
            again = log_check.with_time_of_rate(row.nbytes, row.again)
            good.append(row._replace(out=out, again=again))
    if not good:
        raise LogError(
            "no_rows",
            "The column cputime is the time of the CPU, not of the call, and no algbw has enough "
            "digits to tell that of the call: measure without -C 1.",
        )
    remarks.append(
        Remark(
            "cpu_time",
            "The column cputime (-C 1) is the time of the CPU, not that of the call: times are "
            "taken from size and algbw, which have fewer digits.",
        )
    )
    return good


def _sweeps(rows: Sequence[RawRow]) -> list[list[RawRow]]:
    """Split rows where type, reduction or root changes and the sizes begin anew."""
    sweeps: list[list[RawRow]] = [[rows[0]]]
    for before, row in pairwise(rows):
        changed = (row.dtype, row.redop, row.root) != (before.dtype, before.redop, before.root)
        if changed and row.nbytes < before.nbytes:
            sweeps.append([])
        sweeps[-1].append(row)
    return sweeps


def _checked(rows: Sequence[RawRow], decision: Decision) -> tuple[list[Remark], list[Row]]:
    """Check every row, and give it the form of the record."""
    remarks = []
    good = []
    op, n_ranks = decision.op, decision.n_ranks
    share = log_check.algbw_share(rows, op, n_ranks)
    if share < 1 and op != "hypercube":
        remarks.append(
            Remark(
                "old_algbw",
                f"algbw counts (N−1)/N of the size, as old versions of {op}_perf did; rates are "
                "computed from size and time.",
            )
        )
    for row in rows:
        half = row.out or row.again
        assert half is not None
        suspect, found = _check_half(row, half, decision, share, "")
        again = row.again
        if row.out and again and op not in NO_IN_PLACE:
            wrong, more = _check_half(row, again, decision, share, "In-place: ")
            found += more
            if wrong or not _makes_sense(again):
                again = None
        if suspect is None and log_check.count_agrees(row, n_ranks) is False:
            suspect = "count"
            found.append(
                Remark(
                    "count_mismatch",
                    f"{row.n_elements} elements of type {row.dtype} are not {row.nbytes} bytes.",
                    row.line,
                )
            )
        remarks += found
        good.append(
            Row(
                nbytes=row.nbytes,
                seconds=half.seconds,
                line=row.line,
                in_place_seconds=again.seconds if again and op not in NO_IN_PLACE else None,
                dtype=row.dtype,
                n_wrong=half.n_wrong,
                suspect=suspect,
            )
        )
    return remarks, good


def _check_half(
    row: RawRow, half: Half, decision: Decision, share: float, where: str
) -> tuple[str | None, list[Remark]]:
    if not _makes_sense(half):
        remark = Remark("contradiction", f"{where}the time or a rate is no number.", row.line)
        return "time", [remark]
    off = log_check.what_is_off(row, half, decision.op, decision.n_ranks, share)
    if off is None or (off[0] == "busbw" and decision.factor_contradicted):
        return None, []
    return off[0], [log_check.contradiction(row.line, *off, where)]


def _makes_sense(half: Half) -> bool:
    rates = [rate for rate in (half.algbw, half.busbw) if rate is not None]
    return 0 < half.seconds < float("inf") and all(0 <= rate < float("inf") for rate in rates)


def _without_in_place(
    rows: Sequence[RawRow], checked: list[Row], op: str
) -> tuple[list[Remark], list[SkippedLine], list[Row]]:
    """Deal with rows that have an in-place half only, and with in-place halves of no meaning."""
    remarks = []
    skipped = []
    good = []
    only = [row.line for row in rows if row.out is None]
    for raw, row in zip(rows, checked, strict=True):
        if raw.out is None and op in NO_IN_PLACE:
            reason = f"it has an in-place half only, which means nothing for {op}"
            skipped.append(SkippedLine(row.line, f"{row.nbytes} bytes", reason))
        else:
            good.append(row)
    if op in NO_IN_PLACE and any(row.out and row.again for row in rows):
        remarks.append(
            Remark("in_place_ignored", f"The in-place columns of {op} mean nothing: not read.")
        )
    elif only:
        remarks.append(
            Remark(
                "in_place_only",
                f"{these_lines(only)} without out-of-place columns: the in-place time is taken.",
                only[0],
            )
        )
    return remarks, skipped, good
