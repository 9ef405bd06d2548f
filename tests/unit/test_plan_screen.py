"""Screening: the fewest replicas over all settings, asked for in few trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product
from math import ceil

import pytest
from plan_questions import make_question
from search_fakes import FakeRuns, make_scenario

from simulator.config import Scenario
from simulator.search.plan_bounds import Prospect
from simulator.search.plan_screen import LENIENCE, first_settings, screen
from simulator.search.plan_space import Settings, Split

ONE = Split("h100_sxm", 1, 1)
RATE = 100.0

Capacity = Callable[[Scenario, int], float]


def by_settings(budget: int, sequences: int, policy: str) -> Capacity:
    """A capacity that falls off around one best budget and number of sequences, and is best with a policy."""

    def capacity(scenario: Scenario, seed: int) -> float:
        scheduler = scenario.scheduler
        off = abs(scheduler.token_budget.bit_length() - budget.bit_length())
        off += abs(scheduler.max_num_seqs.bit_length() - sequences.bit_length())
        return (10.0 if scheduler.policy == policy else 9.0) / (1 + off)

    return capacity


def screened(capacity: Capacity, least: int = 1, **bounds: object):
    runs = FakeRuns(capacity)
    return screen(make_question(RATE, **bounds), Prospect(ONE, least), 0, runs), runs


@pytest.mark.parametrize(
    ("budget", "sequences", "policy"),
    list(product((256, 1024, 8192), (64, 512), ("stall_free", "vllm_v1"))),
)
def test_the_fewest_replicas_of_all_settings(budget: int, sequences: int, policy: str):
    found, runs = screened(by_settings(budget, sequences, policy), least=5)
    assert found.replicas == ceil(LENIENCE * RATE / 10.0)
    assert found.options[0] == (policy, budget, sequences)
    assert len(runs.asked) < 50  # there are 6 x 4 x 3 settings and 64 numbers of replicas


def test_a_setting_that_needs_more_replicas_is_given_up_after_one_trial():
    start = first_settings(make_question(RATE), ONE, 0)
    asked: Counter[Settings] = Counter()

    def capacity(scenario: Scenario, seed: int) -> float:
        scheduler = scenario.scheduler
        settings = Settings(scheduler.policy, scheduler.token_budget, scheduler.max_num_seqs)
        asked[settings] += 1
        return 10.0 if settings == start else 9.0

    found, _ = screened(capacity, least=10)
    assert found.options == (start,)
    assert set(asked.values()) == {1}


def test_nothing_within_the_bounds():
    found, runs = screened(lambda scenario, seed: 0.1, max_gpus=8)
    assert (found.replicas, found.options) == (0, ())
    assert len(runs.asked) < 30


def test_no_fewer_replicas_than_the_bound_says():
    found, _ = screened(lambda scenario, seed: 1000.0, least=3)
    assert found.replicas == 3


def test_settings_that_do_not_fit_are_not_tried():
    # 16.2 GiB, of which weights take 15 GiB, and logits of 512 sequences another 0.9 GiB.
    tight = make_scenario(kernels="roofline", **{"memory.utilization": 0.205})
    found = screen(make_question(RATE, tight), Prospect(ONE, 1), 0, FakeRuns(lambda scenario, seed: 1000.0))
    assert found.replicas == 1
    assert {settings.max_num_seqs for settings in found.options} == {64, 128, 256}
