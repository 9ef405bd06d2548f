"""The page of `validate`: a recorded run and its simulation side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.report.documents import SCHEMA_VERSION
from simulator.report.numbers import MISSING, milliseconds, percent, significant
from simulator.report.page import Page, Table, table
from simulator.report.words import METRIC_WORDS, STATISTIC_WORDS, deployment, policy
from simulator.run import finds_prefixes
from simulator.validate.compare import error_pct
from simulator.validate.served import PHASES
from simulator.validate.timeline import Timeline
from simulator.validate.validation import Validation

if TYPE_CHECKING:
    from simulator.config import Scenario

METRICS = ("ttft_s", "tbt_s", "tpot_s", "e2e_s")
STATISTICS = ("mean", "p50", "p90", "p99")
RATES = {
    "throughput_rps": "throughput (requests/s)",
    "output_tokens_per_s": "output tokens/s",
    "makespan_s": "makespan (s)",
}
ERROR_WORDS = {
    "e2e_mean": "mean E2E",
    "ttft_mean": "mean TTFT",
    "tpot_mean": "mean TPOT",
    "makespan": "makespan",
    "per_request_e2e": "E2E of a request, mean size",
}
TIMELINE_ROWS = 12
UNUSED = {"workload", "warmup_s", "until_s", "slo"}
"""Keys of a scenario that play no part where a run brings its own requests."""

Pair = tuple[float | None, float | None]
"""A measured value and a simulated one."""


def validation_page(validation: Validation) -> Page:
    """The errors, then where they arise."""
    return Page(
        answer=_answer(validation),
        tables=(
            _metrics_table(validation),
            _phases_table(validation),
            *_split_tables(validation),
            _timeline_table(validation.timeline),
        ),
        notes=_notes(validation),
        document=_document(validation),
    )


def cut_notes(scenario: Scenario) -> tuple[str, ...]:
    """Says so where a scenario cuts off a run's start or end, as nothing is cut from a recorded one."""
    cuts = [f"{key} {value:g}" for key in ("warmup_s", "until_s") if (value := getattr(scenario, key))]
    return (f"{' and '.join(cuts)} cut nothing: every request of the run counts",) if cuts else ()


def signed(error: float | None) -> str:
    """An error in percent with its sign, e.g. +1.24 %."""
    return MISSING if error is None else f"{error:+.2f} %"


def _answer(validation: Validation) -> str:
    run, scenario, errors = validation.run, validation.scenario, validation.errors_pct
    figures = ", ".join(
        f"{words} {signed(errors[key])}" for key, words in ERROR_WORDS.items() if key != "per_request_e2e"
    )
    return (
        f"{deployment(scenario)}, {policy(scenario)}, against {len(run)} requests ({run.kind}): {figures};"
        f" the E2E of a request is off by {_size(errors['per_request_e2e'])} on average."
    )


def _size(error: float | None) -> str:
    return MISSING if error is None else f"{error:.2f} %"


def _metrics(validation: Validation) -> dict[str, dict[str, Pair]]:
    measured, simulated = validation.run.served.metrics, validation.replay.served.metrics
    return {
        metric: {each: (measured[metric][each], simulated[metric][each]) for each in STATISTICS}
        for metric in METRICS
    }


def _rates(validation: Validation) -> dict[str, Pair]:
    measured, simulated = validation.run.served, validation.replay.served
    return {name: (getattr(measured, name), getattr(simulated, name)) for name in RATES}


def _phases(validation: Validation) -> dict[str, Pair]:
    measured, simulated = validation.run.served, validation.replay.served
    return {phase: (measured.phase_mean_s(phase), simulated.phase_mean_s(phase)) for phase in PHASES}


def _metrics_table(validation: Validation) -> Table:
    rows = [
        _in_ms(f"{METRIC_WORDS[metric]} {STATISTIC_WORDS[statistic]} (ms)", pair)
        for metric, statistics in _metrics(validation).items()
        for statistic, pair in statistics.items()
    ]
    for name, (measured, simulated) in _rates(validation).items():
        error = signed(error_pct(measured, simulated))
        rows.append([RATES[name], significant(measured), significant(simulated), error])
    rows.append([ERROR_WORDS["per_request_e2e"], "", "", _size(validation.errors_pct["per_request_e2e"])])
    return table(("", "measured", "simulated", "error"), rows)


def _in_ms(name: str, pair: Pair) -> list[str]:
    return [name, *map(milliseconds, pair), signed(error_pct(*pair))]


def _phases_table(validation: Validation) -> Table:
    e2e_s = validation.run.served.metrics["e2e_s"]["mean"]
    rows = [
        [*_in_ms(f"{phase} (mean, ms)", pair), signed(_share_pct(pair, e2e_s))]
        for phase, pair in _phases(validation).items()
    ]
    title = "in which phase of a request the error arises"
    return table(("phase", "measured", "simulated", "error", "of mean E2E"), rows, title)


def _share_pct(pair: Pair, whole: float | None) -> float | None:
    """A difference in percent of something larger."""
    measured, simulated = pair
    if measured is None or simulated is None or not whole:
        return None
    return 100 * (simulated - measured) / whole


def _split_tables(validation: Validation) -> tuple[Table, ...]:
    split = validation.split
    if split is None:
        return ()
    rows = [
        [words, signed(validation.errors_pct[key]), signed(split.remaining_pct[key])]
        for key, words in ERROR_WORDS.items()
    ]
    title = f"what is left if every iteration takes {split.factor:.4f} times as long (mean TPOT then fits)"
    return (table(("error", "predicted", "left: scheduling and the rest"), rows, title),)


def _timeline_table(line: Timeline) -> Table:
    picked = np.linspace(0, len(line.at_s) - 1, TIMELINE_ROWS).round().astype(int)
    levels = (*line.running, *line.waiting)
    rows = [[f"{line.at_s[i]:.1f}", *(str(level[i]) for level in levels)] for i in picked]
    until = "first token" if line.until_first_token else "scheduled"
    columns = ("time (s)", "running", "simulated", f"waiting until {until}", "simulated")
    return table(columns, rows, "over time")


def _notes(validation: Validation) -> tuple[str, ...]:
    run, result = validation.run, validation.replay.result
    notes = list(run.notes)
    if run.queued_ttft_s is not None:
        notes.append(
            f"measured from when the engine took a request out of its input queue, the mean TTFT is"
            f" {milliseconds(run.queued_ttft_s)} ms"
        )
    if run.block_ids is None and finds_prefixes(validation.scenario):
        notes.append("the run does not say which prompts share a prefix: none is taken to")
    if result.extrapolated_share:
        notes.append(
            f"{percent(result.extrapolated_share)} of the predictions lie outside the measured range"
        )
    return (*notes, *cut_notes(validation.scenario), *result.notes)


def _document(validation: Validation) -> dict[str, Any]:
    run, line, split = validation.run, validation.timeline, validation.split
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "validate",
        "run": {
            "name": run.name,
            "kind": run.kind,
            "requests": len(run),
            "queued_ttft_mean_s": run.queued_ttft_s,
        },
        "scenario": validation.scenario.model_dump(mode="json", exclude=UNUSED),
        "errors_pct": validation.errors_pct,
        "metrics": {
            metric: {statistic: _pair(pair) for statistic, pair in statistics.items()}
            for metric, statistics in _metrics(validation).items()
        },
        **{name: _pair(pair) for name, pair in _rates(validation).items()},
        "phases_mean_s": {phase: _pair(pair) for phase, pair in _phases(validation).items()},
        "split": None
        if split is None
        else {"step_time_factor": split.factor, "remaining_errors_pct": split.remaining_pct},
        "timeline": {
            "waiting_until": "first_token" if line.until_first_token else "scheduled",
            "at_s": line.at_s.tolist(),
            "running": _levels(line.running),
            "waiting": _levels(line.waiting),
        },
        "extrapolated_share": validation.replay.result.extrapolated_share,
        "notes": list(_notes(validation)),
    }


def _pair(pair: Pair) -> dict[str, float | None]:
    measured, simulated = pair
    return {"measured": measured, "simulated": simulated, "error_pct": error_pct(measured, simulated)}


def _levels(pair: tuple[Any, Any]) -> dict[str, list[int]]:
    measured, simulated = pair
    return {"measured": measured.tolist(), "simulated": simulated.tolist()}
