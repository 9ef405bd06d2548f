"""Timelines of vllm_v1 worked out by hand, and where they part from stall_free's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders import describe, make_request, make_scheduler
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.config import Scenario
from simulator.latency.model import ConstantLatency
from simulator.load import load_scenario
from simulator.request import Request
from simulator.run import build_scheduler, simulate
from simulator.schedulers import Scheduler
from simulator.workload import Workload
from simulator.workload.workload import BlockIds


def run(scheduler: Scheduler, requests: list[Request], iterations: int) -> list[str]:
    """Batches of successive iterations; all requests are there at the beginning."""
    log = []
    for request in requests:
        assert scheduler.add(request) is None
    for _ in range(iterations):
        batch = scheduler.schedule()
        log.append(describe(batch))
        if batch is not None:
            scheduler.complete(batch)
    return log


def v1(**options: Any) -> Scheduler:
    return make_scheduler("vllm_v1", **options)


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 9)), min_size=1, max_size=15),
    budget=st.integers(6, 30),
    max_num_seqs=st.integers(1, 6),
)
def test_without_pressure_batches_are_those_of_stall_free(
    sizes: list[tuple[int, int]], budget: int, max_num_seqs: int
) -> None:
    """Decodes always fit the budget here, no prompt is capped, and memory is ample."""
    logs = [
        run(
            make_scheduler(policy, budget=budget, max_num_seqs=max_num_seqs, num_blocks=999),
            [make_request(i, prompt, output) for i, (prompt, output) in enumerate(sizes)],
            400,
        )
        for policy in ("vllm_v1", "stall_free")
    ]
    assert logs[0] == logs[1]


def test_a_capped_prompt_leaves_room_for_the_next_one() -> None:
    def requests() -> list[Request]:
        return [make_request(0, prompt=12, output=2), make_request(1, prompt=3, output=3)]

    assert run(v1(budget=8, long_prefill_token_threshold=4), requests(), 5) == [
        "p0:4 p1:3",
        "d1 p0:4",
        "d1 p0:4",
        "d0",
        "-",
    ]
    assert run(make_scheduler("stall_free", budget=8), requests(), 3) == ["p0:8", "p0:4 p1:3", "d0 d1"]


def test_the_chunks_of_one_prompt_follow_each_other_through_a_pipeline() -> None:
    """A chunk counts as computed when it is scheduled; stall_free waits for it to end."""
    scheduler = v1(budget=4)
    request = make_request(0, prompt=10, output=3)
    scheduler.add(request)
    batches = [scheduler.schedule() for _ in range(3)]
    assert [describe(batch) for batch in batches] == ["p0:4", "p0:4", "p0:2"]
    assert [batch.shape.chunks for batch in batches if batch] == [((4, 0),), ((4, 4),), ((2, 8),)]
    assert [batch.shape.num_sampled for batch in batches if batch] == [0, 0, 1]
    assert scheduler.schedule() is None
    for batch in batches:
        assert batch is not None
        scheduler.complete(batch)
    assert describe(scheduler.schedule()) == "d0"

    locked = make_scheduler("stall_free", budget=4)
    locked.add(make_request(0, prompt=10, output=3))
    assert describe(locked.schedule()) == "p0:4"
    assert locked.schedule() is None


def test_memory_is_taken_chunk_by_chunk_once_the_whole_prompt_would_fit() -> None:
    scheduler = v1(budget=4, num_blocks=5, block_size=4)
    scheduler.add(make_request(0, prompt=16, output=2))
    used = []
    for _ in range(4):
        batch = scheduler.schedule()
        assert batch is not None
        used.append(scheduler.kv.used)
        scheduler.complete(batch)
    assert used == [1, 2, 3, 4]


@pytest.mark.parametrize(("must_fit", "second"), [(True, "d0"), (False, "d0 p1:4")])
def test_admission_looks_at_the_whole_prompt_or_at_the_first_chunk(must_fit: bool, second: str) -> None:
    scheduler = v1(budget=5, num_blocks=4, block_size=4, prompt_must_fit=must_fit)
    requests = [make_request(0, prompt=5, output=9), make_request(1, prompt=12, output=2)]
    assert run(scheduler, requests, 2) == ["p0:5", second]


def test_a_decode_that_opens_no_block_needs_none() -> None:
    """stall_free, as its artefact, wants a spare block for every decode: the second begins anew each time."""

    def requests() -> list[Request]:
        return [make_request(i, prompt=5, output=3) for i in range(2)]

    assert run(v1(budget=16, num_blocks=4), requests(), 3) == ["p0:5 p1:5", "d0 d1", "d0 d1"]
    assert run(make_scheduler("stall_free", budget=16, num_blocks=4), requests(), 3) == [
        "p0:5 p1:5",
        "d0 p1:6",
        "d0 p1:7",
    ]


def test_who_was_admitted_last_makes_way_and_nobody_is_admitted_then() -> None:
    scheduler = v1(budget=16, num_blocks=3, block_size=4)
    requests = [
        make_request(0, prompt=4, output=7),
        make_request(1, prompt=3, output=5),
        make_request(2, prompt=1, output=1),
    ]
    log = run(scheduler, requests[:2], 2)
    assert log == ["p0:4 p1:3", "d0 d1"]  # 0 takes the third block
    scheduler.add(requests[2])
    log = [describe(batch := scheduler.schedule())]
    assert batch is not None
    scheduler.complete(batch)
    # 1 needs a second block, is the last, and makes way; its block would do for 2, but not in this iteration.
    assert log == ["d0"]
    assert [request.id for request in scheduler.waiting] == [1, 2]
    log = run(scheduler, [], 8)
    assert log == ["d0", "d0", "d0", "d0", "p1:5 p2:1", "d1", "d1", "-"]
    assert scheduler.num_preemptions == 1
    assert scheduler.recomputed_tokens == 4


def test_a_prefix_in_the_cache_is_not_computed() -> None:
    scheduler = v1(budget=32, prefix_caching=True)
    first = make_request(0, prompt=10, output=1, block_ids=[1, 2])
    second = make_request(1, prompt=14, output=1, block_ids=[1, 2, 3])
    scheduler.add(first)
    scheduler.add(second)
    batch = scheduler.schedule()
    # Even in the iteration that computes it: its keys and values are written before they are read.
    assert describe(batch) == "p0:10 p1:6"
    assert batch is not None
    assert batch.shape.chunks == ((10, 0), (6, 8))
    assert scheduler.kv.used == 3 + 2
    scheduler.complete(batch)
    assert run(scheduler, [make_request(2, prompt=8, output=1, block_ids=[1, 2])], 1) == ["p2:4"]
    assert (scheduler.kv.queried_tokens, scheduler.kv.hit_tokens) == (32, 12)


def test_a_preempted_request_finds_its_blocks_again_until_they_are_taken() -> None:
    def log(prefix_caching: bool) -> tuple[list[str], int]:
        scheduler = v1(budget=16, num_blocks=5, block_size=4, prefix_caching=prefix_caching)
        requests = [make_request(0, prompt=7, output=3), make_request(1, prompt=8, output=6)]
        return run(scheduler, requests, 6), scheduler.recomputed_tokens

    # 1 takes the fifth block; 0 needs one too, takes 1's third, and 1 comes back when 0 has gone.
    assert log(False) == (["p0:7 p1:8", "d0 d1", "d0", "p1:10", "d1", "d1"], 9)
    assert log(True) == (["p0:7 p1:8", "d0 d1", "d0", "p1:2", "d1", "d1"], 1)


def small(**updates: Any) -> Scenario:
    return load_scenario("default").with_(
        {"scheduler.policy": "vllm_v1", "memory.num_blocks": 100, "scheduler.max_model_len": 512, **updates}
    )


def shared_prompts() -> Workload:
    return Workload(
        arrival_s=np.array([0.0, 5.0, 9.0]),
        prompt_tokens=np.array([70, 70, 40]),
        output_tokens=np.array([3, 3, 3]),
        block_ids=BlockIds.of_rows([[1, 2], [1, 3], [4]], 32),
    )


def test_the_block_ids_of_a_workload_reach_the_cache() -> None:
    result = simulate(small(), workload=shared_prompts(), latency=ConstantLatency(), keep_iterations=True)
    assert result.to_dict()["prefix_cache"] == {"queried_tokens": 180, "hit_tokens": 32}
    assert result.records.iterations["prefill_tokens"].sum() == 180 - 32
    assert not result.notes


def test_prefix_caching_can_be_off_and_its_absence_is_noted() -> None:
    for updates, reason in (
        ({"memory.prefix_caching": False}, "memory.prefix_caching is false"),
        ({"scheduler.policy": "stall_free"}, "stall_free has no prefix cache"),
    ):
        result = simulate(
            small(**updates), workload=shared_prompts(), latency=ConstantLatency(), keep_iterations=True
        )
        assert "prefix_cache" not in result.to_dict()
        assert result.records.iterations["prefill_tokens"].sum() == 180
        assert result.notes == (f"{reason}: shared prefixes are computed each time",)


def test_the_scenario_sets_the_limits_and_the_watermark() -> None:
    scheduler = build_scheduler(small(**{"scheduler.long_prefill_token_threshold": 64}), 200)
    assert scheduler.kv.watermark == 0
    assert scheduler.add(make_request(0, prompt=200)) is None
    assert describe(scheduler.schedule()) == "p0:64"
    assert build_scheduler(small(**{"memory.watermark": 0.05}), 200).kv.watermark == 10
    assert build_scheduler(small(**{"scheduler.policy": "stall_free"}), 200).kv.watermark == 2


@pytest.mark.parametrize(
    ("updates", "ahead"),
    [
        ({"engine": "vllm-v1"}, True),
        ({"engine": "vllm-v1", "scheduler.policy": "stall_free"}, True),
        ({"engine": "vllm-v1", "parallel.pipeline": 2}, False),
        ({"engine": "ideal"}, False),
    ],
)
def test_an_asynchronous_engine_decides_ahead_on_one_stage(updates: dict[str, Any], ahead: bool) -> None:
    assert build_scheduler(small(**updates), 100).decides_ahead is ahead
