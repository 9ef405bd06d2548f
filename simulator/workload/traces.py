"""Traces: recorded requests, read from a file in any known layout and checked cell by cell."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from simulator.errors import InputError
from simulator.resources import data_root
from simulator.workload.files import RowFile, open_rows, shorten
from simulator.workload.layouts import CLASS, LAYOUTS, Clock, Column, Layout
from simulator.workload.workload import BlockIds, Classes, Integers


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests as recorded: lengths in tokens; where known, arrivals in seconds, prefix blocks, classes."""

    name: str
    prompt_tokens: Integers
    output_tokens: Integers
    arrival_s: NDArray[np.float64] | None = None
    block_ids: BlockIds | None = None
    classes: Classes | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    def take(self, rows: Integers) -> Self:
        """The given requests, in the given order, with whatever is known of them."""
        return replace(
            self,
            prompt_tokens=self.prompt_tokens[rows],
            output_tokens=self.output_tokens[rows],
            arrival_s=None if self.arrival_s is None else self.arrival_s[rows],
            block_ids=self.block_ids and self.block_ids.take(rows),
            classes=self.classes and self.classes.take(rows),
        )

    def noted(self, note: str) -> Self:
        """The same with one more note for the reader of the results."""
        return replace(self, notes=(*self.notes, note))


def shipped_traces() -> dict[str, Path]:
    """The traces that come with the package, by name."""
    return {path.stem: path for path in sorted((data_root() / "traces").glob("*.csv"))}


def find_trace(name: str) -> Path:
    """The file of a shipped trace or of a path; InputError names the shipped ones where there is neither."""
    shipped = shipped_traces()
    if name in shipped:
        return shipped[name]
    try:
        path = Path(name).expanduser()
        if path.exists():
            return path
    except (OSError, RuntimeError, ValueError):  # a name too long, an unknown ~user, a NUL: no file either
        pass
    raise InputError(f"trace {shorten(name)}: no such file (shipped traces: {', '.join(shipped)})")


def read_trace(path: Path) -> Trace:
    """Read and check every request of a trace; InputError names file, line, column, found and allowed.

    Unsorted arrivals are refused, not sorted: they betray another column than the one thought of, or a log in
    order of completion. A request without output is refused too: an engine yields one token at the least.
    """
    rows = open_rows(path)
    layout = _layout_of(rows)
    columns = [column for column in layout.columns() if column.name in rows.columns]
    found = read_columns(rows, columns)
    prompt = np.array(found[layout.prompt], dtype=np.int64)
    if not len(prompt):
        raise InputError(f"{path}: has a header and no requests")
    return Trace(
        name=path.stem,
        prompt_tokens=prompt,
        output_tokens=np.array(found[layout.output], dtype=np.int64),
        arrival_s=_arrivals(rows, layout.clock, found.get(layout.clock.column)),
        block_ids=_block_ids(rows, layout, found, prompt),
        classes=_classes(found.get(CLASS)),
    )


def _layout_of(rows: RowFile) -> Layout:
    """The first layout whose columns are all there; InputError says what is there and what would do."""
    for layout in LAYOUTS:
        if set(layout.required()) <= set(rows.columns):
            return layout
    nearest = max(LAYOUTS, key=lambda layout: len(set(layout.required()) & set(rows.columns)))
    missing = [name for name in nearest.required() if name not in rows.columns]
    accepted = "; ".join(", ".join(layout.required()) for layout in LAYOUTS)
    found = shorten(", ".join(rows.columns), limit=160)
    raise InputError(
        f"{rows.path}: no column {' or '.join(missing)} (found: {found}; accepted sets: {accepted})"
    )


def read_columns(rows: RowFile, columns: list[Column]) -> dict[str, list[Any]]:
    """The checked values of each column; InputError names the file, place, column, found and allowed."""
    values: dict[str, list[Any]] = {column.name: [] for column in columns}
    for block in rows.read(list(values)):
        for column, cells in zip(columns, block, strict=True):
            _read_cells(rows, column, cells, into=values[column.name])
    return values


def _read_cells(rows: RowFile, column: Column, cells: list[Any], into: list[Any]) -> None:
    start = len(into)
    try:
        for cell in cells:
            into.append(column.parse(cell))
    except (TypeError, ValueError, OverflowError):
        place, found = rows.place(len(into)), shorten(cells[len(into) - start])
        raise InputError(
            f"{rows.path}, {place}: {column.name} is {found} (allowed: {column.allowed})"
        ) from None


def _arrivals(rows: RowFile, clock: Clock, values: list[float] | None) -> NDArray[np.float64] | None:
    if values is None:
        return None
    times = np.array(values, dtype=np.float64)
    backwards = np.flatnonzero(np.diff(times) < 0)
    if len(backwards):
        place = rows.place(int(backwards[0]) + 1)
        raise InputError(
            f"{rows.path}, {place}: {clock.column} is earlier than on the row before"
            f" (requests must be in order of arrival: sort the file by {clock.column})"
        )
    if not clock.from_first:
        return times
    since_first: NDArray[np.float64] = np.round(
        times - times[0], 6
    )  # below a microsecond there is only noise
    return since_first


def _block_ids(
    rows: RowFile, layout: Layout, found: dict[str, list[Any]], prompt: Integers
) -> BlockIds | None:
    column = next((name for name in layout.blocks if name in found), None)
    if column is None:
        return None
    blocks = BlockIds.of_rows(found[column], layout.block_tokens)
    counts = np.diff(blocks.offsets)
    excess = np.flatnonzero(counts > -(-prompt // layout.block_tokens))
    if len(excess):
        row = int(excess[0])
        raise InputError(
            f"{rows.path}, {rows.place(row)}: {column} has {counts[row]} ids for"
            f" {prompt[row]} prompt tokens (allowed: one for every {layout.block_tokens})"
        )
    for row, ids in enumerate(found[column]):
        if len(set(ids)) < len(ids):
            raise InputError(
                f"{rows.path}, {rows.place(row)}: {column} has {Counter(ids).most_common(1)[0][0]} more than"
                " once (allowed: once, since an id stands for a block and all that is before it)"
            )
    return blocks


def _classes(values: list[str] | None) -> Classes | None:
    if values is None:
        return None
    codes = {name: code for code, name in enumerate(dict.fromkeys(values))}
    return Classes(tuple(codes), np.array([codes[name] for name in values], dtype=np.int64))
