"""Figure 1: generation stalls of prefill-first scheduling, and what stall-free scheduling makes of them."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.reproduce.rows import Ledger
from simulator.run import simulate

if TYPE_CHECKING:
    from simulator.metrics import Result
    from simulator.reproduce.experiments import Experiments, Results
    from simulator.reproduce.lab import Lab

POLICIES = ("prefill_first", "stall_free")
RATES = (0.55, 0.7, 1.0)
SETTINGS: dict[str, Any] = {
    "scheduler__max_num_seqs": 256,
    "scheduler__token_budget": 1536,
    "workload__num_requests": 128,
}
SEEDS = 8
"""Runs of 128 requests each differ: their mean is taken."""
FIRST_SHARE = 0.01
CURVE_STEP_S = 5.0


def experiments(lab: Lab) -> Experiments:
    """One burst and three loads per scheduler."""
    return {f"stalls/burst/{policy}": (burst, policy) for policy in POLICIES} | {
        f"stalls/p99_tbt/{policy}/{rate}": (tail, policy, rate) for policy, rate in product(POLICIES, RATES)
    }


def burst(lab: Lab, policy: str) -> dict[str, Any]:
    """128 summaries asked for at once: when it ends, when output begins, and tokens over time."""
    scenario = lab.under_policy("yi", "arxiv", "relaxed", policy, **SETTINGS).with_(
        {
            "workload.arrivals": "all_at_once",
            "workload.rate_rps": None,
            "workload.truncate_at": None,
            "until_s": None,
        }
    )
    result = simulate(scenario, lab.paper.seed, keep_iterations=True)
    times_s, tokens = output_tokens(result)
    ends = np.arange(0.0, result.makespan_s + CURVE_STEP_S, CURVE_STEP_S)
    return {
        "makespan": result.makespan_s,
        "max_tbt": result.metrics["tbt_s"]["max"],
        "first-output": float(times_s[np.searchsorted(tokens, FIRST_SHARE * tokens[-1])]),
        "curve": np.column_stack([ends, np.interp(ends, times_s, tokens)]).tolist(),
    }


def output_tokens(result: Result) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The ends of iterations, and how many tokens all requests together had been given by each."""
    iterations = result.records.iterations
    order = np.argsort(iterations["end_s"], kind="stable")
    return iterations["end_s"][order], np.cumsum(iterations["num_decodes"][order])


def tail(lab: Lab, policy: str, rate_rps: float) -> float:
    """P99 TBT in seconds on the chat workload, which the artifact's script uses."""
    scenario = lab.under_policy("yi", "chat", "relaxed", policy, workload__rate_rps=rate_rps, **SETTINGS)
    return lab.mean(scenario, "tbt_s", "p99", SEEDS)


def report(ledger: Ledger, results: Results) -> None:
    """Both halves of the figure."""
    for policy, name in product(POLICIES, ("makespan", "first-output", "max_tbt")):
        ledger.add(f"stalls/burst/{name}/{policy}", results[f"stalls/burst/{policy}"][name], "s")
    for policy, rate in product(POLICIES, RATES):
        id = f"stalls/p99_tbt/{policy}/{rate}"
        ledger.add(id, results[id], "s", f"mean of {SEEDS} seeds")
