"""The page of `budget`: the best budget, the curve, the other policies, two rules of thumb, the flags."""

from __future__ import annotations

from typing import Any

from simulator.report.capacity import what_breaks
from simulator.report.documents import averaged, ends, header
from simulator.report.flags import engine_flags, flags_table
from simulator.report.latencies import bounds_s, latency_cell
from simulator.report.notes import memory_note, obstacles, run_notes, search_notes, unique
from simulator.report.numbers import MISSING, count, milliseconds, percent, significant, span
from simulator.report.page import Cell, Page, Table, table
from simulator.report.rules import rules_document, rules_table
from simulator.report.words import deployment, runs_of, slo_words
from simulator.search.budget import BudgetSearch, Candidate
from simulator.search.replicate import Variant
from simulator.search.replication import ROUGH_TOLERANCE
from simulator.search.rules import RulesOfThumb
from simulator.search.trials import Trial


def budget_page(search: BudgetSearch, rules: RulesOfThumb) -> Page:
    """Capacity by budget, and what stands beside it."""
    best = search.best
    trials = _trials(best)
    return Page(
        answer=_answer(search),
        tables=(
            _curve(search, rules),
            _others(search),
            rules_table(rules),
            flags_table(best.scenario),
        ),
        notes=unique(
            (
                *obstacles((*search.rows, *search.others)),
                *search_notes(trials[0]),
                *_rough_note(search),
                memory_note(best.scenario),
                *run_notes(trials),
            )
        ),
        legend=f"breaks the SLO: {slo_words(search.scenario.slo)}",
        document=header("budget", search.scenario, search.effort)
        | {
            "best_token_budget": best.token_budget,
            "capacity_rps": best.capacity_rps,
            "interval_rps": _interval(best),
            "ties": list(search.ties),
            "rows": [{"token_budget": row.token_budget} | _document(row, rules) for row in search.rows],
            "policies": [{"policy": row.policy} | _document(row, rules) for row in search.others],
            "rules_of_thumb": rules_document(rules),
            "flags": engine_flags(best.scenario),
        },
    )


def _rough_note(search: BudgetSearch) -> tuple[str, ...]:
    rough = [row.capacity for row in (*search.rows, *search.others) if row.capacity and row.capacity.is_rough]
    if not rough:
        return ()
    requests = rough[0].scenario.workload.num_requests
    return (
        f"rough: far from the best, so one run of {requests} requests, resolved to {ROUGH_TOLERANCE:.0%}",
    )


def _answer(search: BudgetSearch) -> str:
    best = search.best
    capacity = best.capacity
    interval = capacity and capacity.interval_rps
    how_sure = f" (95 % interval {span(interval)})" if interval else ""
    sentence = (
        f"Token budget {best.token_budget}: {significant(best.capacity_rps)} requests/s{how_sure} for "
        f"{deployment(search.scenario)} within {slo_words(search.scenario.slo)}."
    )
    ties = _ties_words(search.ties, [row.token_budget for row in search.rows])
    return "\n".join(filter(None, [sentence, ties, _others_words(search)]))


def _others_words(search: BudgetSearch) -> str:
    if not search.others:
        return ""
    words = [f"{row.policy} {significant(row.capacity_rps)}" for row in search.others if not row.obstacle]
    unfit = [f"{row.policy} does not fit" for row in search.others if row.obstacle]
    found = f"{', '.join(words)} requests/s" if words else ""
    return f"At the same SLO: {'; '.join(filter(None, [found, *unfit]))}."


def _ties_words(ties: tuple[int, ...], tried: list[int]) -> str:
    if len(ties) == 1:
        return "Every other budget tried carries less, beyond the noise."
    return f"Budgets {runs_of(ties, tried)} are within the noise of it."


def _curve(search: BudgetSearch, rules: RulesOfThumb) -> Table:
    decodes = rules.beside.num_decodes
    columns = (
        "token budget",
        "requests/s",
        "interval",
        "of best",
        "TBT P99 (ms)",
        "TBT max",
        "TTFT median",
        "KV blocks",
        f"iteration beside {decodes} decodes (ms)",
        "",
    )
    rows: list[list[Cell | str]] = [
        [
            str(row.token_budget),
            significant(row.capacity_rps),
            _interval_words(row),
            percent(row.capacity_rps / search.best.capacity_rps),
            *_latency_cells(row, (("tbt_s", "p99"), ("tbt_s", "max"), ("ttft_s", "p50"))),
            count(row.kv_blocks),
            _iteration_cell(row, rules),
            _remark(row, search),
        ]
        for row in search.rows
    ]
    return table(columns, rows)


def _latency_cells(row: Candidate, wanted: tuple[tuple[str, str], ...]) -> list[Cell]:
    runs = Variant("", row.scenario, _trials(row))
    bounds = bounds_s(row.scenario.slo)
    return [latency_cell(runs, bounds, metric, statistic) for metric, statistic in wanted]


def _iteration_cell(row: Candidate, rules: RulesOfThumb) -> Cell:
    seconds = rules.iteration_s(row.token_budget)
    limit = rules.tbt_bound_s
    return Cell(milliseconds(seconds), limit is not None and seconds > limit)


def _remark(row: Candidate, search: BudgetSearch) -> str:
    if row.obstacle:
        return "does not fit"
    if row is search.best:
        return "best"
    return "tie" if row.token_budget in search.ties else ""


def _others(search: BudgetSearch) -> Table:
    best = search.best
    rows = [
        [
            row.policy,
            significant(row.capacity_rps),
            _interval_words(row),
            f"{best.capacity_rps / row.capacity_rps:.2f} x" if row.capacity_rps else MISSING,
            _beyond_words(row),
        ]
        for row in search.others
    ]
    return table(("other policies", "requests/s", "interval", "best is", "what breaks beyond"), rows)


def _beyond_words(row: Candidate) -> str:
    if row.obstacle:
        return "does not fit"
    beyond = row.capacity and row.capacity.beyond
    return what_breaks(beyond) if beyond else MISSING


def _trials(row: Candidate) -> tuple[Trial, ...]:
    return () if row.capacity is None else row.capacity.at_capacity


def _interval_words(row: Candidate) -> str:
    return "rough" if row.capacity is not None and row.capacity.is_rough else span(_interval(row))


def _interval(row: Candidate) -> list[float] | None:
    return None if row.capacity is None else ends(row.capacity.interval_rps)


def _document(row: Candidate, rules: RulesOfThumb) -> dict[str, Any]:
    trials = _trials(row)
    beyond = row.capacity and row.capacity.beyond
    return {
        "capacity_rps": row.capacity_rps,
        "interval_rps": _interval(row),
        "runs": 0 if row.capacity is None else len(row.capacity.by_seed),
        "is_rough": row.capacity is not None and row.capacity.is_rough,
        "kv_blocks": row.kv_blocks,
        "iteration_s": rules.iteration_s(row.token_budget),
        "breaks_beyond": dict(beyond.violations) if beyond else {},
        "metrics": averaged([trial.document["metrics"] for trial in trials]) if trials else None,
        "obstacle": row.obstacle or None,
    }
