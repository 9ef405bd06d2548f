"""The capacity search on formulas in place of simulations, and once on a small real one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from search_fakes import SATURATED_RPS, FakeRuns, make_scenario

from simulator.config import Scenario
from simulator.errors import ConfigError, InfeasibleError
from simulator.report.capacity import capacity_page
from simulator.search.capacity import Capacity, CapacityTable, capacity_scenario, find_capacity
from simulator.search.effort import Effort
from simulator.search.replication import SeedCapacity
from simulator.search.trials import Trial, run_trial


def effort(runs: FakeRuns, count: int = 3, seed: int = 0) -> Effort:
    return Effort(runs=count, seed=seed, jobs=1, run=runs)


def capacity_of(*rates: float, is_rough: bool = False) -> Capacity:
    by_seed = tuple(SeedCapacity(seed, rate, rate * 1.02, None, None) for seed, rate in enumerate(rates))
    return Capacity(make_scenario(), by_seed, is_rough)


def test_each_seed_has_its_own_capacity_and_the_mean_is_the_answer():
    truths = {7: 4.0, 8: 5.0, 9: 6.0}
    runs = FakeRuns(lambda scenario, seed: truths[seed])
    found = find_capacity(make_scenario(), effort(runs, seed=7))
    assert [each.seed for each in found.by_seed] == [7, 8, 9]
    for each in found.by_seed:
        assert each.holds_rps <= truths[each.seed] < each.fails_rps <= 1.026 * each.holds_rps
    assert found.capacity_rps == pytest.approx(5.0, rel=0.025)
    assert found.interval_rps is not None
    assert found.interval_rps.low < 4.0
    assert found.interval_rps.high > 6.0


def test_the_interval_is_never_narrower_than_the_search_resolves():
    found = find_capacity(make_scenario(), effort(FakeRuns(lambda scenario, seed: 5.0)))
    assert found.interval_rps is not None
    first = found.by_seed[0]
    assert found.interval_rps.low < first.holds_rps <= 5.0 < first.fails_rps < found.interval_rps.high


def test_one_run_has_no_interval():
    assert find_capacity(make_scenario(), effort(FakeRuns(lambda *_: 5.0), count=1)).interval_rps is None


def test_a_full_search_starts_where_the_rough_one_ended():
    runs = FakeRuns(lambda scenario, seed: 3.0)
    find_capacity(make_scenario(), effort(runs))
    rough = [rate for requests, rate, _ in runs.asked if requests == 512]
    assert rough[0] is None  # the saturated run
    assert rough[1] == pytest.approx(0.8 * SATURATED_RPS)
    for seed in (0, 1, 2):
        assert runs.rates(seed)[0] == pytest.approx(3.0, rel=0.05)
        assert len(runs.rates(seed)) <= 4


def test_nothing_holds_at_any_load():
    with pytest.raises(InfeasibleError, match=r"holds at no load.*p99_tbt_ms is 60 .bound 50"):
        find_capacity(make_scenario(), effort(FakeRuns(lambda *_: 0.0)))


def test_a_run_too_short_to_be_loaded_is_searched_to_twice_its_saturated_rate():
    found = find_capacity(make_scenario(), effort(FakeRuns(lambda *_: 1e9)))
    assert found.capacity_rps == 2 * SATURATED_RPS
    assert found.beyond is None


def test_far_below_the_best_a_rough_search_must_do():
    runs = FakeRuns(lambda scenario, seed: 5.0 if scenario.scheduler.policy == "stall_free" else 1.0)
    table: CapacityTable[str] = CapacityTable(effort(runs))
    scenario = capacity_scenario(make_scenario())
    table.search({"good": scenario, "bad": scenario.with_({"scheduler.policy": "orca"})})
    assert not table.found["good"].is_rough
    assert len(table.found["good"].by_seed) == 3
    assert table.found["bad"].is_rough
    assert len(table.found["bad"].by_seed) == 1
    assert table.found["bad"].capacity_rps == pytest.approx(1.0, rel=0.05)


def test_ties_are_differences_that_seeds_or_the_search_may_explain():
    best = capacity_of(5.0, 5.1, 5.2)
    assert capacity_of(4.95, 5.02, 5.13).ties_with(best, tolerance=0.025)  # less than 2.5 %
    assert capacity_of(5.5, 4.0, 4.6).ties_with(best, tolerance=0.025)  # the seeds disagree
    assert not capacity_of(4.5, 4.6, 4.7).ties_with(best, tolerance=0.025)  # 10 % with each seed
    assert not capacity_of(5.0, is_rough=True).ties_with(best, tolerance=0.025)


def test_a_capacity_adds_the_scheduling_delay_of_the_paper():
    assert capacity_scenario(make_scenario()).slo == {"p99_tbt_ms": 50.0, "p50_scheduling_delay_s": 2.0}


def test_a_bound_on_the_delay_is_left_as_it_is():
    slo = {"p99_tbt_ms": 50.0, "p90_scheduling_delay_s": 1.0}
    assert capacity_scenario(make_scenario(slo=slo)).slo == slo


def test_runs_that_are_cut_off_have_no_capacity():
    with pytest.raises(ConfigError, match="until_s"):
        capacity_scenario(make_scenario(until_s=5.0))


def test_where_nothing_broke_the_capacity_is_at_least_what_held():
    tried = effort(FakeRuns(lambda scenario, seed: 1000.0))
    page = capacity_page(find_capacity(make_scenario(), tried), tried)
    assert ": at least 20.0 requests/s (3 runs) within" in page.answer
    assert [each["fails_rps"] for each in page.document["by_seed"]] == [None] * 3
    assert page.document["interval_rps"] is None


def test_requests_that_are_turned_away_are_in_the_answer():
    def run(scenario: Scenario, seed: int, *, only_verdict: bool = False) -> Trial:
        trial = FakeRuns(lambda scenario, seed: 4.0)(scenario, seed, only_verdict=only_verdict)
        return replace(trial, document={**trial.document, "requests_rejected": 300})

    tried = Effort(runs=1, jobs=1, run=run)
    page = capacity_page(find_capacity(make_scenario(), tried), tried)
    assert "300 of 2,048 requests are turned away" in page.answer


def test_a_warm_up_is_no_part_of_the_saturated_run():
    runs = FakeRuns(lambda scenario, seed: 4.0)
    warmups = set()

    def run(scenario: Scenario, seed: int, *, only_verdict: bool = False) -> Trial:
        warmups.add((scenario.workload.arrivals, scenario.warmup_s))
        return runs(scenario, seed, only_verdict=only_verdict)

    find_capacity(make_scenario(warmup_s=9.0), Effort(runs=1, jobs=1, run=run))
    assert warmups == {("all_at_once", 0.0), ("poisson", 9.0)}


def test_a_capacity_needs_an_slo():
    with pytest.raises(ConfigError, match=r"slo\.p99_tbt_ms"):
        capacity_scenario(make_scenario(**{"slo.p99_tbt_ms": None}))


@pytest.mark.parametrize(
    ("workload", "arrivals"),
    [
        ({"trace": "chat"}, "poisson"),
        ({"trace": "chat", "arrivals": "trace", "speed": 2.0}, "poisson"),
        ({"trace": "chat", "arrivals": "all_at_once"}, "poisson"),
        ({"trace": "chat", "arrivals": "gamma", "cv": 2.0, "rate_rps": 3.0}, "gamma"),
    ],
)
def test_recorded_times_give_way_to_poisson_arrivals_and_bursty_ones_stay(
    workload: dict[str, object], arrivals: str
):
    searched = capacity_scenario(make_scenario(workload=workload))
    assert searched.workload.arrivals == arrivals
    assert searched.workload.num_requests == 2048


def small() -> Scenario:
    return make_scenario(
        **{
            "kernels": "roofline",
            "workload.lengths.prompt": {"kind": "uniform", "low": 200, "high": 2000},
            "workload.lengths.output": {"kind": "uniform", "low": 2, "high": 40},
            "workload.num_requests": 128,
            "slo.p50_scheduling_delay_ms": 100.0,
        }
    )


def test_a_real_capacity_holds_and_a_bit_more_does_not():
    found = find_capacity(small(), Effort(runs=2, jobs=1))
    assert found.beyond is not None
    for each in found.by_seed:
        assert run_trial(found.scenario.with_({"workload.rate_rps": each.holds_rps}), each.seed).holds
        assert not run_trial(found.scenario.with_({"workload.rate_rps": each.fails_rps}), each.seed).holds


def test_stopping_hopeless_trials_changes_no_answer():
    def to_the_end(scenario: Scenario, seed: int, *, only_verdict: bool = False):
        return run_trial(scenario, seed)

    stopped = find_capacity(small(), Effort(runs=2, jobs=1))
    patient = find_capacity(small(), Effort(runs=2, jobs=1, run=to_the_end))
    assert [(each.holds_rps, each.fails_rps) for each in stopped.by_seed] == [
        (each.holds_rps, each.fails_rps) for each in patient.by_seed
    ]


def test_the_number_of_processes_changes_nothing():
    one, two = (find_capacity(small(), Effort(runs=2, jobs=jobs)) for jobs in (1, 2))
    assert one == two
