"""Confirms what a plan's screening suggests: whole fleets behind their router, at full length, every seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import sqrt
from typing import TYPE_CHECKING

from simulator.search.plan_screen import Screened
from simulator.search.plan_space import Question, Settings, Split, ratios, serves
from simulator.search.replicate import Variant
from simulator.search.stats import mean, t_quantile

if TYPE_CHECKING:
    from simulator.config import Scenario
    from simulator.search.effort import Effort
    from simulator.search.trials import Trial

SPAN = 1.5
"""Deployments that cost more than so many times the cheapest are left out."""
MOST_OPTIONS = 2
"""Settings tried with a number of replicas before there is one more."""
FEW_OF = 20
LEAST_SPREAD_RUNS = 3


@dataclass(frozen=True, slots=True)
class Fleet:
    """A deployment on trial: replicas of one split, and which of the settings that looked good."""

    split: Split
    replicas: int
    options: tuple[Settings, ...]
    option: int = 0

    @classmethod
    def of(cls, screened: Screened) -> Fleet:
        """What the screening suggests."""
        return cls(screened.split, screened.replicas, screened.options[:MOST_OPTIONS])

    @property
    def settings(self) -> Settings:
        """The settings on trial."""
        return self.options[self.option]

    @property
    def next(self) -> Fleet:
        """The next settings or, after the last ones, another replica."""
        if self.option + 1 < len(self.options):
            return replace(self, option=self.option + 1)
        return self.larger

    @property
    def larger(self) -> Fleet:
        """One more replica, or a few more of many."""
        return replace(self, replicas=self.replicas + max(1, self.replicas // FEW_OF), option=0)

    def cost_per_hour(self, question: Question) -> float:
        """US dollars."""
        return question.cost_per_hour(self.split, self.replicas)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A fleet that holds the SLO, and its runs."""

    split: Split
    settings: Settings
    replicas: int
    cost_per_hour: float
    """US dollars."""
    runs: Variant

    @property
    def scenario(self) -> Scenario:
        """The fleet under the load."""
        return self.runs.scenario

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.split.gpus * self.replicas

    @property
    def fleet(self) -> Fleet:
        """The same as a fleet on trial, with these settings alone."""
        return Fleet(self.split, self.replicas, (self.settings,))

    @property
    def e2e_s(self) -> float:
        """Median time of a request from arrival to last token, in seconds: the latency that a plan weighs."""
        return self.runs.mean("e2e_s", "p50") or 0.0

    @property
    def shares(self) -> dict[str, float]:
        """Each bounded quantity over its bound, in the run in which it came nearest."""
        return {key: max(ratios(trial)[key] for trial in self.runs.trials) for key in self.runs.scenario.slo}


def confirm(fleets: Sequence[Fleet], question: Question, effort: Effort) -> list[Deployment]:
    """Of each split the smallest fleet that holds, as far as it costs at most SPAN times the cheapest."""
    confirmed: list[Deployment] = []
    pending = list(fleets)
    while pending := allowed(pending, question):
        costs = [each.cost_per_hour for each in confirmed] or [
            each.cost_per_hour(question) for each in pending
        ]
        going = [each for each in pending if each.cost_per_hour(question) <= SPAN * min(costs)]
        if not going:
            break
        effort.progress(f"whole fleets: {', '.join(describe(fleet) for fleet in going)}")
        outcomes = try_fleets(going, question, effort)
        confirmed += [found for found in outcomes if found is not None]
        if confirmed:
            cheapest = min(confirmed, key=lambda found: found.cost_per_hour)
            effort.progress.best(f"${cheapest.cost_per_hour:.2f} an hour, {describe(cheapest.fleet)}")
        pending = [each for each in pending if each not in going]
        pending += [fleet.next for fleet, found in zip(going, outcomes, strict=True) if found is None]
    return confirmed


def allowed(fleets: Sequence[Fleet], question: Question) -> list[Fleet]:
    """The fleets within the bound on GPUs."""
    return [fleet for fleet in fleets if fleet.replicas <= question.most_replicas(fleet.split)]


def try_fleets(fleets: Sequence[Fleet], question: Question, effort: Effort) -> list[Deployment | None]:
    """Each fleet as a deployment if it holds with every seed, and would with another; else None."""
    scenarios = [question.fleet(fleet.split, fleet.settings, fleet.replicas) for fleet in fleets]
    first = _trials(scenarios, effort.seeds[:1], effort)
    going = [scenario for scenario, (trial,) in zip(scenarios, first, strict=True) if serves(trial)]
    others = iter(_trials(going, effort.seeds[1:], effort))
    return [
        _deployment(fleet, (*trials, *next(others)), question) if serves(trials[0]) else None
        for fleet, trials in zip(fleets, first, strict=True)
    ]


def holds_with_fresh_seeds(found: Deployment, effort: Effort) -> bool:
    """Whether a deployment holds with as many seeds again as it was confirmed with."""
    effort.progress(f"fresh seeds: {describe(found.fleet)}")
    end = effort.seeds.stop
    [trials] = _trials([found.scenario], range(end, end + effort.runs), effort)
    return all(serves(trial) for trial in trials)


def _trials(scenarios: Sequence[Scenario], seeds: range, effort: Effort) -> list[tuple[Trial, ...]]:
    calls = [(scenario, seed) for scenario in scenarios for seed in seeds]
    trials = iter(effort.fan_out(partial(effort.run, only_verdict=True), calls))
    return [tuple(islice(trials, len(seeds))) for _ in scenarios]


def _deployment(fleet: Fleet, trials: tuple[Trial, ...], question: Question) -> Deployment | None:
    if not all(serves(trial) for trial in trials) or not would_hold_again(trials):
        return None
    return Deployment(
        fleet.split,
        fleet.settings,
        fleet.replicas,
        question.cost_per_hour(fleet.split, fleet.replicas),
        Variant(describe(fleet), trials[0].scenario, trials),
    )


def would_hold_again(trials: Sequence[Trial]) -> bool:
    """Whether a run with yet another seed can be expected to hold: each bound lies beyond the 95 % prediction
    interval of one more run. Fewer than three runs say nothing of their spread, and pass."""
    if len(trials) < LEAST_SPREAD_RUNS:
        return True
    by_run = [ratios(trial) for trial in trials]
    return all(_upper([each[key] for each in by_run]) <= 1 for key in by_run[0])


def _upper(values: Sequence[float]) -> float:
    """The upper end of the 95 % prediction interval of one more value."""
    count, centre = len(values), mean(values)
    variance = sum((value - centre) ** 2 for value in values) / (count - 1)
    return centre + t_quantile(count - 1) * sqrt(variance * (1 + 1 / count))


def describe(fleet: Fleet) -> str:
    """A fleet for a line of progress."""
    split = fleet.split
    return f"{fleet.replicas} x {split.gpu} TP{split.tensor} PP{split.pipeline}"
