"""Scenarios: what they accept, how they are changed, and what their digest covers."""

from __future__ import annotations

import pickle
from typing import Any, get_args

import pytest

from simulator.config import Policy, Scenario, slo_key
from simulator.errors import ConfigError
from simulator.schedulers import POLICIES

MINIMAL: dict[str, Any] = {
    "model": "llama-3-8b",
    "gpu": "h100_sxm",
    "workload": {"trace": "chat"},
    "slo": {"p99_tbt_ms": 50},
}


def scenario(**changes: Any) -> Scenario:
    return Scenario(**(MINIMAL | changes))


def message(updates: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        scenario().with_(updates, where="test")
    text = str(caught.value)
    assert text.startswith("test: ")
    assert "\n" not in text
    return text.removeprefix("test: ")


def test_the_policies_of_the_schedulers_can_be_named():
    assert set(get_args(Policy)) == set(POLICIES)


def test_a_change_leaves_the_original_alone():
    before = scenario()
    after = before.with_({"scheduler.token_budget": 1024, "replicas": 2})
    assert (before.scheduler.token_budget, before.replicas) == (512, 1)
    assert (after.scheduler.token_budget, after.replicas) == (1024, 2)
    assert after.scheduler.policy == before.scheduler.policy


def test_no_change_gives_an_equal_scenario():
    before = scenario(
        workload={"lengths": {"prompt": 4096, "output": {"kind": "uniform", "low": 1, "high": 9}}}
    )
    assert before.with_({}) == before


def test_it_survives_pickling():
    assert pickle.loads(pickle.dumps(scenario())) == scenario()


def test_the_digest_covers_what_decides_the_result():
    base = scenario().digest()
    assert scenario(name="x", description="y").digest() == base
    assert scenario().with_({"scheduler.token_budget": 512}).digest() == base
    changes = [
        {"scheduler.token_budget": 513},
        {"slo.p99_tbt_ms": 51},
        {"workload.rate_rps": 2},
        {"engine": "ideal"},
    ]
    digests = {scenario().with_(change).digest() for change in changes}
    assert len(digests | {base}) == 5


def test_synonyms_become_one_name():
    assert slo_key("p99_itl_ms") == "p99_tbt_ms"
    assert slo_key("p50_e2el_s") == "p50_e2e_s"
    assert slo_key("p50_scheduling_delay_s") == "p50_scheduling_delay_s"


def test_a_bound_replaces_one_on_the_same_quantity():
    assert scenario().with_({"slo.p99_tbt_s": 0.1}).slo == {"p99_tbt_s": 0.1}
    assert scenario().with_({"slo.p99_itl_ms": 40}).slo == {"p99_tbt_ms": 40}
    assert scenario().with_({"slo.p99_ttft_ms": 500}).slo == {"p99_tbt_ms": 50, "p99_ttft_ms": 500}


def test_null_lifts_a_bound():
    assert scenario().with_({"slo.p99_tbt_ms": None}).slo == {}


@pytest.mark.parametrize(
    ("updates", "expected"),
    [
        (
            {"scheduler.token_budget": 0},
            "scheduler.token_budget must be greater than or equal to 1 (found 0)",
        ),
        ({"scheduler.token_budget": 512.5}, "scheduler.token_budget must be a valid integer (found 512.5)"),
        ({"scheduler.token_budget": "512"}, "scheduler.token_budget must be a valid integer (found '512')"),
        ({"scheduler.token_budget": True}, "scheduler.token_budget must be a valid integer (found True)"),
        ({"scheduler.token_budget": None}, "scheduler.token_budget must be a valid integer (found nothing)"),
        ({"scheduler.token_bugdet": 5}, "unknown key scheduler.token_bugdet (did you mean 'token_budget'?)"),
        ({"scheduler": 5}, "scheduler must be a mapping (found 5)"),
        ({"shceduler.policy": "orca"}, "unknown key shceduler (did you mean 'scheduler'?)"),
        ({"parallel.tensor": 0}, "parallel.tensor must be greater than or equal to 1 (found 0)"),
        ({"memory.utilization": 1.5}, "memory.utilization must be less than or equal to 1 (found 1.5)"),
        ({"memory.watermark": 1}, "memory.watermark must be less than 1 (found 1)"),
        ({"warmup_s": float("nan")}, "warmup_s must be a finite number (found nan)"),
        ({"warmup_s": float("inf")}, "warmup_s must be a finite number (found inf)"),
        ({"slo.p99_tbt_ms": 0}, "slo.p99_tbt_ms must be greater than 0 (found 0)"),
        ({"slo.p99_tbt_ms": "fast"}, "slo.p99_tbt_ms must be a valid number (found 'fast')"),
        ({"slo.p99_tbt": 50}, "slo.p99_tbt: the unit is missing: say p99_tbt_ms or p99_tbt_s"),
        ({"slo.p99_tbt_us": 50}, "slo.p99_tbt_us: unit 'us' is unknown: say p99_tbt_ms or p99_tbt_s"),
        ({"slo.p99_tbbt_ms": 50}, "slo.p99_tbbt_ms: unknown metric 'tbbt' (did you mean 'tbt'?)"),
        ({"slo.p98_tbt_ms": 50}, "slo.p98_tbt_ms: unknown statistic 'p98' (did you mean 'p99'?)"),
        ({"slo.fast": 50}, "slo.fast: an SLO is <statistic>_<metric>_<unit>, such as p99_tbt_ms"),
        ({"slo": 50}, "slo must be a mapping (found 50)"),
        ({"model": ""}, "model String should have at least 1 character (found '')"),
        ({"replicas": 10**9}, "replicas must be less than or equal to 10000 (found 1000000000)"),
        ({"replicas": -1}, "replicas must be greater than or equal to 1 (found -1)"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(updates: dict[str, Any], expected: str):
    assert message(updates) == expected


def test_a_wrong_policy_lists_all_and_hints():
    text = message({"scheduler.policy": "stallfree"})
    assert "'prefill_first'" in text
    assert "(did you mean 'stall_free'?) (found 'stallfree')" in text


def test_keys_inside_a_distribution_are_named_as_written():
    lengths = {"prompt": 10, "output": {"kind": "lognormal", "median": "ten", "sigma": 1}}
    text = message({"workload.trace": None, "workload.lengths": lengths})
    assert text.startswith("workload.lengths.output.median must be a valid number")


def test_two_bounds_on_one_quantity_are_refused():
    text = message({"slo": {"p99_tbt_ms": 50, "p99_itl_s": 1}})
    assert text == "slo.p99_itl_s: this quantity has a bound already"


def test_many_findings_stay_one_line():
    keys = ("replicas", "parallel.tensor", "scheduler.token_budget", "memory.num_blocks")
    assert message(dict.fromkeys(keys, 0)).endswith("; and 1 more")


def test_long_values_are_cut():
    assert len(message({"replicas": "x" * 1000})) < 150
