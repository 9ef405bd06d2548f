"""The shipped artefacts, and what a damaged one says."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import numpy as np
import pytest

from simulator.errors import CalibrationError
from simulator.hardware import LinkSpec
from simulator.latency.build import find_artefact
from simulator.latency.fitted import FittedKernels
from simulator.latency.kernels import AttentionHeads
from simulator.latency.roofline import RooflineKernels
from simulator.load import load_gpu
from simulator.resources import config_path, list_configs

LLAMA = AttentionHeads(32, 8, 128)
NVLINK = LinkSpec(bandwidth_gbps=450, latency_us=5)
SHIPPED = [name for name in list_configs("kernels") if name != "niyama-a100-llama3-8b"]
US = 1e6


def shipped(name: str) -> FittedKernels:
    return FittedKernels.load(config_path("kernels", name), load_gpu(name))


@pytest.fixture(scope="module")
def h100() -> FittedKernels:
    return shipped("h100_sxm")


def test_measured_gpus_are_shipped() -> None:
    assert {"a100_80gb_sxm", "h100_sxm", "h200_sxm"} <= set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_an_artefact_is_small_loads_fast_and_says_where_it_comes_from(name: str) -> None:
    path = config_path("kernels", name)
    assert path.stat().st_size < 300 * 1024
    began = time.process_time()
    kernels = shipped(name)
    assert time.process_time() - began < 0.05
    artefact = json.loads(path.read_text())
    assert artefact["licence"]
    assert artefact["sources"]
    assert artefact["gpu"] == load_gpu(name).name
    assert any(artefact["sources"][0] in note for note in kernels.notes)


@pytest.mark.parametrize("name", SHIPPED)
def test_times_are_positive_and_grow_with_work(name: str) -> None:
    kernels = shipped(name)
    gemm = kernels.gemm_s(np.array([1.0, 64, 1024, 16384]), 4096, 4096)
    assert (gemm > 0).all()
    assert (np.diff(gemm[1:]) > 0).all()
    chunks = kernels.prefill_attention_s(np.array([512.0] * 4), np.array([0.0, 2048, 8192, 65536]), LLAMA)
    assert (np.diff(chunks) > 0).all()
    decodes = kernels.decode_attention_s(np.array([32.0] * 4), np.array([64.0, 1024, 8192, 131072]), LLAMA)
    assert (np.diff(decodes) > 0).all()


def test_measured_points_are_met(h100: FittedKernels) -> None:
    """Medians of AIConfigurator's table: 4096 x 4096 weights, 32 query and 8 KV heads of 128."""
    gemm = h100.gemm_s(np.array([1.0, 256, 1024, 8192]), 4096, 4096) * US
    np.testing.assert_allclose(gemm, [15.0, 19.6, 43.1, 347.0], rtol=0.1)
    prefill = h100.prefill_attention_s(np.array([512.0, 2048, 8192]), np.zeros(3), LLAMA) * US
    np.testing.assert_allclose(prefill, [22.0, 89.0, 912.2], rtol=0.1)
    decode = h100.decode_attention_s(np.array([8.0, 64, 128]), np.array([2048.0, 1024, 4096]), LLAMA) * US
    np.testing.assert_allclose(decode, [40.4, 119.4, 689.8], rtol=0.1)
    all_reduce = h100.all_reduce_s(np.array([2.0**20, 2.0**25]), 4, NVLINK) * US
    np.testing.assert_allclose(all_reduce, [12.8, 191.2], rtol=0.01)


def test_many_shapes_take_milliseconds(h100: FittedKernels) -> None:
    m = np.arange(1.0, 4097)
    h100.gemm_s(m, 5120, 1000)
    began = time.process_time()
    h100.gemm_s(m, 5120, 1000)
    assert time.process_time() - began < 0.05


def test_the_lattice_agrees_with_the_trees_in_few_and_many_questions(h100: FittedKernels) -> None:
    few = np.array([h100.gemm_s(np.array([m]), 4096, 14336)[0] for m in (3.0, 130.0, 700.0, 4000.0)])
    other = shipped("h100_sxm")
    many = other.gemm_s(np.arange(1.0, 20000), 4096, 14336)[[2, 129, 699, 3999]]
    np.testing.assert_allclose(few, many, rtol=1e-12)


def test_what_was_measured_is_known(h100: FittedKernels) -> None:
    assert h100.gemm_range(4096, 4096) == 32768
    assert h100.gemm_range(4097, 4096) is None
    known = h100.attention_range(LLAMA)
    assert (known.max_chunk, known.max_num_decodes, known.measured_heads) == (16384, 2048, True)
    assert not h100.attention_range(AttentionHeads(7, 7, 128)).measured_heads


def test_a_prefix_costs_its_keys_once_for_each_wave_of_queries(h100: FittedKernels) -> None:
    chunk = np.array([64.0, 64.0, 2048.0, 2048.0])
    prefix = np.array([0.0, 4096.0, 0.0, 4096.0])
    time_us = h100.prefill_attention_s(chunk, prefix, LLAMA) * US
    small, large = time_us[1] - time_us[0], time_us[3] - time_us[2]
    assert large == pytest.approx(8 * small, rel=0.05)  # 32 x 32 tiles fill 132 SMs eight times


def test_a_window_bounds_what_is_attended(h100: FittedKernels) -> None:
    windowed = AttentionHeads(32, 8, 128, window=4096)
    near, far = h100.decode_attention_s(np.array([16.0, 16.0]), np.array([4096.0, 100_000.0]), windowed)
    assert near == far


def test_mixed_batches_are_left_to_the_sum_where_they_were_not_measured(h100: FittedKernels) -> None:
    one = np.ones(1)
    assert h100.mixed_attention_s(one, one, one, one, LLAMA) is None


def test_what_an_artefact_lacks_comes_from_the_roofline_and_is_said(h100: FittedKernels) -> None:
    roofline = RooflineKernels(load_gpu("h100_sxm"))
    tokens = np.array([1.0, 512.0])
    assert (
        h100.elementwise_s("rmsnorm", tokens, 4096).tolist()
        == roofline.elementwise_s("rmsnorm", tokens, 4096).tolist()
    )
    assert any("rmsnorm" in note and "roofline in their stead" in note for note in h100.notes)


def test_its_errors_are_stated_and_are_wider_beyond_what_was_measured(h100: FittedKernels) -> None:
    (note,) = [note for note in h100.notes if "mean error" in note]
    assert re.search(r"gemm \d\.\d %, prefill .* decode .*; beyond the largest measured: gemm ", note)


def test_a_collective_over_another_kind_of_link_is_not_taken(h100: FittedKernels) -> None:
    ethernet = LinkSpec(bandwidth_gbps=12.5, latency_us=30)
    roofline = RooflineKernels(load_gpu("h100_sxm"))
    size = np.array([2.0**20])
    assert h100.all_reduce_s(size, 4, ethernet).tolist() == roofline.all_reduce_s(size, 4, ethernet).tolist()


def test_an_artefact_on_another_gpu_is_said_to_be_so() -> None:
    kernels = FittedKernels.load(config_path("kernels", "h100_sxm"), load_gpu("l40s"))
    assert any("measured on h100_sxm, the scenario has l40s" in note for note in kernels.notes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "batch"}, "kind must be 'kernels' \\(found 'batch'\\)"),
        ({"schema_version": 9}, "schema_version must be 1 \\(found 9\\): fit it again"),
        ({"features_version": 0}, "features_version must be 1 \\(found 0\\)"),
        ({"device": {"tflops": 1}}, "damaged artefact: TypeError"),
        ({"decode": {}}, "damaged artefact: KeyError: 'trees'"),
        ({"gemm": {"trees": {"baseline": 0}}}, "damaged artefact: KeyError"),
        (
            {"collectives": [{"op": "all_reduce", "world_size": 2, "bytes": [1], "us": [1]}]},
            "damaged artefact",
        ),
    ],
)
def test_a_damaged_artefact_is_named(tmp_path: Path, change: dict[str, object], message: str) -> None:
    artefact = json.loads(config_path("kernels", "h100_sxm").read_text()) | change
    path = tmp_path / "x.json"
    path.write_text(json.dumps(artefact))
    with pytest.raises(CalibrationError, match=message):
        FittedKernels.load(path, load_gpu("h100_sxm"))


@pytest.mark.parametrize("text", ["", "{", "[1]", "null"])
def test_what_is_no_artefact_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(CalibrationError, match=r"x\.json"):
        FittedKernels.load(path, load_gpu("h100_sxm"))


def test_a_cut_tree_is_named(tmp_path: Path) -> None:
    artefact = json.loads(config_path("kernels", "h100_sxm").read_text())
    artefact["gemm"]["trees"]["rank"] = artefact["gemm"]["trees"]["rank"][:-8]
    path = tmp_path / "x.json"
    path.write_text(json.dumps(artefact))
    with pytest.raises(CalibrationError, match="damaged artefact"):
        FittedKernels.load(path, load_gpu("h100_sxm"))


def test_a_window_leaves_unequal_lengths_alone() -> None:
    """Beyond it all sequences attend as much, and of a batch it is not known which are beyond it."""
    gpu = load_gpu("rtx_pro_6000")
    path = find_artefact("auto", gpu)
    assert path is not None
    measured = FittedKernels.load(path, gpu)
    assert measured.uneven_slowdown(LLAMA) is not None
    assert measured.uneven_slowdown(AttentionHeads(32, 8, 128, window=4096)) is None
