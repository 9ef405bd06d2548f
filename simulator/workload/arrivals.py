"""When requests arrive: renewal processes at one request a second, and the replay of recorded times.

A process is drawn at rate one and then divided by the rate, so two rates of one seed see the same pattern.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simulator.errors import ConfigError
from simulator.workload.spec import MAX_SECONDS

Seconds = NDArray[np.float64]


def poisson(count: int, rng: np.random.Generator, truncate_at: float | None = None) -> Seconds:
    """Poisson arrivals at rate one; `truncate_at` caps the gaps, in mean gaps (the paper's artefact: 3)."""
    gaps = rng.standard_exponential(count)
    return np.cumsum(gaps if truncate_at is None else np.minimum(gaps, truncate_at))


def truncated_load(truncate_at: float) -> float:
    """Real over nominal rate of Poisson arrivals whose gaps are capped: 1.052 for a cap of 3 mean gaps."""
    return 1 / -math.expm1(-truncate_at)  # the mean of min(gap, cap) is 1 - exp(-cap)


def gamma(count: int, rng: np.random.Generator, cv: float) -> Seconds:
    """Arrivals at rate one whose gaps are gamma distributed with std / mean = `cv`; 1 is Poisson."""
    shape = cv**-2
    return np.cumsum(rng.standard_gamma(shape, count) / shape)


def constant(count: int) -> Seconds:
    """One arrival each second, the first at 0."""
    return np.arange(count, dtype=np.float64)


def repeat_times(times: Seconds, count: int) -> Seconds:
    """The first `count` of recorded times; past the end they start over, one mean gap after the last."""
    if count <= len(times):
        return times[:count]
    rate = mean_rate(times)
    period = 0.0 if rate is None else len(times) / rate
    passes, index = np.divmod(np.arange(count), len(times))
    return times[index] + passes * period


def at_pace(times: Seconds, pace: float, key: str) -> Seconds:
    """The times so much faster; ConfigError names the key of the pace that makes them last beyond belief."""
    if len(times):
        require_believable(float(times[-1]) / pace, f"{key} {pace:g}")  # numpy would warn of an overflow
    return times / pace


def require_believable(last_s: float, setting: str) -> None:
    """ConfigError where the last arrival is so late that a clock can no longer tell latencies apart."""
    if last_s > MAX_SECONDS:
        raise ConfigError(
            f"{setting}: the last request would arrive at {last_s:.6g} s (allowed: up to {MAX_SECONDS:g} s)"
        )


def mean_rate(times: Seconds) -> float | None:
    """Requests per second between the first and the last arrival; None where no time passes between them."""
    span = float(times[-1] - times[0]) if len(times) else 0.0
    return (len(times) - 1) / span if span > 0 else None
