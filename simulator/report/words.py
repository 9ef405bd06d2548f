"""Names of metrics, SLOs and deployments as a reader says them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from simulator.metrics import slo_class, split_slo_key
from simulator.report.numbers import milliseconds, significant

if TYPE_CHECKING:
    from simulator.config import Scenario

METRIC_WORDS = {
    "ttft_s": "TTFT",
    "tbt_s": "TBT",
    "tpot_s": "TPOT",
    "e2e_s": "E2E",
    "scheduling_delay_s": "scheduling delay",
}
STATISTIC_WORDS = {
    "mean": "mean",
    "p50": "median",
    "p90": "P90",
    "p95": "P95",
    "p99": "P99",
    "p999": "P99.9",
    "max": "max",
}


def statistic_of(metric: str, statistic: str) -> str:
    """A statistic of a metric, e.g. "P99 TBT"."""
    return f"{STATISTIC_WORDS[statistic]} {METRIC_WORDS[metric]}"


def bounded(key: str) -> str:
    """What a key of an SLO bounds, e.g. "P99 TBT", or "P99 TBT of chat" for one class."""
    statistic, metric, _ = split_slo_key(key)
    of_class = slo_class(key)
    return statistic_of(metric, statistic) + (f" of {of_class}" if of_class else "")


def bound(key: str, value: float) -> str:
    """One bound of an SLO, e.g. "P99 TBT <= 50 ms"."""
    return f"{bounded(key)} <= {value:g} {key.rpartition('_')[2]}"


def slo_words(slo: Mapping[str, float]) -> str:
    """The whole SLO, e.g. "P99 TBT <= 50 ms, median scheduling delay <= 2 s"."""
    return ", ".join(bound(key, value) for key, value in slo.items()) or "no SLO"


def excess_words(violations: Mapping[str, float | None], slo: Mapping[str, float]) -> str:
    """Broken bounds with what was measured, e.g. "P99 TBT 61.2 ms (bound 50 ms)"."""
    texts = []
    for key, value in violations.items():
        unit_s = split_slo_key(key)[2]
        name, unit = bounded(key), key.rpartition("_")[2]
        if value is None:
            texts.append(f"{name} over {slo[key]:g} {unit}")
            continue
        measured = milliseconds(value * unit_s) if unit == "ms" else significant(value)
        texts.append(f"{name} {measured} {unit} (bound {slo[key]:g} {unit})")
    return ", ".join(texts)


def deployment(scenario: Scenario) -> str:
    """Model and GPUs, e.g. "llama-3-8b on 2 x h100_sxm (TP2)"."""
    parallel = scenario.parallel
    gpus = parallel.gpus * scenario.replicas
    split = [f"TP{parallel.tensor}"] if parallel.tensor > 1 else []
    split += [f"PP{parallel.pipeline}"] if parallel.pipeline > 1 else []
    split += [f"{scenario.replicas} replicas"] if scenario.replicas > 1 else []
    return f"{scenario.model} on {gpus} x {scenario.gpu}" + (f" ({', '.join(split)})" if split else "")


def policy(scenario: Scenario) -> str:
    """The policy and, where it has one, its budget."""
    name, budget = scenario.scheduler.policy, scenario.scheduler.token_budget
    return f"{name}, budget {budget}" if scenario.scheduler.has_budget else name


def runs_of(numbers: Iterable[int], all_numbers: Sequence[int]) -> str:
    """Budgets as ranges where no tried budget is left out, e.g. "384 to 768" or "128, 512 to 1024"."""
    chosen = set(numbers)
    runs: list[list[int]] = []
    unbroken = False
    for number in sorted(all_numbers):
        if number in chosen:
            if unbroken:
                runs[-1].append(number)
            else:
                runs.append([number])
        unbroken = number in chosen
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
