"""The token budget at one load: which budgets hold the SLO there, and which of them answers soonest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from simulator.errors import InfeasibleError
from simulator.search.budget import (
    REFINEMENTS,
    Candidate,
    budget_scenario,
    candidate,
    describe_nearest,
    excess,
    require_a_fit,
    with_budget,
    words,
)
from simulator.search.effort import Effort
from simulator.search.grid import finer_budgets
from simulator.search.replicate import Variant, run_variants
from simulator.search.replication import at_rate
from simulator.search.stats import mean, mean_interval

if TYPE_CHECKING:
    from simulator.config import Scenario

Objective = Literal["ttft", "e2e"]
OBJECTIVES: tuple[Objective, ...] = ("ttft", "e2e")
STATISTIC = "p50"
INDIFFERENCE = 0.01
"""Two budgets whose medians differ by less than this share are called equal."""


@dataclass(frozen=True, slots=True)
class LoadedBudget:
    """One budget and its runs at the load; no runs where it does not fit the GPU."""

    candidate: Candidate
    runs: Variant

    @property
    def token_budget(self) -> int:
        """Most tokens of one iteration."""
        return self.candidate.token_budget

    @property
    def holds(self) -> bool:
        """Whether every run was stable and within the SLO."""
        return bool(self.runs.trials) and self.runs.runs_held() == len(self.runs.trials)

    def objective_s(self, objective: Objective) -> float:
        """Median TTFT or E2E, averaged over the runs, in seconds."""
        values = self.runs.values(f"{objective}_s", STATISTIC)
        return mean(values) if values else float("inf")


@dataclass(frozen=True, slots=True)
class LoadSearch:
    """All budgets tried at one load."""

    scenario: Scenario
    effort: Effort
    objective: Objective
    rows: tuple[LoadedBudget, ...]

    def best(self, objective: Objective | None = None) -> LoadedBudget:
        """Of the budgets that hold the SLO, the one with the least median TTFT (or E2E)."""
        aim = objective or self.objective
        return min(self.holding, key=lambda row: row.objective_s(aim))

    @property
    def holding(self) -> tuple[LoadedBudget, ...]:
        """The budgets that hold the SLO."""
        return tuple(row for row in self.rows if row.holds)

    def ties(self, objective: Objective | None = None) -> tuple[int, ...]:
        """Budgets that cannot be told from the best one by the objective, itself included."""
        aim = objective or self.objective
        best = self.best(aim)
        return tuple(row.token_budget for row in self.holding if _ties(row, best, aim))


def _ties(row: LoadedBudget, best: LoadedBudget, objective: Objective) -> bool:
    name = f"{objective}_s"
    pairs = zip(row.runs.values(name, STATISTIC), best.runs.values(name, STATISTIC), strict=True)
    gaps = [value - least for value, least in pairs]
    interval = mean_interval(gaps)
    resolved = mean(gaps) > INDIFFERENCE * best.objective_s(objective)
    return not resolved or (interval is not None and interval.contains(0.0))


def find_budget_at_rate(
    scenario: Scenario,
    rate_rps: float,
    budgets: Sequence[int],
    effort: Effort,
    *,
    objective: Objective = "ttft",
    refine: bool = True,
) -> LoadSearch:
    """Every budget at one arrival rate, then finer ones around the best that holds the SLO.

    Raises InfeasibleError, with the nearest miss, where no budget holds the SLO at that rate.
    """
    scenario = at_rate(budget_scenario(scenario), rate_rps)
    search = LoadSearch(scenario, effort, objective, _loaded(scenario, budgets, effort))
    for _ in range(REFINEMENTS if refine else 0):
        tried = [row.token_budget for row in search.rows]
        finer = finer_budgets(tried, search.best().token_budget) if search.holding else []
        if not finer:
            break
        rows = (*search.rows, *_loaded(scenario, finer, effort))
        search = replace(search, rows=tuple(sorted(rows, key=lambda row: row.token_budget)))
    _require_one_that_holds(search)
    return search


def _loaded(scenario: Scenario, budgets: Sequence[int], effort: Effort) -> tuple[LoadedBudget, ...]:
    """Each budget's runs at the scenario's rate."""
    effort.progress(f"budgets {words(budgets)} at {scenario.workload.rate_rps:,.6g} requests/s")
    candidates = [candidate(with_budget(scenario, budget), effort.seed) for budget in budgets]
    fitting = [(str(row.token_budget), row.scenario) for row in candidates if not row.obstacle]
    runs = {variant.label: variant for variant in run_variants(fitting, effort)}
    return tuple(
        LoadedBudget(row, runs.get(str(row.token_budget), Variant("", row.scenario))) for row in candidates
    )


def _require_one_that_holds(search: LoadSearch) -> None:
    if search.holding:
        return
    require_a_fit([row.candidate for row in search.rows])
    misses = [max(row.runs.trials, key=excess) for row in search.rows if row.runs.trials]
    raise InfeasibleError(f"no token budget holds the SLO; nearest: {describe_nearest(misses)}")
