"""Whole fleets: when one counts as confirmed, and what is tried next."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from plan_questions import make_question
from search_fakes import FakeRuns, make_document, make_scenario

from simulator.config import Scenario
from simulator.search.effort import Effort
from simulator.search.plan_confirm import SPAN, Fleet, confirm, would_hold_again
from simulator.search.plan_space import Settings, Split
from simulator.search.trials import Trial

FIRST, SECOND, THIRD = (Settings("stall_free", budget, 256) for budget in (512, 1024, 2048))
ONE, TWO = Split("h100_sxm", 1, 1), Split("h100_sxm", 2, 1)


def confirmed(capacity_rps: float | dict[int, float], fleets: Sequence[Fleet], runs: int = 3, **bounds: int):
    """Fleets of replicas with a capacity each, or one by budget, at 20 requests/s."""

    def capacity(scenario: Scenario, seed: int) -> float:
        each = capacity_rps
        if isinstance(each, dict):
            each = each[scenario.scheduler.token_budget]
        return each * scenario.replicas * scenario.parallel.tensor

    effort = Effort(runs=runs, jobs=1, run=FakeRuns(capacity))
    return confirm(fleets, make_question(**bounds), effort)


def test_a_fleet_that_holds_with_every_seed():
    [found] = confirmed(5.0, [Fleet(ONE, 4, (FIRST,))])
    assert (found.replicas, found.settings, found.cost_per_hour) == (4, FIRST, 8.0)
    assert [trial.seed for trial in found.runs.trials] == [0, 1, 2]
    assert found.gpus == 4
    assert found.shares["p99_tbt_ms"] == pytest.approx(0.2)


def test_other_settings_come_before_another_replica():
    [found] = confirmed({512: 4.0, 1024: 5.0}, [Fleet(ONE, 4, (FIRST, SECOND))])
    assert (found.replicas, found.settings) == (4, SECOND)
    [found] = confirmed({512: 4.0, 1024: 4.0}, [Fleet(ONE, 4, (FIRST, SECOND))])
    assert (found.replicas, found.settings) == (5, FIRST)


def test_no_more_replicas_than_allowed():
    assert confirmed(2.0, [Fleet(ONE, 4, (FIRST,))], max_gpus=8) == []


def test_what_costs_too_much_is_given_up():
    found = confirmed({512: 10.0, 1024: 1.0}, [Fleet(ONE, 2, (FIRST,)), Fleet(TWO, 1, (SECOND,))])
    assert [(each.split, each.replicas) for each in found] == [(ONE, 2)]
    dear = max(each.cost_per_hour for each in found)
    assert dear <= SPAN * 4.0


def test_a_fleet_that_fails_with_one_seed_is_not_confirmed():
    run = FakeRuns(lambda scenario, seed: 20.0 if seed < 2 or scenario.replicas > 4 else 19.0)
    [found] = confirm([Fleet(ONE, 4, (FIRST,))], make_question(), Effort(runs=3, jobs=1, run=run))
    assert found.replicas == 5


def trials(values_s: Sequence[float]) -> list[Trial]:
    scenario = make_scenario(slo={"p99_tbt_ms": 50.0})
    return [Trial(scenario, seed, make_document(value), {}) for seed, value in enumerate(values_s)]


@pytest.mark.parametrize(
    ("values_s", "again"),
    [
        ((0.040, 0.041, 0.042), True),
        ((0.049, 0.0485, 0.0495), False),  # the next may well be over 50 ms
        ((0.030, 0.049, 0.030), False),
        ((0.049, 0.049), True),  # two runs say nothing of a third
    ],
)
def test_whether_another_seed_would_hold(values_s: tuple[float, ...], again: bool):
    assert would_hold_again(trials(values_s)) == again
