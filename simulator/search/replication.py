"""The capacity of one replication: bisection over the rate, on the same requests with their gaps scaled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.search.threshold import find_threshold, tidy_rate
from simulator.search.trials import RunTrial, Trial, run_trial

if TYPE_CHECKING:
    from simulator.config import Scenario

TRIAL_REQUESTS = 2048
"""Requests of a trial where the workload does not say (the paper's number)."""
ROUGH_SHARE = 4
ROUGH_TOLERANCE = 0.05
"""A rough search, which aims the real ones, uses a quarter of the requests and resolves 5 %."""

FLOOR_SHARE = 1 / 256  # of the throughput of a saturated run: at this load requests hardly ever meet
CEILING_SHARE = 2.0  # no stable run goes beyond; a saturated run ends with a drain, so it reads too low
FIRST_GUESS_SHARE = 0.8
UNAIMED_STEP = 0.5  # from that guess the capacity may be far; from a rough one it is two tolerances away


@dataclass(frozen=True, slots=True)
class Aim:
    """Where a search starts, and the range that it has to cover, in requests per second."""

    guess_rps: float
    floor_rps: float
    ceiling_rps: float


@dataclass(frozen=True, slots=True)
class SeedCapacity:
    """One replication's capacity in requests per second, and the trials on both sides of it."""

    seed: int
    holds_rps: float
    """The largest rate that held; zero where not even the floor did."""
    fails_rps: float | None
    """The least rate that did not; None where even the ceiling held: the run is too short to be loaded."""
    at_capacity: Trial | None
    """The trial at `holds_rps`; None where that is zero."""
    beyond: Trial | None
    """The trial at `fails_rps`; None where that is."""


def at_rate(scenario: Scenario, rate_rps: float) -> Scenario:
    """The same requests, arriving at another mean rate."""
    return scenario.with_({"workload.rate_rps": rate_rps})


def rough_scenario(scenario: Scenario) -> Scenario:
    """The scenario with a part of its requests."""
    requests = scenario.workload.num_requests or TRIAL_REQUESTS
    return scenario.with_({"workload.num_requests": max(1, requests // ROUGH_SHARE)})


def search_roughly(
    scenario: Scenario, seed: int, aim: Aim | None = None, run: RunTrial = run_trial
) -> tuple[Aim, SeedCapacity]:
    """A capacity from a part of the requests, aimed by a saturated run unless told; and the aim for more."""
    sample, first_step = rough_scenario(scenario), None
    if aim is None:
        first_step = UNAIMED_STEP
        saturated = run(_all_at_once(sample), seed).value("throughput_rps") or 0.0
        aim = Aim(*(tidy_rate(s * saturated) for s in (FIRST_GUESS_SHARE, FLOOR_SHARE, CEILING_SHARE)))
    found = search_seed(sample, seed, aim, ROUGH_TOLERANCE, run, first_step)
    return Aim(found.holds_rps or aim.floor_rps, aim.floor_rps, aim.ceiling_rps), found


def search_seed(
    scenario: Scenario,
    seed: int,
    aim: Aim,
    tolerance: float,
    run: RunTrial = run_trial,
    first_step: float | None = None,
) -> SeedCapacity:
    """One replication's capacity, bracketed around the aim."""
    trials: dict[float, Trial] = {}

    def holds(rate: float) -> bool:
        trials[rate] = run(at_rate(scenario, rate), seed, only_verdict=True)
        return trials[rate].holds

    low, high = find_threshold(
        holds,
        aim.guess_rps,
        tolerance=tolerance,
        floor=aim.floor_rps,
        ceiling=aim.ceiling_rps,
        first_step=first_step or 2 * tolerance,
    )
    if low is None and high is not None:  # the nearest miss will be reported: measure it in full
        trials[high] = run(at_rate(scenario, high), seed)
    return SeedCapacity(
        seed,
        holds_rps=low or 0.0,
        fails_rps=high,
        at_capacity=None if low is None else trials[low],
        beyond=None if high is None else trials[high],
    )


def _all_at_once(scenario: Scenario) -> Scenario:
    keys = ("rate_rps", "cv", "truncate_at", "on_off", "curve")
    updates = {f"workload.{key}": None for key in keys}
    return scenario.with_({**updates, "workload.arrivals": "all_at_once", "warmup_s": 0.0})
