"""The capacity of one replication: bisection over the rate, on the same requests with their gaps scaled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from simulator.search.threshold import find_threshold
from simulator.search.trials import RunTrial, Trial, run_trial

if TYPE_CHECKING:
    from simulator.config import Scenario

TRIAL_REQUESTS = 2048
"""Requests of a trial where the workload does not say (the paper's number)."""

ROUGH_SHARE = 4  # the rough search uses a quarter of the requests ...
ROUGH_TOLERANCE = 0.1  # ... and stops early: it only has to aim the real ones
FLOOR_SHARE = 1 / 256  # of the throughput of a saturated run: at this load requests hardly ever meet
CEILING_SHARE = 2.0  # no stable run goes beyond; a saturated run ends with a drain, so it reads too low
FIRST_GUESS_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Aim:
    """Where a search starts and the range that it has to cover, in requests per second."""

    guess_rps: float
    """A rough capacity; zero where not even the floor held."""
    floor_rps: float
    ceiling_rps: float
    at_floor: Trial | None = None
    """The trial that failed at the floor."""


@dataclass(frozen=True, slots=True)
class SeedCapacity:
    """One replication's capacity in requests per second, and the trials on both sides of it."""

    seed: int
    holds_rps: float
    fails_rps: float
    at_capacity: Trial | None
    """The trial at `holds_rps`; None where that is zero."""
    beyond: Trial | None
    """The trial at `fails_rps`; None where even the ceiling held: the run is too short to be loaded."""


def at_rate(scenario: Scenario, rate_rps: float) -> Scenario:
    """The same requests, arriving at another mean rate."""
    return scenario.with_({"workload.rate_rps": rate_rps})


def take_aim(scenario: Scenario, seed: int, run: RunTrial = run_trial) -> Aim:
    """Bracket the capacity from a saturated run, then search roughly with a part of the requests."""
    requests = scenario.workload.num_requests or TRIAL_REQUESTS
    sample = scenario.with_({"workload.num_requests": max(1, requests // ROUGH_SHARE)})
    saturated = run(_all_at_once(sample), seed).value("throughput_rps") or 0.0
    aim = Aim(FIRST_GUESS_SHARE * saturated, FLOOR_SHARE * saturated, CEILING_SHARE * saturated)
    rough = search_seed(sample, seed, aim, ROUGH_TOLERANCE, run)
    return replace(aim, guess_rps=rough.holds_rps, at_floor=None if rough.holds_rps else rough.beyond)


def search_seed(
    scenario: Scenario, seed: int, aim: Aim, tolerance: float, run: RunTrial = run_trial
) -> SeedCapacity:
    """One replication's capacity, bracketed around the aim; zero where nothing held."""
    if not aim.guess_rps:
        return SeedCapacity(seed, 0.0, aim.floor_rps, None, aim.at_floor)
    trials: dict[float, Trial] = {}

    def holds(rate: float) -> bool:
        trials[rate] = run(at_rate(scenario, rate), seed)
        return trials[rate].holds

    low, high = find_threshold(
        holds, aim.guess_rps, tolerance=tolerance, floor=aim.floor_rps, ceiling=aim.ceiling_rps
    )
    return SeedCapacity(
        seed,
        holds_rps=low or 0.0,
        fails_rps=high or aim.ceiling_rps,
        at_capacity=None if low is None else trials[low],
        beyond=None if high is None else trials[high],
    )


def _all_at_once(scenario: Scenario) -> Scenario:
    updates = dict.fromkeys(("workload.rate_rps", "workload.cv", "workload.truncate_at"))
    return scenario.with_({**updates, "workload.arrivals": "all_at_once"})
