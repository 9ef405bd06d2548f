"""The whole plan over trials that are formulas: the choice, the front, what is left out, the nearest miss."""

from __future__ import annotations

import re
from typing import Any

import pytest
from plan_questions import make_question
from search_fakes import make_document, make_scenario

from simulator.config import Scenario
from simulator.errors import InfeasibleError
from simulator.search.effort import Effort
from simulator.search.plan import Plan, find_plan
from simulator.search.trials import Trial

BATCH = {"mean_num_decodes": 30.0, "mean_tokens": 300.0}
KV = {"mean_utilisation": 0.1, "num_blocks": 10_000}
RATE = 100.0


class Runs:
    """A replica carries 10 requests/s for each GPU, a little less with each doubling of them, and half of it
    on an A100; more GPUs to a replica and more replicas answer sooner."""

    def __init__(self) -> None:
        self.asked: list[tuple[Scenario, int, bool]] = []

    def __call__(self, scenario: Scenario, seed: int, *, only_verdict: bool = False) -> Trial:
        self.asked.append((scenario, seed, only_verdict))
        parallel = scenario.parallel
        each = (10.0 if scenario.gpu == "h100_sxm" else 4.0) * parallel.gpus**0.9
        load = (scenario.workload.rate_rps or 0.0) / (each * scenario.replicas)
        holds = load <= 1 and scenario.scheduler.token_budget <= 1024
        violations = {} if holds else {"p99_tbt_ms": None if only_verdict else 50.0 * max(load, 1.1)}
        document = make_document(0.01 * (1 + load) / parallel.gpus, batch=BATCH, kv=KV)
        return Trial(scenario, seed, document if holds or not only_verdict else {}, violations)


def planned(rate: float = RATE, runs: Runs | None = None, **bounds: Any) -> Plan:
    question = make_question(rate, make_scenario(kernels="roofline"), **bounds)
    return find_plan(question, Effort(runs=3, jobs=1, run=runs or Runs()))


def test_the_cheapest_is_chosen_and_the_rest_is_in_order():
    plan = planned(gpus=["h100_sxm", "a100_80gb_sxm"])
    costs = [found.cost_per_hour for found in plan.deployments]
    assert costs == sorted(costs)
    assert plan.choice.cost_per_hour == 20.0  # 10 x H100 at $2; 25 x A100 at $1 come next
    assert plan.choice.split == ("h100_sxm", 1, 1)
    assert any(found.split == ("a100_80gb_sxm", 1, 1) and found.replicas == 25 for found in plan.deployments)
    assert costs[-1] <= 1.5 * costs[0]


def test_the_front_pays_more_only_for_less_latency():
    plan = planned()
    front = plan.front
    assert front[0] == plan.choice
    assert len(front) > 1
    pairs = [(found.cost_per_hour, found.e2e_s) for found in front]
    assert [cost for cost, _ in pairs] == sorted({cost for cost, _ in pairs})
    assert [latency for _, latency in pairs] == sorted({latency for _, latency in pairs}, reverse=True)
    for found in (*plan.deployments, *plan.larger):
        assert any(cost <= found.cost_per_hour and latency <= found.e2e_s for cost, latency in pairs)


def test_what_the_choice_bears():
    plan = planned(rate=95.0)
    held = {variant.label: variant.runs_held() for variant in plan.sensitivity}
    assert held == {"20 % more load": 0, "25 % longer prompts": 3, "one replica less": 0}


def test_longer_prompts_are_not_turned_away():
    longer = next(each.scenario.workload for each in planned().sensitivity if "prompts" in each.label)
    assert (longer.prompt_scale, longer.on_too_long, longer.max_total_tokens) == (1.25, "scale", 8192)


def test_every_deployment_was_run_as_a_whole_with_every_seed():
    runs = Runs()
    for found in planned(runs=runs).deployments:
        seeds = [seed for scenario, seed, _ in runs.asked if scenario == found.scenario]
        assert {0, 1, 2} <= set(seeds)
        assert found.scenario.workload.num_requests == 6000  # a minute of arrivals
        assert found.scenario.workload.rate_rps == RATE


def test_a_choice_that_fresh_seeds_break_grows():
    class Flattered(Runs):
        def __call__(self, scenario: Scenario, seed: int, *, only_verdict: bool = False) -> Trial:
            trial = super().__call__(scenario, seed, only_verdict=only_verdict)
            broken = seed > 2 and scenario.replicas == 10
            return Trial(scenario, seed, trial.document, {"p99_tbt_ms": None} if broken else trial.violations)

    plan = planned(runs=Flattered())
    assert (plan.choice.replicas, plan.choice.cost_per_hour) == (11, 22.0)


def test_splits_that_are_too_dear_are_not_simulated():
    runs = Runs()
    plan = planned(runs=runs, gpus=["h100_sxm", "a100_80gb_sxm"])
    census = plan.census
    simulated = {(s.gpu, s.parallel.tensor, s.parallel.pipeline) for s, *_ in runs.asked}
    assert len(simulated) == census.screened
    assert census.considered == 24 == len(census.ruled_out) + census.too_dear + census.screened


def test_dearer_splits_get_their_turn_where_cheaper_ones_fail_as_whole_fleets():
    class OnlyLone(Runs):
        def __call__(self, scenario: Scenario, seed: int, *, only_verdict: bool = False) -> Trial:
            trial = super().__call__(scenario, seed, only_verdict=only_verdict)
            violations = trial.violations if scenario.replicas == 1 else {"p99_tbt_ms": None}
            return Trial(scenario, seed, trial.document, violations)

    plan = planned(rate=60.0, runs=OnlyLone(), max_gpus=16)
    assert plan.choice.replicas == 1
    assert plan.choice.cost_per_hour == 16.0  # 8 H100 in one replica carry 65 requests/s


def test_the_nearest_miss():
    with pytest.raises(InfeasibleError) as caught:
        planned(rate=100.0, max_gpus=8)
    found = re.search(r"nearest: (\d+) x h100_sxm TP(\d) PP(\d), .* p99_tbt_ms is (\S+)", str(caught.value))
    assert found is not None
    assert found.groups()[:3] == ("8", "1", "1")
    assert float(found[4]) == pytest.approx(50 * 100 / 80, rel=1e-3)


def test_a_model_with_no_room_anywhere():
    question = make_question(1.0, make_scenario(kernels="roofline", model="llama-3-70b"), max_gpus=1)
    with pytest.raises(InfeasibleError, match="no deployment of up to 1 GPUs has room for the model"):
        find_plan(question, Effort(runs=1, jobs=1, run=Runs()))


def test_the_nearest_miss_where_the_usual_settings_have_no_room():
    """16.2 GiB: beside the weights, logits of 64 sequences fit and those of 512 do not."""
    tight = make_scenario(kernels="roofline", **{"memory.utilization": 0.205})
    effort = Effort(runs=1, jobs=1, run=Runs())
    question = make_question(100.0, tight, max_gpus=1, sequences=(64, 512))
    with pytest.raises(InfeasibleError, match="nearest: 1 x h100_sxm TP1 PP1, stall_free with budget"):
        find_plan(question, effort)
    # Orca reserves the longest request, for which there is no room at all.
    with pytest.raises(
        InfeasibleError, match="no deployment of up to 1 GPUs has room for a request with orca"
    ):
        find_plan(make_question(100.0, tight, max_gpus=1, policies=["orca"]), effort)
