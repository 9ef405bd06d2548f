"""Simulations written to a file as if they had been measured."""

from __future__ import annotations

import csv
from pathlib import Path

from simulator.config import Scenario
from simulator.latency.model import LatencyModel
from simulator.run import simulate
from simulator.validate import RecordedRun, read_run
from simulator.workload import build_workload

COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens", "scheduled_s", "first_token_s", "last_token_s")


def record(scenario: Scenario, path: Path, latency: LatencyModel | None = None) -> RecordedRun:
    """Simulate a scenario, write its requests to a table and read that."""
    result = simulate(scenario, workload=build_workload(scenario.workload, 0), latency=latency)
    requests = result.records.requests | {"last_token_s": result.records.requests["finished_s"]}
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(zip(*(requests[name].tolist() for name in COLUMNS), strict=True))
    return read_run(path)
