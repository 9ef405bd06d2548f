"""The analytic roofline: physical limits, tile steps, and its distance from public operator measurements."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from simulator.hardware import LinkSpec
from simulator.latency.kernels import AttentionHeads
from simulator.latency.roofline import RooflineKernels
from simulator.load import load_gpu, load_model

HEADS = AttentionHeads(q_heads=32, kv_heads=8, head_dim=128)
LINK = LinkSpec(bandwidth_gbps=300, latency_us=5)
GPUS = ("a100_80gb_sxm", "h100_sxm", "a40")


def kernels(gpu: str = "a100_80gb_sxm") -> RooflineKernels:
    return RooflineKernels(load_gpu(gpu))


def sizes(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)


@pytest.mark.parametrize("gpu", GPUS)
def test_no_product_beats_the_hardware(gpu):
    spec = load_gpu(gpu)
    m = np.arange(1.0, 4097.0)
    for n, k in ((6144, 4096), (4096, 14336), (1280, 8192)):
        seconds = kernels(gpu).gemm_s(m, n, k)
        assert np.all(2 * m * n * k / seconds <= spec.tflops_bf16 * 1e12)
        assert np.all(2 * n * k / seconds <= spec.memory_bandwidth_gbps * 1e9)


def test_a_large_product_reaches_most_of_the_peak():
    spec = load_gpu("h100_sxm")
    seconds = kernels("h100_sxm").gemm_s(sizes(8192), 8192, 8192)[0]
    assert 0.6 < 2 * 8192**3 / seconds / (spec.tflops_bf16 * 1e12) < 0.85


def test_one_token_more_than_a_tile_costs_another_wave():
    """A chunk of 257 instead of 256 tokens takes 32 % longer on an A100 (Sarathi-Serve, section 4.3).

    The roofline assumes the best tile for every size, so it sees half of that step.
    """
    ops = load_model("llama-3-8b").linear_ops(1)
    at_256, at_257 = sum(kernels().gemm_s(sizes(256, 257), op.n, op.k) for op in ops)
    assert 1.1 < at_257 / at_256 < 1.5


def test_more_rows_are_never_cheaper():
    seconds = kernels().gemm_s(np.arange(1.0, 8193.0), 6144, 4096)
    assert np.all(np.diff(seconds) >= 0)


def test_attention_over_a_long_prefix_costs_the_pairs_it_computes():
    chunk, prefix = sizes(512, 512), sizes(32768, 65536)
    near, far = kernels().prefill_attention_s(chunk, prefix, HEADS)
    assert far / near == pytest.approx(2, rel=0.02)


def test_a_chunk_pays_for_its_prefix():
    """Eight chunks of 1,024 tokens compute the pairs of one prompt of 8,192, and read its KV repeatedly."""
    starts = np.arange(0.0, 8192.0, 1024.0)
    chunked = kernels().prefill_attention_s(np.full(8, 1024.0), starts, HEADS).sum()
    whole = kernels().prefill_attention_s(sizes(8192), sizes(0), HEADS)[0]
    assert 1 < chunked / whole < 1.25


def test_decodes_read_their_kv_once():
    spec = load_gpu("a100_80gb_sxm")
    seconds = kernels().decode_attention_s(sizes(64), sizes(4096), HEADS)[0]
    bandwidth = 64 * 4096 * 2 * 8 * 128 * 2 / seconds
    assert 0.6 * spec.memory_bandwidth_gbps * 1e9 < bandwidth < spec.memory_bandwidth_gbps * 1e9


def test_a_sliding_window_bounds_the_context():
    window = AttentionHeads(32, 8, 128, window=4096)
    lengths = sizes(4096, 65536)
    near, far = kernels().decode_attention_s(sizes(8, 8), lengths, window)
    assert near == far
    near, far = kernels().prefill_attention_s(sizes(512, 512), lengths, window)
    assert near == pytest.approx(far)


def test_an_all_reduce_moves_nearly_twice_the_message():
    message = sizes(2**30)
    pair, eight = (kernels().all_reduce_s(message, ranks, LINK)[0] for ranks in (2, 8))
    assert eight / pair == pytest.approx(7 / 4, rel=0.01)
    assert pair > 2**30 / 300e9


def test_small_messages_cost_latency():
    assert kernels().all_reduce_s(sizes(2), 8, LINK)[0] > 3 * 5e-6
    assert kernels().send_recv_s(sizes(2), LINK)[0] > 5e-6


def test_elementwise_time_is_bytes_over_bandwidth():
    spec = load_gpu("a100_80gb_sxm")
    few, many = kernels().elementwise_s("rmsnorm", sizes(4096, 8192), 8192)
    assert many - few == pytest.approx(
        4 * 2 * 4096 * 8192 / (spec.memory_bandwidth_gbps * 1e9 * spec.memory_efficiency)
    )


def test_a_formula_has_no_range_to_leave():
    assert kernels().gemm_range(1, 1) > 10**9
    assert kernels().attention_range(HEADS).max_kv > 10**9


@pytest.mark.parametrize(("gpu", "largest_error"), [("a100", 0.10), ("h100", 0.12), ("a40", 0.12)])
def test_products_are_near_the_public_operator_table(shared_data, gpu, largest_error):
    rows = products(shared_data / "kernels_vidur" / "linear_ops.csv", gpu)
    roofline = kernels({"a100": "a100_80gb_sxm", "h100": "h100_sxm", "a40": "a40"}[gpu])
    errors = []
    for n, k in {(n, k) for _, n, k, _ in rows}:
        m, measured = np.array([(m, seconds) for m, n_, k_, seconds in rows if (n_, k_) == (n, k)]).T
        errors.append(roofline.gemm_s(m, n, k) / measured - 1)
    mape = np.abs(np.concatenate(errors)).mean()
    assert mape < largest_error


def products(path: Path, gpu: str) -> list[tuple[int, int, int, float]]:
    """(m, n, k, seconds) of the gated models' products with grouped heads divisible over the ranks."""
    found = []
    with path.open() as lines:
        for row in csv.DictReader(lines):
            ranks, heads = int(row["tp"]), int(row["n_head"])
            if row["gpu"] != gpu or heads % ranks or row["use_gated_mlp"].lower() != "true":
                continue
            hidden, inner, m = int(row["n_embd"]), int(row["n_expanded_embd"]) // ranks, int(row["tokens"])
            found.append((m, 2 * inner, hidden, float(row["mlp_up_proj_ms"]) * 1e-3))
            found.append((m, hidden, inner, float(row["mlp_down_proj_ms"]) * 1e-3))
            found.append((m, hidden, hidden // ranks, float(row["attn_post_proj_ms"]) * 1e-3))
    return found
