"""Writes a page as text, Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable

from simulator.report.page import Cell, Page, Table

RED, BOLD, RESET = "\x1b[31m", "\x1b[1m", "\x1b[0m"
GAP = "  "


def to_text(page: Page, *, colour: bool = False) -> str:
    """The page for a reader: the answer, tables without lines, legend, notes; `colour` adds ANSI codes."""
    blocks = [page.answer, *(_text_table(table, colour) for table in page.tables)]
    if page.breaks_slo:
        blocks.append(f"! = {page.legend}")
    if page.notes:
        blocks.append("\n".join(f"note: {note}" for note in page.notes))
    return "\n\n".join(blocks) + "\n"


def _text_table(table: Table, colour: bool) -> str:
    header = tuple(Cell(name) for name in table.columns)
    columns = list(zip(header, *table.rows, strict=True))
    aligned = [
        _column(cells, left=table.left or index == 0, colour=colour) for index, cells in enumerate(columns)
    ]
    lines = [GAP.join(cells).rstrip() for cells in zip(*aligned, strict=True)]
    if colour:
        lines[0] = f"{BOLD}{lines[0]}{RESET}"
    return "\n".join([table.title, *lines] if table.title else lines)


def _column(cells: tuple[Cell, ...], *, left: bool, colour: bool) -> list[str]:
    """The cells of one column at one width; a column with a mark keeps room for it in every row."""
    marked = any(cell.breaks_slo for cell in cells)
    texts = [cell.text + (" !" if cell.breaks_slo else "  " if marked else "") for cell in cells]
    width = max(map(len, texts))
    padded = [text.ljust(width) if left else text.rjust(width) for text in texts]
    if not colour:
        return padded
    return [
        f"{RED}{text}{RESET}" if cell.breaks_slo else text for cell, text in zip(cells, padded, strict=True)
    ]


def to_markdown(page: Page) -> str:
    """The page as Markdown, with pipe tables."""
    blocks = [page.answer, *map(_markdown_table, page.tables)]
    if page.breaks_slo:
        blocks.append(f"**!** = {page.legend}")
    if page.notes:
        blocks.append("\n".join(f"- {note}" for note in page.notes))
    return "\n\n".join(blocks) + "\n"


def _markdown_table(table: Table) -> str:
    rule = [":---", *(":---" if table.left else "---:" for _ in table.columns[1:])]
    body = [[f"**{cell.text} !**" if cell.breaks_slo else cell.text for cell in row] for row in table.rows]
    rows = "\n".join(f"| {' | '.join(row)} |" for row in [list(table.columns), rule, *body])
    return f"**{table.title}**\n\n{rows}" if table.title else rows


def to_csv(page: Page) -> str:
    """The page's tables as CSV, an empty line between two; column `breaks_slo` names those that do."""
    return "\n".join(map(_csv_table, page.tables))


def _csv_table(table: Table) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*table.columns, "breaks_slo"])
    for row in table.rows:
        broken = [name for name, cell in zip(table.columns, row, strict=True) if cell.breaks_slo]
        writer.writerow([*(cell.text for cell in row), " ".join(broken)])
    return stream.getvalue()


def to_json(page: Page) -> str:
    """The page's document as strict JSON (no NaN), keys in the order given."""
    return json.dumps(page.document, indent=2, allow_nan=False) + "\n"


FORMATS: dict[str, Callable[[Page], str]] = {
    ".json": to_json,
    ".csv": to_csv,
    ".md": to_markdown,
    ".txt": to_text,
}
