"""The token budget: what a search would choose for each deployment and SLO, and what the paper's costs."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from simulator.reproduce.paper import SLOS, Slo
from simulator.reproduce.rows import Ledger, ratio

if TYPE_CHECKING:
    from simulator.reproduce.experiments import Experiments, Results
    from simulator.reproduce.lab import Lab

BUDGETS = (256, 512, 1024, 1536, 2048, 4096)


def experiments(lab: Lab) -> Experiments:
    """One capacity per deployment, SLO and budget, on the chat workload."""
    return {
        f"budget/{model}/{slo}/{budget}": (capacity_at, model, slo, budget)
        for model, slo, budget in product(lab.paper.deployments, SLOS, BUDGETS)
    }


def capacity_at(lab: Lab, model: str, slo: Slo, budget: int) -> float | None:
    """Capacity in requests/s by the paper's rule; None where no rate holds."""
    scenario = lab.scenario(model, slo=slo, scheduler__token_budget=budget)
    return lab.capacity(scenario, lab.deployment(model).start_rps["chat"]).capacity_rps


def report(ledger: Ledger, results: Results) -> None:
    """The best budget beside the paper's, and the share of capacity that the paper's gives away."""
    for model, slo in product(ledger.paper.deployments, SLOS):
        capacities = {budget: results[f"budget/{model}/{slo}/{budget}"] for budget in BUDGETS}
        best = max(BUDGETS, key=lambda budget: capacities[budget] or 0.0)
        chosen = ledger.paper.deployments[model].budget[slo]
        kept = ratio(capacities[chosen], capacities[best])
        words = ", ".join(f"{budget}: {value or 0.0:.2f}" for budget, value in capacities.items())
        ledger.add(f"budget/{model}/{slo}/best", best, note=f"requests/s by budget: {words}")
        ledger.add(f"budget/{model}/{slo}/cost-of-the-paper's", None if kept is None else 1 - kept, "share")
