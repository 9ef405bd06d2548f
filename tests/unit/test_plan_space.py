"""What a plan searches: names, splits, fleets and samples, and which trials count."""

from __future__ import annotations

import pytest
from plan_questions import PRICES, make_question
from search_fakes import make_document, make_scenario

from simulator.errors import ConfigError
from simulator.search.plan_space import Settings, Split, fits, ratios, serves, tightness
from simulator.search.trials import Trial

USUAL = Settings("stall_free", 512, 256)


def test_tensor_groups_stay_within_a_node_and_replicas_within_the_bound():
    splits = make_question(max_gpus=4).splits()
    assert {(each.tensor, each.pipeline) for each in splits} == {
        (tensor, pipeline) for tensor in (1, 2, 4) for pipeline in (1, 2, 4) if tensor * pipeline <= 4
    }
    pcie = make_question(scenario=make_scenario(cluster="nvlink3_pairs_4gpu")).splits()
    assert max(each.tensor for each in pcie) == 4


def test_a_fleet_is_the_scenario_on_other_gpus_with_other_settings():
    question = make_question(scenario=make_scenario(cluster="pcie5_8gpu", kernels="h100_sxm"))
    fleet = question.fleet(Split("h100_sxm", 2, 4), Settings("vllm_v1", 1024, 64), 3)
    assert (fleet.cluster, fleet.kernels) == ("pcie5_8gpu", "h100_sxm")
    assert (fleet.parallel.tensor, fleet.parallel.pipeline, fleet.replicas) == (2, 4, 3)
    assert (fleet.scheduler.policy, fleet.scheduler.token_budget) == ("vllm_v1", 1024)
    assert (fleet.scheduler.max_num_seqs, fleet.routing) == (64, "least_outstanding")
    assert (fleet.workload.rate_rps, fleet.workload.num_requests) == (20.0, 4096)
    other = question.fleet(Split("a100_80gb_sxm", 1, 1), USUAL, 1)
    assert (other.cluster, other.kernels) == (None, "auto")


def test_a_sample_is_one_replica_with_its_share_of_the_load():
    sample = make_question().sample(Split("h100_sxm", 1, 1), USUAL, 8, share=0.5)
    assert (sample.replicas, sample.workload.rate_rps, sample.workload.num_requests) == (1, 1.25, 512)


def test_costs():
    question = make_question()
    assert question.cost_per_hour(Split("h100_sxm", 4, 2), 3) == 48.0
    assert question.most_replicas(Split("h100_sxm", 4, 2)) == 8


def test_a_gpu_without_a_price_and_an_unknown_policy_are_refused():
    with pytest.raises(ConfigError, match=r"no price of l40s: give one with --price l40s=DOLLARS"):
        make_question(gpus=["l40s"])
    with pytest.raises(ConfigError, match=r"--policies: scheduler\.policy must be"):
        make_question(policies=["stallfree"])
    with pytest.raises(ConfigError, match="SLO"):
        make_question(scenario=make_scenario(slo={}))
    assert PRICES.with_({"l40s": 0.5}).of("l40s") == 0.5


def test_what_does_not_fit():
    question = make_question(scenario=make_scenario(model="llama-3-70b"))
    assert not fits(question.fleet(Split("h100_sxm", 1, 1), USUAL, 1), 0)
    assert fits(question.fleet(Split("h100_sxm", 4, 1), USUAL, 1), 0)


def make_trial(rejected: int = 0, **fields: object) -> Trial:
    slo = {"p99_tbt_ms": 50.0, "p50_ttft_s": 0.02}
    scenario = make_question(scenario=make_scenario(slo=slo)).scenario
    return Trial(scenario, 0, make_document(requests_rejected=rejected, **fields), {})


def test_the_nearest_bound_counts():
    shares = ratios(make_trial())
    assert shares["p99_tbt_ms"] == pytest.approx(0.2)
    assert tightness(make_trial()) == shares["p50_ttft_s"] == pytest.approx(0.5)


def test_a_deployment_that_turns_requests_away_does_not_serve():
    assert serves(make_trial())
    assert not serves(make_trial(rejected=1))
    assert not serves(make_trial(stability="overloaded"))
