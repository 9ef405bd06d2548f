"""Laws that hold whatever arrives: nothing lost, nothing twice, no budget exceeded, no idle engine with work.

Hypothesis drives every policy through random requests, caches so small that requests are preempted, and one
to three batches in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np
import pytest
from builders import PerToken, make_request, make_scheduler, serve
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.batch import Batch
from simulator.record import Recorder
from simulator.request import Request
from simulator.schedulers import POLICIES, Scheduler
from simulator.schedulers.policies import ChunkedOnly, StallFree
from simulator.schedulers.vllm_v1 import VLLMV1

SIZES = st.lists(st.tuples(st.integers(1, 24), st.integers(1, 12)), min_size=1, max_size=20)
BLOCK = 4
MAX_MODEL_LEN = 36


def check_batch(scheduler: Scheduler, batch: Batch, computed: dict[int, int]) -> None:
    """What must hold of every batch; `computed` is the test's own account of tokens in the cache."""
    slices = list(batch.slices())
    ids = [slice.request.id for slice in slices]
    assert len(ids) == len(set(ids)), "a request twice in one batch"
    for request, tokens in batch.prefills:
        assert 0 < tokens <= request.prompt_tokens + request.num_generated - computed.get(request.id, 0)
    shape = batch.shape
    assert shape.num_tokens == sum(slice.num_tokens for slice in slices)
    assert shape.num_decodes == len(batch.decodes or ())
    kv = [batch.decodes.kv_of(request) + 1 for request in batch.decodes or ()]
    assert (shape.decode_kv_tokens, shape.decode_kv_max) == (sum(kv), max(kv, default=0))
    assert shape.decode_kv_squares == sum(length**2 for length in kv)
    if isinstance(scheduler, StallFree | ChunkedOnly) and batch.prefills:
        limit = scheduler._iteration_tokens
        assert limit is None or shape.num_tokens <= max(limit, shape.num_decodes)
    if isinstance(scheduler, VLLMV1):
        assert shape.num_tokens <= scheduler.token_budget
    assert scheduler.num_running <= scheduler.max_num_seqs


def check_blocks(scheduler: Scheduler, requests: Iterable[Request], in_flight: Iterable[Batch]) -> None:
    """Blocks in use are exactly those that the admitted requests hold."""
    held = 0
    flying = {id(request) for batch in in_flight for request in batch.decodes or ()}
    for request in requests:
        if scheduler.reserves_worst_case and (request.decode_set or request in scheduler.prefilling):
            held += scheduler.kv.blocks_for(MAX_MODEL_LEN)
        elif request.decode_set is not None:
            held += scheduler.kv.blocks_for(request.decode_set.kv_of(request) + (id(request) in flying))
        elif request in scheduler.prefilling:
            held += scheduler.kv.blocks_for(scheduler._held_in_prefill(request))
    assert scheduler.kv.used == held


@settings(max_examples=150, deadline=None)
@pytest.mark.parametrize("policy", POLICIES)
@given(
    sizes=SIZES,
    budget=st.integers(1, 20),
    num_blocks=st.integers(9, 24),
    watermark=st.integers(0, 2),
    max_num_seqs=st.integers(1, 8),
    depth=st.integers(1, 3),
    pauses=st.lists(st.integers(0, 3), min_size=20, max_size=20),
    decides_ahead=st.booleans(),
)
def test_every_token_once_and_every_block_back(
    policy: str,
    sizes: list[tuple[int, int]],
    budget: int,
    num_blocks: int,
    watermark: int,
    max_num_seqs: int,
    depth: int,
    pauses: list[int],
    decides_ahead: bool,
) -> None:
    scheduler = make_scheduler(
        policy,
        budget=budget,
        max_num_seqs=max_num_seqs,
        max_model_len=MAX_MODEL_LEN,
        num_blocks=num_blocks,
        block_size=BLOCK,
        watermark=0 if POLICIES[policy].reserves_worst_case else watermark,
        decides_ahead=decides_ahead,
    )
    requests = [make_request(i, prompt, output) for i, (prompt, output) in enumerate(sizes)]
    coming = deque(zip(requests, pauses, strict=False))
    accepted: list[Request] = []
    finished: list[Request] = []
    in_flight: deque[Batch] = deque()
    computed: dict[int, int] = {}
    preemptions: dict[int, int] = {}
    for _ in range(100_000):
        while coming and (coming[0][1] == 0 or not in_flight):
            request, _ = coming.popleft()
            if scheduler.add(request) is None:
                accepted.append(request)
        if coming:
            coming[0] = (coming[0][0], coming[0][1] - 1)
        while len(in_flight) < depth:
            batch = scheduler.schedule()
            for request in accepted:
                if request.num_preemptions > preemptions.get(request.id, 0):
                    preemptions[request.id] = request.num_preemptions
                    computed[request.id] = 0
            if batch is None:
                break
            check_batch(scheduler, batch, computed)
            in_flight.append(batch)
            check_blocks(scheduler, accepted, in_flight)
        if not in_flight:
            # Work conservation: an engine that finds nothing to run has nothing left.
            if not coming:
                break
            continue
        batch = in_flight.popleft()
        for slice in batch.slices():
            computed[slice.request.id] = computed.get(slice.request.id, 0) + slice.num_tokens
        finished += scheduler.complete(batch)
        if not decides_ahead:  # or else those who have just finished still hold theirs
            check_blocks(scheduler, accepted, in_flight)
    assert sorted(request.id for request in finished) == [request.id for request in accepted]
    for request in finished:
        assert request.num_generated == request.output_tokens
        assert request.num_computed == computed[request.id] == request.max_tokens
    assert scheduler.kv.used == 0
    assert scheduler.num_running == 0
    assert not scheduler.waiting
    assert not scheduler.prefilling


@settings(max_examples=80, deadline=None)
@pytest.mark.parametrize("policy", POLICIES)
@given(
    sizes=SIZES,
    gaps=st.lists(st.floats(0.0, 3.0), min_size=20, max_size=20),
    stages=st.integers(1, 3),
    replicas=st.integers(1, 2),
    num_blocks=st.integers(9, 30),
)
def test_causality_and_work_conservation_on_the_clock(
    policy: str, sizes: list[tuple[int, int]], gaps: list[float], stages: int, replicas: int, num_blocks: int
) -> None:
    arrivals = np.cumsum(gaps[: len(sizes)]).tolist()
    requests = [
        make_request(i, prompt, output, at)
        for i, ((prompt, output), at) in enumerate(zip(sizes, arrivals, strict=True))
    ]
    schedulers = [
        make_scheduler(policy, budget=8, max_model_len=MAX_MODEL_LEN, num_blocks=num_blocks)
        for _ in range(replicas)
    ]
    ended_prefills: list[int] = []

    class Counting(Recorder):
        def prefill_ended(self, request: Request, end_s: float) -> None:
            super().prefill_ended(request, end_s)
            ended_prefills.append(request.id)

    result = serve(
        requests,
        schedulers,
        PerToken(0.3, 0.05, stages),
        new_recorder=lambda: Counting(keep_iterations=True),
    )
    columns = result.records.requests
    assert len(columns["id"]) + len(result.rejections) == len(sizes)
    ulp = 1e-9
    assert (columns["arrival_s"] <= columns["scheduled_s"] + ulp).all()
    assert (columns["scheduled_s"] < columns["first_token_s"]).all()
    assert (columns["first_token_s"] <= columns["finished_s"]).all()
    iterations = result.records.iterations
    # Every token of every request is in exactly one iteration; prefills that were lost come again.
    prompts, outputs = columns["prompt_tokens"].sum(), columns["output_tokens"].sum()
    assert iterations["num_decodes"].sum() + len(ended_prefills) == outputs
    assert (result.records.segments["stop"] - result.records.segments["start"]).sum() == outputs
    if replicas == 1:
        assert (np.diff(iterations["end_s"]) > 0).all()
    assert all(0.0 <= stage["bubble_share"] < 1.0 for stage in result.stages)
    assert prompts <= iterations["prefill_tokens"].sum()
    assert all(scheduler.kv.used == 0 for scheduler in schedulers)


def test_the_same_seed_gives_the_same_run() -> None:
    def run() -> str:
        rng = np.random.default_rng(3)
        requests = [
            make_request(i, int(rng.integers(1, 24)), int(rng.integers(1, 12)), 0.2 * i) for i in range(50)
        ]
        return repr(serve(requests, make_scheduler(num_blocks=20), PerToken(0.1, 0.01)).to_dict())

    assert run() == run()


@pytest.mark.parametrize("finds_prefixes", [False, True])
@settings(max_examples=150, deadline=None)
@given(
    policy=st.sampled_from(sorted(POLICIES)),
    sizes=st.lists(st.tuples(st.integers(1, 24), st.integers(1, 60)), min_size=1, max_size=20),
    gaps=st.lists(st.floats(0.0, 1.0), min_size=20, max_size=20),
    longest_gap=st.sampled_from([0.5, 5.0, 30.0]),
    num_blocks=st.integers(21, 60),
    decides_ahead=st.booleans(),
)
def test_repeating_a_batch_is_completing_and_scheduling_it(
    policy: str,
    sizes: list[tuple[int, int]],
    gaps: list[float],
    longest_gap: float,
    num_blocks: int,
    decides_ahead: bool,
    finds_prefixes: bool,
) -> None:
    """The shortcut through long stretches of decodes changes nothing, with a queue or without."""
    arrivals = (longest_gap * np.cumsum(gaps[: len(sizes)])).tolist()

    def outcome(*, shortcut: bool) -> tuple[object, list[list[float]], int]:
        requests = [
            # Every other prompt begins alike.
            make_request(i, *size, at, block_ids=range(100 * (i % 2), 100 * (i % 2) + size[0] // BLOCK))
            for i, (size, at) in enumerate(zip(sizes, arrivals, strict=True))
        ]
        scheduler = make_scheduler(
            VLLMV1.name if finds_prefixes else policy,
            budget=8,
            max_model_len=84,
            num_blocks=num_blocks,
            decides_ahead=decides_ahead,
            prefix_caching=finds_prefixes,
        )
        if not shortcut:
            scheduler.repeat = lambda batch: None  # type: ignore[method-assign]
        result = serve(requests, scheduler, PerToken(0.3, 0.05))
        columns = result.records.iterations
        hits = getattr(scheduler.kv, "hit_tokens", 0)
        return result.to_dict(), [columns[name].tolist() for name in columns], hits

    assert outcome(shortcut=True) == outcome(shortcut=False)
