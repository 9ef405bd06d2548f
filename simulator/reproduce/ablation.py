"""Table 4: hybrid batches alone, chunked prefills alone, and both, on Yi-34B with 128 requests."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from simulator.reproduce.rows import Ledger

if TYPE_CHECKING:
    from simulator.reproduce.experiments import Experiments, Results
    from simulator.reproduce.lab import Lab

POLICIES = ("hybrid_only", "chunked_only", "stall_free")
RATES = {"chat": 1.0, "arxiv": 0.5}
BUDGETS = (512, 1024)
"""That of the artifact's script, and that of the paper's text."""
SEEDS = 8
"""Near saturation runs of 128 requests differ widely: their mean is taken."""
STATISTICS = {"p50_ttft": ("ttft_s", "p50"), "p99_tbt": ("tbt_s", "p99")}


def experiments(lab: Lab) -> Experiments:
    """One run per workload, scheduler and budget."""
    return {
        f"ablation/{dataset}/{policy}/{budget}": (latencies, dataset, policy, budget)
        for dataset, policy, budget in product(RATES, POLICIES, BUDGETS)
    }


def latencies(lab: Lab, dataset: str, policy: str, budget: int) -> dict[str, float]:
    """Median TTFT and P99 TBT in seconds."""
    scenario = lab.under_policy(
        "yi",
        dataset,
        "strict",
        policy,
        scheduler__token_budget=budget,
        workload__rate_rps=RATES[dataset],
        workload__num_requests=128,
    )
    return {name: lab.mean(scenario, *which, SEEDS) for name, which in STATISTICS.items()}


def report(ledger: Ledger, results: Results) -> None:
    """Values with the script's budget, each column's order, then values with the text's budget."""
    script, text = BUDGETS
    for dataset, policy, name in product(RATES, POLICIES, STATISTICS):
        ledger.add(
            f"ablation/{dataset}/{policy}/{name}", results[f"ablation/{dataset}/{policy}/{script}"][name]
        )
    for dataset, name in product(RATES, STATISTICS):
        _report_order(ledger, dataset, name)
    for dataset, policy, name in product(RATES, POLICIES, STATISTICS):
        value = results[f"ablation/{dataset}/{policy}/{text}"][name]
        ledger.add(f"ablation/{dataset}/{policy}/{name}/budget-{text}", value, "s")


def _report_order(ledger: Ledger, dataset: str, name: str) -> None:
    rows = [row for row in ledger.under(f"ablation/{dataset}/") if row.id.endswith(f"/{name}")]
    ours = sorted(rows, key=lambda row: row.ours or 0.0)
    theirs = sorted(rows, key=lambda row: row.published.value or 0.0)
    words = " < ".join(row.id.split("/")[2] for row in ours)
    ledger.add(f"ablation/{dataset}/order/{name}", None, note=words, holds=ours == theirs)
