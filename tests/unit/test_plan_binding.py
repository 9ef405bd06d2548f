"""What binds a deployment: the limit whose doubling helps, else what takes the time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from plan_questions import make_question
from search_fakes import FakeRuns, make_document, make_scenario

from simulator.config import Scenario
from simulator.search.plan_binding import find_binding
from simulator.search.plan_confirm import Fleet
from simulator.search.plan_space import Settings, Split
from simulator.search.trials import Trial

BATCH = {"mean_num_decodes": 30.0, "mean_tokens": 300.0}
KV = {"mean_utilisation": 0.1, "num_blocks": 10_000}
DEPLOYED = {"token_budget": 512, "max_num_seqs": 64}


class Runs(FakeRuns):
    """Formulas whose documents tell of batches."""

    def __call__(self, scenario: Scenario, seed: int, *, only_verdict: bool = False) -> Trial:
        trial = super().__call__(scenario, seed, only_verdict=only_verdict)
        return Trial(scenario, seed, make_document(batch=BATCH, kv=KV), trial.violations)


def binding(capacity: Callable[[dict[str, Any]], float], rate: float = 20.0, split: Split | None = None):
    def capacity_rps(scenario: Scenario, seed: int) -> float:
        blocks.add(scenario.memory.num_blocks)
        return capacity({"blocks": scenario.memory.num_blocks, **scenario.scheduler.model_dump()})

    blocks: set[int | None] = set()
    settings = Settings("stall_free", *DEPLOYED.values())
    question = make_question(rate, make_scenario(kernels="roofline"))
    found = find_binding(
        question, Fleet(split or Split("h100_sxm", 1, 1), 1, (settings,)), 0, Runs(capacity_rps)
    )
    return found, blocks


@pytest.mark.parametrize(("limit", "key"), [("tokens", "token_budget"), ("sequences", "max_num_seqs")])
def test_the_limit_whose_doubling_helps(limit: str, key: str):
    found, blocks = binding(lambda settings: 22.0 if settings[key] == DEPLOYED[key] else 44.0)
    assert found.limits == (limit,)
    assert found.load_share == pytest.approx(1.21)
    assert found.breaks is not None
    assert found.breaks.violations
    own = min(block for block in blocks if block)
    assert blocks == {own, 2 * own}  # more sequences do not take from the KV blocks


def test_kv_memory():
    own = binding(lambda settings: 1.0)[0].breaks.scenario.memory.num_blocks
    found, _ = binding(lambda settings: 22.0 if settings["blocks"] == own else 44.0)
    assert found.limits == ("KV memory",)


def test_time_binds_where_no_limit_does():
    found, _ = binding(lambda settings: 22.0)
    assert found.limits == ("compute",)
    assert sum(found.parts.values()) == pytest.approx(1.0)


def test_links_bind_where_they_take_the_most_time():
    found, _ = binding(lambda settings: 22.0, split=Split("h100_sxm", 8, 1))
    assert found.parts["collective"] > binding(lambda settings: 22.0)[0].parts["collective"]
    slow = make_question(20.0, make_scenario(kernels="roofline", cluster="pcie4_8gpu"))
    settings = Settings("stall_free", *DEPLOYED.values())
    fleet = Fleet(Split("h100_sxm", 8, 1), 1, (settings,))
    assert find_binding(slow, fleet, 0, Runs(lambda scenario, seed: 22.0)).limits == ("links",)


def test_nothing_binds_a_deployment_that_is_hardly_loaded():
    found, _ = binding(lambda settings: 1000.0)
    assert (found.limits, found.breaks) == ((), None)
    assert found.load_share > 3
