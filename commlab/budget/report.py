"""How a result of a budget shows itself: as text with its assumptions, and as a table."""

from __future__ import annotations

from abc import ABC, abstractmethod

from commlab.tables import Table, table


class Report(ABC):
    """What every result of a budget can do: print itself, and become a table.

    Attributes
    ----------
    assumptions : tuple of str
        What the numbers rest on; printed with them.
    """

    assumptions: tuple[str, ...]

    @property
    @abstractmethod
    def title(self) -> str:
        """One line that names the result."""

    @property
    @abstractmethod
    def lines(self) -> dict[str, str]:
        """Each quantity by name, formatted with its unit."""

    def table(self) -> Table:
        """Return the quantities as a table that a notebook cell can end with."""
        return table(("quantity · 项目", "value · 数值"), list(self.lines.items()))

    def __str__(self) -> str:
        width = max(len(name) for name in self.lines)
        body = [f"  {name:<{width}}  {text}" for name, text in self.lines.items()]
        notes = [f"  assuming: {note}" for note in self.assumptions]
        return "\n".join([self.title, *body, *notes])


def gpus(count: int) -> str:
    """Return "1 GPU" or "8 GPUs"."""
    return "1 GPU" if count == 1 else f"{count} GPUs"
