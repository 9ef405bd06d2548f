"""What a command has to say: one sentence, tables, notes, and the JSON document with the same content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Cell:
    """One entry of a table: the text to show, and whether the number breaks the SLO."""

    text: str
    breaks_slo: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under column names; the first column names the row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    left: bool = False
    """Columns of words, all aligned to the left; else the first is and the others hold numbers."""

    @property
    def breaks_slo(self) -> bool:
        """Whether any cell breaks the SLO."""
        return any(cell.breaks_slo for row in self.rows for cell in row)


@dataclass(frozen=True, slots=True)
class Page:
    """A whole answer; `legend` explains the mark of cells that break the SLO, where any does."""

    answer: str
    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()
    legend: str = ""
    document: dict[str, Any] = field(default_factory=dict)

    @property
    def breaks_slo(self) -> bool:
        """Whether any table has a cell that breaks the SLO."""
        return any(table.breaks_slo for table in self.tables)


def table(
    columns: Sequence[str], rows: Sequence[Sequence[Cell | str]], title: str = "", *, left: bool = False
) -> Table:
    """A table from cells or plain strings."""
    cells = tuple(tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in row) for row in rows)
    return Table(tuple(columns), cells, title, left)
