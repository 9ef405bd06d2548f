"""Routing between replicas: who gets a request, and what that changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from builders import make_request

from simulator.cluster import MOST_AHEAD, ROUTERS, Router, router_named
from simulator.config import Scenario
from simulator.errors import ConfigError
from simulator.latency.model import ConstantLatency
from simulator.metrics import Result
from simulator.replica import Replica
from simulator.run import simulate
from simulator.workload import Workload
from simulator.workload.workload import BlockIds


class Busy:
    """A replica of which only its unfinished requests matter."""

    def __init__(self, num_outstanding: int = 0) -> None:
        self.num_outstanding = num_outstanding


def router(name: str, replicas: Sequence[Busy], seed: int = 0) -> Router:
    return router_named(name, cast("Sequence[Replica]", replicas), seed)


def chosen(name: str, loads: Sequence[int], count: int = 3000, seed: int = 0) -> list[int]:
    """Which replicas get `count` requests, if their load never changes."""
    replicas = [Busy(load) for load in loads]
    route = router(name, replicas, seed)
    return [replicas.index(cast("Busy", route(make_request(id)))) for id in range(count)]


def test_random_is_even_and_a_function_of_the_seed() -> None:
    picks = chosen("random", [0, 5, 9])
    assert all(900 < picks.count(place) < 1100 for place in range(3))
    assert picks == chosen("random", [0, 5, 9])
    assert picks != chosen("random", [0, 5, 9], seed=1)


def test_power_of_two_takes_the_less_busy_of_two_different_ones() -> None:
    """Of three replicas the busiest is never taken, the idle one whenever it is among the two: 2 in 3."""
    picks = Counter(chosen("power_of_two", [7, 3, 0]))
    assert picks[0] == 0
    assert picks[2] / 3000 == pytest.approx(2 / 3, abs=0.03)


@pytest.mark.parametrize("name", ROUTERS)
def test_one_replica_gets_everything(name: str) -> None:
    assert set(chosen(name, [4], count=20)) == {0}


def test_an_unknown_name_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="did you mean 'power_of_two'"):
        router("power_of_too", [Busy()])


# Prefixes.


def sent(route: Router, replicas: Sequence[Busy], *prompts: Sequence[int]) -> list[int]:
    """Which replicas get these prompts, each of which keeps its replica busy."""
    places = []
    for id, blocks in enumerate(prompts):
        replica = cast("Busy", route(make_request(id, block_ids=blocks)))
        replica.num_outstanding += 1
        places.append(replicas.index(replica))
    return places


def test_a_known_prompt_goes_where_it_was_sent_before() -> None:
    replicas = [Busy(), Busy(), Busy()]
    route = router("prefix_affinity", replicas)
    assert sent(route, replicas, [1, 2], [5, 6], [8, 9]) == [0, 1, 2]
    assert sent(route, replicas, [5, 6, 7], [1, 2, 3], [5, 6, 7, 10]) == [1, 0, 1]


def test_the_longest_match_wins() -> None:
    replicas = [Busy(), Busy(5)]
    route = router("prefix_affinity", replicas)
    sent(route, replicas, [1, 2, 3])
    replicas[0].num_outstanding = 9
    assert sent(route, replicas, [1, 20, 30, 40]) == [1]  # a quarter is not enough
    assert sent(route, replicas, [1, 2, 3, 4], [1, 20, 30]) == [0, 1]


def test_a_match_is_not_worth_a_long_queue() -> None:
    replicas = [Busy(), Busy()]
    route = router("prefix_affinity", replicas)
    sent(route, replicas, [1, 2])
    replicas[0].num_outstanding = MOST_AHEAD
    assert sent(route, replicas, [1, 2], [1, 2]) == [0, 1]
    assert sent(route, replicas, [1, 2]) == [1]  # both know it now


def test_without_ids_the_least_busy_one_is_taken() -> None:
    replicas = [Busy(1), Busy(0)]
    assert sent(router("prefix_affinity", replicas), replicas, (), (), ()) == [1, 0, 1]


# What they change.


def run(routing: str, *, seed: int = 0, ids: bool = False, **changes: Any) -> Result:
    scenario = Scenario.model_validate(
        {
            "model": "tiny",
            "gpu": "cpu",
            "replicas": 4,
            "routing": routing,
            "memory": {"num_blocks": 2000},
            "scheduler": {"policy": "vllm_v1", "token_budget": 64, "max_num_seqs": 4},
            "workload": {
                "lengths": {"prompt": 32, "output": {"kind": "gamma", "mean": 30, "cv": 2}},
                "rate_rps": 0.3,
                "num_requests": 3000,
            },
        }
        | changes
    )
    return simulate(scenario, seed, workload=sessions() if ids else None, latency=ConstantLatency(1, 1.0))


def sessions() -> Workload:
    """Forty talks of ten turns in turn, each turn 32 tokens longer; all begin alike."""
    turns = [(talk, turn) for turn in range(10) for talk in range(40)]
    prompts = [[0, *(1 + 100 * talk + block for block in range(2 * turn + 2))] for talk, turn in turns]
    return Workload(
        np.arange(400) * 6.0,
        np.array([16 * len(ids) for ids in prompts]),
        np.full(400, 8),
        block_ids=BlockIds.of_rows(prompts, 16),
    )


def test_looking_at_two_queues_is_far_better_than_at_none_and_nearly_as_good_as_at_all() -> None:
    delay = {
        name: run(name).metrics["scheduling_delay_s"]["mean"]
        for name in ("random", "power_of_two", "least_outstanding")
    }
    assert delay["least_outstanding"] <= delay["power_of_two"] < 0.5 * delay["random"]


def test_the_same_seed_gives_the_same_run() -> None:
    first, again, other = (run("random", seed=seed).to_dict() for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_prefix_affinity_finds_more_in_the_caches() -> None:
    """A talk that stays on its replica finds all but its last turn; on four replicas in turn it does not."""
    found = {name: run(name, ids=True).prefix_cache for name in ("round_robin", "random", "prefix_affinity")}
    share = {name: use["hit_tokens"] / use["queried_tokens"] for name, use in found.items() if use}
    assert share["prefix_affinity"] > 0.75
    assert share["random"] < share["prefix_affinity"] - 0.15


def test_prefix_affinity_without_prefixes_says_so() -> None:
    assert any(note.startswith("prefix_affinity: no prefixes") for note in run("prefix_affinity").notes)
    assert not any("prefix_affinity" in note for note in run("prefix_affinity", ids=True).notes)
