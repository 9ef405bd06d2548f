"""Labelled scenarios, each run with the same seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from simulator.search.inputs import depends_on_seed
from simulator.search.stats import mean

if TYPE_CHECKING:
    from simulator.config import Scenario
    from simulator.search.effort import Effort
    from simulator.search.trials import Trial


@dataclass(frozen=True, slots=True)
class Variant:
    """A labelled scenario and its trials, one per seed."""

    label: str
    scenario: Scenario
    trials: tuple[Trial, ...] = ()

    def values(self, name: str, statistic: str | None = None, of_class: str = "") -> list[float]:
        """A metric's statistic (or a plain field of the result) in every run; empty if any run lacks it."""
        values = [trial.value(name, statistic, of_class) for trial in self.trials]
        present = [value for value in values if value is not None]
        return present if len(present) == len(values) else []

    def mean(self, name: str, statistic: str | None = None, of_class: str = "") -> float | None:
        """Mean over the runs; None where a run measured nothing."""
        values = self.values(name, statistic, of_class)
        return mean(values) if values else None

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of requests that every run knows."""
        found = [trial.document.get("classes", {}) for trial in self.trials]
        return tuple(name for name in found[0] if all(name in each for each in found)) if found else ()

    def runs_held(self) -> int:
        """In how many runs the SLO held."""
        return sum(trial.holds for trial in self.trials)


def run_variants(variants: Sequence[tuple[str, Scenario]], effort: Effort) -> list[Variant]:
    """Simulate every labelled scenario with every seed; equal workloads then draw the same requests.

    One run must do where none depends on the seed.
    """
    seeds = effort.seeds
    if not any(depends_on_seed(scenario, effort.seed) for _, scenario in variants):
        seeds = seeds[:1]
    calls = [(scenario, seed) for _, scenario in variants for seed in seeds]
    trials = iter(effort.fan_out(effort.run, calls))
    return [Variant(label, scenario, tuple(islice(trials, len(seeds)))) for label, scenario in variants]
