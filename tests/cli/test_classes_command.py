"""Classes of requests from a scenario file to the answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

MIXED = """
model: llama-3-8b
gpu: h100_sxm
kernels: roofline
replicas: 2
routing: power_of_two
workload:
  mix:
    chat: {share: 3, lengths: {prompt: 200, output: 20}}
    batch: {lengths: {prompt: 4000, output: 5}}
  arrivals: on_off
  on_off: {on_s: 1, off_s: 3}
  rate_rps: 8
  num_requests: 64
slo:
  chat: {p99_tbt_ms: 100}
  batch: {p50_ttft_ms: 1}
"""


@pytest.fixture
def mixed(tmp_path: Path) -> str:
    """A scenario file of two classes."""
    path = tmp_path / "mixed.yaml"
    path.write_text(MIXED, encoding="utf-8")
    return str(path)


def test_each_class_has_its_latencies_and_its_slo(stallfree, mixed):
    answer = json.loads(stallfree("simulate", mixed, "--json").out)
    assert set(answer["classes"]) == {"chat", "batch"}
    assert answer["violations"] == ["batch.p50_ttft_ms"]
    text = stallfree("simulate", mixed).out
    assert "the SLO is broken: median TTFT of batch" in text.splitlines()[0]
    assert "\nClass chat:\n" in text


def test_an_override_reaches_the_bound_of_a_class(stallfree, mixed):
    kept = stallfree("simulate", mixed, "--json", "--set", "slo.batch.p50_ttft_ms=60000")
    assert json.loads(kept.out)["violations"] == []
    unknown = stallfree("simulate", mixed, "--set", "slo.bach.p50_ttft_ms=60")
    assert unknown.code == 2
    assert "no class 'bach' (did you mean 'batch'?)" in unknown.err


def test_a_capacity_holds_the_slo_of_every_class(stallfree, mixed):
    changes = ("--set", "slo.batch.p50_ttft_ms=400", "--set", "slo.chat=null")
    outcome = stallfree("capacity", mixed, "--runs", "1", "--no-store", "--jobs", "1", "--json", *changes)
    assert outcome.code == 0
    answer = json.loads(outcome.out)
    assert set(answer["scenario"]["slo"]) == {"batch.p50_ttft_ms", "p50_scheduling_delay_s"}
    assert answer["at_capacity"]["classes"]["batch"]["metrics"]["ttft_s"]["p50"] <= 0.4
