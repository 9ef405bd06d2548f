"""Runs the command line in this process on a scenario that takes a blink."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from simulator.cli import main

SMALL = """
model: llama-3-8b
gpu: h100_sxm
kernels: roofline
scheduler: {policy: stall_free, token_budget: 512, max_num_seqs: 32, max_model_len: 4096}
workload:
  lengths:
    prompt: {kind: uniform, low: 200, high: 2000}
    output: {kind: uniform, low: 2, high: 40}
  num_requests: 64
  rate_rps: 8
slo: {p99_tbt_ms: 30, p50_scheduling_delay_ms: 100}
"""


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def small(tmp_path: Path) -> str:
    """A scenario file of 64 short requests."""
    path = tmp_path / "small.yaml"
    path.write_text(SMALL, encoding="utf-8")
    return str(path)


@pytest.fixture
def stallfree(capsys: pytest.CaptureFixture[str]) -> Run:
    """`stallfree("simulate", path)` in this process."""

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = main(arguments)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run
