"""What every JSON document starts with, and the mean of several runs' documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simulator.search.stats import Interval, mean

if TYPE_CHECKING:
    from simulator.config import Scenario
    from simulator.search.effort import Effort

SCHEMA_VERSION = 1
"""Raised whenever a key changes its name or meaning."""


def header(command: str, scenario: Scenario, effort: Effort) -> dict[str, Any]:
    """Schema version, command, seeds and the resolved scenario."""
    return command_header(command) | {
        "seed": effort.seed,
        "runs": effort.runs,
        "scenario": scenario.model_dump(mode="json"),
    }


def command_header(command: str) -> dict[str, Any]:
    """Schema version and command: all that a document without a scenario starts with."""
    return {"schema_version": SCHEMA_VERSION, "command": command}


def ends(interval: Interval | None) -> list[float] | None:
    """An interval as a JSON list."""
    return None if interval is None else list(interval)


def averaged(values: Sequence[Any]) -> Any:
    """The mean of documents of one shape, leaf by leaf; leaves that are no numbers and differ become null."""
    first = values[0]
    if all(value == first for value in values):
        return first
    if all(isinstance(value, int | float) for value in values):
        return mean(values)
    if all(isinstance(value, dict) for value in values):
        return {key: averaged([value[key] for value in values]) for key in first}
    if all(isinstance(value, list) and len(value) == len(first) for value in values):
        return [averaged(leaves) for leaves in zip(*values, strict=True)]
    return None
