"""The pages of `runs`: the trials of a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.metrics import METRICS
from simulator.quantiles import STATISTICS
from simulator.report.documents import command_header
from simulator.report.numbers import count, milliseconds, significant
from simulator.report.page import Page, Table, table
from simulator.report.words import METRIC_WORDS, STATISTIC_WORDS

if TYPE_CHECKING:
    from simulator.search.store import StoredTrial

KEY_LENGTH, CODE_LENGTH = 12, 8
"""Characters of a hash that are shown; `runs show` takes as few as tell one trial from the others."""


def trials_page(trials: list[StoredTrial], total: int, path: Path) -> Page:
    """The newest trials of a store, one a row."""
    shown = f", the newest {len(trials)} of them below" if len(trials) < total else ""
    return Page(
        f"{count(total)} trials in {path}{shown}.",
        (_trials_table(trials),) if trials else (),
        document=command_header("runs list") | {"trials": [_columns(trial) for trial in trials]},
    )


def trial_page(trial: StoredTrial) -> Page:
    """One trial with all that is stored of it."""
    contents = trial.contents()
    metrics = contents["document"].get("metrics")
    return Page(
        f"{trial.key}: {trial.model} on {trial.gpu}, {trial.policy}, budget {trial.token_budget},"
        f" {significant(trial.rate_rps)} requests/s, seed {trial.seed}, finished {trial.created}:"
        f" {_outcome(contents)}.",
        () if metrics is None else (_latency_table(metrics),),
        document=command_header("runs show") | _columns(trial) | contents,
    )


def export_page(trials: list[StoredTrial], path: Path) -> Page:
    """All trials with their latencies: a table for a spreadsheet, a document with everything."""
    names = [f"{metric}_{statistic}" for metric in METRICS for statistic in STATISTICS]
    rows = []
    for trial in trials:
        contents = trial.contents()
        metrics = contents["document"].get("metrics", {})
        values = [metrics.get(metric, {}).get(statistic) for metric in METRICS for statistic in STATISTICS]
        rows.append(
            [
                *("" if value is None else str(value) for value in _columns(trial).values()),
                _outcome(contents),
                *("" if value is None else repr(value) for value in values),
            ]
        )
    columns = [*trials[0]._fields[:-1], "outcome", *names] if trials else []
    return Page(
        f"{count(len(trials))} trials of {path}.",
        (table(columns, rows, left=True),) if trials else (),
        document=command_header("runs export")
        | {"trials": [_columns(trial) | trial.contents() for trial in trials]},
    )


def dropped_page(dropped: int, left: int, path: Path) -> Page:
    """How many trials were deleted."""
    return Page(
        f"{count(dropped)} trials deleted, {count(left)} left in {path}.",
        (),
        document=command_header("runs gc") | {"deleted": dropped, "left": left},
    )


def _columns(trial: StoredTrial) -> dict[str, Any]:
    """A row of the store but for its document."""
    columns = trial._asdict()
    del columns["document"]
    return columns


def _trials_table(trials: list[StoredTrial]) -> Table:
    rows = [
        [
            trial.key[:KEY_LENGTH],
            trial.created,
            trial.scenario,
            trial.model,
            trial.gpu,
            trial.policy,
            str(trial.token_budget),
            significant(trial.rate_rps),
            str(trial.seed),
            trial.code[:CODE_LENGTH],
            _outcome(trial.contents()),
        ]
        for trial in trials
    ]
    names = ("key", "finished", "scenario", "model", "gpu", "policy", "budget", "rate", "seed", "code")
    return table((*names, "outcome"), rows, left=True)


def _outcome(contents: dict[str, Any]) -> str:
    """Whether the SLO held, and if not why; a run that was ended says which bound it broke."""
    if contents["violations"]:
        return f"broke {', '.join(contents['violations'])}"
    return str(contents["document"]["stability"])


def _latency_table(metrics: dict[str, dict[str, float | None]]) -> Table:
    rows = [
        [METRIC_WORDS[metric], *(milliseconds(metrics[metric][statistic]) for statistic in STATISTICS)]
        for metric in METRICS
    ]
    return table(["ms", *(STATISTIC_WORDS[statistic] for statistic in STATISTICS)], rows)
