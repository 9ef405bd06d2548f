"""A run of vLLM 0.19 on an RTX PRO 6000, predicted from kernel tables and engine arguments alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

LIMITS_PCT = {"ttft_mean": 3.0, "tpot_mean": 1.0, "e2e_mean": 1.0, "makespan": 1.0, "per_request_e2e": 1.7}
CPU_S = 4.0
"""Twice what it takes, for machines that are busy."""

COMMAND = """
import resource, sys
from simulator.cli import main
code = main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture(scope="module")
def outcome(shared_data: Path) -> subprocess.CompletedProcess[str]:
    run = shared_data / "vllm_rtxpro6000_llama31_8b" / "requests.jsonl"
    arguments = ["validate", str(run), "vllm-rtxpro6000-llama31-8b", "--json"]
    command = [sys.executable, "-c", COMMAND, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def test_errors_are_within_their_limits(outcome: subprocess.CompletedProcess[str]):
    errors = json.loads(outcome.stdout)["errors_pct"]
    assert {key: errors[key] for key, limit in LIMITS_PCT.items() if abs(errors[key]) > limit} == {}


def test_running_and_waiting_are_as_they_were(outcome: subprocess.CompletedProcess[str]):
    timeline = json.loads(outcome.stdout)["timeline"]
    for level in (timeline["running"], timeline["waiting"]):
        distances = [abs(a - b) for a, b in zip(level["measured"], level["simulated"], strict=True)]
        assert sum(distances) / len(distances) < 3


def test_it_takes_a_moment(outcome: subprocess.CompletedProcess[str]):
    assert float(outcome.stderr.splitlines()[-1]) < CPU_S
