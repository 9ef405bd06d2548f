"""The time of a stage: its parts, its tables against the kernels themselves, and what must grow with what."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.batch import BatchShape, Chunk
from simulator.hardware import EngineSpec
from simulator.latency.fitted import FittedKernels
from simulator.latency.kernels import AttentionHeads, AttentionRange
from simulator.latency.lookup import IntegerTable, SurfaceTable
from simulator.latency.mixed import MixedRatio
from simulator.latency.roofline import RooflineKernels
from simulator.latency.stages import KernelLatency, merged
from simulator.load import load_cluster, load_gpu, load_model
from simulator.resources import config_path

GPU = load_gpu("a100_80gb_sxm")
HEADS = AttentionHeads(q_heads=32, kv_heads=8, head_dim=128)
FITTED = FittedKernels.load(config_path("kernels", "a100_80gb_sxm"), GPU)
FITTED_DECODE = SurfaceTable(lambda row, size: FITTED.decode_attention_s(row, np.maximum(size, 1), HEADS))
NO_HOST = EngineSpec(name="none", host_fixed_us=0, host_per_seq_us=0, asynchronous=False)
SYNC = EngineSpec(name="sync", host_fixed_us=3000, host_per_seq_us=50, asynchronous=False)
ASYNC = EngineSpec(name="async", host_fixed_us=3000, host_per_seq_us=50, asynchronous=True)


def latency(model="llama-3-8b", kernels=None, engine=NO_HOST, tensor=1, pipeline=1):
    return KernelLatency(
        load_model(model),
        kernels or RooflineKernels(GPU),
        load_cluster(GPU.cluster),
        engine,
        tensor=tensor,
        pipeline=pipeline,
    )


def decodes(number: int, kv: int) -> BatchShape:
    return BatchShape.of(decode_kv=(kv,) * number)


class MeasuredKernels(RooflineKernels):
    """A roofline that claims to have been measured within limits, mixed batches included."""

    attention_includes_kv_write = True

    def mixed_attention_s(self, chunk, prefix, num_decodes, kv_mean, heads):
        apart = self.prefill_attention_s(chunk, prefix, heads)
        return 0.8 * (apart + self.decode_attention_s(num_decodes, kv_mean, heads))

    def gemm_range(self, n, k):
        return 4096

    def attention_range(self, heads):
        return AttentionRange(2048, 16384, 256, 32768)


class SummedKernels(MeasuredKernels):
    """Times without the gaps between kernels."""

    gap_s = 1e-6


class UnmeasuredShapes(MeasuredKernels):
    def gemm_range(self, n, k):
        return None if n == 6144 else 4096

    def attention_range(self, heads):
        return AttentionRange(2048, 16384, 256, 32768, measured_heads=False)


class RecordingKernels(RooflineKernels):
    """Notes which kernels were asked for, and in what size for one token."""

    def __init__(self):
        super().__init__(GPU)
        self.calls = []

    def gemm_s(self, m, n, k):
        self.calls.append(("gemm", n, k))
        return super().gemm_s(m, n, k)

    def elementwise_s(self, op, tokens, width):
        self.calls.append((op, width))
        return super().elementwise_s(op, tokens, width)

    def all_reduce_s(self, message_bytes, world_size, link):
        self.calls.append(("all_reduce", int(message_bytes[0]), world_size))
        return super().all_reduce_s(message_bytes, world_size, link)


batches = st.builds(
    BatchShape.of,
    chunks=st.lists(st.tuples(st.integers(1, 8192), st.integers(0, 100_000)), max_size=3).map(tuple),
    decode_kv=st.lists(st.integers(1, 130_000), max_size=40).map(tuple),
    prompts_ended=st.integers(0, 3),
).filter(lambda shape: shape.num_tokens)


@pytest.mark.parametrize(
    ("shape", "head"),
    [(decodes(8, 500), 2), (BatchShape.of(((64, 0),), (500,)), 2), (BatchShape.of(((64, 0),)), 0)],
)
def test_a_gap_before_every_kernel(shape, head):
    """Ten kernels in each of 32 layers; embedding and last norm; logits and sampler where a token appears."""
    gaps = latency(kernels=SummedKernels(GPU)).stage_time_s(shape, 0) - latency(
        kernels=MeasuredKernels(GPU)
    ).stage_time_s(shape, 0)
    assert gaps == pytest.approx((32 * 10 + 2 + head) * 1e-6, rel=1e-2)


@pytest.mark.parametrize("engine", [SYNC, ASYNC], ids=lambda engine: engine.name)
@pytest.mark.parametrize("measured", [False, True])
@settings(max_examples=30, deadline=None)
@given(shape=batches, stage=st.integers(0, 2))
def test_parts_sum_to_the_whole(engine, measured, shape, stage):
    model = latency("llama-2-70b", MeasuredKernels(GPU) if measured else None, engine, tensor=4, pipeline=3)
    parts = model.breakdown(shape, stage)
    assert set(parts) == {"linear", "attention", "elementwise", "collective", "head", "host"}
    assert min(parts.values()) >= 0
    assert sum(parts.values()) == pytest.approx(model.stage_time_s(shape, stage), rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(rows=st.integers(1, 2000), length=st.integers(1, 131_072))
def test_tables_are_near_the_kernels(rows, length):
    roofline = RooflineKernels(GPU)
    for kernel in (roofline.prefill_attention_s, roofline.decode_attention_s):
        table = SurfaceTable(lambda row, size, kernel=kernel: kernel(row, np.maximum(size, 1), HEADS))
        exact = kernel(np.array([float(rows)]), np.array([float(length)]), HEADS)[0]
        assert table.at(rows, length) == pytest.approx(exact, rel=0.005)


@settings(max_examples=100, deadline=None)
@given(rows=st.integers(1, 1000), length=st.integers(16, 100_000))
def test_tables_are_near_fitted_kernels(rows, length):
    """A bend between two measured lengths costs a little more than the roofline's straight lines."""
    exact = FITTED.decode_attention_s(np.array([float(rows)]), np.array([float(length)]), HEADS)[0]
    assert FITTED_DECODE.at(rows, length) == pytest.approx(exact, rel=0.01)


@given(rows=st.integers(1, 500), length=st.integers(1, 131_072))
def test_the_surface_follows_a_curved_function(rows, length):
    """A power law, as curved as attention between its floor and its slope."""
    table = SurfaceTable(lambda row, size: row * (20 + size) ** 0.7)
    assert table.at(rows, length) == pytest.approx(rows * (20 + length) ** 0.7, rel=0.005)


def test_the_token_table_is_exact_where_a_tile_ends():
    model = latency()
    roofline, spec = RooflineKernels(GPU), load_model("llama-3-8b")
    for tokens in (1, 63, 64, 65, 256, 257, 4096):
        size = np.array([float(tokens)])
        linear = 32 * sum(roofline.gemm_s(size, op.n, op.k)[0] for op in spec.linear_ops(1))
        shape = BatchShape.of(chunks=((tokens, 0),))
        assert model.breakdown(shape, 0)["linear"] == pytest.approx(linear, rel=1e-12)


def test_tables_are_filled_once():
    calls = []

    def square(sizes):
        calls.append(len(sizes))
        return sizes**2

    table = IntegerTable(square)
    assert [table[size] for size in (3, 5, 3, 63)] == [9, 25, 9, 3969]
    assert len(calls) == 1


def test_a_surface_grows_without_forgetting():
    table = SurfaceTable(lambda row, length: row + length)
    short, long = table.at(7, 10), table.at(7, 90_000)
    assert (short, long) == (17, 90_007)
    assert (table.at(7, 10), table.at(8, 90_000), table.at(200, 5)) == (17, 90_008, 205)


@settings(max_examples=100, deadline=None)
@given(
    number=st.integers(1, 200),
    kv=st.integers(16, 30_000),
    chunk=st.integers(1, 4000),
    prefix=st.integers(0, 30_000),
    more=st.integers(1, 2000),
)
def test_more_work_is_not_cheaper(number, kv, chunk, prefix, more):
    model = latency()

    def seconds(number, kv, chunk, prefix):
        return model.stage_time_s(BatchShape.of(((chunk, prefix),), (kv,) * number), 0)

    base = seconds(number, kv, chunk, prefix)
    for larger in (
        (number + more, kv, chunk, prefix),
        (number, kv + more, chunk, prefix),
        (number, kv, chunk + more, prefix),
        (number, kv, chunk, prefix + more),
    ):
        assert seconds(*larger) >= base * 0.999


def test_equal_prompts_merge_into_a_chunk_without_prefix():
    assert merged((Chunk(100, 0),) * 4) == (200, 0)


@given(st.lists(st.tuples(st.integers(1, 4000), st.integers(0, 50_000)), min_size=2, max_size=6))
def test_a_merged_chunk_has_as_many_pairs(chunks):
    def pairs(chunk):
        return chunk.tokens * (chunk.prefix + chunk.tokens / 2)

    chunks = tuple(Chunk(*chunk) for chunk in chunks)
    whole = Chunk(*merged(chunks))
    assert pairs(whole) == pytest.approx(sum(map(pairs, chunks)), rel=0.01, abs=2 * whole.tokens)


def test_two_chunks_cost_less_than_apart_and_more_than_one():
    model = latency()

    def attention(*chunks):
        return model.breakdown(BatchShape.of(chunks), 0)["attention"]

    one, other = attention((256, 1024)), attention((256, 4096))
    assert max(one, other) < attention((256, 1024), (256, 4096)) < one + other


def test_the_decode_mean_is_taken_over_the_sequences():
    model = latency()
    equal, unequal = BatchShape.of(decode_kv=(1000, 1000)), BatchShape.of(decode_kv=(1500, 500))
    assert model.stage_time_s(equal, 0) == model.stage_time_s(unequal, 0)


def test_measured_mixes_replace_the_sum():
    shape = BatchShape.of(chunks=((300, 1000),), decode_kv=(2000,) * 50)
    apart = latency().breakdown(shape, 0)["attention"]
    together = latency(kernels=MeasuredKernels(GPU)).breakdown(shape, 0)["attention"]
    assert together == pytest.approx(0.8 * apart, rel=1e-9)
    alone = decodes(50, 2000)
    assert latency(kernels=MeasuredKernels(GPU)).breakdown(alone, 0)["attention"] == pytest.approx(
        latency().breakdown(alone, 0)["attention"]
    )


@given(
    chunk=st.integers(1, 8192),
    prefix=st.integers(0, 100_000),
    number=st.integers(1, 1000),
    kv=st.integers(16, 131_072),
)
def test_the_mixed_grid_follows_a_smooth_ratio(chunk, prefix, number, kv):
    def ratio(chunk, prefix, number, kv):
        switch = np.tanh((chunk - 417) / 400)
        return 0.7 + 0.1 * switch + 0.1 * number / (number + kv / 50) + 0.1 * prefix / (prefix + 2000)

    exact = ratio(chunk, prefix, number, kv)
    assert MixedRatio(ratio).at(chunk, prefix, number, kv) == pytest.approx(exact, rel=0.02)


def test_the_mixed_grid_ends_where_no_batch_goes():
    mixed = MixedRatio(lambda chunk, prefix, number, kv: number / 8192 + 0 * kv)
    assert mixed.at(100, 0, 8191, 100) == pytest.approx(mixed.at(100, 0, 50_000, 10_000_000))


def test_the_kernels_of_one_token_on_one_of_two_ranks():
    """Llama-3-8B: 4,096 wide, 32 query and 8 KV heads of 128, MLP 14,336, vocabulary 128,256."""
    kernels = RecordingKernels()
    latency(kernels=kernels, tensor=2).breakdown(BatchShape.of(((1, 0),), prompts_ended=1), 0)
    layer = [
        ("gemm", 16 * 128 + 2 * 4 * 128, 4096),
        ("gemm", 4096, 16 * 128),
        ("gemm", 14336, 4096),
        ("gemm", 4096, 7168),
        ("rmsnorm", 4096),
        ("rope", (16 + 4) * 128),
        ("activation", 7168),
        ("kv_write", 2 * 4 * 128),
        ("all_reduce", 2 * 4096, 2),
    ]
    ends = [
        ("embedding", 4096),
        ("rmsnorm", 4096),
        ("gemm", 64128, 4096),
        ("all_reduce", 2 * 128256, 2),
        ("sampler", 128256),
    ]
    assert sorted(map(str, kernels.calls)) == sorted(map(str, layer + ends))


def test_the_kv_write_is_counted_once():
    shape = BatchShape.of(chunks=((512, 0),))
    apart = latency().breakdown(shape, 0)["elementwise"]
    within = latency(kernels=MeasuredKernels(GPU)).breakdown(shape, 0)["elementwise"]
    written = RooflineKernels(GPU).elementwise_s("kv_write", np.array([512.0]), 2 * 8 * 128)[0]
    assert apart - within == pytest.approx(32 * written)


def test_stages_share_the_layers_and_only_the_last_has_a_head():
    shape = BatchShape.of(chunks=((512, 0),), prompts_ended=1)
    whole = latency("llama-2-70b").breakdown(shape, 0)
    model = latency("llama-2-70b", pipeline=4)
    stages = [model.breakdown(shape, stage) for stage in range(4)]
    assert sum(stage["linear"] for stage in stages) == pytest.approx(whole["linear"])
    assert [stage["head"] > 0 for stage in stages] == [False, False, False, True]
    assert stages[0]["elementwise"] > stages[1]["elementwise"]  # the embedding
    assert model.hop_time_s(512) > 0
    assert latency().hop_time_s(512) == 0


def test_no_head_without_a_sampled_token():
    assert latency().breakdown(BatchShape.of(chunks=((512, 0),)), 0)["head"] == 0


def test_a_parallel_block_reduces_once_a_layer():
    shape = BatchShape.of(chunks=((512, 0),))
    falcon = load_model("falcon-180b")
    sequential = falcon.model_copy(update={"parallel_block": False})
    one, two = (
        KernelLatency(model, RooflineKernels(GPU), load_cluster(GPU.cluster), NO_HOST, tensor=8)
        for model in (falcon, sequential)
    )
    reduces = (2 * falcon.num_layers + 1) / (falcon.num_layers + 1)  # and one after the embedding
    parts = one.breakdown(shape, 0), two.breakdown(shape, 0)
    assert parts[1]["collective"] / parts[0]["collective"] == pytest.approx(reduces)


def test_one_gpu_has_no_collectives():
    assert latency().breakdown(decodes(8, 100), 0)["collective"] == 0


def test_a_synchronous_engine_adds_its_host_time():
    shape = BatchShape.of(chunks=((64, 0),), decode_kv=(500,) * 9)
    added = latency(engine=SYNC).stage_time_s(shape, 0) - latency().stage_time_s(shape, 0)
    assert added == pytest.approx(3e-3 + 10 * 50e-6)


def test_an_asynchronous_engine_hides_what_the_device_covers():
    busy, idle = decodes(64, 4000), decodes(1, 16)
    assert latency(engine=ASYNC).stage_time_s(busy, 0) == latency().stage_time_s(busy, 0)
    model = latency("qwen2.5-0.5b", engine=ASYNC)
    assert model.stage_time_s(idle, 0) == pytest.approx(3e-3 + 50e-6)
    assert model.breakdown(idle, 0)["host"] > 0


def test_a_slow_engine_stretches_decode_attention_only():
    slow = NO_HOST.model_copy(update={"decode_bandwidth_scale": 0.5})
    shape = BatchShape.of(decode_kv=(4000,) * 32)
    fast_parts, slow_parts = latency().breakdown(shape, 0), latency(engine=slow).breakdown(shape, 0)
    assert slow_parts.pop("attention") == pytest.approx(2 * fast_parts.pop("attention"))
    assert slow_parts == fast_parts


@pytest.mark.parametrize(
    ("shape", "outside"),
    [
        (BatchShape.of(((2048, 16384),), (32768,) * 256), False),
        (BatchShape.of(((2048, 0), (2048, 0), (1, 0))), True),
        (BatchShape.of(((2049, 0),)), True),
        (BatchShape.of(((100, 0), (100, 16385))), True),
        (BatchShape.of(((100, 16000), (100, 16000))), True),  # together one chunk on 22,586 tokens
        (BatchShape.of(decode_kv=(100,) * 257), True),
        (BatchShape.of(decode_kv=(32768, 32770)), True),
    ],
)
def test_queries_beyond_the_measured_range_are_counted(shape, outside):
    model = latency(kernels=MeasuredKernels(GPU))
    model.stage_time_s(shape, 0)
    model.breakdown(shape, 0)
    assert (model.num_queries, model.num_extrapolated) == (1, int(outside))


def test_shapes_that_were_not_measured_are_noted():
    notes = latency(kernels=UnmeasuredShapes(GPU)).notes
    assert any("qkv 4096x6144" in note for note in notes)
    assert any("32 query and 8 KV heads" in note for note in notes)
    assert latency(kernels=MeasuredKernels(GPU)).notes == MeasuredKernels(GPU).notes


def test_a_model_travels_to_another_process():
    model = latency(pipeline=2, engine=SYNC)
    shape = BatchShape.of(((100, 50),), (200,) * 5)
    before = model.stage_time_s(shape, 1)
    copy = pickle.loads(pickle.dumps(model))
    assert copy.stage_time_s(shape, 1) == before
    assert copy.stage_time_s(decodes(77, 70_000), 0) == model.stage_time_s(decodes(77, 70_000), 0)


@pytest.mark.parametrize(
    ("model", "tensor", "decode_ms"),
    [("mistral-7b", 1, (18, 26)), ("yi-34b", 2, (28, 45)), ("llama-2-70b", 4, (30, 60))],
)
def test_decode_iterations_of_the_paper(model, tensor, decode_ms):
    """Kernel time of 32 decodes after 4,096 tokens; a fifth of the paper's strict SLOs is 20 and 40 ms."""
    low, high = decode_ms
    assert low < latency(model, tensor=tensor).stage_time_s(decodes(32, 4096), 0) * 1e3 < high


def test_a_prefill_is_compute_bound_and_a_decode_is_not():
    model = latency("mistral-7b")
    one, many = decodes(1, 1000), decodes(64, 1000)
    assert model.stage_time_s(many, 0) < 1.8 * model.stage_time_s(one, 0)
    short, long = BatchShape.of(((1024, 0),)), BatchShape.of(((4096, 0),))
    assert model.stage_time_s(long, 0) > 3.5 * model.stage_time_s(short, 0)
