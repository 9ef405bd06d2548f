"""The table of latencies: one row a metric, one column a statistic, bounds of the SLO marked."""

from __future__ import annotations

from collections.abc import Mapping

from simulator.metrics import METRICS, split_slo_key
from simulator.quantiles import STATISTICS
from simulator.report.numbers import milliseconds
from simulator.report.page import Cell, Table, table
from simulator.report.words import METRIC_WORDS, STATISTIC_WORDS
from simulator.search.replicate import Variant


def latency_table(runs: Variant, title: str = "") -> Table:
    """Every statistic of every latency in milliseconds, averaged over the runs."""
    bounds = bounds_s(runs.scenario.slo)
    rows: list[list[Cell | str]] = [
        [METRIC_WORDS[metric], *(latency_cell(runs, bounds, metric, stat) for stat in STATISTICS)]
        for metric in METRICS
    ]
    return table(["ms", *(STATISTIC_WORDS[statistic] for statistic in STATISTICS)], rows, title)


def latency_cell(runs: Variant, bounds: Mapping[tuple[str, str], float], metric: str, statistic: str) -> Cell:
    """One latency in milliseconds, averaged over the runs, against its bound."""
    value = runs.mean(metric, statistic)
    limit = bounds.get((metric, statistic))
    return Cell(milliseconds(value), limit is not None and value is not None and value > limit)


def bounds_s(slo: Mapping[str, float]) -> dict[tuple[str, str], float]:
    """The SLO's bounds in seconds, by metric and statistic."""
    found: dict[tuple[str, str], float] = {}
    for key, value in slo.items():
        statistic, metric, unit_s = split_slo_key(key)
        limit = min(value * unit_s, found.get((metric, statistic), float("inf")))
        found[metric, statistic] = limit
    return found
