"""Searches without simulations: trials whose verdict is a formula of rate, budget and seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulator.config import Scenario
from simulator.metrics import METRICS
from simulator.quantiles import STATISTICS
from simulator.search.trials import Trial

SATURATED_RPS = 10.0


def make_scenario(**updates: Any) -> Scenario:
    """Fixed lengths on one H100, P99 TBT at most 50 ms, KV blocks given, so that no file is read."""
    scenario = Scenario(
        model="llama-3-8b",
        gpu="h100_sxm",
        memory={"num_blocks": 10_000},
        workload={"lengths": {"prompt": 100, "output": 10}, "rate_rps": 1.0},
        slo={"p99_tbt_ms": 50.0},
    )
    return scenario.with_(updates)


def make_document(latency_s: float = 0.01, stability: str = "stable", **fields: Any) -> dict[str, Any]:
    """A result in which every latency statistic has the same value."""
    return {
        "metrics": {metric: dict.fromkeys(STATISTICS, latency_s) for metric in METRICS},
        "requests_completed": 100,
        "requests_counted": 100,
        "requests_unfinished": 0,
        "requests_rejected": 0,
        "rejections": [],
        "iterations": 1000,
        "preemptions": 0,
        "recomputed_tokens": 0,
        "throughput_rps": SATURATED_RPS,
        "goodput_rps": SATURATED_RPS,
        "output_tokens_per_s": 100.0,
        "extrapolated_share": 0.0,
        "stability": stability,
        "notes": [],
        **fields,
    }


class FakeRuns:
    """Runs that hold up to a capacity, and the rates and seeds that were asked for."""

    def __init__(self, capacity_rps: Callable[[Scenario, int], float]) -> None:
        self.capacity_rps = capacity_rps
        self.asked: list[tuple[int | None, float | None, int]] = []

    def __call__(self, scenario: Scenario, seed: int, *, only_verdict: bool = False) -> Trial:
        rate, requests = scenario.workload.rate_rps, scenario.workload.num_requests
        self.asked.append((requests, rate, seed))
        holds = rate is not None and rate <= self.capacity_rps(scenario, seed)
        violations = {} if holds else {"p99_tbt_ms": None if only_verdict else 60.0}
        return Trial(scenario, seed, make_document(), violations)

    def rates(self, seed: int, requests: int = 2048) -> list[float | None]:
        """Rates tried with so many requests and this seed."""
        return [rate for asked, rate, of_seed in self.asked if (asked, of_seed) == (requests, seed)]
