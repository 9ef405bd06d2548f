"""The table of latencies: one row a metric, one column a statistic, bounds of the SLO marked."""

from __future__ import annotations

from collections.abc import Mapping

from simulator.metrics import METRICS, slo_class, split_slo_key
from simulator.quantiles import STATISTICS
from simulator.report.numbers import milliseconds
from simulator.report.page import Cell, Table, table
from simulator.report.words import METRIC_WORDS, STATISTIC_WORDS
from simulator.search.replicate import Variant


def latency_table(runs: Variant, title: str = "", of_class: str = "") -> Table:
    """Every statistic of every latency in milliseconds, averaged over the runs; of one class if named."""
    bounds = bounds_s(runs.scenario.slo, of_class)
    rows: list[list[Cell | str]] = [
        [METRIC_WORDS[metric], *(latency_cell(runs, bounds, metric, stat, of_class) for stat in STATISTICS)]
        for metric in METRICS
    ]
    return table(["ms", *(STATISTIC_WORDS[statistic] for statistic in STATISTICS)], rows, title)


def class_tables(runs: Variant) -> tuple[Table, ...]:
    """The same for each class of requests, where there are any."""
    return tuple(latency_table(runs, f"Class {name}:", name) for name in runs.classes)


def latency_cell(
    runs: Variant,
    bounds: Mapping[tuple[str, str], float],
    metric: str,
    statistic: str,
    of_class: str = "",
) -> Cell:
    """One latency in milliseconds, averaged over the runs, against its bound."""
    value = runs.mean(metric, statistic, of_class)
    limit = bounds.get((metric, statistic))
    return Cell(milliseconds(value), limit is not None and value is not None and value > limit)


def bounds_s(slo: Mapping[str, float], of_class: str = "") -> dict[tuple[str, str], float]:
    """The SLO's bounds in seconds on all requests, or on one class, by metric and statistic."""
    found: dict[tuple[str, str], float] = {}
    for key, value in slo.items():
        if slo_class(key) != of_class:
            continue
        statistic, metric, unit_s = split_slo_key(key)
        limit = min(value * unit_s, found.get((metric, statistic), float("inf")))
        found[metric, statistic] = limit
    return found
