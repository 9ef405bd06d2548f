"""The result of a reproduction: rows that set our number beside the published one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log
from typing import Any

from simulator.reproduce.paper import Paper, Published


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity; `holds` is the answer of a row that is a claim or an order rather than a number."""

    id: str
    published: Published
    ours: float | None
    """None where there is no such number: a scheduler that holds the SLO at no load has no ratio."""
    note: str = ""
    holds: bool | None = None

    @property
    def group(self) -> str:
        """The first part of the id."""
        return self.id.partition("/")[0]

    @property
    def log_ratio(self) -> float | None:
        """log(ours / published); None where either is missing or not positive."""
        value = self.published.value
        if not value or not self.ours or value < 0 or self.ours < 0:
            return None
        return log(self.ours / value)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "id": self.id,
            "group": self.group,
            "paper": self.published.value,
            "certainty": self.published.certainty,
            "ours": self.ours,
            "unit": self.published.unit,
            "source": self.published.source,
            "holds": self.holds,
            "note": self.note,
        }


class Ledger:
    """Collects rows, each beside what the paper has under its id."""

    def __init__(self, paper: Paper) -> None:
        self.paper = paper
        self.rows: list[Row] = []

    def add(
        self,
        id: str,
        ours: float | None,
        unit: str = "",
        note: str = "",
        *,
        holds: bool | None = None,
        published: Published | None = None,
    ) -> None:
        """Note our number; `unit` is needed only where the paper has no entry under this id."""
        published = published or self.paper.published(id) or Published(None, unit, "none", "")
        self.rows.append(Row(id, published, ours, note, holds))

    def under(self, prefix: str) -> Iterator[Row]:
        """The rows whose id starts with a prefix."""
        return (row for row in self.rows if row.id.startswith(prefix))


def ratio(value: float | None, other: float | None) -> float | None:
    """A quotient; None where there is none."""
    return value / other if value is not None and other else None
