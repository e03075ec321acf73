"""Rows of experiments, and the measurement that ships with the book."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any

from commlab.overlap import BucketInterval, Interval, OverlapTimeline
from commlab.tables import Table, table
from commlab.units import format_seconds

SECONDS, TIMES = "s", "×"
STORED = "virtual_cluster.json"


@dataclass(frozen=True)
class Row:
    """One quantity of an experiment, by the clock and by the model.

    Attributes
    ----------
    experiment : str
    what : str
        The schedule, or what is compared.
    measured, priced : float
    unit : str
        ``"s"``, or ``"×"`` where two times are compared.
    """

    experiment: str
    what: str
    measured: float
    priced: float
    unit: str = SECONDS

    @property
    def ratio(self) -> float:
        """Measured over priced."""
        return self.measured / self.priced

    def cells(self) -> tuple[str, ...]:
        """Return the row as text."""
        values = (self.measured, self.priced)
        if self.unit == SECONDS:
            texts = [format_seconds(value) for value in values]
        else:
            texts = [f"{value:.2f} ×" for value in values]
        return self.experiment, self.what, *texts, f"{self.ratio:.2f}"


@dataclass(frozen=True)
class OverlapPair:
    """Training steps with DDP on a virtual cluster, and the model's account of them.

    Attributes
    ----------
    measured, model : OverlapTimeline
    """

    measured: OverlapTimeline
    model: OverlapTimeline

    @property
    def n_buckets(self) -> int:
        """How many buckets DDP sent."""
        return len(self.measured.buckets)

    @property
    def overlaps(self) -> bool:
        """Whether a bucket was under way before the last gradient was there."""
        return self.measured.buckets[0].start < self.measured.backward_end

    def row(self) -> Row:
        """Return the time from the start of the backward pass to the last average."""
        name = f"{self.n_buckets} bucket{'s' if self.n_buckets > 1 else ''}"
        return Row(
            "DDP overlap", name, self.measured.communication_end, self.model.communication_end
        )


@dataclass(frozen=True)
class ClusterMeasurement:
    """All experiments on a virtual cluster, with where and when.

    Attributes
    ----------
    date, machine : str
    load : float
        Programs that wanted a processor, on average over the minute before.
    alpha : float
        Seconds per message: the median of the experiments' own.
    rows : tuple of Row
    overlap : tuple of OverlapPair
    """

    date: str
    machine: str
    load: float
    alpha: float
    rows: tuple[Row, ...]
    overlap: tuple[OverlapPair, ...]

    def row(self, experiment: str, what: str) -> Row:
        """Return one row by name."""
        found = [row for row in self.rows if (row.experiment, row.what) == (experiment, what)]
        if not found:
            known = sorted({f"{row.experiment}: {row.what}" for row in self.rows})
            raise ValueError(f"there is no row {experiment!r}, {what!r}; there are {known}.")
        return found[0]

    def times(self) -> dict[str, list]:
        """Return the rows that are times as columns, for `figures.virtual_cluster`."""
        rows = [row for row in self.rows if row.unit == SECONDS]
        return {
            "experiments": [row.experiment for row in rows],
            "names": [row.what for row in rows],
            "measured": [row.measured for row in rows],
            "priced": [row.priced for row in rows],
        }

    def table(self) -> Table:
        """Return a row of text per quantity."""
        return table_of_rows(self.rows)

    def __str__(self) -> str:
        return f"{self.table().markdown}\n\n{self.date}, {self.machine}, load {self.load:.1f}"


def table_of_rows(rows: Iterable[Row]) -> Table:
    """Return experiment, quantity, measured, priced and their ratio as a table."""
    head = ("experiment · 实验", "what · 对象", "measured · 实测", "priced · 计价", "ratio · 比值")
    return table(head, [row.cells() for row in rows])


def to_plain(measurement: ClusterMeasurement) -> dict[str, Any]:
    """Return a measurement as numbers, strings, lists and dictionaries."""
    return asdict(measurement)


def from_plain(plain: dict[str, Any]) -> ClusterMeasurement:
    """Return the measurement that `to_plain` took apart."""
    rows = tuple(Row(**row) for row in plain["rows"])
    overlap = tuple(
        OverlapPair(**{name: _timeline(one) for name, one in pair.items()})
        for pair in plain["overlap"]
    )
    return ClusterMeasurement(**plain | {"rows": rows, "overlap": overlap})


def stored_cluster_measurement() -> ClusterMeasurement:
    """Read the measurement that ships with the book."""
    file = resources.files("commlab.real") / "data" / STORED
    return from_plain(json.loads(file.read_text(encoding="utf-8")))


def _timeline(plain: dict[str, Any]) -> OverlapTimeline:
    parts = {
        "compute": tuple(Interval(**one) for one in plain["compute"]),
        "buckets": tuple(BucketInterval(**one) for one in plain["buckets"]),
        "assumptions": tuple(plain["assumptions"]),
    }
    return OverlapTimeline(**plain | parts)
