"""Decide which test a run is of and on how many ranks, and refuse where nobody can know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from commlab.calibrate.bus import ONE_COPY, OPS, bus_factor, op_named
from commlab.calibrate.log_infer import Factor, factors, ops_that_fit, ranks_that_fit
from commlab.calibrate.log_infer import share_that_holds as share
from commlab.calibrate.log_parts import Block
from commlab.calibrate.log_ranks import Participants
from commlab.calibrate.log_rows import RawRow
from commlab.calibrate.records import LogError, Remark

# Below this share of rows, a factor is contradicted; above that one, it is confirmed.
_FEW, _MOST = 0.5, 0.6
_SHOWN = 6


@dataclass(frozen=True)
class Asked:
    """What the caller says of the log; it counts more than the log."""

    op: str | None = None
    n_ranks: int | None = None
    n_nodes: int | None = None


@dataclass
class Decision:
    """The test, its ranks and nodes, and where they come from."""

    op: str
    n_ranks: int
    n_nodes: int | None
    inferred: tuple[str, ...] = ()
    factor_contradicted: bool = False
    remarks: list[Remark] = field(default_factory=list)


def decide(block: Block, rows: Sequence[RawRow], people: Participants, asked: Asked) -> Decision:
    """Decide from caller, log and rows, in this order.

    Raises
    ------
    LogError
        ``one_rank``, ``needs_op`` or ``needs_n_ranks``.
    """
    known = factors(rows)
    remarks: list[Remark] = []
    inferred = []
    stated_op = _stated_op(block, remarks)
    stated_ranks = people.n_ranks or block.header.n_ranks
    op = asked.op or stated_op
    n_ranks = asked.n_ranks or stated_ranks
    if asked.op and stated_op and asked.op != stated_op:
        remarks.append(
            Remark("overridden", f"The log says {stated_op}; it is read as {asked.op} as asked.")
        )
    if asked.n_ranks and stated_ranks and asked.n_ranks != stated_ranks:
        remarks.append(
            Remark(
                "overridden",
                f"The log says {stated_ranks} ranks; it is read as of {asked.n_ranks} as asked.",
            )
        )
    n_ranks = n_ranks or _ranks_of_command(block, op, known)
    if not stated_ranks:
        inferred.append("n_ranks")
    if not stated_op:
        inferred.append("op")
    _refuse_one_rank(n_ranks)
    if op is None:
        op = _infer_op(block, rows, known, n_ranks, remarks)
    if n_ranks is None or (people.at_least and not asked.n_ranks):
        n_ranks = _infer_ranks(block, op, known, n_ranks, remarks)
    _refuse_one_rank(n_ranks)
    n_nodes = asked.n_nodes or block.header.n_nodes or people.n_nodes
    if people.n_ranks and n_ranks != people.n_ranks and not asked.n_nodes:
        n_nodes = people.nodes_of(n_ranks)
        inferred.append("n_nodes")
    elif asked.n_nodes or people.nodes_inferred:
        inferred.append("n_nodes")
    decision = Decision(op, n_ranks, n_nodes, tuple(inferred), remarks=remarks)
    _compare_with_rows(decision, rows, known)
    return decision


def _stated_op(block: Block, remarks: list[Remark]) -> str | None:
    command = block.header.command
    name = block.header.op or (command.command_op if command else None)
    if name is None:
        return None
    op = op_named(name)
    if op is None:
        remarks.append(
            Remark("unknown_op", f"The log is of {name}, a test with an unknown bus factor.")
        )
    return op


def _ranks_of_command(block: Block, op: str | None, known: Sequence[Factor]) -> int | None:
    """Return N of the command line or of -t and -g, where the rows do not speak against it."""
    command = block.header.command
    threads = (block.header.n_threads or 1) * (block.header.n_gpus or 1)
    from_command = command.command_ranks if command else None
    for n_ranks in (from_command, threads if threads > 1 else None):
        if n_ranks and n_ranks > 1:
            ops = [op] if op else list(OPS)
            if known and max(share(known, bus_factor(one, n_ranks)) for one in ops) >= _MOST:
                return n_ranks
    return None


def _refuse_one_rank(n_ranks: int | None) -> None:
    if n_ranks == 1:
        raise LogError(
            "one_rank",
            "The run has one rank, which exchanges data with nobody: measure on two or more GPUs "
            "(with several processes, build nccl-tests with MPI=1).",
        )


def _infer_op(
    block: Block,
    rows: Sequence[RawRow],
    known: Sequence[Factor],
    n_ranks: int | None,
    remarks: list[Remark],
) -> str:
    if n_ranks is None and known and share(known, 0.0) >= _MOST:
        _refuse_one_rank(1)
    found = ops_that_fit(rows, known, n_ranks, block.titles)
    if len(found) == 1:
        remarks.append(
            Remark("op_inferred", f"The log does not name the test: its rows fit {found[0]}.")
        )
        return found[0]
    if not found:
        raise LogError(
            "needs_op",
            "The log does not name the test, and no test has such rates"
            + (f" on {n_ranks} ranks" if n_ranks else "")
            + ": give the test (op) and the number of ranks (n_ranks).",
        )
    raise LogError(
        "needs_op",
        f"The log does not name the test, and its rows fit {_or(found)}: give one of them (op).",
    )


def _infer_ranks(
    block: Block, op: str, known: Sequence[Factor], at_least: int | None, remarks: list[Remark]
) -> int:
    if at_least and share(known, bus_factor(op, at_least)) >= _MOST:
        return at_least
    found = ranks_that_fit(known, op)
    per_process = (block.header.n_threads or 1) * (block.header.n_gpus or 1)
    if at_least:
        found = [n for n in found if n > at_least]
    found = [n for n in found if n % per_process == 0] or found
    if len(found) == 1:
        remarks.append(
            Remark(
                "n_ranks_inferred",
                f"The log does not list all ranks: busbw / algbw is that of {found[0]} ranks.",
            )
        )
        return found[0]
    if at_least and op in ONE_COPY:
        return at_least
    if found:
        numbers = _or([str(n) for n in found])
        if len(found) > _SHOWN:
            numbers = f"{found[0]} to {found[-1]}"
        reason = f"its rates fit {numbers}"
    elif op in ONE_COPY:
        reason = f"busbw of {op} does not depend on it"
    else:
        reason = "its rates have too few digits to tell it"
    raise LogError(
        "needs_n_ranks",
        f"The log does not say on how many ranks {op} ran, and {reason}: give n_ranks.",
    )


def _compare_with_rows(decision: Decision, rows: Sequence[RawRow], known: Sequence[Factor]) -> None:
    """Say so where most rows contradict the test or the number of ranks."""
    if share(known, bus_factor(decision.op, decision.n_ranks)) >= _FEW:
        return
    decision.factor_contradicted = True
    others = ranks_that_fit(known, decision.op)
    if len(others) == 1:
        decision.remarks.append(
            Remark(
                "n_ranks_contradicted",
                f"busbw / algbw is that of {decision.op} on {others[0]} ranks, not on "
                f"{decision.n_ranks}: check the number of ranks.",
                rows[0].line,
            )
        )
        return
    ops = [op for op in ops_that_fit(rows, known, decision.n_ranks) if op != decision.op]
    fits = f": it is that of {_or(ops)}" if ops else ""
    decision.remarks.append(
        Remark(
            "op_contradicted",
            f"busbw / algbw is not that of {decision.op} on {decision.n_ranks} ranks{fits}.",
            rows[0].line,
        )
    )


def _or(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
