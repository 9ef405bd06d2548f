"""One trial: a simulated run reduced to what searches compare, small enough to send between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from simulator.config import Scenario
    from simulator.metrics import Result

STOPPED = "stopped"
UNSTABLE = ("backlogged", "overloaded")


@dataclass(frozen=True, slots=True)
class Trial:
    """A scenario simulated with one seed: its metrics, and how they stand against its SLO."""

    scenario: Scenario
    seed: int
    document: Mapping[str, Any]
    """The result as it goes into JSON; empty for a run that was ended once its SLO was certainly broken."""
    violations: Mapping[str, float | None]
    """Measured value of each broken SLO key, in the key's unit; None where the run ended before that."""

    @classmethod
    def of(cls, result: Result, scenario: Scenario, seed: int) -> Trial:
        """Keep what a search needs of a result."""
        broken = {key: result.value(key) for key in result.violations(scenario.slo)}
        return cls(scenario, seed, result.to_dict(), broken)

    @property
    def stability(self) -> str:
        """`stable`, `backlogged`, `overloaded`, `n/a` for a burst, or `stopped` for a run that was ended."""
        return str(self.document.get("stability", STOPPED))

    @property
    def holds(self) -> bool:
        """Whether the run kept up and stayed within its SLO; an overloaded run proves nothing."""
        return bool(
            self.document
            and self.document["requests_counted"]
            and self.stability not in UNSTABLE
            and not self.violations
        )

    def value(self, name: str, statistic: str | None = None, of_class: str = "") -> float | None:
        """One statistic of a latency in seconds, `value("tbt_s", "p99")`, or a field of the result,
        `value("throughput_rps")`; None where nothing was measured."""
        document = self.document["classes"][of_class] if of_class else self.document
        number: float | None = document[name] if statistic is None else document["metrics"][name][statistic]
        return number


class RunTrial(Protocol):
    """How a search runs one trial; tests put a formula in its place."""

    def __call__(self, scenario: Scenario, seed: int, *, only_verdict: bool = False) -> Trial:
        """Simulate; a run of which only the verdict matters may end once the SLO is certainly broken."""


def run_trial(scenario: Scenario, seed: int, *, only_verdict: bool = False) -> Trial:
    """Simulate `scenario` with `seed`, to its end or to the certain verdict that its SLO is broken."""
    from simulator.run import simulate
    from simulator.search.inputs import latency_of, requests_of
    from simulator.watch import SLOBroken, Watch

    workload, latency = requests_of(scenario.workload, seed), latency_of(scenario)
    # A watch counts the warm-up's requests, which the metrics leave out.
    watch = Watch(scenario.slo, workload) if only_verdict and not scenario.warmup_s else None
    try:
        result = simulate(scenario, seed, workload=workload, latency=latency, watch=watch)
    except SLOBroken as broken:
        return Trial(scenario, seed, {}, {str(broken): None})
    return Trial.of(result, scenario, seed)
