"""The page of `reproduce`: the questions that matter, then every number beside the published one."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from simulator.report.documents import SCHEMA_VERSION
from simulator.report.numbers import MISSING, significant
from simulator.report.page import Page, Table, table
from simulator.reproduce.reproduction import Reproduction
from simulator.reproduce.rows import Row
from simulator.reproduce.verdicts import Verdict, verdicts


def reproduction_page(reproduction: Reproduction) -> Page:
    """All rows, by group."""
    judged = verdicts(reproduction.rows)
    groups = groupby(reproduction.rows, key=lambda row: row.group)
    return Page(
        answer=_answer(reproduction, judged),
        tables=(*_verdict_tables(judged), *(_group_table(group, list(rows)) for group, rows in groups)),
        notes=_notes(reproduction),
        document=_document(reproduction, judged),
    )


def _answer(reproduction: Reproduction, judged: list[Verdict]) -> str:
    paper = reproduction.lab.paper
    compared = sum(row.log_ratio is not None for row in reproduction.rows)
    held = sum(verdict.holds for verdict in judged)
    return (
        f"{paper.title}: {compared} numbers beside the published ones; "
        f"{held} of {len(judged)} questions answered yes."
    )


def _verdict_tables(judged: list[Verdict]) -> tuple[Table, ...]:
    if not judged:
        return ()
    rows = [[verdict.question, yes_no(verdict.holds), verdict.words] for verdict in judged]
    return (table(["question", "answer", "figures"], rows, left=True),)


def yes_no(holds: bool | None) -> str:
    """An answer in a word; a dash where nothing was asked."""
    return {True: "yes", False: "no", None: MISSING}[holds]


def _group_table(group: str, rows: list[Row]) -> Table:
    columns = ["", "paper", "certainty", "ours", "unit", "off", "note"]
    return table(columns, [_cells(row) for row in rows], f"{group}:", left=True)


def _cells(row: Row) -> list[str]:
    value, unit, certainty, _ = row.published
    ours = yes_no(row.holds) if row.ours is None and row.holds is not None else significant(row.ours)
    note = (
        row.note if row.ours is None or row.holds is None else f"{yes_no(row.holds)}; {row.note}".rstrip("; ")
    )
    return [row.id.partition("/")[2], significant(value), certainty, ours, unit, _off(row), note]


def _off(row: Row) -> str:
    value, ours = row.published.value, row.ours
    return MISSING if not value or ours is None else f"{100 * (ours / value - 1):+.0f} %"


def _notes(reproduction: Reproduction) -> tuple[str, ...]:
    lab = reproduction.lab
    used = {row.published.certainty for row in reproduction.rows}
    meanings = [f"{name}: {words}" for name, words in lab.paper.certainties.items() if name in used]
    source = f"source: {lab.paper.source}"
    trace = f"chat lengths: {lab.chat_trace or 'the shipped trace, drawn from published statistics'}"
    engine = f"engine: {lab.engine}" if lab.engine else "engine: as in the scenarios"
    return (source, *meanings, trace, engine)


def _document(reproduction: Reproduction, judged: list[Verdict]) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "reproduce",
        "paper": reproduction.lab.paper.title,
        "seed": reproduction.lab.paper.seed,
        "engine": reproduction.lab.engine,
        "verdicts": [verdict._asdict() for verdict in judged],
        "rows": [row.to_dict() for row in reproduction.rows],
    }
