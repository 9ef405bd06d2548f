"""Bounds from iteration times: what they rule out, and that simulations agree."""

from __future__ import annotations

import pytest
from plan_questions import make_question
from search_fakes import make_scenario

from simulator.search.plan_bounds import Mix, prospect
from simulator.search.plan_screen import screen
from simulator.search.plan_space import Split
from simulator.search.trials import run_trial
from simulator.workload import Workload

ONE = Split("h100_sxm", 1, 1)


def question_of(rate: float = 20.0, **updates: object):
    return make_question(rate, make_scenario(**{"kernels": "roofline", **updates}))


def test_a_model_that_does_not_fit():
    found = prospect(question_of(model="llama-3-70b"), ONE, 0)
    assert "does not fit" in found.obstacle
    assert not found.fits_memory


def test_a_model_that_leaves_no_room_for_a_request():
    """The weights fit with these 16.2 GiB, and 60 blocks beside them; two GPUs have more."""
    lengths = {"prompt": 1500, "output": 50}
    tight = make_scenario(
        kernels="roofline", **{"memory.utilization": 0.19867, "workload": {"lengths": lengths}}
    )
    question = make_question(1.0, tight, budgets=(512,), sequences=(64,))
    found = prospect(question, ONE, 0)
    assert "not one of 512 requests fits" in found.obstacle
    assert not prospect(question, Split("h100_sxm", 2, 1), 0).obstacle


@pytest.mark.parametrize(
    ("slo", "obstacle"),
    [
        ({"p99_tbt_ms": 3.0}, "not even one sequence decodes within the bound on TBT"),
        ({"p50_ttft_ms": 3.0}, "p50_ttft_ms: a prompt of 100 tokens alone takes"),
    ],
)
def test_bounds_that_no_load_keeps(slo: dict[str, float], obstacle: str):
    found = prospect(question_of(slo=slo), ONE, 0)
    assert found.obstacle.startswith(obstacle)
    assert found.fits_memory


def test_a_load_beyond_the_bound_on_gpus():
    assert prospect(question_of(1e6), ONE, 0).obstacle.startswith("the load needs at least ")


def test_more_load_needs_more_replicas():
    replicas = [prospect(question_of(rate), ONE, 0).replicas for rate in (20.0, 500.0, 2000.0)]
    assert replicas[0] == 1
    assert replicas == sorted(set(replicas))


def test_the_mix_of_a_workload():
    mix = Mix.of(Workload([0.0, 1.0], [100, 300], [11, 1]))
    assert mix.prompt_tokens == 200
    assert mix.decodes == 5
    assert mix.context_tokens == 105  # only the first request decodes
    assert mix.prefix_tokens == 125  # (100^2 + 300^2) / 2 over 400 tokens
    shape = mix.shape(2.0)
    assert (shape.num_tokens, shape.num_decodes, shape.decode_kv_tokens) == (410, 10, 1050)


@pytest.mark.parametrize("split", [ONE, Split("h100_sxm", 2, 1), Split("h100_sxm", 1, 2)])
def test_no_simulation_does_with_fewer_replicas(split: Split):
    lengths = {
        "prompt": {"kind": "uniform", "low": 200, "high": 3000},
        "output": {"kind": "uniform", "low": 2, "high": 200},
    }
    slo = {"p99_tbt_ms": 25.0, "p50_ttft_ms": 1000.0}
    scenario = make_scenario(kernels="roofline", workload={"lengths": lengths, "rate_rps": 1.0}, slo=slo)
    question = make_question(80.0, scenario, budgets=[512, 2048], sequences=[256])
    bound = prospect(question, split, 0)
    unbounded = type(bound)(split, 1)
    assert 1 < bound.replicas <= screen(question, unbounded, 0, run_trial).replicas
