"""Experiments: named calls that need the lab and nothing else, so that they can run on any process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from simulator.reproduce.lab import Lab
from simulator.reproduce.rows import Ledger

Experiment = tuple[Any, ...]
"""A function of the lab, and its further arguments; it returns plain values."""
Experiments = dict[str, Experiment]
Results = Mapping[str, Any]


class Group(Protocol):
    """What a module of this package offers: the experiments of one part of the paper, and their rows."""

    def experiments(self, lab: Lab) -> Experiments:
        """What to run, by an id that starts with the group's name."""

    def report(self, ledger: Ledger, results: Results) -> None:
        """Add the rows that follow from the group's own results."""


def perform(lab: Lab, function: Callable[..., Any], *arguments: Any) -> Any:
    """Run one experiment."""
    return function(lab, *arguments)
