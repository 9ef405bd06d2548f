"""What is claimed of chunked prefill, by its authors and by others: each tried, with our numbers.

A claim is a question about one small scenario. `evidence` has eight more, which were measured by others.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import TYPE_CHECKING

from simulator.batch import Chunk
from simulator.errors import InfeasibleError
from simulator.reproduce.answers import (
    SEED,
    Answer,
    Figures,
    Settings,
    burst,
    measured,
    poisson,
    run,
    run_requests,
    scenario_of,
)
from simulator.reproduce.evidence import DIRECTIONS
from simulator.reproduce.rows import Ledger
from simulator.reproduce.shapes import batch, batch_s, prefill_s
from simulator.search.capacity import find_capacity
from simulator.search.effort import Effort

if TYPE_CHECKING:
    from simulator.reproduce.experiments import Experiments, Results
    from simulator.reproduce.lab import Lab

NEARLY = 0.1
"""Differences below this share are called none."""
CARDS = ("a100_80gb_sxm", "h100_sxm", "h200_sxm")
CHAT_ON_H100 = {"model": "llama-3.1-8b", "gpu": "h100_sxm", "scheduler.max_model_len": 32_768}


def small_budget_flattens_the_tail(lab: Lab) -> Answer:
    """512 instead of 4096 flattens P99 TBT and costs little throughput (Mistral-7B, chat)."""
    figures: Figures = {}
    for budget in (512, 4096):
        scenario = lab.scenario("mistral", scheduler__token_budget=budget)
        figures[f"p99_tbt_s/{budget}"] = measured(lab.trial(scenario), "tbt_s", "p99")
        saturated = lab.trial(scenario.with_({"workload.rate_rps": 10.0}))
        figures[f"saturated_rps/{budget}"] = saturated.value("throughput_rps") or 0.0
    kept = figures["saturated_rps/512"] / figures["saturated_rps/4096"]
    holds = figures["p99_tbt_s/512"] < 0.5 * figures["p99_tbt_s/4096"] and kept > 0.9
    return Answer(
        holds, figures, "", "P99 TBT at 1.5 requests/s, and requests/s of a saturated run, by budget"
    )


def two_prompts_gain_nothing(lab: Lab) -> Answer:
    """Prefilling two prompts together is no faster than one after the other (Mistral-7B)."""
    scenario = lab.scenario("mistral")
    figures = {
        str(tokens): 2
        * batch_s(scenario, batch([Chunk(tokens, 0)]))
        / batch_s(scenario, batch([Chunk(tokens, 0)] * 2))
        for tokens in (128, 512, 1024, 2048)
    }
    holds = all(gain - 1 < NEARLY for tokens, gain in figures.items() if int(tokens) >= 1024)
    return Answer(holds, figures, "x", "speed of two together over one by one, by prompt tokens")


def chunks_of_128_cost_30_percent(lab: Lab) -> Answer:
    """Chunks of 128 tokens cost about 30 % of prefill speed against 512 (Yi-34B, 4k prompt)."""
    scenarios = {"lost": lab.scenario("yi"), "lost-by-kernels-alone": lab.scenario("yi", engine="ideal")}
    figures = {
        name: 1 - prefill_s(scenario, 4096, 512) / prefill_s(scenario, 4096, 128)
        for name, scenario in scenarios.items()
    }
    return Answer(0.2 < figures["lost"] < 0.4, figures, "share", "of prefill speed")


def long_chunks_bring_stalls_back(lab: Lab) -> Answer:
    """A chunk that takes much longer than a decode iteration is a stall again (Yi-34B, 32 answers)."""
    scenario = lab.scenario("yi")
    decode_s = batch_s(scenario, batch(decodes=32, kv=2048))
    figures = {
        str(size): batch_s(scenario, batch([Chunk(size - 32, 0)], decodes=32, kv=2048)) / decode_s
        for size in (256, 512, 1024, 2048, 4096)
    }
    holds = figures["256"] < 3 and figures["4096"] > 8
    return Answer(holds, figures, "x", "mixed iteration over a decode-only one, by budget")


def no_gain_offline(lab: Lab) -> Answer:
    """No throughput is gained over prefill-first where all requests are there from the start (H100, 8B)."""
    workload = burst(500, {"prompt": 2000, "output": 200})

    def throughput(policy: str) -> float:
        trial = run(lab, CHAT_ON_H100 | {"scheduler.policy": policy}, workload)
        return trial.value("throughput_rps") or 0.0

    return _gain(throughput, "requests/s of a burst")


def no_gain_for_short_prompts(lab: Lab) -> Answer:
    """No capacity is gained over prefill-first where prompts are far shorter than a chunk (H100, 8B)."""
    workload = poisson(1.0, 4000, {"prompt": 128, "output": 200})
    return _gain(lambda policy: _capacity(lab, {"scheduler.policy": policy}, workload), "capacity")


def no_gain_for_decodes(lab: Lab) -> Answer:
    """No capacity is gained over prefill-first where almost all work is decoding (H100, 8B)."""
    workload = poisson(1.0, 1000, {"prompt": 64, "output": 1000})
    return _gain(lambda policy: _capacity(lab, {"scheduler.policy": policy}, workload), "capacity")


def _gain(measure: Callable[[str], float], what: str) -> Answer:
    gain = measure("stall_free") / measure("prefill_first")
    return Answer(gain < 1 + NEARLY, {"gain": gain}, "x", f"{what} over prefill-first's")


def best_budget_moves_with_the_card(lab: Lab) -> Answer:
    """Each card has its own best budget, and another card's costs capacity (8B, chat, P99 TBT 50 ms)."""
    chat = {"trace": "chat", "arrivals": "poisson", "rate_rps": 1.0, "num_requests": 512}
    budgets = (256, 512, 1024, 2048, 4096)
    figures: Figures = {}
    best: dict[str, int] = {}
    for card in CARDS:
        for budget in budgets:
            settings = {"gpu": card, "scheduler.token_budget": budget}
            figures[f"{card}/{budget}"] = _capacity(lab, settings, chat)
        best[card] = max(budgets, key=lambda budget: figures[f"{card}/{budget}"])
    costs = {
        f"{card} at {other}'s {best[other]}": 1
        - figures[f"{card}/{best[other]}"] / figures[f"{card}/{best[card]}"]
        for card, other in permutations(CARDS, 2)
        if best[card] != best[other]
    }
    words = "; ".join(f"{name} loses {share:.0%}" for name, share in costs.items())
    return Answer(len(set(best.values())) > 1, figures, "requests/s", f"capacity by card and budget. {words}")


def _capacity(lab: Lab, settings: Settings, workload: Settings) -> float:
    """Capacity of the 8B model at a P99 TBT of 50 ms, by our own search; zero where no rate holds."""
    scenario = scenario_of({**CHAT_ON_H100, **settings, "slo": {"p99_tbt_s": 0.05}}, workload)
    try:
        return find_capacity(scenario, Effort(runs=1, seed=SEED, jobs=1, run=lab.run)).capacity_rps
    except InfeasibleError:
        return 0.0


def documents_stall_chats(lab: Lab) -> Answer:
    """A 16k document among 16 chats stalls them for hundreds of ms whole, for tens in chunks (H100, 8B)."""
    requests = [(0.0, 512, 400)] * 16 + [(1.0, 16_384, 100)]
    figures: Figures = {}
    for name, changes in (
        ("whole", {"scheduler.policy": "prefill_first"}),
        ("chunks-of-512", {"scheduler.token_budget": 512}),
    ):
        result = run_requests(CHAT_ON_H100 | changes, requests)
        figures[f"{name}/max_tbt"] = 1e3 * measured(result, "tbt_s", "max")
        figures[f"{name}/document_ttft"] = 1e3 * measured(result, "ttft_s", "max")
    holds = figures["whole/max_tbt"] > 200 and figures["chunks-of-512/max_tbt"] < 100
    return Answer(holds, figures, "ms", "longest TBT, and the document's TTFT")


CLAIMS: dict[str, Callable[[Lab], Answer]] = {
    "512-flattens-the-tail": small_budget_flattens_the_tail,
    "two-prompts-gain-nothing": two_prompts_gain_nothing,
    "chunks-of-128-cost-30-percent": chunks_of_128_cost_30_percent,
    "long-chunks-bring-stalls-back": long_chunks_bring_stalls_back,
    "no-gain-offline": no_gain_offline,
    "no-gain-for-short-prompts": no_gain_for_short_prompts,
    "no-gain-for-decodes": no_gain_for_decodes,
    "best-budget-moves-with-the-card": best_budget_moves_with_the_card,
    "documents-stall-chats": documents_stall_chats,
}


def experiments(lab: Lab) -> Experiments:
    """One per claim and one per direction."""
    claims = {f"claims/{name}": (claim,) for name, claim in CLAIMS.items()}
    return claims | {f"claims/evidence/{name}": (claim,) for name, claim in DIRECTIONS.items()}


def report(ledger: Ledger, results: Results) -> None:
    """Of each claim whether it holds, then its figures."""
    for id, answer in results.items():
        ledger.add(id, None, "", answer.words, holds=answer.holds)
        for name, value in answer.figures.items():
            ledger.add(f"{id}/{name}", value, answer.unit)
