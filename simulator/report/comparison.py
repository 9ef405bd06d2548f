"""The page of `compare`: every metric of every variant, and how far each lies from the first."""

from __future__ import annotations

from typing import Any

from simulator.metrics import METRICS
from simulator.quantiles import STATISTICS
from simulator.report.documents import averaged, ends, header
from simulator.report.latencies import bounds_s, latency_cell
from simulator.report.notes import run_notes, unique
from simulator.report.numbers import significant
from simulator.report.page import Cell, Page, Table, table
from simulator.report.words import METRIC_WORDS, STATISTIC_WORDS, deployment, slo_words
from simulator.search.comparison import Comparison, Difference
from simulator.search.replicate import Variant

Statistics = tuple[tuple[str, tuple[str, ...]], ...]

SHOWN: Statistics = (
    ("ttft_s", ("p50", "p99", "max")),
    ("tbt_s", ("p50", "p99", "p999", "max")),
    ("tpot_s", ("p50", "p99")),
    ("e2e_s", ("p50", "p99")),
    ("scheduling_delay_s", ("p50", "p99")),
)
SHOWN_OF_CLASS: Statistics = (("ttft_s", ("p50", "p99")), ("tbt_s", ("p99",)), ("e2e_s", ("p50", "p99")))
FIELDS = {
    "throughput_rps": "throughput (requests/s)",
    "goodput_rps": "goodput (requests/s)",
    "output_tokens_per_s": "output tokens/s",
    "preemptions": "preemptions",
    "recomputed_tokens": "tokens recomputed",
}
NOISE = "~"
LARGE = 10


def comparison_page(comparison: Comparison) -> Page:
    """All variants side by side, the first as the baseline."""
    baseline = comparison.baseline
    trials = [trial for variant in comparison.variants for trial in variant.trials]
    runs = len(baseline.trials)
    return Page(
        answer=_answer(comparison),
        tables=(_table(comparison),),
        notes=unique((*_reading_notes(runs, comparison.effort.runs), *run_notes(trials))),
        legend=f"breaks the SLO: {slo_words(baseline.scenario.slo)}",
        document=header("compare", baseline.scenario, comparison.effort)
        | {"rows": [_row(comparison, variant) for variant in comparison.variants]},
    )


def _answer(comparison: Comparison) -> str:
    holding = [variant.label for variant in comparison.variants if variant.runs_held() == len(variant.trials)]
    slo = comparison.baseline.scenario.slo
    names = " against ".join(variant.label for variant in comparison.variants)
    what = f"{names} on the same requests, {deployment(comparison.baseline.scenario)}"
    if not slo:
        return f"{what}."
    verdict = f"{', '.join(holding)} hold{'s' if len(holding) == 1 else ''}" if holding else "none holds"
    return f"{what}: {verdict} the SLO ({slo_words(slo)})."


def _reading_notes(runs: int, asked: int) -> tuple[str, ...]:
    difference = "in brackets: difference from the first variant"
    if runs < asked:
        return (f"{difference}; one run, for the workload is the same with every seed",)
    if runs == 1:
        return (f"{difference}; one run, so nothing says what is noise",)
    return (f"{difference}, with the 95 % interval of {runs} paired runs; {NOISE} marks what may be noise",)


def _table(comparison: Comparison) -> Table:
    rows: list[list[Cell | str]] = []
    for metric, statistics in SHOWN:
        for statistic in statistics:
            name = f"{METRIC_WORDS[metric]} {STATISTIC_WORDS[statistic]} (ms)"
            rows.append([name, *(_cell(comparison, v, metric, statistic) for v in comparison.variants)])
    for of_class in comparison.classes:
        for metric, statistics in SHOWN_OF_CLASS:
            for statistic in statistics:
                name = f"{of_class}: {METRIC_WORDS[metric]} {STATISTIC_WORDS[statistic]} (ms)"
                cells = [_cell(comparison, v, metric, statistic, of_class) for v in comparison.variants]
                rows.append([name, *cells])
    for field, words in FIELDS.items():
        rows.append([words, *(_cell(comparison, variant, field) for variant in comparison.variants)])
    rows.append(["stability", *(_stability(variant) for variant in comparison.variants)])
    return table(["", *(variant.label for variant in comparison.variants)], rows)


def _cell(
    comparison: Comparison, variant: Variant, name: str, statistic: str | None = None, of_class: str = ""
) -> Cell:
    if statistic is None:
        cell = Cell(significant(variant.mean(name)))
    else:
        bounds = bounds_s(variant.scenario.slo, of_class)
        cell = latency_cell(variant, bounds, name, statistic, of_class)
    if variant is comparison.baseline:
        return cell
    difference = comparison.difference(variant, name, statistic, of_class)
    return Cell(f"{cell.text} {_difference(difference)}".strip(), cell.breaks_slo)


def _difference(difference: Difference | None) -> str:
    """The relative difference and its half-interval, "(+12 % ±3)", or a ratio where it is large."""
    if difference is None or difference.share is None:
        return ""
    if abs(difference.share) >= LARGE:
        text = f"{significant(1 + difference.share)} x"
    else:
        text = f"{100 * difference.share:+.0f} %"
        if difference.interval is not None:
            text += f" ±{100 * difference.interval.half / abs(difference.baseline):.2g}"
    return f"({NOISE} {text})" if difference.is_noise else f"({text})"


def _stability(variant: Variant) -> str:
    return ", ".join(dict.fromkeys(trial.stability for trial in variant.trials))


def _row(comparison: Comparison, variant: Variant) -> dict[str, Any]:
    document = averaged([dict(trial.document) for trial in variant.trials])
    return {
        "label": variant.label,
        "policy": variant.scenario.scheduler.policy,
        "scenario": variant.scenario.model_dump(mode="json"),
        **document,
        "differences": _differences(comparison, variant),
    }


def _differences(comparison: Comparison, variant: Variant) -> dict[str, Any]:
    """Difference from the baseline of every statistic and field: absolute, interval, whether it is noise."""
    if variant is comparison.baseline:
        return {}
    found = _metric_differences(comparison, variant)
    for field in FIELDS:
        found[field] = _difference_document(comparison.difference(variant, field))
    if comparison.classes:
        found["classes"] = {
            name: _metric_differences(comparison, variant, name) for name in comparison.classes
        }
    return found


def _metric_differences(comparison: Comparison, variant: Variant, of_class: str = "") -> dict[str, Any]:
    return {
        metric: {
            statistic: _difference_document(comparison.difference(variant, metric, statistic, of_class))
            for statistic in STATISTICS
        }
        for metric in METRICS
    }


def _difference_document(difference: Difference | None) -> dict[str, Any] | None:
    if difference is None:
        return None
    return {
        "difference": difference.absolute,
        "interval": ends(difference.interval),
        "is_noise": difference.is_noise,
    }
