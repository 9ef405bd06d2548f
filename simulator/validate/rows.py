"""Reads runs written one request to a row: CSV, JSON lines or Parquet, on one clock or as vLLM's engine logs.

A `workload.jsonl` beside the file may hold the token blocks of the prompts, which prefix caching needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from simulator.errors import InputError
from simulator.validate.recorded import RecordedRun, Rows, recorded_run
from simulator.workload.files import RowFile, shorten
from simulator.workload.layouts import Column, finite_number, token_count
from simulator.workload.spec import MAX_TOKENS
from simulator.workload.traces import read_columns, read_trace

WORKLOAD_FILE = "workload.jsonl"


@dataclass(frozen=True)
class RunLayout:
    """What a kind of file calls its columns; `engine_clock` columns have another zero than the arrivals."""

    kind: str
    arrival: str
    prompt: str
    output: str
    first_token: str
    finished: str
    scheduled: str
    queued: str
    engine_clock: bool = False

    def required(self) -> list[str]:
        """Columns without which a file is not of this layout."""
        queued = [self.queued] if self.engine_clock else []
        return [self.arrival, self.prompt, self.output, *queued, self.first_token, self.finished]


LAYOUTS = (
    RunLayout(
        "a table of requests",
        "arrival_s",
        "prompt_tokens",
        "output_tokens",
        "first_token_s",
        "last_token_s",
        "scheduled_s",
        "queued_s",
    ),
    RunLayout(
        "requests recorded by vLLM's engine",
        "arrival_time",
        "input_toks",
        "output_toks",
        "first_token_ts",
        "last_token_ts",
        "scheduled_ts",
        "queued_ts",
        engine_clock=True,
    ),
)
TOKEN_TIMES = "token_s"
"""In a table of requests: the time of each output token, in place of the first's and the last's."""

TABLE = LAYOUTS[0]
TABLE_WITH_TOKENS = [TABLE.arrival, TABLE.prompt, TABLE.output, TOKEN_TIMES]


def is_row(columns: Iterable[str]) -> bool:
    """Whether an object with those keys can be a row of such a file."""
    layouts = [TABLE_WITH_TOKENS, *(layout.required() for layout in LAYOUTS)]
    return any(set(names) <= set(columns) for names in layouts)


def read_rows(rows: RowFile) -> RecordedRun:
    """The run in a file of rows; InputError names the file, the row and the column."""
    if set(TABLE_WITH_TOKENS) <= set(rows.columns):
        kind, found = TABLE.kind, _with_token_times(rows)
    else:
        layout = _layout_of(rows)
        kind, found = layout.kind, _with_first_and_last(rows, layout)
    run = recorded_run(rows.path, kind, found, rows.place)
    return _with_blocks(run, rows.path.parent / WORKLOAD_FILE)


def _layout_of(rows: RowFile) -> RunLayout:
    """The first layout whose columns are all there; InputError says what is there and what would do."""
    present = set(rows.columns)
    for layout in LAYOUTS:
        if set(layout.required()) <= present:
            return layout
    nearest = max(LAYOUTS, key=lambda layout: len(set(layout.required()) & present))
    missing = [name for name in nearest.required() if name not in present]
    accepted = [TABLE.required(), TABLE_WITH_TOKENS, *(layout.required() for layout in LAYOUTS[1:])]
    raise InputError(
        f"{rows.path}: no column {' or '.join(missing)} (found: {shorten(', '.join(rows.columns), 160)};"
        f" accepted sets: {'; '.join(', '.join(names) for names in accepted)})"
    )


def _with_first_and_last(rows: RowFile, layout: RunLayout) -> Rows:
    moments = [layout.first_token, layout.finished, layout.scheduled, layout.queued]
    found = _read(rows, [layout.arrival, *moments], layout)
    shift = 0.0
    notes = []
    if layout.engine_clock and found[layout.arrival]:
        shift = min(
            queued - arrival
            for queued, arrival in zip(found[layout.queued], found[layout.arrival], strict=True)
        )
        notes.append(
            "the engine's clock is set by the request that it took out of its queue the soonest after arrival"
        )

    def on_arrival_clock(name: str) -> Sequence[float] | None:
        values = found.get(name)
        return None if values is None else [value - shift for value in values]

    return Rows(
        arrival_s=found[layout.arrival],
        prompt_tokens=found[layout.prompt],
        output_tokens=found[layout.output],
        first_token_s=on_arrival_clock(layout.first_token) or [],
        finished_s=on_arrival_clock(layout.finished) or [],
        scheduled_s=on_arrival_clock(layout.scheduled),
        queued_s=on_arrival_clock(layout.queued),
        notes=notes,
    )


def _with_token_times(rows: RowFile) -> Rows:
    found = _read(rows, [TABLE.arrival, TABLE.scheduled, TABLE.queued], TABLE, tokens=True)
    times = found[TOKEN_TIMES]
    for row, (moments, count) in enumerate(zip(times, found[TABLE.output], strict=True)):
        if len(moments) != count:
            raise InputError(
                f"{rows.path}, {rows.place(row)}: {TOKEN_TIMES} has {len(moments)} times for {count} tokens"
            )
    return Rows(
        arrival_s=found[TABLE.arrival],
        prompt_tokens=found[TABLE.prompt],
        output_tokens=found[TABLE.output],
        first_token_s=[moments[0] for moments in times],
        finished_s=[moments[-1] for moments in times],
        scheduled_s=found.get(TABLE.scheduled),
        queued_s=found.get(TABLE.queued),
        gaps_s=[[after - before for before, after in pairwise(moments)] for moments in times],
    )


def _read(rows: RowFile, moments: list[str], layout: RunLayout, tokens: bool = False) -> dict[str, list[Any]]:
    """The checked cells of those columns that the file has."""
    lengths = f"a whole number of tokens, 1 to {MAX_TOKENS}"
    columns = [
        Column(layout.prompt, token_count, lengths),
        Column(layout.output, token_count, lengths),
        *(Column(name, finite_number, "seconds") for name in moments),
        *([Column(TOKEN_TIMES, _increasing, "times in seconds, none before the last")] if tokens else []),
    ]
    return read_columns(rows, [column for column in columns if column.name in rows.columns])


def _increasing(cell: Any) -> list[float]:
    """Token times: a list of numbers, or in a CSV such numbers with spaces between."""
    times = [finite_number(part) for part in (cell.split() if isinstance(cell, str) else list(cell))]
    if any(after < before for before, after in pairwise(times)):
        raise ValueError
    return times


def _with_blocks(run: RecordedRun, path: Path) -> RecordedRun:
    """The run with the token blocks of its prompts, where a workload file beside it has them."""
    if not path.is_file():
        return run
    trace = read_trace(path)
    if trace.block_ids is None:
        return run
    same = len(trace) == len(run) and np.array_equal(trace.prompt_tokens, run.prompt_tokens)
    if not same:
        raise InputError(
            f"{path}: its prompts are not those of the run beside it, in order of arrival"
            " (rename the file if it belongs to another run)"
        )
    note = f"prompts share prefixes as {path.name} beside the run says"
    return replace(run, block_ids=trace.block_ids, notes=(*run.notes, note))
