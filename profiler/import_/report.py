"""What an import wrote and what it left out, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from profiler.tables import META_FILE, ROWS_FILE, KernelRow, TableMeta, TableWriter
from simulator.errors import InputError


@dataclass(frozen=True)
class ImportReport:
    """The table that was written, its rows by op, and notes on what was left out."""

    out: Path
    device: str
    rows: dict[str, int]
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The report as text."""
        counts = ", ".join(f"{count} {op}" for op, count in self.rows.items())
        return [f"{self.out}: {self.device}, {counts}", *self.notes]


def write_table(out: Path, meta: TableMeta, rows: Iterable[KernelRow]) -> ImportReport:
    """Writes an imported table into a folder that holds none yet; raises InputError."""
    if (out / META_FILE).exists() or (out / ROWS_FILE).exists():
        raise InputError(f"{out}: holds a table already; choose another folder or remove it")
    listed = list(rows)
    if not listed:
        raise InputError(f"{meta.source}: no usable rows")
    with TableWriter(out, meta) as writer:
        writer.append(*listed)
    return ImportReport(out, meta.device, dict(Counter(row.op for row in listed)), meta.notes)


def combined(out: Path, reports: Sequence[ImportReport]) -> ImportReport:
    """One report of several tables under a folder; the notes name each of them."""
    rows: Counter[str] = Counter()
    for report in reports:
        rows.update(report.rows)
    devices = ", ".join(dict.fromkeys(report.device for report in reports))
    return ImportReport(
        out, devices, dict(rows), tuple(line for report in reports for line in report.lines())
    )
