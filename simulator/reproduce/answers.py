"""Small scenarios with one question each, and the answer: yes or no, with the figures that say so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from simulator.config import Scenario
from simulator.run import simulate
from simulator.workload import Workload

if TYPE_CHECKING:
    from simulator.metrics import Result
    from simulator.reproduce.lab import Lab
    from simulator.search.trials import Trial

SEED = 0
NO_WORKLOAD = {"lengths": {"prompt": 1, "output": 1}, "arrivals": "all_at_once"}

Settings = Mapping[str, Any]
"""Keys of a scenario; those with dots are set on top of the others."""
Figures = dict[str, float]


class Answer(NamedTuple):
    """Whether a claim holds here, the figures in one unit, and what they are."""

    holds: bool
    figures: Figures
    unit: str
    words: str


def scenario_of(settings: Settings, workload: Mapping[str, Any] = NO_WORKLOAD) -> Scenario:
    """A scenario given in full."""
    whole = {key: value for key, value in settings.items() if "." not in key}
    dotted = {key: value for key, value in settings.items() if "." in key}
    return Scenario.model_validate(whole | {"workload": dict(workload)}).with_(dotted)


def run(lab: Lab, settings: Settings, workload: Mapping[str, Any]) -> Trial:
    """One run; the lab may remember it."""
    return lab.run(scenario_of(settings, workload), SEED)


def run_requests(settings: Settings, requests: Iterable[tuple[float, int, int]]) -> Result:
    """One run of requests given one by one: arrival in seconds, prompt and output tokens."""
    arrival_s, prompt, output = zip(*sorted(requests), strict=True)
    workload = Workload(np.array(arrival_s, dtype=float), np.array(prompt), np.array(output), "listed")
    return simulate(scenario_of(settings), SEED, workload=workload)


def measured(trial: Trial | Result, name: str, statistic: str) -> float:
    """A statistic of a latency in seconds; zero where nothing was measured."""
    metrics: Any = trial.document["metrics"] if hasattr(trial, "document") else trial.metrics
    return float(metrics[name][statistic] or 0.0)


def poisson(rate_rps: float, num_requests: int, lengths: Mapping[str, Any]) -> dict[str, Any]:
    """Poisson arrivals of requests with the given lengths."""
    return {
        "lengths": dict(lengths),
        "arrivals": "poisson",
        "rate_rps": rate_rps,
        "num_requests": num_requests,
    }


def burst(num_requests: int, lengths: Mapping[str, Any]) -> dict[str, Any]:
    """Requests that are all there from the start."""
    return {"lengths": dict(lengths), "arrivals": "all_at_once", "num_requests": num_requests}
