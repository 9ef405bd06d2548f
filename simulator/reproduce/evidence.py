"""What others measured about token budgets on real machines: eight scenarios, of each the direction.

Machines that are not shipped are replaced by the nearest one, and loads are set to what that one carries:
only directions are compared, never values. Sources are in docs/reproduction.md.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, product
from typing import TYPE_CHECKING

from simulator.batch import Chunk
from simulator.reproduce.answers import (
    Answer,
    Figures,
    burst,
    measured,
    poisson,
    run,
    run_requests,
    scenario_of,
)
from simulator.reproduce.paper import SLOS
from simulator.reproduce.shapes import batch, batch_s

if TYPE_CHECKING:
    from simulator.reproduce.lab import Lab

LONG_PROMPTS = {"prompt": 25_000, "output": 32}


def best_budget_falls_with_load(lab: Lab) -> Answer:
    """At low load a large budget ends requests sooner, at high load a small one; TTFT always favours the
    large one, and under load the tail of TPOT the small one."""
    settings = {"model": "llama-3.2-3b", "gpu": "a100_80gb_sxm", "scheduler.max_model_len": 32_768}
    figures: Figures = {}
    for load, rate in (("low", 0.1), ("high", 0.6)):
        for size, budget in (("small", 2048), ("large", 16_384)):
            trial = run(lab, settings | {"scheduler.token_budget": budget}, poisson(rate, 200, LONG_PROMPTS))
            figures[f"{load}/e2e/{size}"] = measured(trial, "e2e_s", "mean")
            figures[f"{load}/ttft/{size}"] = measured(trial, "ttft_s", "mean")
            figures[f"{load}/p95_tpot/{size}"] = measured(trial, "tpot_s", "p95")
    holds = (
        figures["low/e2e/large"] < figures["low/e2e/small"]
        and figures["high/e2e/small"] < figures["high/e2e/large"]
        and figures["low/ttft/large"] < figures["low/ttft/small"]
        and figures["high/ttft/large"] < figures["high/ttft/small"]
        and figures["high/p95_tpot/small"] < figures["high/p95_tpot/large"]
    )
    return Answer(holds, figures, "s", "mean E2E and TTFT and P95 TPOT, by load and budget")


def e2e_has_an_interior_minimum(lab: Lab) -> Answer:
    """E2E has its minimum between the smallest and the largest budget, P95 TPOT about doubles with the budget
    until one covers a prompt, and the smallest budget finishes last."""
    settings = {"model": "qwen2.5-3b", "gpu": "a100_80gb_sxm", "scheduler.max_model_len": 32_768}
    budgets = [512 << step for step in range(7)]
    figures: Figures = {}
    for budget in budgets:
        trial = run(lab, settings | {"scheduler.token_budget": budget}, poisson(0.75, 120, LONG_PROMPTS))
        figures[f"e2e/{budget}"] = measured(trial, "e2e_s", "mean")
        figures[f"p95_tpot/{budget}"] = measured(trial, "tpot_s", "p95")
        figures[f"makespan/{budget}"] = trial.value("makespan_s") or 0.0
    e2e = [figures[f"e2e/{budget}"] for budget in budgets]
    growth = [figures[f"p95_tpot/{big}"] / figures[f"p95_tpot/{small}"] for small, big in pairwise(budgets)]
    makespans = [figures[f"makespan/{budget}"] for budget in budgets]
    holds = (
        min(e2e) < 0.9 * min(e2e[0], e2e[-1])
        and all(1.5 < each < 2.2 for each in growth[:-1])
        and makespans[0] > 1.05 * makespans[-1]
    )
    return Answer(holds, figures, "s", "mean E2E, P95 TPOT and makespan, by budget")


def small_budgets_pay_steeply(lab: Lab) -> Answer:
    """Beside a loop of 16k prompts, halving the budget gains less than half the TPOT, and costs ever more
    prefill from 1024 down."""
    settings = {
        "model": "qwen2.5-32b",
        "gpu": "h100_sxm",
        "scheduler.max_model_len": 32_768,
        "scheduler.max_num_seqs": 5,  # four answers, and one prompt at a time
    }
    budgets = (2048, 1024, 512, 256)
    requests = [(0.0, 128, 120)] * 4 + [(0.5, 16_000, 1)] * 130
    figures: Figures = {}
    for budget in budgets:
        result = run_requests(settings | {"scheduler.token_budget": budget}, requests)
        figures[f"tpot/{budget}"] = measured(result, "tpot_s", "mean")
        figures[f"per-prefill/{budget}"] = result.makespan_s / 130
    tpot = [figures[f"tpot/{budget}"] for budget in budgets]
    price = [figures[f"per-prefill/{budget}"] for budget in budgets]
    holds = (
        all(0.5 < small / large < 1 for large, small in pairwise(tpot))
        and price[1] < price[2] < price[3]
        and price[3] / price[2] > price[2] / price[1]
    )
    return Answer(holds, figures, "s", "mean TPOT, and time of one prefill, by budget")


def large_budgets_cost_kv_blocks(lab: Lab) -> Answer:
    """Llama-3.1-70B on two A100s has little room for KV: a large budget's activations cost throughput there,
    and hardly any on four."""
    lengths = {
        "prompt": {"kind": "lognormal", "median": 160, "sigma": 1.0, "high": 2000},
        "output": {"kind": "lognormal", "median": 200, "sigma": 0.9, "high": 2000},
    }
    figures: Figures = {}
    for tensor in (2, 4):
        for size, budget in (("small", 2048), ("large", 16_384)):
            settings = {
                "model": "llama-3.1-70b",
                "gpu": "a100_80gb_sxm",
                "parallel": {"tensor": tensor},
                "scheduler": {"max_model_len": 8192, "token_budget": budget, "max_num_seqs": 256},
            }
            trial = run(lab, settings, burst(400, lengths))
            figures[f"tp{tensor}/{size}"] = trial.value("output_tokens_per_s") or 0.0
    tight, ample = (figures[f"tp{tensor}/small"] / figures[f"tp{tensor}/large"] for tensor in (2, 4))
    holds = tight > 1.15 and abs(ample - 1) < 0.05
    return Answer(holds, figures, "tokens/s", "throughput of a burst, by GPUs and budget")


def knee_moves_with_compute(lab: Lab) -> Answer:
    """The largest budget whose iteration keeps a bound on ITL is far larger on a card with more compute."""
    budgets = range(128, 8193, 128)
    figures: Figures = {}
    for gpu in ("a100_80gb_sxm", "h100_sxm"):
        scenario = scenario_of({"model": "llama-3.1-70b", "gpu": gpu, "parallel": {"tensor": 4}})
        seconds = {
            budget: batch_s(scenario, batch([Chunk(budget - 32, 1024)], decodes=32, kv=1024))
            for budget in budgets
        }
        figures[f"{gpu}/within-100-ms"] = max(budget for budget in budgets if seconds[budget] <= 0.1)
        figures[f"{gpu}/within-200-ms"] = max(budget for budget in budgets if seconds[budget] <= 0.2)
    holds = all(
        figures[f"h100_sxm/{bound}"] >= 2 * figures[f"a100_80gb_sxm/{bound}"]
        for bound in ("within-100-ms", "within-200-ms")
    )
    return Answer(holds, figures, "tokens", "largest budget beside 32 answers, by bound")


def decode_dominated_loads_hardly_care(lab: Lab) -> Answer:
    """With 2k in and 2k out the budget changes throughput by little; the cap on sequences by much."""
    figures: Figures = {}
    for seqs in (64, 512):
        for budget in (2048, 16_384):
            settings = {
                "model": "llama-3.3-70b",
                "gpu": "h100_sxm",
                "parallel": {"tensor": 4},
                "scheduler": {"max_model_len": 8192, "token_budget": budget, "max_num_seqs": seqs},
            }
            trial = run(lab, settings, burst(400, {"prompt": 2048, "output": 2048}))
            figures[f"{seqs}-seqs/{budget}"] = trial.value("output_tokens_per_s") or 0.0
    small, large = figures["512-seqs/2048"], figures["512-seqs/16384"]
    few = figures["64-seqs/2048"]
    holds = abs(small / large - 1) < 0.03 and small / few - 1 > 0.1
    return Answer(holds, figures, "tokens/s", "throughput of a burst, by cap and budget")


def chunking_trades_one_stall_for_many(lab: Lab) -> Answer:
    """At a low rate chunks bound the worst stall, but more gaps are stalls: P99 TBT and TTFT rise."""
    settings = {"model": "qwen3-4b", "gpu": "l40s", "scheduler.max_model_len": 32_768}
    workload = poisson(0.2, 300, {"prompt": 4096, "output": 256})
    figures: Figures = {}
    for name, budget in (("whole", 16_384), ("chunks", 1024)):
        trial = run(lab, settings | {"scheduler.token_budget": budget}, workload)
        for statistic in ("p99", "p999", "max"):
            figures[f"{name}/{statistic}_tbt"] = measured(trial, "tbt_s", statistic)
        figures[f"{name}/mean_ttft"] = measured(trial, "ttft_s", "mean")
    holds = (
        figures["chunks/max_tbt"] < 0.5 * figures["whole/max_tbt"]
        and figures["chunks/p999_tbt"] < 0.5 * figures["whole/p999_tbt"]
        and figures["chunks/p99_tbt"] > 2 * figures["whole/p99_tbt"]
        and figures["chunks/mean_ttft"] > figures["whole/mean_ttft"]
    )
    return Answer(holds, figures, "s", "TBT and mean TTFT of whole prompts and of chunks")


def relaxed_slo_wants_a_larger_budget(lab: Lab) -> Answer:
    """The paper's choice of 512 at the strict SLO and 2048 at the relaxed one: Yi-34B's capacities."""
    figures: Figures = {}
    for slo, budget in product(SLOS, (512, 2048)):
        scenario = lab.scenario("yi", slo=slo, scheduler__token_budget=budget)
        found = lab.capacity(scenario, lab.deployment("yi").start_rps["chat"])
        figures[f"{slo}/{budget}"] = found.capacity_rps or 0.0
    holds = (
        figures["strict/512"] > figures["strict/2048"] and figures["relaxed/2048"] > figures["relaxed/512"]
    )
    return Answer(holds, figures, "requests/s", "capacity by SLO and budget")


DIRECTIONS: dict[str, Callable[[Lab], Answer]] = {
    "1-best-budget-falls-with-load": best_budget_falls_with_load,
    "2-e2e-has-an-interior-minimum": e2e_has_an_interior_minimum,
    "3-small-budgets-pay-steeply": small_budgets_pay_steeply,
    "4-large-budgets-cost-kv-blocks": large_budgets_cost_kv_blocks,
    "5-knee-moves-with-compute": knee_moves_with_compute,
    "6-decode-dominated-loads-hardly-care": decode_dominated_loads_hardly_care,
    "7-chunking-trades-one-stall-for-many": chunking_trades_one_stall_for_many,
    "8-relaxed-slo-wants-a-larger-budget": relaxed_slo_wants_a_larger_budget,
}
