"""`stallfree budget`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from simulator.cli.options import SEARCH_DEFAULTS, AtLeastOne, Positive, SearchOptions
from simulator.cli.output import deliver

if TYPE_CHECKING:
    from simulator.report import Page


def budget(
    scenario: str = "default",
    *,
    rate: Positive | None = None,
    by: Literal["ttft", "e2e"] = "ttft",
    budgets: Annotated[
        tuple[AtLeastOne, ...], Parameter(consume_multiple=True, negative="", show_default=False)
    ] = (),
    decodes: AtLeastOne = 32,
    options: SearchOptions = SEARCH_DEFAULTS,
) -> None:
    """Find the best token budget, for a given load or for any.

    Without --rate: the budget that carries the most load within the SLO, from the capacity of powers of two
    and then of finer steps around the best, beside that of the policies without a budget. With --rate: which
    budgets hold the SLO at that load, and which of them has the least median TTFT or E2E.

    Parameters
    ----------
    scenario
        A shipped scenario (stallfree list scenarios) or a YAML file.
    rate
        Requests per second: ask for the best budget at this load instead of for capacities.
    by
        With --rate: what the best budget has least of.
    budgets
        Try these budgets and no others, e.g. --budgets 256 512 1024.
    decodes
        Running decodes that the rules of thumb assume.
    """

    def page() -> Page:
        from simulator.load import load_scenario
        from simulator.report.budget import budget_page
        from simulator.report.budget_at_rate import budget_at_rate_page
        from simulator.search.budget import budget_scenario, find_budget
        from simulator.search.budget_at_rate import find_budget_at_rate
        from simulator.search.grid import grid_for
        from simulator.search.rules import rules_for

        loaded = budget_scenario(load_scenario(scenario, options.sets))
        effort = options.effort(default_runs=3)
        grid = sorted(set(budgets)) or grid_for(loaded, effort.seed)
        rules = rules_for(loaded, effort.seed, decodes, top=max(grid))
        if rate is None:
            return budget_page(find_budget(loaded, grid, effort, refine=not budgets), rules)
        search = find_budget_at_rate(loaded, rate, grid, effort, objective=by, refine=not budgets)
        return budget_at_rate_page(search, rules)

    deliver(options, page)
