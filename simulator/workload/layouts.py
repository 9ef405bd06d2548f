"""What the known kinds of trace call their columns, and how their cells are read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from simulator.workload.spec import MAX_SECONDS, MAX_TOKENS

CLASS = "class"
"""Column that any layout may have: the name of the request's class."""


def finite_number(cell: Any) -> float:
    """A number that is neither infinite nor a truth value."""
    if isinstance(cell, bool):
        raise TypeError
    value = float(cell)
    if not math.isfinite(value):
        raise ValueError
    return value


def token_count(cell: Any) -> int:
    """A believable number of tokens, at least one."""
    value = float(cell)
    if not 1 <= value <= MAX_TOKENS or value % 1 or cell is True:
        raise ValueError
    return int(value)


def _seconds(cell: Any) -> float:
    value = float(cell)
    if not 0 <= value <= MAX_SECONDS or isinstance(cell, bool):
        raise ValueError
    return value


def _milliseconds(cell: Any) -> float:
    return _seconds(finite_number(cell) / 1000)


def _moment(cell: Any) -> float:
    """Seconds of a date and time, UTC where no zone is given; the near epoch keeps microseconds exact."""
    moment = cell if isinstance(cell, datetime) else datetime.fromisoformat(cell)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round((moment - datetime(2020, 1, 1, tzinfo=UTC)).total_seconds(), 6)


def _ids(cell: Any) -> list[int]:
    """Block ids: a list of whole numbers, or in a CSV such numbers with spaces between."""
    ids = [int(part) for part in cell.split()] if isinstance(cell, str) else list(cell)
    if not all(type(number) is int and 0 <= number < 2**63 for number in ids):
        raise ValueError
    return ids


def _class(cell: Any) -> str:
    if not isinstance(cell, str) or not cell.strip():
        raise ValueError
    return cell.strip()


@dataclass(frozen=True)
class Column:
    """A column: its name, how a cell is read (errors of value or type refuse it), the allowed in words."""

    name: str
    parse: Callable[[Any], Any]
    allowed: str


@dataclass(frozen=True)
class Clock:
    """How a layout writes arrivals; `from_first` counts time from the first of them."""

    column: str
    parse: Callable[[Any], float] = _seconds
    allowed: str = "seconds from the start, 0 to 1e9"
    from_first: bool = False
    required: bool = True


@dataclass(frozen=True)
class Layout:
    """The columns of one kind of trace; `blocks` are optional columns of prefix block ids, the first wins."""

    prompt: str
    output: str
    clock: Clock
    blocks: tuple[str, ...] = ()
    block_tokens: int = 16

    def required(self) -> list[str]:
        """Columns without which a file is not of this layout."""
        return [*([self.clock.column] if self.clock.required else []), self.prompt, self.output]

    def columns(self) -> list[Column]:
        """Every column that means something in this layout."""
        allowed = f"a whole number of tokens, 1 to {MAX_TOKENS}"
        columns = [
            Column(self.prompt, token_count, allowed),
            Column(self.output, token_count, allowed),
            Column(self.clock.column, self.clock.parse, self.clock.allowed),
            Column(CLASS, _class, "a name"),
        ]
        return columns + [Column(name, _ids, "whole numbers from 0") for name in self.blocks]


LAYOUTS = (
    # ours; one block id for each full 16 tokens of the prompt, as vLLM makes them
    Layout(
        "prompt_tokens",
        "output_tokens",
        Clock("arrival_s", required=False),
        ("block_ids", "prompt_block_ids"),
    ),
    # Azure LLM inference traces, 2023 and 2024
    Layout(
        "ContextTokens",
        "GeneratedTokens",
        Clock("TIMESTAMP", _moment, "a date and time as in 2023-11-16 18:15:46.68", from_first=True),
    ),
    # Mooncake: hash ids of blocks of 512 tokens
    Layout(
        "input_length",
        "output_length",
        Clock("timestamp", _milliseconds, "milliseconds from the start, 0 to 1e12"),
        ("hash_ids",),
        block_tokens=512,
    ),
    # Vidur and Sarathi-Serve, with or without arrivals
    Layout("num_prefill_tokens", "num_decode_tokens", Clock("arrived_at", required=False)),
    # requests recorded from a vLLM engine, on the wall clock
    Layout(
        "input_toks",
        "output_toks",
        Clock("arrival_time", finite_number, "seconds since 1970", from_first=True),
    ),
)
