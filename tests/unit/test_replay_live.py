"""Live serving on a clock moved by hand: the same scheduler must tell the same story as in the simulator."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="replaying needs torch: pip install 'stallfree[profile]'")

from builders import PerToken, make_request, make_scheduler, serve

from profiler.live import LiveEngine
from profiler.watch import HostCost, HostTimed, ShapeSampler
from simulator.batch import BatchShape
from simulator.latency.model import ConstantLatency
from simulator.record import Recorder, Records

FIXED_S, PER_TOKEN_S = 0.010, 0.001


class FakeModel:
    """Takes as long as `PerToken` says, on a clock that it moves itself."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.num_pages, self.page_size = num_pages, page_size
        self.now_s = 0.0
        self.batches: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def batch(self, q_lens, kv_lens):
        self.batches.append((q_lens, kv_lens))
        return SimpleNamespace(q_lens=q_lens)

    def inputs(self, batch, table, samples):
        pages = [int(page) for row in table for page in row if page]
        assert len(pages) == len(set(pages))
        return SimpleNamespace(tokens=sum(batch.q_lens), samples=samples)

    def plan(self, inputs):
        return None

    def forward(self, inputs, attend):
        self.now_s += FIXED_S + PER_TOKEN_S * inputs.tokens
        return np.zeros(int(inputs.samples.sum()))


def requests():
    arrivals = (0.0, 0.0, 0.013, 0.5, 0.52, 0.521, 0.9)
    sizes = ((9, 4), (3, 7), (14, 2), (20, 9), (6, 1), (11, 12), (5, 5))
    pairs = enumerate(zip(sizes, arrivals, strict=True))
    return [make_request(number, *size, arrival_s=at) for number, (size, at) in pairs]


def scheduler(policy: str, num_blocks: int):
    return make_scheduler(policy, budget=8, max_num_seqs=4, num_blocks=num_blocks, block_size=4)


def live(policy: str, num_blocks: int) -> tuple[LiveEngine, FakeModel]:
    model = FakeModel(num_blocks, 4)
    engine = LiveEngine(model, scheduler(policy, num_blocks), now=model.now, sleep=model.sleep)
    engine.recorder = Recorder(keep_iterations=True)
    engine.serve(requests())
    return engine, model


@pytest.mark.parametrize("policy", ["stall_free", "prefill_first", "decode_first"])
@pytest.mark.parametrize("num_blocks", [64, 9])
def test_the_wall_clock_and_the_simulated_clock_agree(policy: str, num_blocks: int) -> None:
    engine, _ = live(policy, num_blocks)
    got = Records.merged([engine.recorder.records()])
    expected = serve(requests(), scheduler(policy, num_blocks), PerToken(FIXED_S, PER_TOKEN_S)).records
    for name, column in expected.requests.items():
        assert got.requests[name] == pytest.approx(column, abs=1e-9), name
    for name, column in expected.iterations.items():
        assert got.iterations[name] == pytest.approx(column, abs=1e-9), name


def test_memory_pressure_preempts_and_pages_are_taken_back() -> None:
    engine, _ = live("stall_free", 9)
    assert engine.recorder.records().requests["num_preemptions"].sum() > 0
    assert engine._pages.num_free == 9


def test_kernels_get_decodes_first_and_chunks_on_their_prefix() -> None:
    _, model = live("stall_free", 64)
    # Prompts of 9, 3 and 14 tokens, eight tokens an iteration; (query lengths, KV lengths) of each sequence.
    assert model.batches[:4] == [
        ((8,), (8,)),
        ((1, 3, 4), (9, 3, 4)),
        ((1, 1, 6), (10, 4, 10)),
        ((1, 1, 4), (11, 5, 14)),
    ]


def test_a_deadline_ends_the_run() -> None:
    model = FakeModel(64, 4)
    engine = LiveEngine(model, scheduler("stall_free", 64), now=model.now, sleep=model.sleep)
    engine.serve(requests(), deadline_s=0.2)
    finished = engine.recorder.records().requests["id"]
    assert 0 < len(finished) < 7


def test_a_request_that_can_never_run_is_turned_away() -> None:
    model = FakeModel(64, 4)
    engine = LiveEngine(model, scheduler("stall_free", 64), now=model.now, sleep=model.sleep)
    engine.serve([make_request(0, 100, 4), make_request(1, 5, 2)])
    assert [number for number, _ in engine.rejections] == [0]
    assert engine.recorder.records().requests["id"].tolist() == [1]


# Latency models around another one.

DECODE = BatchShape.of(decode_kv=(5, 6))
PREFILL = BatchShape.of(chunks=((4, 0),))
MIXED = BatchShape.of(chunks=((4, 2),), decode_kv=(9,))


def test_the_sampler_passes_answers_on_and_keeps_shares() -> None:
    sampler = ShapeSampler(ConstantLatency(seconds=0.25), size=50)
    for shape, count in ((DECODE, 700), (MIXED, 200), (PREFILL, 100)):
        for _ in range(count):
            assert sampler.stage_time_s(shape, 0) == 0.25
    drawn = sampler.sample(50)
    assert (drawn.count(DECODE), drawn.count(MIXED), drawn.count(PREFILL)) == (35, 10, 5)
    assert sampler.num_queries == 1000


def test_a_rare_composition_is_sampled_too() -> None:
    sampler = ShapeSampler(ConstantLatency(), size=40)
    for _ in range(5000):
        sampler.stage_time_s(DECODE, 0)
    for tokens in range(2, 12):
        sampler.stage_time_s(BatchShape.of(chunks=((tokens, 0),)), 0)
    assert sum(bool(shape.chunks) for shape in sampler.sample(40)) == 4


def test_late_iterations_are_drawn_as_often_as_early_ones() -> None:
    sampler = ShapeSampler(ConstantLatency(), size=200)
    for kv in range(1, 2001):
        sampler.stage_time_s(BatchShape.of(decode_kv=(kv,)), 0)
    mean = np.mean([shape.decode_kv_tokens for shape in sampler.sample(200)])
    assert 850 < mean < 1150


def test_host_time_is_added_by_sequence_and_chunk() -> None:
    latency = HostTimed(ConstantLatency(seconds=1.0), HostCost(0.1, 0.01, 0.001))
    assert latency.stage_time_s(MIXED, 0) == pytest.approx(1.121)
    assert latency.stage_time_s(DECODE, 0) == pytest.approx(1.12)
    assert sum(latency.breakdown(MIXED, 0).values()) == pytest.approx(1.121)
