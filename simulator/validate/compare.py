"""Serves the requests of a recorded run in the simulator and says how far off it is.

Every error is simulated over measured, less one, in percent. Nothing is fitted here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simulator.errors import ConfigError
from simulator.run import simulate
from simulator.validate.served import Served

if TYPE_CHECKING:
    from simulator.config import Scenario
    from simulator.latency.model import LatencyModel
    from simulator.metrics import Result
    from simulator.validate.recorded import RecordedRun

Errors = dict[str, float | None]

LEAST_MEASURED = 1e-12
"""Smaller measured values are the rounding of a clock: nothing is relative to them."""

HEADLINES = {
    "ttft_mean": ("ttft_s", "mean"),
    "ttft_p50": ("ttft_s", "p50"),
    "ttft_p99": ("ttft_s", "p99"),
    "tpot_mean": ("tpot_s", "mean"),
    "e2e_mean": ("e2e_s", "mean"),
    "e2e_p99": ("e2e_s", "p99"),
}
"""Errors by name: the metric and its statistic."""


@dataclass(frozen=True, eq=False)
class Replay:
    """The requests of a run as the simulator serves them."""

    result: Result
    served: Served


def replay(run: RecordedRun, scenario: Scenario, latency: LatencyModel) -> Replay:
    """Simulate the requests of a run, at the times at which they came.

    The scenario's own workload, warm-up, end and SLO play no part. Raises ConfigError for a scenario that
    cannot serve what the run served.
    """
    result = simulate(
        scenario.with_({"warmup_s": 0, "until_s": None, "slo": {}}), workload=run.workload(), latency=latency
    )
    for index, reason in result.rejections:
        raise ConfigError(
            f"the scenario cannot serve request {index + 1} (by arrival) of {run.name}: {reason}"
        )
    return Replay(result, Served.simulated(result))


def error_pct(measured: float | None, simulated: float | None) -> float | None:
    """How far a simulated value is from the measured one, in percent; None where nothing was measured."""
    if measured is None or simulated is None or measured < LEAST_MEASURED:
        return None
    return 100 * (simulated / measured - 1)


def errors_pct(measured: Served, simulated: Served) -> Errors:
    """The headline errors in percent, signed, and `per_request_e2e`: the mean over requests, unsigned."""
    errors = {
        name: error_pct(measured.metrics[metric][statistic], simulated.metrics[metric][statistic])
        for name, (metric, statistic) in HEADLINES.items()
    }
    errors["makespan"] = error_pct(measured.makespan_s, simulated.makespan_s)
    relative = np.abs(simulated.e2e_s / measured.e2e_s - 1)
    errors["per_request_e2e"] = 100 * float(relative.mean())
    return errors
