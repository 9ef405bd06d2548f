"""The page of `simulate`: latencies against the SLO, and what the engine did."""

from __future__ import annotations

from typing import Any

from simulator.report.documents import averaged, header
from simulator.report.latencies import class_tables, latency_table
from simulator.report.notes import memory_note, run_notes
from simulator.report.numbers import count, percent, significant
from simulator.report.page import Page, Table, table
from simulator.report.words import deployment, excess_words, policy, slo_words
from simulator.search.effort import Effort
from simulator.search.replicate import Variant


def simulation_page(runs: Variant, effort: Effort) -> Page:
    """One scenario's runs; several are averaged."""
    scenario, trials = runs.scenario, runs.trials
    documents = [dict(trial.document) for trial in trials]
    summary = averaged(documents)
    document = header("simulate", scenario, effort) | summary
    if len(trials) > 1:
        document["per_run"] = [
            {"seed": trial.seed} | each for trial, each in zip(trials, documents, strict=True)
        ]
    return Page(
        answer=_answer(runs, summary),
        tables=(latency_table(runs), *class_tables(runs), _engine_table(summary)),
        notes=(memory_note(scenario), *run_notes(trials)),
        legend=f"breaks the SLO: {slo_words(scenario.slo)}",
        document=document,
    )


def _answer(runs: Variant, summary: dict[str, Any]) -> str:
    scenario = runs.scenario
    what = f"{deployment(scenario)}, {policy(scenario)}"
    served = f"{count(summary['requests_completed'])} requests at {significant(summary['throughput_rps'])}/s"
    return f"{what}: {served}; {_verdict(runs)}"


def _verdict(runs: Variant) -> str:
    slo = runs.scenario.slo
    if not slo:
        return "no SLO was asked for."
    held, total = runs.runs_held(), len(runs.trials)
    if held == total:
        return f"the SLO holds ({slo_words(slo)})."
    worst = next(trial for trial in runs.trials if not trial.holds)
    where = f" in {total - held} of {total} runs" if total > 1 else ""
    broken = excess_words(worst.violations, slo) or f"the run is {worst.stability}"
    return f"the SLO is broken{where}: {broken}."


def _engine_table(summary: dict[str, Any]) -> Table:
    batch, kv, stages = summary["batch"], summary["kv"], summary["stages"]
    rows = [
        ["requests completed", count(summary["requests_completed"])],
        *_unfinished_row(summary),
        ["requests rejected", count(summary["requests_rejected"])],
        ["throughput (requests/s)", significant(summary["throughput_rps"])],
        ["goodput (requests/s)", significant(summary["goodput_rps"])],
        ["output tokens/s", significant(summary["output_tokens_per_s"])],
        ["iterations", count(summary["iterations"])],
        ["mean iteration (ms)", significant(1e3 * batch["mean_iteration_s"])],
        ["mean decodes in an iteration", significant(batch["mean_num_decodes"])],
        ["mean tokens in an iteration", significant(batch["mean_tokens"])],
        ["KV blocks", count(kv["num_blocks"])],
        ["KV in use, mean and max", f"{percent(kv['mean_utilisation'])}, {percent(kv['max_utilisation'])}"],
        ["preemptions", count(summary["preemptions"])],
        ["tokens recomputed", count(summary["recomputed_tokens"])],
        *_prefix_row(summary),
        ["stages busy", ", ".join(percent(stage["utilisation"]) for stage in stages)],
        ["bubbles", ", ".join(percent(stage["bubble_share"]) for stage in stages)],
        ["stability", str(summary["stability"] or "differs between runs")],
    ]
    return table(["engine", ""], rows)


def _unfinished_row(summary: dict[str, Any]) -> list[list[str]]:
    """Requests that a cut-off left behind; nothing where there are none."""
    unfinished = summary["requests_unfinished"]
    return [["requests unfinished", count(unfinished)]] if unfinished else []


def _prefix_row(summary: dict[str, Any]) -> list[list[str]]:
    """How much of the contexts a prefix cache held; nothing where there is no cache."""
    use = summary.get("prefix_cache")
    if not use or not use["queried_tokens"]:
        return []
    return [["prompt tokens found in the cache", percent(use["hit_tokens"] / use["queried_tokens"])]]
