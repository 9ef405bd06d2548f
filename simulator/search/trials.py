"""One trial: a simulated run reduced to what searches compare, small enough to send between processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator.config import Scenario
    from simulator.metrics import Result


@dataclass(frozen=True, slots=True)
class Trial:
    """A scenario simulated with one seed: its metrics, and how they stand against its SLO."""

    scenario: Scenario
    seed: int
    document: Mapping[str, Any]
    """The result as it goes into JSON."""
    violations: Mapping[str, float]
    """Measured value of each SLO key that is broken, in the key's unit."""

    @classmethod
    def of(cls, result: Result, scenario: Scenario, seed: int) -> Trial:
        """Keep what a search needs of a result."""
        broken = {key: result.value(key) or 0.0 for key in result.violations(scenario.slo)}
        return cls(scenario, seed, result.to_dict(), broken)

    @property
    def stability(self) -> str:
        """`stable`, `backlogged` or `overloaded`."""
        return str(self.document["stability"])

    @property
    def holds(self) -> bool:
        """Whether the run was stable and within its SLO; an overloaded run proves nothing."""
        completed = self.document["requests_completed"] > 0
        return completed and self.stability not in ("backlogged", "overloaded") and not self.violations

    def value(self, name: str, statistic: str | None = None) -> float | None:
        """One statistic of a latency in seconds, `value("tbt_s", "p99")`, or a field of the result,
        `value("throughput_rps")`; None where nothing was measured."""
        number: float | None = (
            self.document[name] if statistic is None else self.document["metrics"][name][statistic]
        )
        return number


RunTrial = Callable[["Scenario", int], Trial]
"""How a search runs one trial; tests put a formula in its place."""


def run_trial(scenario: Scenario, seed: int) -> Trial:
    """Simulate `scenario` with `seed`."""
    from simulator.run import simulate
    from simulator.search.inputs import latency_of, requests_of

    workload, latency = requests_of(scenario.workload, seed), latency_of(scenario)
    return Trial.of(simulate(scenario, seed, workload=workload, latency=latency), scenario, seed)
