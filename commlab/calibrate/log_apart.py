"""Rows without any header: one run, or several that were put into one file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from commlab.calibrate.log_copies import refuse_interleaved
from commlab.calibrate.log_decide import Asked, decide
from commlab.calibrate.log_infer import factors, ops_that_fit
from commlab.calibrate.log_parts import Block
from commlab.calibrate.log_ranks import Participants
from commlab.calibrate.log_remarks import BlockRows
from commlab.calibrate.log_rows import RawRow, ReadRows
from commlab.calibrate.records import LogError


def apart(found: BlockRows, asked: Asked) -> list[BlockRows]:
    """Cut a block without a header where its sizes begin anew, if the parts cannot be one run.

    Rates of one test on one number of ranks have one factor; where a part has another one, or
    another in-place check, it is of another run. Sweeps that agree stay together, as those of
    ``-N`` do.

    Raises
    ------
    LogError
        ``interleaved``.
    """
    block, rows = found.block, found.read.rows
    if block.n_headers or block.inherits or not rows:
        return [found]
    refuse_interleaved(block, rows)
    sweeps: list[list[RawRow]] = [[]]
    for row in rows:
        if sweeps[-1] and row.nbytes < sweeps[-1][-1].nbytes:
            sweeps.append([])
        sweeps[-1].append(row)
    if len(sweeps) == 1 or _one_run(block, sweeps, asked):
        return [found]
    starts = [0, *(sweep[0].line for sweep in sweeps[1:])]
    ends = [*starts[1:], sys.maxsize]
    return [
        _part(found, start, end, sweep)
        for start, end, sweep in zip(starts, ends, sweeps, strict=True)
    ]


def _one_run(block: Block, sweeps: Sequence[list[RawRow]], asked: Asked) -> bool:
    decided = set()
    open_ops = []
    for sweep in sweeps:
        try:
            decision = decide(block, sweep, Participants(), asked)
            decided.add((decision.op, decision.n_ranks, decision.factor_contradicted))
        except LogError:
            ops = ops_that_fit(sweep, factors(sweep), asked.n_ranks, block.titles)
            open_ops.append([asked.op] if asked.op else ops)
    if len(decided) > 1:
        return False
    return all(op in ops for op, _, _ in decided for ops in open_ops)


def _part(found: BlockRows, start: int, end: int, sweep: list[RawRow]) -> BlockRows:
    block, read = found.block, found.read

    def here(line: int) -> bool:
        return start <= line < end

    part = replace(
        block,
        started=sweep[0].line,
        rows=[fragment for fragment in block.rows if here(fragment.number)],
        skipped=[skipped for skipped in block.skipped if here(skipped.line)],
        errors=[error for error in block.errors if here(error[0])],
        elided_rows=[line for line in block.elided_rows if here(line)],
        average_busbw=None,
    )
    zero_size = [fragment for fragment in read.zero_size if here(fragment.number)]
    return BlockRows(part, ReadRows(sweep, zero_size, []))
