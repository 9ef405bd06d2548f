"""Capacity: the largest arrival rate at which a deployment holds its SLO in a stable run.

The definition is the Sarathi-Serve paper's (section 5.1): P99 TBT within its bound and a median scheduling
delay of at most two seconds. Each replication (a seed) has a capacity of its own; their mean is the answer
and their spread its interval. Nothing is cut from a run's start or end beyond the scenario's `warmup_s`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

from simulator.errors import ConfigError, InfeasibleError
from simulator.metrics import overall
from simulator.search.effort import Effort
from simulator.search.replication import (
    TRIAL_REQUESTS,
    Aim,
    SeedCapacity,
    rough_scenario,
    search_roughly,
    search_seed,
)
from simulator.search.stats import Interval, mean, mean_interval
from simulator.search.trials import Trial

if TYPE_CHECKING:
    from simulator.config import Scenario

MEDIAN_DELAY_KEY, MEDIAN_DELAY_S = "p50_scheduling_delay_s", 2.0
"""Bound on the scheduling delay that is added where the SLO names none (the paper's)."""
CONTENDER_SHARE = 0.75
"""Rough capacities below this share of the best stay rough."""
DECIMALS = 6

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Capacity:
    """Capacity over replications, in requests per second."""

    scenario: Scenario
    by_seed: tuple[SeedCapacity, ...]
    is_rough: bool = False
    """Whether it comes from one run with a part of the requests."""

    @property
    def capacity_rps(self) -> float:
        """Mean of the largest rates that held, one per seed."""
        return round(mean([seed.holds_rps for seed in self.by_seed]), DECIMALS)

    @property
    def is_least(self) -> bool:
        """Whether it may be larger, as some seed held at every rate that was tried."""
        return any(seed.fails_rps is None for seed in self.by_seed)

    @property
    def interval_rps(self) -> Interval | None:
        """95 % interval: its low end from the rates that held, its high end from those that did not.

        None for a single run, which says nothing about another seed, and where nothing is known to fail.
        """
        held = [seed.holds_rps for seed in self.by_seed]
        failed = [seed.fails_rps for seed in self.by_seed if seed.fails_rps is not None]
        if self.is_least:
            return None
        width = mean(failed) - mean(held)
        low, high = mean_interval(held, width), mean_interval(failed, width)
        if low is None or high is None:
            return None
        return Interval(round(max(0.0, low.low), DECIMALS), round(high.high, DECIMALS))

    @property
    def beyond(self) -> Trial | None:
        """The first seed's trial just beyond its capacity, which shows what breaks first."""
        return self.by_seed[0].beyond

    @property
    def at_capacity(self) -> tuple[Trial, ...]:
        """Each seed's trial at its capacity."""
        return tuple(seed.at_capacity for seed in self.by_seed if seed.at_capacity is not None)

    def ties_with(self, other: Capacity, tolerance: float) -> bool:
        """Whether the two differ by less than a search resolves or than seeds do, paired by seed."""
        if self.is_rough or other.is_rough:
            return False
        gaps = [a.holds_rps - b.holds_rps for a, b in zip(self.by_seed, other.by_seed, strict=False)]
        interval = mean_interval(gaps)
        resolved = abs(mean(gaps)) > tolerance * max(self.capacity_rps, other.capacity_rps)
        return not resolved or (interval is not None and interval.contains(0.0))


def capacity_scenario(scenario: Scenario) -> Scenario:
    """The scenario as a capacity search loads it: arrivals at a rate, an SLO with a scheduling delay.

    Poisson arrivals take the place of recorded times and of bursts. Raises ConfigError without an SLO, and
    for runs that are cut off.
    """
    if scenario.until_s is not None:
        raise ConfigError("until_s: a search lets every run end (leave it out)")
    if not scenario.slo:
        raise ConfigError("a capacity needs an SLO: for example --set slo.p99_tbt_ms=100")
    updates: dict[str, object] = {"workload.rate_rps": 1.0, "workload.speed": 1.0}
    if scenario.workload.arrivals not in ("gamma", "constant", "on_off", "curve"):
        updates["workload.arrivals"] = "poisson"
    if scenario.workload.num_requests is None:
        updates["workload.num_requests"] = TRIAL_REQUESTS
    if not any("_scheduling_delay_" in key for key in overall(scenario.slo)):
        updates[f"slo.{MEDIAN_DELAY_KEY}"] = MEDIAN_DELAY_S
    return scenario.with_(updates)


def find_capacity(scenario: Scenario, effort: Effort) -> Capacity:
    """The capacity of a scenario; InfeasibleError where the SLO holds at no load."""
    table: CapacityTable[str] = CapacityTable(effort)
    table.search({"": capacity_scenario(scenario)})
    capacity = table.found[""]
    if not capacity.capacity_rps:
        raise InfeasibleError(f"the SLO holds at no load: {describe_miss(capacity.beyond)}")
    return capacity


class CapacityTable(Generic[Key]):
    """Capacities of many scenarios over the same seeds, searched round by round on several processes.

    Each scenario is first searched roughly; where that is far below the best one it stays rough, for nobody
    will choose it.
    """

    def __init__(self, effort: Effort) -> None:
        self.effort = effort
        self.aims: dict[Key, Aim] = {}
        self.found: dict[Key, Capacity] = {}
        self._best_rps = 0.0

    def search(self, scenarios: Mapping[Key, Scenario], aim: Aim | None = None) -> None:
        """Find the capacity of each scenario, the rough searches starting at the aim if one is given."""
        effort = self.effort
        calls = [(scenario, effort.seed, aim, effort.run) for scenario in scenarios.values()]
        outcomes = effort.fan_out(search_roughly, calls, lambda outcome: self._tell(outcome[1]))
        rough = dict(zip(scenarios, outcomes, strict=True))
        for key, scenario in scenarios.items():
            self.aims[key], found = rough[key]
            self.found[key] = Capacity(rough_scenario(scenario), (found,), is_rough=True)
        best = max((capacity.capacity_rps for capacity in self.found.values()), default=0.0)
        self._search_fully(
            {
                key: scenario
                for key, scenario in scenarios.items()
                if self.found[key].capacity_rps >= CONTENDER_SHARE * best > 0
            }
        )

    def _search_fully(self, scenarios: Mapping[Key, Scenario]) -> None:
        effort = self.effort
        calls = [
            (scenario, seed, self.aims[key], effort.tolerance, effort.run)
            for key, scenario in scenarios.items()
            for seed in effort.seeds
        ]
        searched = iter(effort.fan_out(search_seed, calls, self._tell))
        for key, scenario in scenarios.items():
            self.found[key] = Capacity(scenario, tuple(islice(searched, effort.runs)))

    def _tell(self, found: SeedCapacity) -> None:
        """Let the progress know of the best replication so far."""
        if found.at_capacity is not None and found.holds_rps > self._best_rps:
            self._best_rps = found.holds_rps
            settings = found.at_capacity.scenario.scheduler
            self.effort.progress.best(
                f"{found.holds_rps:.3g} requests/s with {settings.policy}, budget {settings.token_budget}"
            )


def describe_miss(trial: Trial | None) -> str:
    """The nearest miss in words: the rate, and which bounds were broken by how much."""
    if trial is None:
        return "no trial was run"
    bounds = trial.scenario.slo
    broken = [
        f"{key} is over {bounds[key]:g}" if value is None else f"{key} is {value:.4g} (bound {bounds[key]:g})"
        for key, value in trial.violations.items()
    ]
    rate = trial.scenario.workload.rate_rps
    return f"at {rate:.3g} requests/s {', '.join(broken) or f'the run is {trial.stability}'}"
