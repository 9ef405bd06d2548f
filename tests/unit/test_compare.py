"""Paired differences, what counts as noise, and the variants that a command line names."""

from __future__ import annotations

import pytest
from search_fakes import make_document, make_scenario

from simulator.config import Scenario
from simulator.errors import ConfigError
from simulator.search.comparison import compare
from simulator.search.effort import Effort
from simulator.search.trials import Trial
from simulator.search.variants import parse_variant, variants_of


def runs_with(ttft_s):
    def run(scenario: Scenario, seed: int, *, only_verdict: bool = False) -> Trial:
        return Trial(scenario, seed, make_document(latency_s=ttft_s(scenario, seed)), {})

    return run


def two_policies() -> list[tuple[str, Scenario]]:
    scenario = make_scenario()
    return [("a", scenario), ("b", scenario.with_({"scheduler.policy": "orca"}))]


def test_differences_are_paired_by_seed():
    """Seeds differ by far more than the policies do, yet the difference is no noise."""

    def ttft(scenario: Scenario, seed: int) -> float:
        return 10.0 * (1 + seed) + (0.5 if scenario.scheduler.policy == "orca" else 0.0)

    found = compare(two_policies(), Effort(runs=4, jobs=1, run=runs_with(ttft)))
    difference = found.difference(found.variants[1], "ttft_s", "p50")
    assert difference is not None
    assert difference.absolute == pytest.approx(0.5)
    assert difference.interval == pytest.approx((0.5, 0.5))
    assert difference.is_noise is False
    assert difference.share == pytest.approx(0.5 / 25)


def test_a_difference_that_changes_sign_is_noise():
    def ttft(scenario: Scenario, seed: int) -> float:
        return 1.0 + (0.1 * (-1) ** seed if scenario.scheduler.policy == "orca" else 0.0)

    found = compare(two_policies(), Effort(runs=4, jobs=1, run=runs_with(ttft)))
    difference = found.difference(found.variants[1], "ttft_s", "p50")
    assert difference is not None
    assert difference.is_noise is True


def test_one_run_says_nothing_of_noise():
    found = compare(two_policies(), Effort(runs=1, jobs=1, run=runs_with(lambda *_: 1.0)))
    difference = found.difference(found.variants[1], "ttft_s", "p50")
    assert difference is not None
    assert difference.is_noise is None


def test_a_workload_without_chance_is_run_once():
    replay = make_scenario(workload={"trace": "long-prompt", "arrivals": "trace"})
    variants = [("a", replay), ("b", replay.with_({"scheduler.policy": "orca"}))]
    found = compare(variants, Effort(runs=5, jobs=1, run=runs_with(lambda *_: 1.0)))
    assert [len(variant.trials) for variant in found.variants] == [1, 1]


@pytest.mark.parametrize(
    ("routing", "replicas", "runs"),
    [("random", 2, 5), ("power_of_two", 3, 5), ("random", 1, 1), ("round_robin", 2, 1)],
)
def test_chance_in_the_routing_is_chance(routing: str, replicas: int, runs: int):
    workload = {"trace": "long-prompt", "arrivals": "trace"}
    replay = make_scenario(workload=workload, routing=routing, replicas=replicas)
    variants = [("a", replay), ("b", replay.with_({"scheduler.policy": "orca"}))]
    found = compare(variants, Effort(runs=5, jobs=1, run=runs_with(lambda *_: 1.0)))
    assert [len(variant.trials) for variant in found.variants] == [runs, runs]


@pytest.mark.parametrize("labels", [["a"], ["a", "a"]])
def test_variants_must_be_two_and_differ(labels: list[str]):
    with pytest.raises(ConfigError):
        compare([(label, make_scenario()) for label in labels], Effort(runs=1, jobs=1))


@pytest.mark.parametrize(
    ("text", "name", "sets"),
    [
        ("big: scheduler.token_budget=2048", "big", ("scheduler.token_budget=2048",)),
        ("parallel.tensor=2", "parallel.tensor=2", ("parallel.tensor=2",)),
        ("two: a.b=1, c=[2, 3], d={x: 1}", "two", ("a.b=1", "c=[2, 3]", "d={x: 1}")),
        ("workload={trace: chat}", "workload={trace: chat}", ("workload={trace: chat}",)),
    ],
)
def test_variants_are_named_groups_of_overrides(text: str, name: str, sets: tuple[str, ...]):
    assert parse_variant(text) == (name, sets)


@pytest.mark.parametrize("text", ["", "name:", "name:  "])
def test_a_variant_without_overrides_is_refused(text: str):
    with pytest.raises(ConfigError, match="--variant"):
        parse_variant(text)


def test_policies_are_variants_of_one_scenario():
    variants = variants_of(["default"], [], [], ["stall_free", "orca"])
    assert [label for label, _ in variants] == ["stall_free", "orca"]
    assert [scenario.scheduler.policy for _, scenario in variants] == ["stall_free", "orca"]


def test_groups_are_compared_with_no_change():
    variants = variants_of(
        ["default"], ["scheduler.max_num_seqs=8"], ["big: scheduler.token_budget=2048"], []
    )
    assert [label for label, _ in variants] == ["base", "big"]
    assert [scenario.scheduler.token_budget for _, scenario in variants] == [512, 2048]
    assert {scenario.scheduler.max_num_seqs for _, scenario in variants} == {8}


def test_scenarios_serve_the_requests_of_the_first():
    variants = variants_of(["default", "summarisation"], [], [], [])
    assert [label for label, _ in variants] == ["default", "summarisation"]
    assert variants[1][1].workload == variants[0][1].workload
    assert variants[1][1].model == "llama-3.1-70b"


def test_everything_is_combined_with_everything():
    labels = [
        label for label, _ in variants_of(["default", "summarisation"], [], ["x: seed=1"][:0], ["orca"])
    ]
    assert labels == ["default orca", "summarisation orca"]
    labels = [
        label
        for label, _ in variants_of(
            ["default"], [], ["big: scheduler.token_budget=2048"], ["orca", "stall_free"]
        )
    ]
    assert labels == ["big orca", "big stall_free"]
