"""Finds, for one split of the model, the fewest replicas that seem to do and the settings with which they do.

One replica stands for all of them, in short runs with a share of the load. A setting is first tried at the
best number of replicas so far, where most fail at once; only one that holds is asked whether fewer would do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, log2
from typing import TYPE_CHECKING

from simulator.config import BUDGET_POLICIES
from simulator.search.plan_bounds import Prospect
from simulator.search.plan_space import Question, Settings, Split, fits, serves, tightness
from simulator.search.rules import rules_for

if TYPE_CHECKING:
    from simulator.search.trials import RunTrial

LENIENCE = 0.95
"""Share of its load that a lone replica gets: a router that evens out spares each replica some bursts."""
CLIMB = 1.25
USUAL_SEQUENCES = 256
USUAL_DECODES = 32
DIGITS = 2
"""Settings whose tightness agrees to so many digits are equally good: the first stands."""


@dataclass(frozen=True, slots=True)
class Screened:
    """A split, the replicas that seem to do (zero: none within the bounds), and with which settings."""

    split: Split
    replicas: int
    options: tuple[Settings, ...]
    """The settings that held with so many replicas, those with the most room first."""


def screen(question: Question, prospect: Prospect, seed: int, run: RunTrial) -> Screened:
    """Search the settings of one split, axis by axis: budgets, sequences, policies."""
    search = _Screening(question, prospect.split, seed, run)
    best = first_settings(question, prospect.split, seed)
    replicas = search.climb(best, prospect.replicas, question.most_replicas(prospect.split))
    for axis in (_budgets, _sequences, _policies):
        for settings in axis(question, best):
            replicas = search.fewest(settings, prospect.replicas, replicas)
        best = next(iter(search.holding(replicas)), best)
    options = search.holding(replicas)
    return Screened(prospect.split, replicas if options else 0, options)


def first_settings(question: Question, split: Split, seed: int) -> Settings:
    """Where the search starts: the budget of the rule of thumb, and a usual number of sequences."""
    sequences = min(question.sequences, key=lambda count: abs(log2(count / USUAL_SEQUENCES)))
    settings = Settings(question.policies[0], min(question.budgets), sequences)
    rules = rules_for(question.sample(split, settings, 1), seed, USUAL_DECODES, max(question.budgets))
    within = rules.within_slo or min(question.budgets)
    budgets = [budget for budget in question.budgets if budget <= within]
    return settings._replace(token_budget=max(budgets, default=min(question.budgets)))


def _budgets(question: Question, best: Settings) -> Iterable[Settings]:
    """From the first budget outwards; one will do for a policy that has none."""
    if best.policy not in BUDGET_POLICIES:
        return [best]
    start = best.token_budget
    order = sorted(question.budgets, key=lambda budget: abs(log2(budget / start)))
    return [best._replace(token_budget=budget) for budget in order]


def _sequences(question: Question, best: Settings) -> Iterable[Settings]:
    return [best._replace(max_num_seqs=count) for count in question.sequences if count != best.max_num_seqs]


def _policies(question: Question, best: Settings) -> Iterable[Settings]:
    return [best._replace(policy=policy) for policy in question.policies if policy != best.policy]


class _Screening:
    """The trials of one split, each run once."""

    def __init__(self, question: Question, split: Split, seed: int, run: RunTrial) -> None:
        self.question = question
        self.split = split
        self.seed = seed
        self.run = run
        self.tried: dict[tuple[Settings, int], float | None] = {}

    def climb(self, settings: Settings, least: int, most: int) -> int:
        """The fewest replicas with which the settings hold, or `most`; asked from below, for a load that is
        too high is the quickest to simulate."""
        low = high = least
        while high < most and not self.holds(settings, high):
            low, high = high + 1, min(most, ceil(CLIMB * (high + 1)))
        return self._bisect(settings, low, high)

    def fewest(self, settings: Settings, least: int, most: int) -> int:
        """The fewest replicas with which the settings hold, or `most` where they need as many or more."""
        if not self.holds(settings, most) or most == least or not self.holds(settings, most - 1):
            return most
        return self._bisect(settings, least, most - 1)

    def _bisect(self, settings: Settings, low: int, high: int) -> int:
        """The fewest from `low` to `high`, which is known to hold or is the last resort."""
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.holds(settings, middle) else (middle + 1, high)
        return high

    def holds(self, settings: Settings, replicas: int) -> bool:
        """Whether the settings hold with so many replicas."""
        key = settings, replicas
        if key not in self.tried:
            self.tried[key] = self._tightness(settings, replicas)
        return self.tried[key] is not None

    def holding(self, replicas: int) -> tuple[Settings, ...]:
        """The settings that held with so many replicas, those with the most room first."""
        held = {
            settings: round(value, DIGITS)
            for (settings, asked), value in self.tried.items()
            if asked == replicas and value is not None
        }
        return tuple(sorted(held, key=lambda settings: held[settings]))

    def _tightness(self, settings: Settings, replicas: int) -> float | None:
        scenario = self.question.sample(self.split, settings, replicas, LENIENCE)
        if not fits(scenario, self.seed):
            return None
        trial = self.run(scenario, self.seed, only_verdict=True)
        # Of a trial that fails nothing but that may be used: a store may know more of it, or less.
        return tightness(trial) if serves(trial) else None
