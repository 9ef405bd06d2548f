"""Judging fits: what is held out, the statistics, the plainer predictions, and the public tables' targets."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from profiler.evaluate import evaluate, evaluate_table
from profiler.families import MIXED, Family, families
from profiler.fit import device_of, fit_family
from profiler.import_.llmservingsim import import_llmservingsim
from profiler.import_.vidur import import_vidur
from profiler.makespan import parse_lengths
from profiler.makespan import slowdown as scheduled
from profiler.splits import held_out
from profiler.tables import KernelRow, KernelTable, TableMeta
from simulator.batch import BatchShape
from simulator.errors import InputError
from simulator.latency.uneven import UnevenSlowdown

META = TableMeta(device="h100_sxm")
HEADS = {"q_heads": 32, "kv_heads": 8, "head_dim": 128}


def gemm_table(noise: float = 0.0) -> KernelTable:
    rng = np.random.default_rng(0)
    rows = [
        KernelRow(
            "gemm",
            m=m,
            n=n,
            k=k,
            latency_us=(3 + 2e-9 * m * n * k + 1e-6 * n * k) * float(np.exp(noise * rng.normal())),
        )
        for m, n, k in product(
            (1, 4, 16, 64, 256, 1024, 4096), (1024, 2048, 4096, 8192, 16384), (1024, 2048, 4096, 8192, 16384)
        )
    ]
    return KernelTable.from_rows(META, rows, "made up")


def gemm_family() -> Family:
    (family,) = families(gemm_table(), device_of("h100_sxm"))
    return family


def test_axis_folds_hold_out_whole_inner_values() -> None:
    family = gemm_family()
    m_folds = [mask for axis, mask in held_out(family, "axes") if axis == "m"]
    assert len(m_folds) == 5
    for mask in m_folds:
        held = set(family.sizes["m"][mask])
        assert held
        assert not held & set(family.sizes["m"][~mask])
        assert not held & {1.0, 4096.0}
    assert np.sum(m_folds) == 5 * 25


def test_shape_folds_hold_out_whole_weights() -> None:
    family = gemm_family()
    folds = [mask for _, mask in held_out(family, "shapes")]
    weights = list(zip(family.sizes["n"], family.sizes["k"], strict=True))
    for mask in folds:
        held = {weight for weight, out in zip(weights, mask, strict=True) if out}
        assert not held & {weight for weight, out in zip(weights, mask, strict=True) if not out}
    assert np.sum(folds, axis=0).tolist() == [1] * len(family)


def test_random_folds_partition_the_points() -> None:
    assert np.sum([mask for _, mask in held_out(gemm_family(), "random")], axis=0).tolist() == [1] * 175


def test_beyond_holds_out_the_largest() -> None:
    family = gemm_family()
    assert {axis: set(family.sizes[axis][mask]) for axis, mask in held_out(family, "beyond")} == {
        "m": {4096.0},
        "n": {16384.0},
        "k": {16384.0},
    }


def test_short_axes_are_not_held_out() -> None:
    rows = [KernelRow("gemm", m=m, n=n, k=4096, latency_us=m + n) for m in (1, 2, 3) for n in (1, 2, 3)]
    (family,) = families(KernelTable.from_rows(META, rows), device_of("h100_sxm"))
    assert list(held_out(family, "axes")) == []
    assert list(held_out(family, "shapes")) == []


def test_the_report_compares_three_methods_under_every_split() -> None:
    report = evaluate(gemm_table(noise=0.01), folds=1, splits=("random", "axes"))
    document = json.loads(json.dumps(report.to_dict()))
    methods = {(row["split"], row["method"]) for row in document["rows"]}
    assert {(s, m) for s in ("random", "axes") for m in ("ours", "random forest", "interpolation")} <= methods
    assert report.get("gemm", "axes").mape < report.get("gemm", "axes", "random forest").mape / 2
    assert len(report.lines()) == 2 + len(report.rows)
    with pytest.raises(KeyError, match="no decode points"):
        report.get("decode", "axes")


def test_interpolation_is_exact_for_powers() -> None:
    rows = [
        KernelRow("gemm", m=m, n=n, k=1024, latency_us=0.001 * m * n)
        for m, n in product((1023, 2047, 4095, 8191, 16383, 32767), (1024, 2048))
    ]
    report = evaluate(KernelTable.from_rows(META, rows), folds=5, splits=("axes",))
    assert report.get("gemm", "axes", "interpolation").mape < 0.1  # sizes enter as log(1 + size)


def test_bias_has_a_sign() -> None:
    rows = [
        KernelRow("gemm", m=m, n=4096, k=4096, latency_us=1000.0 if m == 4096 else 10.0)
        for m in (1, 4, 16, 64, 256, 1024, 4096)
    ]
    report = evaluate(KernelTable.from_rows(META, rows), splits=("beyond",))
    assert report.get("gemm", "beyond", "random forest").bias == pytest.approx(-99.0)


def test_a_longer_sequence_slows_a_launch_down_when_few_waves_hide_it() -> None:
    few = scheduled(188, 32, 16, 0, [100] * 3 + [4000])
    many = scheduled(188, 32, 16, 0, [100] * 127 + [4000])
    assert few > 2 > many > 1
    assert scheduled(188, 32, 512, 512, [700] * 9) == 1


def closed(chunk: int, prefix: int, lengths: list[int]) -> float:
    """The simulator's answer, which knows the lengths' number, sum, sum of squares and maximum."""
    return UnevenSlowdown(188, 32, 8).at(chunk, prefix, *BatchShape.of(decode_kv=tuple(lengths))[1:5])


def test_the_closed_form_is_the_schedule_of_a_single_wave() -> None:
    for chunk, lengths in product((16, 64, 128), ([100, 4000], [700, 300], [5000, 100, 100])):
        assert closed(chunk, 512, lengths) == scheduled(188, 32, chunk, 512, lengths)


def test_the_closed_form_follows_the_schedule_of_two_lengths() -> None:
    rng = np.random.default_rng(0)
    errors = []
    for _ in range(300):
        short, decodes = int(rng.integers(100, 4000)), int(2 ** rng.uniform(1, 7.5))
        lengths = [short] * decodes + [4 * short] * int(rng.integers(1, decodes + 1))
        rng.shuffle(lengths)
        chunk, prefix = int(2 ** rng.uniform(4, 11)), int(rng.integers(0, 8000))
        errors.append(closed(chunk, prefix, lengths) / scheduled(188, 32, chunk, prefix, lengths) - 1)
    assert abs(np.median(errors)) < 0.01
    assert np.quantile(np.abs(errors), 0.9) < 0.05


@pytest.mark.parametrize("sigma", [0.4, 0.8, 1.2])
def test_two_lengths_stand_for_many(sigma: float) -> None:
    rng = np.random.default_rng(0)
    errors = []
    for _ in range(100):
        lengths = [
            1 + int(min(16000, x)) for x in rng.lognormal(6.5, sigma, size=int(2 ** rng.uniform(2, 7)))
        ]
        chunk, prefix = int(2 ** rng.uniform(4, 11)), int(rng.integers(0, 4000))
        errors.append(closed(chunk, prefix, lengths) / scheduled(188, 32, chunk, prefix, lengths) - 1)
    assert abs(np.mean(errors)) < 0.02
    assert np.quantile(np.abs(errors), 0.9) < 0.06


def test_equal_lengths_and_split_decodes_are_not_slowed_down() -> None:
    assert closed(512, 0, [700] * 9) == 1
    assert closed(0, 0, [100] * 20 + [4000]) == 1
    assert closed(0, 0, [100] * 100 + [4000]) > 1


def test_lengths_are_read() -> None:
    assert parse_lengths("2x100 1x401") == [100, 100, 401]
    with pytest.raises(InputError, match=r"'2\*100' is not of the form COUNTxLENGTH"):
        parse_lengths("2*100")


def test_unequal_batches_are_predicted_from_equal_ones() -> None:
    def row(decodes: int, kv: int, lengths: str = "", longest: int = 0) -> KernelRow:
        chunk = {"num_chunks": 1, "chunk_tokens": 64}
        return KernelRow(
            "attention",
            **chunk,
            **HEADS,
            num_decodes=decodes,
            decode_kv_tokens=decodes * kv,
            decode_kv_max_tokens=longest or kv,
            decode_kv_lengths=lengths,
            latency_us=5 + decodes * kv / 1e3,
        )

    equal = [row(n, kv) for n, kv in product((2, 4, 8, 16, 32), (128, 256, 512, 1024, 2048))]
    report = evaluate(KernelTable.from_rows(META, [*equal, row(4, 512, "3x100 1x1748", 1748)]), splits=())
    assert {row.method for row in report.rows if row.split == "unequal"} == {
        "mean",
        "two lengths",
        "all lengths",
    }


@pytest.fixture(scope="module")
def vidur_attention(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> KernelTable:
    folder = tmp_path_factory.mktemp("vidur")
    for name in ("linear_ops.csv", "network.csv"):
        lines = (shared_data / "kernels_vidur" / name).read_text().splitlines()
        (folder / name).write_text("\n".join(lines[:20]))
    attention = "a100_flash_attention_32q_4kv"
    (folder / attention).symlink_to(shared_data / "kernels_vidur" / attention)
    import_vidur(folder, folder / "out")
    return KernelTable.read(folder / "out" / "a100_80gb_pcie-attention")


@pytest.fixture(scope="module")
def servingsim(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> KernelTable:
    out = tmp_path_factory.mktemp("servingsim") / "table"
    import_llmservingsim(shared_data / "vllm_rtxpro6000_llama31_8b" / "profile", out)
    return KernelTable.read(out)


def error_quantiles(family: Family, mask: np.ndarray) -> tuple[float, float]:
    """Median and 90th percentile of the relative error, in per cent, of the masked points."""
    test = family.where(mask)
    relative = np.abs(fit_family(family.where(~mask)).predict_us(test) / test.latency_us - 1)
    return 100 * float(np.quantile(relative, 0.5)), 100 * float(np.quantile(relative, 0.9))


def test_flash_attention_with_whole_chunks_and_prefixes_held_out(vidur_attention: KernelTable) -> None:
    prefill = families(vidur_attention, device_of("a100_80gb_pcie"))[0]
    chunks = next(mask for axis, mask in held_out(prefill, "axes") if axis == "chunk")
    prefixes = next(mask for axis, mask in held_out(prefill, "axes") if axis == "prefix")
    p50, p90 = error_quantiles(prefill, chunks | prefixes)
    assert p50 <= 3
    assert p90 <= 10


def test_mixed_batches_with_chunks_between_powers_of_two_held_out(servingsim: KernelTable) -> None:
    mixed = {f.kind.name: f for f in families(servingsim, device_of("rtx_pro_6000"))}[MIXED.name]
    equal = mixed.where(np.isclose(mixed.sizes["kv_max"], mixed.sizes["kv_mean"]))
    p50, p90 = error_quantiles(equal, np.log2(equal.sizes["chunk"]) % 1 > 0)
    assert p50 <= 1.2
    assert p90 <= 6


def test_unequal_lengths_from_the_table_of_equal_ones(servingsim: KernelTable) -> None:
    rows = {row.method: row for row in evaluate(servingsim, splits=()).rows if row.split == "unequal"}
    for way in ("two lengths", "all lengths"):
        assert rows[way].p50 <= 3
        assert rows[way].p90 <= 10


def test_a_table_on_disk_is_judged(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a kernel table"):
        evaluate_table(tmp_path)
