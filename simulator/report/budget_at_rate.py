"""The page of `budget --rate`: which budgets hold the SLO at one load, and which of them answers soonest."""

from __future__ import annotations

from typing import Any

from simulator.report.documents import averaged, header
from simulator.report.flags import engine_flags, flags_table
from simulator.report.latencies import bounds_s, latency_cell
from simulator.report.notes import memory_note, obstacles, run_notes, unique
from simulator.report.numbers import count, milliseconds, significant
from simulator.report.page import Cell, Page, Table, table
from simulator.report.rules import rules_document, rules_table
from simulator.report.words import deployment, runs_of, slo_words
from simulator.search.budget_at_rate import OBJECTIVES, LoadedBudget, LoadSearch, Objective
from simulator.search.rules import RulesOfThumb

COLUMNS = (
    ("ttft_s", "p50", "TTFT median (ms)"),
    ("ttft_s", "p99", "TTFT P99"),
    ("e2e_s", "p50", "E2E median"),
    ("tbt_s", "mean", "TBT mean"),
    ("tbt_s", "p99", "TBT P99"),
    ("tbt_s", "p999", "TBT P99.9"),
    ("tbt_s", "max", "TBT max"),
    ("scheduling_delay_s", "p50", "delay median"),
)


def budget_at_rate_page(search: LoadSearch, rules: RulesOfThumb) -> Page:
    """Every budget at the load."""
    best = search.best()
    scenario = search.scenario
    return Page(
        answer=_answer(search),
        tables=(_curve(search), rules_table(rules), flags_table(best.candidate.scenario)),
        notes=unique(
            (
                *obstacles([row.candidate for row in search.rows]),
                memory_note(best.candidate.scenario),
                *run_notes(best.runs.trials),
            )
        ),
        legend=f"breaks the SLO: {slo_words(scenario.slo)}",
        document=header("budget", scenario, search.effort)
        | {
            "rate_rps": scenario.workload.rate_rps,
            "objective": search.objective,
            "best_token_budget": best.token_budget,
            "best_by": {
                each: {"token_budget": search.best(each).token_budget, "ties": list(search.ties(each))}
                for each in OBJECTIVES
            },
            "holds": [row.token_budget for row in search.holding],
            "rows": [_document(row, rules) for row in search.rows],
            "rules_of_thumb": rules_document(rules),
            "flags": engine_flags(best.candidate.scenario),
        },
    )


def _answer(search: LoadSearch) -> str:
    scenario = search.scenario
    tried = [row.token_budget for row in search.rows]
    holding = [row.token_budget for row in search.holding]
    held = (
        f"At {significant(scenario.workload.rate_rps)} requests/s, {deployment(scenario)} holds "
        f"{slo_words(scenario.slo)} with budget{'s' if len(holding) > 1 else ''} {runs_of(holding, tried)}."
    )
    order = sorted(OBJECTIVES, key=lambda each: each != search.objective)
    return "\n".join(
        [f"Token budget {search.best().token_budget}. {held}", *(_by(search, each) for each in order)]
    )


def _by(search: LoadSearch, objective: Objective) -> str:
    best, ties = search.best(objective), search.ties(objective)
    tried = [row.token_budget for row in search.rows]
    value = milliseconds(best.objective_s(objective))
    words = f"Least median {objective.upper()}: budget {best.token_budget}, {value} ms"
    return f"{words} ({runs_of(ties, tried)} are within the noise)." if len(ties) > 1 else f"{words}."


def _curve(search: LoadSearch) -> Table:
    columns = ("token budget", *(words for _, _, words in COLUMNS), "KV blocks", "SLO")
    return table(columns, [_row(row, search) for row in search.rows])


def _row(row: LoadedBudget, search: LoadSearch) -> list[Cell | str]:
    bounds = bounds_s(row.runs.scenario.slo)
    latencies = [latency_cell(row.runs, bounds, metric, statistic) for metric, statistic, _ in COLUMNS]
    return [str(row.token_budget), *latencies, count(row.candidate.kv_blocks), _verdict(row, search)]


def _verdict(row: LoadedBudget, search: LoadSearch) -> Cell:
    trials = row.runs.trials
    if not trials:
        return Cell("does not fit")
    if row.holds:
        return Cell("holds, best" if row.token_budget == search.best().token_budget else "holds")
    unstable = next((t.stability for t in trials if t.stability in ("backlogged", "overloaded")), "")
    return Cell(
        unstable or f"broken in {len(trials) - row.runs.runs_held()} of {len(trials)} runs", breaks_slo=True
    )


def _document(row: LoadedBudget, rules: RulesOfThumb) -> dict[str, Any]:
    trials = row.runs.trials
    return {
        "token_budget": row.token_budget,
        "holds": row.holds,
        "runs_held": row.runs.runs_held(),
        "stability": [trial.stability for trial in trials],
        "kv_blocks": row.candidate.kv_blocks,
        "iteration_s": rules.iteration_s(row.token_budget),
        "metrics": averaged([trial.document["metrics"] for trial in trials]) if trials else None,
        "obstacle": row.candidate.obstacle or None,
    }
