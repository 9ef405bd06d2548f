"""The token budget: the capacity that each one gives, on a grid from coarse to fine, and the best of them.

Other policies, which have no budget, are searched beside it at the same SLO on the same requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from simulator.config import BUDGET_POLICIES
from simulator.errors import ConfigError, InfeasibleError
from simulator.search.capacity import Capacity, CapacityTable, capacity_scenario, describe_miss
from simulator.search.effort import Effort
from simulator.search.grid import finer_budgets
from simulator.search.replication import Aim
from simulator.search.trials import Trial

if TYPE_CHECKING:
    from simulator.config import Scenario

REFINEMENTS = 2
OTHER_POLICIES = ("decode_first", "orca", "prefill_first")

Key = tuple[str, int]
"""Policy and token budget."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One budget or policy: whether it fits the GPU, and the capacity found for it."""

    scenario: Scenario
    kv_blocks: int
    """KV blocks of a replica; zero where weights and activations leave no room."""
    obstacle: str = ""
    """Why it was not searched."""
    capacity: Capacity | None = None

    @property
    def token_budget(self) -> int:
        """Most tokens of one iteration."""
        return self.scenario.scheduler.token_budget

    @property
    def policy(self) -> str:
        """The scheduling policy."""
        return self.scenario.scheduler.policy

    @property
    def key(self) -> Key:
        """Policy and token budget."""
        return self.policy, self.token_budget

    @property
    def is_rough(self) -> bool:
        """Whether the capacity is known roughly at best."""
        return self.capacity is None or self.capacity.is_rough

    @property
    def capacity_rps(self) -> float:
        """Requests per second; zero where it does not fit or the SLO holds at no load."""
        return 0.0 if self.capacity is None else self.capacity.capacity_rps


@dataclass(frozen=True, slots=True)
class BudgetSearch:
    """The curve of capacities over budgets, and the other policies beside it."""

    scenario: Scenario
    effort: Effort
    rows: tuple[Candidate, ...]
    others: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate:
        """The budget with the largest capacity, the smaller of two equal ones; never a rough one."""
        return max(self.rows, key=lambda row: (not row.is_rough, row.capacity_rps))

    @property
    def ties(self) -> tuple[int, ...]:
        """Budgets that cannot be told from the best one, itself included."""
        best, tolerance = self.best.capacity, self.effort.tolerance
        return tuple(
            row.token_budget
            for row in self.rows
            if row.capacity is not None and best is not None and row.capacity.ties_with(best, tolerance)
        )


def budget_scenario(scenario: Scenario) -> Scenario:
    """The scenario as a budget search loads it; ConfigError for a policy without a token budget."""
    if not scenario.scheduler.has_budget:
        raise ConfigError(
            f"scheduler.policy {scenario.scheduler.policy} has no token budget"
            f" (these do: {', '.join(BUDGET_POLICIES)})"
        )
    return capacity_scenario(scenario)


def with_budget(scenario: Scenario, token_budget: int) -> Scenario:
    """The scenario with another token budget."""
    return scenario.with_({"scheduler.token_budget": token_budget}, where="token budget")


def candidate(scenario: Scenario, seed: int) -> Candidate:
    """A scenario with the KV blocks that it leaves, or with the reason why it or its requests do not fit."""
    from simulator.run import blocks_per_replica, misfit
    from simulator.search.inputs import requests_of

    try:
        blocks = blocks_per_replica(scenario)
    except ConfigError as error:
        return Candidate(scenario, 0, obstacle=str(error))
    return Candidate(scenario, blocks, obstacle=misfit(scenario, requests_of(scenario.workload, seed)))


def require_a_fit(rows: Sequence[Candidate]) -> None:
    """Raise the first obstacle where there is one to every candidate."""
    if all(row.obstacle for row in rows):
        raise (InfeasibleError if rows[0].kv_blocks else ConfigError)(rows[0].obstacle)


def find_budget(
    scenario: Scenario,
    budgets: Sequence[int],
    effort: Effort,
    *,
    refine: bool = True,
    policies: Sequence[str] = OTHER_POLICIES,
) -> BudgetSearch:
    """Capacities of the budgets given, then of finer ones around the best, and of other policies.

    Raises InfeasibleError, with the nearest miss, where no budget holds the SLO at any load.
    """
    scenario = budget_scenario(scenario)
    table: CapacityTable[Key] = CapacityTable(effort)

    def searched(scenarios: Sequence[Scenario], aim: Aim | None = None) -> list[Candidate]:
        rows = [candidate(each, effort.seed) for each in scenarios]
        fitting = {row.key: row.scenario for row in rows if not row.obstacle}
        table.search(fitting, aim)
        return [replace(row, capacity=table.found.get(row.key)) for row in rows]

    effort.progress(
        f"capacity at budgets {words(budgets)}, and of {', '.join(policies) or 'no other policy'}"
    )
    # The other policies first: their runs are the longest.
    found = searched(
        [scenario.with_({"scheduler.policy": policy}) for policy in policies]
        + [with_budget(scenario, budget) for budget in budgets]
    )
    others, rows = found[: len(policies)], found[len(policies) :]
    search = BudgetSearch(scenario, effort, tuple(rows), tuple(others))
    for _ in range(REFINEMENTS if refine else 0):
        best = search.best
        finer = _finer(search)
        if not finer:
            break
        effort.progress(
            f"best so far: {best.token_budget} with {best.capacity_rps:.3g} requests/s; {words(finer)}"
        )
        rows += searched([with_budget(scenario, budget) for budget in finer], table.aims[best.key])
        search = replace(search, rows=tuple(sorted(rows, key=lambda row: row.token_budget)))
    _require_one_that_holds(search)
    return search


def _finer(search: BudgetSearch) -> list[int]:
    """Budgets beside the best one, but none between it and a neighbour that is as good."""
    best = search.best
    if not best.capacity_rps:
        return []
    enough = (1 - search.effort.tolerance) * best.capacity_rps
    as_good = [row.token_budget for row in search.rows if row.capacity_rps >= enough]
    return finer_budgets([row.token_budget for row in search.rows], best.token_budget, as_good)


def words(budgets: Sequence[int]) -> str:
    """Budgets for a line of progress."""
    return ", ".join(map(str, budgets))


def _require_one_that_holds(search: BudgetSearch) -> None:
    if search.best.capacity_rps:
        return
    require_a_fit(search.rows)
    misses = [row.capacity.beyond for row in search.rows if row.capacity is not None]
    raise InfeasibleError(f"no token budget holds the SLO at any load; nearest: {describe_nearest(misses)}")


def describe_nearest(misses: Sequence[Trial | None]) -> str:
    """The trial that came nearest to its SLO, in words."""
    nearest = min((miss for miss in misses if miss is not None), key=excess)
    return f"budget {nearest.scenario.scheduler.token_budget} {describe_miss(nearest)}"


def excess(trial: Trial) -> float:
    """How far a trial is beyond its SLO: the largest ratio of a value to its bound."""
    bounds = trial.scenario.slo
    ratios = [value / bounds[key] for key, value in trial.violations.items() if value is not None]
    return max(ratios, default=float("inf"))
