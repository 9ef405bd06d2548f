"""Figures 10 to 13: capacities of three schedulers on four deployments, two workloads and two SLOs."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from simulator.reproduce.lab import Lab
from simulator.reproduce.paper import SLOS, Slo
from simulator.reproduce.rows import Ledger, ratio

if TYPE_CHECKING:
    from simulator.reproduce.experiments import Experiments, Results

POLICIES = ("stall_free", "prefill_first", "orca")
ISOLATED = "niyama-a100-llama3-8b"
"""Measured times of whole iterations: with them, what is left to be wrong is scheduling."""
SLOS_S = (0.1, 0.2, 0.3, 0.4, 0.5)
SERIES = {
    "stall_free-512": ("stall_free", 512),
    "stall_free-2048": ("stall_free", 2048),
    "prefill_first": ("prefill_first", 512),
}
"""Lines of Figure 12: scheduler and token budget."""


def experiments(lab: Lab) -> Experiments:
    """One search per deployment, workload, SLO and scheduler."""
    found: Experiments = {}
    for model, dataset, slo, policy in product(lab.paper.deployments, lab.paper.datasets, SLOS, POLICIES):
        found[f"capacity/{model}/{dataset}/{slo}/{policy}"] = (capacity_of, model, dataset, slo, policy)
    for slo, policy in product(SLOS, POLICIES):
        found[f"capacity/isolated/chat/{slo}/{policy}"] = (isolated_capacity, slo, policy)
    for slo in SLOS:
        found[f"capacity/falcon/chat/{slo}/prefill_first-tp8"] = (falcon_tp8_capacity, slo)
    for series, slo_s in product(SERIES, SLOS_S):
        found[f"capacity/over-slo/{series}/{slo_s}"] = (capacity_over_slo, series, slo_s)
    return found


def capacity_of(lab: Lab, model: str, dataset: str, slo: Slo, policy: str) -> float | None:
    """Capacity in requests/s by the paper's rule; None where no rate holds."""
    scenario = lab.under_policy(model, dataset, slo, policy)
    return lab.capacity(scenario, lab.deployment(model).start_rps[dataset]).capacity_rps


def isolated_capacity(lab: Lab, slo: Slo, policy: str) -> float | None:
    """Mistral's capacity with measured iterations in place of kernels and host."""
    scenario = lab.under_policy("mistral", "chat", slo, policy, kernels=ISOLATED)
    return lab.capacity(scenario, lab.deployment("mistral").start_rps["chat"]).capacity_rps


def falcon_tp8_capacity(lab: Lab, slo: Slo) -> float | None:
    """vLLM's capacity for Falcon-180B with tensor parallelism over all eight GPUs, across the two nodes."""
    scenario = lab.under_policy("falcon", "chat", slo, "prefill_first", parallel={"tensor": 8, "pipeline": 1})
    return lab.capacity(scenario, lab.deployment("falcon").start_rps["chat"]).capacity_rps


def capacity_over_slo(lab: Lab, series: str, slo_s: float) -> float | None:
    """Mistral's capacity at one of the SLOs of Figure 12."""
    policy, budget = SERIES[series]
    scenario = lab.under_policy("mistral", "chat", "strict", policy, scheduler__token_budget=budget).with_(
        {"slo": {"p99_tbt_s": slo_s}}
    )
    return lab.capacity(scenario, lab.deployment("mistral").start_rps["chat"]).capacity_rps


def report(ledger: Ledger, results: Results) -> None:
    """Capacities, their ratios, and how far the ratios are from the paper's."""
    for id, capacity in results.items():
        ledger.add(id, capacity, "requests/s", "" if capacity else "holds at no rate")
    for model, dataset, slo in product(ledger.paper.deployments, ledger.paper.datasets, SLOS):
        under = f"capacity/{model}/{dataset}/{slo}"
        for policy in ("orca", "prefill_first"):
            over = ratio(results[f"{under}/stall_free"], results[f"{under}/{policy}"])
            ledger.add(f"{under}/over-{policy}", over, "x")
    for slo in SLOS:
        under = f"capacity/falcon/chat/{slo}"
        over = ratio(results[f"{under}/stall_free"], results[f"{under}/prefill_first-tp8"])
        ledger.add(f"{under}/over-prefill_first-tp8", over, "x")
    _report_gains(ledger, results)


def _report_gains(ledger: Ledger, results: Results) -> None:
    """What relaxing the SLO gives each scheduler."""
    for model, dataset in product(ledger.paper.deployments, ledger.paper.datasets):
        gains = {}
        for policy in POLICIES:
            strict, relaxed = (results[f"capacity/{model}/{dataset}/{slo}/{policy}"] for slo in SLOS)
            gains[policy] = ratio(relaxed, strict)
            ledger.add(f"capacity/{model}/{dataset}/relaxed-over-strict/{policy}", gains[policy], "x")
        ours, vllm = gains["stall_free"], gains["prefill_first"]
        more = vllm is None or (ours is not None and vllm > ours)
        ledger.add(
            f"capacity/{model}/{dataset}/relaxing-helps-prefill_first-more",
            ratio(vllm, ours),
            "x",
            holds=more,
        )
