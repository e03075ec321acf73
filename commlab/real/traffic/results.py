"""What an experiment has counted, held against the formula."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from commlab.tables import Table, table
from commlab.units import format_bytes

AT_THE_SOCKETS = "counted by the kernel on each rank's TCP connections"
AS_ASKED = (
    "this system does not count bytes per connection: what the calls ask for is shown instead"
)


class Operation(NamedTuple):
    """One call of a collective, or one message.

    Attributes
    ----------
    phase : str
        Part of the step in which it was called.
    kind : str
        ``"all_reduce"``, ``"send"`` …
    nbytes : int
        S: the whole vector of an all-reduce or all-to-all, the whole array of an all-gather
        or reduce-scatter, the message of a send or receive.
    sent : int
        Bytes that this rank sends for it, if nothing is sent in vain.
    """

    phase: str
    kind: str
    nbytes: int
    sent: int


@dataclass(frozen=True)
class SentBytes:
    """The bytes that each rank sent in one step of training.

    Attributes
    ----------
    title : str
    unit : str
        What ratios are printed in, such as "P".
    unit_nbytes : float
        Bytes of one unit.
    formula : tuple of float
        Bytes that each rank sends according to the formula.
    operations : tuple of tuple of Operation
        For each rank, what it called.
    sockets : tuple of dict, or None
        For each rank and phase the bytes that went through its sockets. None where the system
        does not count them.
    seen : dict
        What else the experiment looked at.
    machine : str
        Processor, system and versions.
    """

    title: str
    unit: str
    unit_nbytes: float
    formula: tuple[float, ...]
    operations: tuple[tuple[Operation, ...], ...]
    sockets: tuple[dict[str, int], ...] | None
    machine: str
    seen: dict[str, Any] = field(default_factory=dict)

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return len(self.formula)

    @property
    def asked(self) -> tuple[int, ...]:
        """Bytes that each rank has to send at least for the calls that it made."""
        return tuple(sum(call.sent for call in calls) for calls in self.operations)

    @property
    def sent(self) -> tuple[int, ...]:
        """Bytes that each rank sent; where the system does not tell, what its calls ask for."""
        if self.sockets is None:
            return self.asked
        return tuple(sum(phases.values()) for phases in self.sockets)

    @property
    def how(self) -> str:
        """How `sent` was counted."""
        return AS_ASKED if self.sockets is None else AT_THE_SOCKETS

    @property
    def busiest(self) -> int:
        """The rank that sends most according to the formula; the first of them."""
        return self.formula.index(max(self.formula))

    @property
    def ratio(self) -> float:
        """Bytes sent over the formula, on the busiest rank."""
        return self.sent[self.busiest] / self.formula[self.busiest]

    def sent_in(self, phase: str) -> tuple[int, ...]:
        """Bytes that each rank sent in one phase, such as "forward", counted like `sent`."""
        if self.sockets is not None:
            return tuple(phases.get(phase, 0) for phases in self.sockets)
        return tuple(
            sum(call.sent for call in calls if call.phase == phase) for calls in self.operations
        )

    def calls(self, rank: int | None = None) -> dict[tuple[str, str], int]:
        """How often a rank, by default the busiest, called what: ``{(phase, kind): times}``."""
        chosen = self.operations[self.busiest if rank is None else rank]
        return dict(Counter((call.phase, call.kind) for call in chosen))

    def in_units(self, nbytes: float) -> str:
        """Print bytes in units, e.g. "2.25 P"."""
        return f"{nbytes / self.unit_nbytes:.2f} {self.unit}"

    @property
    def lines(self) -> dict[str, str]:
        """Each quantity by name."""
        phases: dict[str, list[str]] = {}
        for (phase, kind), times in self.calls().items():
            phases.setdefault(f"calls, {phase}", []).append(f"{times} {kind}")
        calls = {name: " + ".join(sorted(texts)) for name, texts in phases.items()}
        formula, sent = self.formula[self.busiest], self.sent[self.busiest]
        return {
            f"1 {self.unit}": format_bytes(self.unit_nbytes),
            **calls,
            "formula": f"{format_bytes(formula)} = {self.in_units(formula)}",
            "sent": f"{format_bytes(sent)} = {self.in_units(sent)}",
            "sent / formula": f"{self.ratio:.2f}",
        }

    def __str__(self) -> str:
        width = max(len(name) for name in self.lines)
        body = [f"  {name:<{width}}  {text}" for name, text in self.lines.items()]
        return "\n".join([self.title, *body, f"  {self.how}", f"  {self.machine}"])

    def table(self) -> Table:
        """Return the quantities as a table that a notebook cell can end with."""
        return table((self.title, "busiest rank · 最忙的 rank"), list(self.lines.items()))


def sent_table(results: Sequence[SentBytes]) -> Table:
    """Return one row per experiment: formula, what the calls ask for, and what was sent.

    Parameters
    ----------
    results : sequence of SentBytes
        Numbers are those of the rank that sends most.
    """
    rows = []
    for each in results:
        busiest = each.busiest
        amounts = (each.formula[busiest], each.asked[busiest], each.sent[busiest])
        rows.append((each.title, *map(each.in_units, amounts), f"{each.ratio:.2f}"))
    headers = (
        "one step · 一步",
        "formula · 公式",
        "asked for · 调用要求的",
        "sent · 实际发送",
        "sent / formula · 比值",
    )
    return table(headers, rows)
