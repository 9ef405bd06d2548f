"""Fitting: trees survive the way into an artefact, laws of known kernels are learned, tables do not mix."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from profiler.boosting import Boosting, fit_trees
from profiler.fit import device_of, fit, fit_table
from profiler.tables import KernelRow, KernelTable, TableMeta, TableWriter
from simulator.errors import InputError
from simulator.latency.trees import BoostedTrees

BOOSTING = Boosting(max_trees=60, max_leaves=15, max_depth=6, learning_rate=0.2, max_min_leaf=5)
META = TableMeta(device="h100_sxm", backend="made up", licence="CC0-1.0", source="a formula")
DEVICE = device_of("h100_sxm")


def gemm_rows() -> list[KernelRow]:
    """A matrix product at 70 % of the roofline, with a launch of 3 us."""
    rows = []
    for m, n, k in product(2 ** np.arange(0, 14, 2), 1024 * np.arange(1, 6), 1024 * np.arange(1, 6)):
        flops, moved = 2.0 * m * n * k, 2.0 * (m * n + m * k + n * k)
        ideal = max(float(DEVICE.compute_us(flops)), float(DEVICE.memory_us(moved)))
        rows.append(KernelRow("gemm", "bf16", m=int(m), n=int(n), k=int(k), latency_us=3 + ideal / 0.7))
    return rows


def attention_rows(prefixes: tuple[int, ...] = (0,)) -> list[KernelRow]:
    heads = {"q_heads": 32, "kv_heads": 8, "head_dim": 128}
    rows = [
        KernelRow(
            "attention",
            "bf16",
            num_chunks=1,
            chunk_tokens=c,
            prefix_tokens=p,
            latency_us=5 + c * (p + c / 2) / 1e4,
            **heads,
        )
        for c, p in product((64, 256, 512, 1024, 2048), prefixes)
    ]
    rows += [
        KernelRow(
            "attention",
            "bf16",
            num_decodes=b,
            decode_kv_tokens=b * kv,
            decode_kv_max_tokens=kv,
            latency_us=5 + b * kv / 700,
            **heads,
        )
        for b, kv in product((1, 4, 16, 32, 64), (128, 512, 1024, 2048, 4096))
    ]
    return rows


def write(folder: Path, rows: list[KernelRow], meta: TableMeta = META) -> Path:
    with TableWriter(folder, meta) as writer:
        writer.append(*rows)
    return folder


def test_converted_trees_predict_what_scikit_learn_predicts() -> None:
    from sklearn.ensemble import HistGradientBoostingRegressor

    rng = np.random.default_rng(0)
    features = np.round(rng.normal(size=(500, 4)), 4)
    target = features[:, 0] * np.sin(features[:, 1]) + 0.1 * features[:, 2]
    trees = fit_trees(features, target, BOOSTING)
    theirs = HistGradientBoostingRegressor(
        max_iter=60,
        max_leaf_nodes=15,
        max_depth=6,
        learning_rate=0.2,
        min_samples_leaf=5,
        max_features=0.3,
        early_stopping=False,
        random_state=0,
    ).fit(features, target)
    np.testing.assert_allclose(trees.predict(features), theirs.predict(features), atol=1e-12)


def test_trees_survive_json() -> None:
    rng = np.random.default_rng(1)
    features = np.round(rng.normal(size=(400, 3)), 4)
    trees = fit_trees(features, features[:, 0] ** 2, BOOSTING)
    again = BoostedTrees.from_json(json.loads(json.dumps(trees.to_json())))
    np.testing.assert_allclose(again.predict(features), trees.predict(features), atol=0.002)


def test_a_table_too_small_for_trees_gives_its_median() -> None:
    trees = fit_trees(np.zeros((3, 2)), np.array([1.0, 2.0, 9.0]), BOOSTING)
    assert trees.predict(np.zeros((2, 2))).tolist() == [2.0, 2.0]


def test_a_formula_is_learned_between_its_points(tmp_path: Path) -> None:
    report = fit_table(write(tmp_path / "t", gemm_rows()), tmp_path / "made-up.json")
    mape, _ = report.errors["gemm"]["axes"]
    assert mape < 6
    assert report.points["gemm"] == 7 * 25


def test_fits_are_deterministic(tmp_path: Path) -> None:
    table = write(tmp_path / "t", attention_rows())
    fit_table(table, tmp_path / "a.json", name="x")
    fit_table(table, tmp_path / "b.json", name="x")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_an_artefact_tells_where_it_comes_from(tmp_path: Path) -> None:
    fit_table(write(tmp_path / "t", attention_rows()), tmp_path / "made-up.json")
    artefact = json.loads((tmp_path / "made-up.json").read_text())
    assert artefact["name"] == "made-up"
    assert artefact["gpu"] == "h100_sxm"
    assert artefact["licence"] == "CC0-1.0"
    assert artefact["sources"] == ["a formula (made up, CC0-1.0)"]
    assert artefact["prefill"]["prefix_fitted"] is False
    assert any("prefix were not measured" in note for note in artefact["notes"])


def test_prefixes_are_fitted_where_they_were_measured() -> None:
    table = KernelTable.from_rows(META, attention_rows((0, 512, 2048, 8192)))
    artefact, report = fit([table], "x")
    assert artefact["prefill"]["prefix_fitted"] is True
    assert artefact["prefill"]["max_prefix"] == 8192
    assert report.notes == ()


def test_repeated_passes_count_once() -> None:
    rows = gemm_rows()[:20]
    slow = [
        KernelRow("gemm", "bf16", m=r.m, n=r.n, k=r.k, latency_us=9 * r.latency_us, pass_id="2") for r in rows
    ]
    third = [
        KernelRow("gemm", "bf16", m=r.m, n=r.n, k=r.k, latency_us=r.latency_us, pass_id="3") for r in rows
    ]
    artefact, report = fit([KernelTable.from_rows(META, [*rows, *slow, *third])], "x")
    once, _ = fit([KernelTable.from_rows(META, rows)], "x")
    assert report.points["gemm"] == 20
    assert artefact["gemm"] == once["gemm"]


def test_rows_of_two_tables_never_meet_in_one_fit(tmp_path: Path) -> None:
    first = write(tmp_path / "a", gemm_rows()[:50])
    second = write(tmp_path / "b", gemm_rows()[:50], META.model_copy(update={"backend": "another"}))
    with pytest.raises(InputError, match="gemm rows are in more than one table"):
        fit_table([first, second], tmp_path / "x.json")


def test_attention_of_another_gpu_is_said_to_be_so(tmp_path: Path) -> None:
    gemm = write(tmp_path / "a", gemm_rows()[:50])
    attention = write(tmp_path / "b", attention_rows(), META.model_copy(update={"device": "a100_80gb_sxm"}))
    report = fit_table([gemm, attention], tmp_path / "x.json")
    assert any("measured on a100_80gb_sxm" in note for note in report.notes)


def test_collectives_keep_their_measured_points() -> None:
    rows = [
        KernelRow(
            "all_reduce",
            "bf16",
            message_bytes=2**p,
            world_size=4,
            topology="nvlink",
            latency_us=5 + 2**p / 1e5,
        )
        for p in range(10, 28)
    ]
    artefact, _ = fit([KernelTable.from_rows(META, rows)], "x")
    (curve,) = artefact["collectives"]
    assert curve["bytes"] == [2**p for p in range(10, 28)]
    assert curve["us"][0] == pytest.approx(5.01, abs=0.01)
    assert curve["bandwidth_gbps"] == pytest.approx(1.5 * 2**27 / (5 + 2**27 / 1e5) / 1e3, rel=0.01)


def test_off_grid_points_are_judged_apart() -> None:
    rows = attention_rows((0, 512, 2048))
    extra = [
        KernelRow(
            "attention",
            "bf16",
            num_decodes=3,
            decode_kv_tokens=3 * kv,
            decode_kv_max_tokens=kv,
            q_heads=32,
            kv_heads=8,
            head_dim=128,
            latency_us=5 + 3 * kv / 700,
            flags="off_grid",
        )
        for kv in (300, 700, 3000)
    ]
    _, report = fit([KernelTable.from_rows(META, [*rows, *extra])], "x")
    assert "off_grid" in report.errors["decode"]
    assert "points off the grid" in "\n".join(report.lines())


def test_an_unknown_device_is_named() -> None:
    table = KernelTable.from_rows(META.model_copy(update={"device": "h100"}), gemm_rows()[:5])
    with pytest.raises(Exception, match="h100"):
        fit([table], "x")


def test_a_table_that_says_nothing_is_no_profile(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"t.rows\.csv: it has no measurements"):
        fit_table(write(tmp_path / "t", []), tmp_path / "x.json")
    host = [KernelRow("host", m=m, latency_us=90) for m in (1, 8)]
    with pytest.raises(InputError, match="host: no measurements that can be fitted"):
        fit_table(write(tmp_path / "host", host), tmp_path / "x.json")
    assert not (tmp_path / "x.json").exists()
