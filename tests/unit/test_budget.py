"""The budget search on formulas in place of simulations: grid, refinement, ties, obstacles, one load."""

from __future__ import annotations

from math import log2

import pytest
from search_fakes import FakeRuns, make_document, make_scenario

from simulator.config import Scenario
from simulator.errors import ConfigError, InfeasibleError
from simulator.latency.model import ConstantLatency
from simulator.search.budget import find_budget
from simulator.search.budget_at_rate import find_budget_at_rate
from simulator.search.effort import Effort
from simulator.search.grid import coarse_budgets, finer_budgets
from simulator.search.rules import Beside, RulesOfThumb, tbt_bound_s
from simulator.search.trials import Trial

GRID = [128, 256, 512, 1024, 2048, 4096]


def peak_at(budget: int, sharpness: float = 0.3):
    """Capacity falls on both sides of a budget; the other policies carry little."""

    def capacity(scenario: Scenario, seed: int) -> float:
        if scenario.scheduler.policy != "stall_free":
            return 1.0
        distance = log2(scenario.scheduler.token_budget / budget)
        return (8.0 + 0.01 * seed) * (1 - sharpness * distance**2 / (1 + distance**2))

    return capacity


def effort(runs: FakeRuns) -> Effort:
    return Effort(runs=3, jobs=1, run=runs)


def test_the_best_budget_of_a_grid_is_found_and_refined():
    search = find_budget(make_scenario(), GRID, effort(FakeRuns(peak_at(768, sharpness=0.9))))
    assert search.best.token_budget == 768
    assert [row.token_budget for row in search.rows] == sorted(row.token_budget for row in search.rows)
    assert set(GRID) < {row.token_budget for row in search.rows}


def test_nothing_finer_is_tried_beside_a_neighbour_that_is_as_good():
    flat = find_budget(make_scenario(), GRID, effort(FakeRuns(lambda scenario, seed: 5.0)))
    assert [row.token_budget for row in flat.rows] == GRID


def test_budgets_named_by_the_user_are_not_refined():
    search = find_budget(make_scenario(), [256, 512], effort(FakeRuns(peak_at(512))), refine=False)
    assert [row.token_budget for row in search.rows] == [256, 512]


def test_the_best_is_in_its_own_ties_and_a_flat_curve_is_all_ties():
    search = find_budget(make_scenario(), GRID, effort(FakeRuns(lambda scenario, seed: 5.0)))
    assert search.ties == tuple(row.token_budget for row in search.rows)
    steep = find_budget(make_scenario(), GRID, effort(FakeRuns(peak_at(512, sharpness=0.9))))
    assert steep.best.token_budget in steep.ties
    assert 128 not in steep.ties


def test_equal_capacities_give_the_smaller_budget():
    search = find_budget(make_scenario(), GRID, effort(FakeRuns(lambda scenario, seed: 5.0)))
    assert search.best.token_budget == 128


def test_other_policies_are_searched_at_the_same_slo():
    search = find_budget(make_scenario(), GRID, effort(FakeRuns(peak_at(512))))
    assert {row.policy for row in search.others} == {"prefill_first", "orca", "decode_first"}
    assert all(row.capacity_rps == pytest.approx(1.0, rel=0.05) for row in search.others)


def test_the_nearest_miss_is_told_where_no_budget_holds():
    with pytest.raises(InfeasibleError, match=r"no token budget holds .* p99_tbt_ms is 60 .bound 50"):
        find_budget(make_scenario(), [256, 512], effort(FakeRuns(lambda *_: 0.0)))


def test_a_budget_that_does_not_fit_is_left_out_with_the_reason():
    tight = make_scenario(**{"memory.num_blocks": None, "memory.utilization": 0.25})
    search = find_budget(tight, [512, 65536], effort(FakeRuns(peak_at(512))), refine=False, policies=())
    fits, too_large = search.rows
    assert search.best is fits
    assert fits.kv_blocks > 0
    assert "does not fit" in too_large.obstacle
    assert too_large.capacity is None


def test_a_policy_whose_requests_do_not_fit_is_left_out_with_the_reason():
    """Those that reserve the longest request need more than there is; the others do not mind."""
    short = make_scenario(**{"memory.num_blocks": 400})
    search = find_budget(short, [256, 512], effort(FakeRuns(peak_at(512))), refine=False)
    obstacles = {row.policy: row.obstacle for row in search.others}
    for policy in ("decode_first", "orca"):
        assert obstacles[policy].startswith(
            "not one of 2048 requests fits: request 0: 110 tokens need 512 KV"
        )
    assert not obstacles["prefill_first"]
    assert search.best.token_budget == 512


def test_requests_that_fit_with_no_budget_are_an_error():
    none = make_scenario(**{"memory.num_blocks": 5})
    with pytest.raises(InfeasibleError, match="not one of 2048 requests fits"):
        find_budget(none, [512], effort(FakeRuns(peak_at(512))))
    with pytest.raises(InfeasibleError, match="not one of 2048 requests fits"):
        find_budget_at_rate(none, 4.0, [512], effort(FakeRuns(peak_at(512))))


def test_a_model_that_fits_with_no_budget_is_an_error():
    large = make_scenario(**{"memory.num_blocks": None, "model": "llama-3-70b"})
    with pytest.raises(ConfigError, match="does not fit"):
        find_budget(large, [512], effort(FakeRuns(peak_at(512))), policies=())


def test_larger_budgets_leave_fewer_kv_blocks():
    scenario = make_scenario(**{"memory.num_blocks": None})
    search = find_budget(scenario, GRID, effort(FakeRuns(peak_at(512))), refine=False, policies=())
    blocks = [row.kv_blocks for row in search.rows]
    assert blocks == sorted(blocks, reverse=True)
    assert blocks[0] > blocks[-1]


def test_a_policy_without_a_budget_is_refused():
    with pytest.raises(ConfigError, match="prefill_first has no token budget"):
        find_budget(
            make_scenario(**{"scheduler.policy": "prefill_first"}), GRID, effort(FakeRuns(peak_at(512)))
        )


def at_load(scenario: Scenario, seed: int, *, only_verdict: bool = False) -> Trial:
    """TBT grows with the budget and breaks the SLO above 1024; TTFT falls with it."""
    budget = scenario.scheduler.token_budget
    document = make_document()
    document["metrics"]["tbt_s"]["p99"] = budget * 45e-6
    document["metrics"]["ttft_s"]["p50"] = 100.0 / budget
    document["metrics"]["e2e_s"]["p50"] = 1.0 + abs(budget - 600) * 1e-3
    tbt_ms = budget * 45e-3
    return Trial(scenario, seed, document, {"p99_tbt_ms": tbt_ms} if tbt_ms > 50 else {})


def test_at_one_load_the_best_budget_holds_the_slo_and_answers_soonest():
    search = find_budget_at_rate(make_scenario(), 4.0, GRID, Effort(runs=2, jobs=1, run=at_load))
    largest_that_holds = max(row.token_budget for row in search.rows if row.token_budget * 45e-3 <= 50)
    assert search.best("ttft").token_budget == largest_that_holds
    assert search.best("e2e").token_budget == 512
    assert all(row.holds == (row.token_budget * 45e-3 <= 50) for row in search.rows)
    assert search.scenario.workload.rate_rps == 4.0


def test_at_one_load_the_objective_chooses():
    search = find_budget_at_rate(
        make_scenario(), 4.0, GRID, Effort(runs=2, jobs=1, run=at_load), objective="e2e"
    )
    assert search.best().token_budget == 640


def test_at_one_load_the_nearest_miss_is_told():
    with pytest.raises(InfeasibleError, match=r"budget 2048 at 4 requests/s p99_tbt_ms is 92.16"):
        find_budget_at_rate(make_scenario(), 4.0, [4096, 2048], Effort(runs=2, jobs=1, run=at_load))


def test_the_grid_is_powers_of_two_within_the_longest_request():
    assert coarse_budgets(max_model_len=131072, longest_prompt=100) == [128 << step for step in range(7)]
    assert coarse_budgets(max_model_len=131072, longest_prompt=9000)[-1] == 16384
    assert coarse_budgets(max_model_len=2048, longest_prompt=9000)[-1] == 2048
    assert coarse_budgets(max_model_len=64, longest_prompt=60) == [64]


def test_finer_budgets_are_tiles_between_neighbours():
    assert finer_budgets([256, 512, 1024], 512) == [384, 768]
    assert finer_budgets([256, 512, 1024], 1024) == [768]
    assert finer_budgets([128, 256], 128) == []
    assert finer_budgets([256, 512, 1024], 512, as_good=[512, 1024]) == [384]
    assert finer_budgets([500], 500) == []


class PerTokenLatency(ConstantLatency):
    """A millisecond an iteration, and ten microseconds a token."""

    def stage_time_s(self, shape, stage):
        return 1e-3 + 1e-5 * shape.num_tokens


def test_rules_of_thumb():
    beside = Beside(num_decodes=32, decode_kv_tokens=1000, prefix_tokens=500)
    rules = RulesOfThumb(PerTokenLatency(), beside, tbt_bound_s=10e-3, top=4096)
    assert rules.decodes_alone_s == pytest.approx(1.32e-3)
    assert rules.within_slo == 896  # 900 tokens would fill the 10 ms
    assert rules.free is None  # one tile costs 2.28 ms
    flat = RulesOfThumb(ConstantLatency(), beside, tbt_bound_s=None, top=4096)
    assert flat.within_slo is None
    assert flat.free == 4096


def test_the_company_of_a_chunk():
    shape = Beside(num_decodes=32, decode_kv_tokens=1000, prefix_tokens=500).shape(512)
    assert shape.chunks == ((480, 500),)
    assert (shape.num_tokens, shape.decode_kv_tokens) == (512, 32_000)
    assert Beside(32, 1000, 500).shape(16).chunks == ()


def test_the_strictest_bound_on_tbt_counts():
    assert tbt_bound_s({"p99_tbt_ms": 50.0, "max_tbt_s": 0.04, "p50_ttft_ms": 1.0}) == 0.04
    assert tbt_bound_s({"p50_ttft_ms": 1.0}) is None
