"""Which points are measured: shapes from the model, priorities, passes, limits, and the time they take."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.device import gpu_preset
from profiler.estimate import dry_run
from profiler.grid import FULL, OFF_GRID, SMALL, model_grid
from profiler.job import ProfileJob
from profiler.tables import row_key
from simulator.errors import ConfigError
from simulator.load import load_gpu, load_model

LLAMA = load_model("llama-3-8b")
TINY = load_model("tiny")


def points(model=LLAMA, tensor=(1,), axes=FULL, longest=8192, passes=1):
    blocks = model_grid(model, tensor, axes, "bf16", longest=longest, passes=passes)
    return [point for block in blocks for point in block.points]


def test_attention_comes_first_then_linear_then_mixed() -> None:
    blocks = model_grid(LLAMA, (1, 2), FULL, "bf16", longest=8192, passes=2)
    names = [block.name for block in blocks]
    assert names[:6] == [
        "attention, pass 1",
        "linear, pass 1",
        "elementwise, pass 1",
        "mixed, pass 1",
        "other heads, pass 1",
        "collectives, pass 1",
    ]
    assert [name.replace("2", "1") for name in names[6:]] == names[:6]


def test_every_weight_of_every_rank_is_measured() -> None:
    gemms = {(p.k, p.n) for p in points(tensor=(1, 2)) if p.op == "gemm"}
    assert gemms == {
        (4096, 6144), (4096, 4096), (4096, 28672), (14336, 4096), (4096, 128256),
        (4096, 3072), (2048, 4096), (4096, 14336), (7168, 4096), (4096, 64128),
    }  # fmt: skip


def test_the_head_is_measured_with_sequences_only() -> None:
    assert max(p.m for p in points() if p.op == "gemm" and p.n == 128256) == 256
    assert max(p.m for p in points() if p.op == "gemm" and p.n == 4096) == 8192


def test_tile_edges_are_probed() -> None:
    sizes = {p.m for p in points() if p.op == "gemm" and p.n == 6144}
    assert {128, 129, 256, 257, 2048, 2049} <= sizes


def test_heads_follow_the_tensor_parallel_sizes() -> None:
    attention = [p for p in points(tensor=(1, 4)) if p.op == "attention"]
    assert {(p.q_heads, p.kv_heads, p.head_dim) for p in attention} == {(32, 8, 128), (8, 2, 128)}


def test_prefill_decode_skewed_and_mixed_batches_are_all_there() -> None:
    attention = [p for p in points() if p.op == "attention"]
    prefill = [p for p in attention if not p.num_decodes]
    decode = [p for p in attention if not p.num_chunks]
    mixed = [p for p in attention if p.num_chunks and p.num_decodes]
    assert min(len(prefill), len(decode), len(mixed)) >= 60
    skewed = [p for p in decode if p.decode_kv_max_tokens * p.num_decodes > 1.5 * p.decode_kv_tokens]
    assert len(skewed) >= 10
    assert sum(p.flags == OFF_GRID for p in attention) >= 10


@pytest.mark.parametrize("longest", [700, 4096, 131072])
def test_no_sequence_is_longer_than_the_limit_nor_a_batch_than_the_pool(longest: int) -> None:
    for p in points(longest=longest):
        if p.op == "attention":
            assert p.chunk_tokens + p.prefix_tokens <= longest
            assert p.decode_kv_max_tokens <= longest
            assert p.decode_kv_tokens <= FULL.max_kv_tokens
            assert p.decode_kv_max_tokens * p.num_decodes >= p.decode_kv_tokens


def test_each_point_once_a_pass() -> None:
    keys = [row_key(p) for p in points(tensor=(1, 2), passes=2)]
    assert len(keys) == len(set(keys))
    assert {key[-1] for key in keys} == {"1", "2"}


def test_the_grid_is_the_same_every_time() -> None:
    assert points(TINY, axes=SMALL) == points(TINY, axes=SMALL)


def test_messages_between_gpus_only_where_there_are_several() -> None:
    assert not [p for p in points() if p.op in ("all_reduce", "send_recv")]
    groups = {(p.op, p.world_size) for p in points(tensor=(1, 4)) if p.message_bytes}
    assert groups == {("all_reduce", 4), ("send_recv", 2)}


def test_a_sliding_window_is_part_of_the_shape() -> None:
    mistral = load_model("mistral-7b").model_copy(update={"sliding_window": 4096})
    assert {p.window for p in points(mistral) if p.op == "attention"} == {4096}


def test_a_split_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ConfigError, match="num_heads 32, which 3 ranks cannot share"):
        points(tensor=(3,))


def job(**changes) -> ProfileJob:
    return ProfileJob(**{"model": LLAMA, "out": Path("none"), "gpu": "h200_sxm", **changes})


def test_the_dry_run_counts_points_and_seconds() -> None:
    gpu, blocks = dry_run(job(passes=1))
    assert gpu == "h200_sxm"
    assert sum(block.points for block in blocks) == len(points())
    assert 15 < sum(block.seconds for block in blocks) < 120


def test_a_slower_gpu_takes_longer() -> None:
    seconds = [sum(b.seconds for b in dry_run(job(gpu=gpu))[1]) for gpu in ("h200_sxm", "a40")]
    assert seconds[0] < seconds[1]


def test_only_the_operators_asked_for() -> None:
    assert {p.op for block in job(ops=("attention", "host")).blocks() for p in block.points} == {
        "attention",
        "host",
    }
    with pytest.raises(ConfigError, match=r"unknown operator 'gem'.*did you mean 'gemm'"):
        job(ops=("gem",)).blocks()


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("NVIDIA H200", "h200_sxm"),
        ("NVIDIA H100 80GB HBM3", "h100_sxm"),
        ("NVIDIA A100-SXM4-80GB", "a100_80gb_sxm"),
        ("NVIDIA A100 80GB PCIe", "a100_80gb_pcie"),
        ("NVIDIA A40", "a40"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx_pro_6000"),
    ],
)
def test_the_preset_is_found_from_the_devices_name(name: str, preset: str) -> None:
    assert gpu_preset(name) == preset
    assert load_gpu(preset).name == preset


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 4090", "NVIDIA A4000", "NVIDIA A100-SXM4-40GB"])
def test_an_unknown_gpu_must_be_named(name: str) -> None:
    with pytest.raises(ConfigError, match="name one with --gpu"):
        gpu_preset(name)
