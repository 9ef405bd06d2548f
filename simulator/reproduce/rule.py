"""The search for a capacity as the paper's artifact does it, so that its numbers are compared like with like.

It differs from `simulator.search`: a bisection between zero and twice a starting rate, rates to 0.01
requests/s, whatever has finished within 30 minutes counts, and no verdict on stability.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple

MOST_TRIALS = 20
TOLERANCE = 0.025
DELAY_S = 2.0
"""Bound on the median scheduling delay."""
HOPELESS_DELAY_S = 500.0


class Outcome(NamedTuple):
    """A trial as the rule sees it: P99 TBT and the median scheduling delay in seconds."""

    p99_tbt_s: float
    delay_s: float


class Found(NamedTuple):
    """The largest rate that held (None: none did) and what was measured at each rate tried."""

    capacity_rps: float | None
    trials: tuple[tuple[float, Outcome], ...]


def search(run: Callable[[float], Outcome], start_rps: float, tbt_s: float) -> Found:
    """Bisect, letting the upper end move up again while delays are still far from their bound."""
    low, high, least_failed = 0.0, 2 * start_rps, inf
    best: float | None = None
    trials: dict[float, Outcome] = {}
    while len(trials) < MOST_TRIALS:
        rate = round((low + high) / 2, 2)
        if not rate or rate in trials or abs(high - low) < TOLERANCE * rate:
            break
        outcome = trials[rate] = run(rate)
        if outcome.p99_tbt_s <= tbt_s and outcome.delay_s <= DELAY_S:
            best = low = rate
            high = min(_raised(high, rate, outcome.delay_s), least_failed)
        else:
            least_failed = min(least_failed, rate)
            high = rate / 2 if outcome.delay_s > HOPELESS_DELAY_S else rate
    return Found(best, tuple(trials.items()))


def _raised(high: float, rate: float, delay_s: float) -> float:
    """A new upper end after a rate that held: far up where hardly anybody waits."""
    if delay_s < DELAY_S / 8:
        return 4 * high
    return 2 * high if delay_s < DELAY_S / 4 or rate > 0.8 * high else high
