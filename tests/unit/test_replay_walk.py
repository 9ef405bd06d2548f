"""The whole path on a CPU: profile a tiny model, fit the table, simulate with the fit, replay on kernels."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="profiling needs torch: pip install 'stallfree[profile]'")

from profiler.grid import GRIDS, SMALL
from profiler.tables import KernelTable
from simulator.cli import main
from simulator.latency import build_latency
from simulator.load import load_scenario

NOISE_PCT = (-60.0, 150.0)
"""A CPU that others share halves or doubles its speed between two steps of the walk; one layer counted
in place of four, or a unit mistaken, would lie outside."""


WITHIN_BUDGET = replace(
    SMALL,
    chunk=(1, 8, 16, 32, 48, 64),
    prefix=(0, 64, 128, 256, 448),
    decodes=(1, 2, 4, 8, 12, 16),
    kv=(32, 128, 256, 512),
    mixed_chunk=(16, 48),
    mixed_decodes=(2, 8, 16),
    tokens=(1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 80),
    elementwise_tokens=(1, 4, 16, 64, 80),
)
"""What batches of at most 64 prompt tokens need, to keep the walk short."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A profiled and fitted table."""
    out = tmp_path_factory.mktemp("walk") / "table"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(GRIDS, "small", WITHIN_BUDGET)
        assert main(f"profile --model tiny --device cpu --passes 1 --quiet --out {out}".split()) == 0
    assert main(f"kernels fit {out} --quiet".split()) == 0
    return out


def command(capsys, line: str) -> dict:
    assert main(f"{line} --quiet --json".split()) == 0
    return json.loads(capsys.readouterr().out)


def test_the_fit_knows_what_was_measured(folder: Path) -> None:
    scenario = load_scenario("tiny-cpu", [f"kernels={folder}"])
    latency = build_latency(scenario)
    assert not [note for note in latency.notes if "not measured" in note]
    ops = set(KernelTable.read(folder)["op"].tolist())
    assert {"gemm", "attention", "rmsnorm", "rope", "activation", "kv_write", "embedding", "sampler"} <= ops


def test_a_simulation_runs_on_the_fit(folder: Path, capsys) -> None:
    document = command(capsys, f"simulate tiny-cpu --set kernels={folder}")
    assert "measured by stallfree profile" in json.dumps(document)


def test_the_replay_finds_the_prediction_near(folder: Path, capsys) -> None:
    document = command(capsys, f"replay tiny-cpu --device cpu --sample 20 --set kernels={folder}")
    assert set(document["by_composition"]) == {"decode", "prefill", "mixed"}
    assert 0 < document["iteration_error_pct"]["p50"] <= document["iteration_error_pct"]["p90"]
    assert NOISE_PCT[0] < document["iteration_error_pct"]["bias"] < NOISE_PCT[1]
