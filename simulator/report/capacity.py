"""The page of `capacity`: the rate, its interval, what breaks beyond it, and the latencies at it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simulator.report.documents import averaged, ends, header
from simulator.report.latencies import class_tables, latency_table
from simulator.report.notes import run_notes, search_notes, unique
from simulator.report.numbers import count, numbered, significant, span
from simulator.report.page import Page, Table, table
from simulator.report.words import deployment, excess_words, policy, slo_words
from simulator.search.capacity import Capacity
from simulator.search.effort import Effort
from simulator.search.replicate import Variant
from simulator.search.trials import Trial

FEW = 0.01
"""Share of the requests that may be turned away without a word in the answer; the notes tell of any."""


def capacity_page(capacity: Capacity, effort: Effort) -> Page:
    """One scenario's capacity."""
    scenario, trials = capacity.scenario, capacity.at_capacity
    runs = Variant("", scenario, trials)
    beyond = capacity.beyond
    return Page(
        answer="\n".join(filter(None, [_answer(capacity), _what_breaks(capacity), _turned_away(trials)])),
        tables=(
            latency_table(runs, "At capacity, mean over runs:"),
            *class_tables(runs),
            _runs_table(capacity),
        ),
        notes=unique((*search_notes(trials[0]), *run_notes(trials))),
        legend=f"breaks the SLO: {slo_words(scenario.slo)}",
        document=header("capacity", scenario, effort)
        | {
            "capacity_rps": capacity.capacity_rps,
            "interval_rps": ends(capacity.interval_rps),
            "breaks_beyond": dict(beyond.violations) if beyond else {},
            "by_seed": [
                {"seed": each.seed, "holds_rps": each.holds_rps, "fails_rps": each.fails_rps}
                for each in capacity.by_seed
            ],
            "at_capacity": averaged([dict(trial.document) for trial in trials]),
        },
    )


def _answer(capacity: Capacity) -> str:
    scenario = capacity.scenario
    rate, runs = f"{significant(capacity.capacity_rps)} requests/s", numbered(len(capacity.by_seed), "run")
    if capacity.is_least:
        rate, how_sure = f"at least {rate}", runs
    elif interval := capacity.interval_rps:
        how_sure = f"95 % interval {span(interval)}, {runs}"
    else:
        how_sure = f"{runs}, so no interval"
    return (
        f"{deployment(scenario)}, {policy(scenario)}: {rate} ({how_sure}) within {slo_words(scenario.slo)}."
    )


def _what_breaks(capacity: Capacity) -> str:
    beyond = capacity.beyond
    if beyond is None:
        return "Nothing broke at twice the saturated rate: raise workload.num_requests to load it longer."
    return f"Beyond it: {what_breaks(beyond)} at {significant(beyond.scenario.workload.rate_rps)} requests/s."


def _turned_away(trials: Sequence[Trial]) -> str:
    """Says so where a good part of the requests is none of the load that is carried."""
    rejected = max(trial.document["requests_rejected"] for trial in trials)
    asked = trials[0].scenario.workload.num_requests or 0
    if rejected <= FEW * asked:
        return ""
    return f"{count(rejected)} of {count(asked)} requests are turned away: what is carried are the others."


def what_breaks(trial: Trial) -> str:
    """Why a trial did not hold: bounds with their values, or an unstable queue."""
    return excess_words(trial.violations, trial.scenario.slo) or f"the run is {trial.stability}"


def _runs_table(capacity: Capacity) -> Table:
    rows: list[list[Any]] = [
        [str(each.seed), significant(each.holds_rps), significant(each.fails_rps)]
        for each in capacity.by_seed
    ]
    return table(["seed", "holds at (requests/s)", "fails at"], rows)
