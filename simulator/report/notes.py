"""What a reader should know about the runs behind a table: where times come from, and what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from simulator.report.numbers import numbered, percent
from simulator.report.words import slo_words
from simulator.search.budget import Candidate
from simulator.search.trials import Trial

if TYPE_CHECKING:
    from simulator.config import Scenario


def run_notes(trials: Sequence[Trial]) -> tuple[str, ...]:
    """Notes of the runs, each once: rejections, extrapolation, warm-up, sources of times and lengths."""
    if not trials:
        return ()
    extrapolated = max(trial.value("extrapolated_share") or 0.0 for trial in trials)
    notes = [note for trial in trials for note in (*rejection_notes(trial), *trial.document["notes"])]
    if extrapolated:
        notes.append(f"up to {percent(extrapolated)} of the predictions lie outside the measured range")
    return unique(notes)


def rejection_notes(trial: Trial) -> tuple[str, ...]:
    """How many requests could never run, and why the first of them could not."""
    rejections = trial.document["rejections"]
    if not rejections:
        return ()
    first = rejections[0]
    example = f"request {first['request']}: {first['reason']}"
    return (f"{numbered(len(rejections), 'request')} rejected, for example {example}",)


def search_notes(trial: Trial | None) -> tuple[str, ...]:
    """How a capacity was defined: SLO, arrivals, requests in a trial, warm-up."""
    if trial is None:
        return ()
    scenario = trial.scenario
    warmup = f"the first {scenario.warmup_s:g} s are" if scenario.warmup_s else "nothing is"
    return (
        f"a rate counts if the run is stable and holds {slo_words(scenario.slo)}",
        f"each trial: {scenario.workload.num_requests} requests, {scenario.workload.arrivals} arrivals; "
        f"{warmup} cut as warm-up, nothing as drain",
    )


def memory_note(scenario: Scenario) -> str:
    """Where a GPU's memory goes, and the KV blocks that are left."""
    from simulator.load import load_gpu, load_model
    from simulator.memory import kv_capacity

    if scenario.memory.num_blocks is not None:
        return f"KV cache: {scenario.memory.num_blocks} blocks, as the scenario says"
    capacity = kv_capacity(load_model(scenario.model), load_gpu(scenario.gpu), scenario)
    return f"memory of a GPU: {capacity.describe()}"


def obstacles(rows: Sequence[Candidate]) -> tuple[str, ...]:
    """Why some budgets or policies were not searched."""
    return tuple(f"{row.policy}, budget {row.token_budget}: {row.obstacle}" for row in rows if row.obstacle)


def unique(notes: Iterable[str]) -> tuple[str, ...]:
    """The notes in order, each once."""
    return tuple(dict.fromkeys(notes))
