"""Timelines worked out by hand: what each policy puts into each iteration."""

from __future__ import annotations

import pytest
from builders import describe, make_request, make_scheduler

from simulator.errors import ConfigError
from simulator.request import Request
from simulator.schedulers import POLICIES, Scheduler, policy_named


def run(scheduler: Scheduler, arrivals: dict[int, list[Request]], iterations: int) -> list[str]:
    """Batches of successive iterations; `arrivals` come before the iteration of that number."""
    log = []
    for step in range(iterations):
        for request in arrivals.get(step, []):
            assert scheduler.add(request) is None
        batch = scheduler.schedule()
        log.append(describe(batch))
        if batch is not None:
            scheduler.complete(batch)
    return log


def story() -> dict[int, list[Request]]:
    """Two short prompts at once, a long one while they answer, and a short one behind it."""
    return {
        0: [make_request(0, prompt=3, output=4), make_request(1, prompt=4, output=6)],
        2: [make_request(2, prompt=12, output=2), make_request(3, prompt=2, output=2)],
    }


def test_stall_free_packs_decodes_and_chunks_up_to_the_budget() -> None:
    assert run(make_scheduler("stall_free", budget=8), story(), 7) == [
        "p0:3 p1:4",  # 7 of 8 tokens
        "d0 d1",
        "d0 d1 p2:6",  # the chunk takes what the decodes leave
        "d0 d1 p2:6",  # last token of request 0; request 2 has its prompt done
        "d1 d2 p3:2",
        "d1 d3",  # request 2 is finished
        "-",
    ]


def test_prefill_first_stalls_the_decodes() -> None:
    assert run(make_scheduler("prefill_first", max_model_len=16), story(), 8) == [
        "p0:3 p1:4",
        "d0 d1",
        "p2:12 p3:2",  # nobody decodes
        "d0 d1 d2 d3",
        "d0 d1",
        "d1",
        "d1",
        "-",
    ]


def test_prefill_first_holds_whole_prompts_up_to_max_model_len() -> None:
    arrivals = {0: [make_request(i, prompt=6, output=2) for i in range(3)]}
    assert run(make_scheduler("prefill_first", max_model_len=12), arrivals, 3) == [
        "p0:6 p1:6",
        "p2:6",
        "d0 d1 d2",
    ]


def test_decode_first_admits_nobody_until_all_answers_are_done() -> None:
    assert run(make_scheduler("decode_first"), story(), 10) == [
        "p0:3 p1:4",
        "d0 d1",
        "d0 d1",
        "d0 d1",
        "d1",
        "d1",
        "p2:12 p3:2",
        "d2 d3",
        "-",
        "-",
    ]


def test_orca_mixes_whole_prompts_with_decodes() -> None:
    assert run(make_scheduler("orca", budget=1), story(), 7) == [
        "p0:3 p1:4",
        "d0 d1",
        "d0 d1 p2:12 p3:2",
        "d0 d1 d2 d3",
        "d1",
        "d1",
        "-",
    ]


def test_hybrid_only_is_stall_free_without_chunks() -> None:
    assert run(make_scheduler("hybrid_only", budget=1), story(), 4) == [
        "p0:3 p1:4",
        "d0 d1",
        "d0 d1 p2:12 p3:2",
        "d0 d1 d2 d3",
    ]


def test_chunked_only_takes_turns() -> None:
    assert run(make_scheduler("chunked_only", budget=8), story(), 10) == [
        "p0:3 p1:4",
        "d0 d1",
        "p2:8",
        "d0 d1",
        "p2:4",  # a begun prompt goes on alone: request 3 is not admitted beside it
        "d0 d1 d2",
        "p3:2",
        "d1 d3",
        "d1",
        "-",
    ]


def test_budget_never_limits_decodes_and_a_full_budget_admits_nobody() -> None:
    scheduler = make_scheduler("stall_free", budget=2)
    arrivals = {
        0: [make_request(i, prompt=1, output=5) for i in range(2)],
        1: [make_request(2, prompt=1, output=5)],
    }
    assert run(scheduler, arrivals, 2) == ["p0:1 p1:1", "d0 d1"]
    assert [request.id for request in scheduler.waiting] == [2]


def test_admission_stops_at_the_first_that_does_not_fit() -> None:
    """Head-of-line order: a short request does not overtake one that lacks memory."""
    scheduler = make_scheduler("stall_free", budget=64, num_blocks=8, block_size=4)
    arrivals = {
        0: [
            make_request(0, prompt=16, output=4),
            make_request(1, prompt=20, output=4),
            make_request(2, prompt=1),
        ]
    }
    assert run(scheduler, arrivals, 2) == ["p0:16", "d0"]
    assert [request.id for request in scheduler.waiting] == [1, 2]


def test_admission_keeps_the_watermark_free() -> None:
    roomy = make_scheduler(num_blocks=4, block_size=4, budget=64, watermark=0)
    tight = make_scheduler(num_blocks=4, block_size=4, budget=64, watermark=1)
    arrivals = [[make_request(0, prompt=8, output=2), make_request(1, prompt=8, output=2)] for _ in range(2)]
    assert run(roomy, {0: arrivals[0]}, 1) == ["p0:8 p1:8"]
    assert run(tight, {0: arrivals[1]}, 1) == ["p0:8"]


def test_max_num_seqs_caps_the_admitted_requests() -> None:
    scheduler = make_scheduler(max_num_seqs=2, budget=64)
    arrivals = {0: [make_request(i, prompt=2, output=2) for i in range(3)]}
    assert run(scheduler, arrivals, 3) == ["p0:2 p1:2", "d0 d1", "p2:2"]


def test_the_youngest_makes_way_and_is_computed_again() -> None:
    """Two requests of one block each fill the cache; the first to need a second block takes the other's."""
    scheduler = make_scheduler(num_blocks=3, block_size=4, budget=64)
    requests = [make_request(0, prompt=4, output=6), make_request(1, prompt=4, output=4)]
    assert run(scheduler, {0: requests}, 9) == [
        "p0:4 p1:4",
        "d0",  # takes the last block; request 1 finds none and, being alone in its walk, makes way itself
        "d0",
        "d0",
        "d0",
        "d0",
        "p1:5",  # its prompt and the token that it had
        "d1",
        "d1",
    ]
    assert requests[1].num_preemptions == scheduler.num_preemptions == 1
    assert scheduler.recomputed_tokens == 4
    assert requests[1].num_generated == requests[1].output_tokens
    assert scheduler.kv.used == 0


def test_a_half_prefilled_request_can_be_the_victim() -> None:
    scheduler = make_scheduler(num_blocks=4, block_size=4, budget=5, watermark=1)
    requests = [make_request(0, prompt=4, output=8), make_request(1, prompt=8, output=2)]
    log = run(scheduler, {0: requests}, 4)
    assert log[0] == "p0:4 p1:1"
    assert log[1] == "d0 p1:4"  # request 0 takes the last block
    assert log[2:] == ["d0", "d0"]  # finds the pool empty, so request 1 makes way, 5 tokens into its prompt
    assert scheduler.recomputed_tokens == 5
    assert requests[1].num_preemptions == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_a_request_that_needs_the_whole_cache_makes_way_for_itself_and_ends(policy: str) -> None:
    """A decode asks for a free block even where it opens none, so it starts over for its last tokens."""
    scheduler = make_scheduler(policy, num_blocks=4, block_size=4, max_model_len=16, budget=64)
    log = run(scheduler, {0: [make_request(prompt=7, output=9)]}, 12)
    assert log[-1] == "-"
    assert "-" not in log[:9]
    assert scheduler.kv.used == scheduler.num_running == 0


def test_requests_that_can_never_run_are_refused_with_the_reason() -> None:
    scheduler = make_scheduler(max_model_len=16, num_blocks=3, block_size=4)
    assert scheduler.add(make_request(prompt=14, output=3)) == "17 tokens exceed max_model_len 16"
    assert scheduler.add(make_request(prompt=10, output=3)) == "13 tokens need 4 KV blocks of 3"
    assert scheduler.add(make_request(prompt=9, output=3)) is None
    assert make_scheduler("orca", max_model_len=64, num_blocks=3).add(make_request()) is not None


@pytest.mark.parametrize("policy", POLICIES)
def test_one_output_token_comes_with_the_end_of_the_prompt(policy: str) -> None:
    scheduler = make_scheduler(policy, budget=64)
    request = make_request(prompt=5, output=1)
    scheduler.add(request)
    batch = scheduler.schedule()
    assert batch is not None
    assert batch.shape.num_sampled == 1
    assert scheduler.complete(batch) == [request]
    assert scheduler.kv.used == 0


def test_with_two_batches_in_flight_each_has_its_own_decodes() -> None:
    """Microbatches form by themselves: whoever is in flight is locked, a prompt between two chunks too."""
    scheduler = make_scheduler("stall_free", budget=4)
    for i in range(2):
        scheduler.add(make_request(i, prompt=6, output=5))
    first = scheduler.schedule()
    second = scheduler.schedule()
    assert [describe(first), describe(second)] == ["p0:4", "p1:4"]
    assert scheduler.schedule() is None
    assert first is not None
    assert second is not None
    scheduler.complete(first)
    third = scheduler.schedule()
    assert describe(third) == "p0:2"
    scheduler.complete(second)
    assert describe(scheduler.schedule()) == "p1:2"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_request_in_flight_keeps_its_place(policy: str) -> None:
    """`max_num_seqs` bounds the replica, not a microbatch, as in Sarathi-Serve's artefact and in vLLM V1."""
    scheduler = make_scheduler(policy, max_num_seqs=2, budget=4)
    for i in range(3):
        scheduler.add(make_request(i, prompt=4, output=1))
    first, second = scheduler.schedule(), scheduler.schedule()
    assert scheduler.schedule() is None
    for batch in (first, second):
        if batch is not None:
            scheduler.complete(batch)
    assert describe(scheduler.schedule()) == "p2:4"


def test_the_shape_counts_what_the_kernels_see() -> None:
    scheduler = make_scheduler("stall_free", budget=8)
    run(scheduler, {0: [make_request(0, prompt=3, output=9), make_request(1, prompt=5, output=9)]}, 2)
    scheduler.add(make_request(2, prompt=10))
    batch = scheduler.schedule()
    assert batch is not None
    shape = batch.shape
    assert shape.chunks == ((6, 0),)
    # Each has decoded once: 4 + 6 tokens in the cache, and both write one more.
    assert (shape.num_decodes, shape.decode_kv_tokens, shape.decode_kv_max) == (2, 12, 7)
    assert shape.decode_kv_squares == 5**2 + 7**2
    assert (shape.num_tokens, shape.num_sampled) == (8, 2)


def test_an_unknown_policy_is_named_with_its_neighbour() -> None:
    with pytest.raises(ConfigError, match=r"unknown policy 'stallfree' \(did you mean 'stall_free'\?\)"):
        policy_named("stallfree")


@pytest.mark.parametrize("policy", ["stall_free", "prefill_first", "orca", "vllm_v1"])
def test_deciding_ahead_sees_an_arrival_one_iteration_later(policy: str) -> None:
    """Who arrives during iteration k is in k + 2, for k + 1 was decided when k started."""

    def arrivals() -> dict[int, list[Request]]:
        return {0: [make_request(0, prompt=4, output=3)], 1: [make_request(1, prompt=4, output=1)]}

    assert "p1:4" in run(make_scheduler(policy), arrivals(), 2)[1]
    log = run(make_scheduler(policy, decides_ahead=True), arrivals(), 3)
    assert log[1] == "d0"
    assert "p1:4" in log[2]


@pytest.mark.parametrize("ahead", [False, True])
def test_deciding_ahead_leaves_a_finished_request_its_place_for_one_iteration(ahead: bool) -> None:
    requests = [make_request(i, prompt=2, output=output) for i, output in enumerate([2, 5, 1])]
    log = run(make_scheduler(max_num_seqs=2, decides_ahead=ahead), {0: requests}, 5)
    assert log == ["p0:2 p1:2", "d0 d1", *(["d1", "d1 p2:2", "d1"] if ahead else ["d1 p2:2", "d1", "d1"])]


def test_deciding_ahead_waits_for_nothing_when_nothing_runs() -> None:
    scheduler = make_scheduler(budget=8, num_blocks=3, decides_ahead=True)
    # The second needs the memory of the first.
    requests = [make_request(0, prompt=8, output=1), make_request(1, prompt=8, output=1)]
    assert run(scheduler, {0: requests}, 3) == ["p0:8", "p1:8", "-"]
    assert scheduler.kv.used == scheduler.num_running == 0
