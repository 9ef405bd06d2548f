"""The shipped traces: the published statistics, and the command that reproduces their bytes."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from simulator.workload.synthesise import TRACES
from simulator.workload.traces import find_trace, read_trace, shipped_traces

CHAT_PROMPT = {25: 580, 50: 1730, 75: 3734.5, 90: 5696, 95: 6563, 99: 7434}
CHAT_OUTPUT = {25: 228, 50: 415, 75: 628, 90: 834, 95: 920, 99: 998}


def test_every_shipped_trace_has_its_command() -> None:
    assert set(shipped_traces()) == set(TRACES) == {"chat", "long-prompt", "summarisation"}


@pytest.mark.parametrize("name", sorted(TRACES))
def test_the_command_reproduces_the_file(name: str) -> None:
    command = [sys.executable, "-m", "simulator.workload.synthesise", name]
    made = subprocess.run(command, capture_output=True, check=True)
    assert made.stderr == b""
    assert made.stdout.replace(b"\r\n", b"\n") == find_trace(name).read_bytes()


@pytest.mark.parametrize("name", sorted(TRACES))
def test_the_checksums_of_the_readme_hold(name: str) -> None:
    path = find_trace(name)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert f"{digest}  {path.name}" in (path.parent / "README.md").read_text()


def test_chat_meets_the_published_statistics() -> None:
    trace = read_trace(find_trace("chat"))
    prompt, output = trace.prompt_tokens, trace.output_tokens
    assert np.percentile(prompt, list(CHAT_PROMPT)) == pytest.approx(list(CHAT_PROMPT.values()), rel=0.005)
    assert np.percentile(output, list(CHAT_OUTPUT)) == pytest.approx(list(CHAT_OUTPUT.values()), rel=0.005)
    assert [prompt.mean(), prompt.std()] == pytest.approx([2340, 2088.8], rel=0.01)
    assert [output.mean(), output.std()] == pytest.approx([438.7, 265.6], rel=0.01)
    assert prompt.max() == pytest.approx(8141, rel=0.005)
    assert output.max() == pytest.approx(1024, rel=0.005)
    assert (prompt + output).max() <= 8192


def test_summarisation_meets_the_published_statistics() -> None:
    trace = read_trace(find_trace("summarisation"))
    prompt, output = trace.prompt_tokens, trace.output_tokens
    assert [*np.percentile(prompt, [50, 90]), prompt.std()] == pytest.approx([7059, 12985, 3638], rel=0.005)
    assert [*np.percentile(output, [50, 90]), output.std()] == pytest.approx([208, 371, 101], rel=0.005)
    assert (prompt + output).max() <= 16384


@pytest.mark.parametrize(("name", "rate_rps"), [("chat", 4), ("summarisation", 1)])
def test_lengths_are_unrelated_and_arrivals_poisson(name: str, rate_rps: float) -> None:
    trace = read_trace(find_trace(name))
    assert len(trace) == 4096
    assert abs(np.corrcoef(trace.prompt_tokens, trace.output_tokens)[0, 1]) < 0.05
    assert trace.arrival_s is not None
    gaps = np.diff(trace.arrival_s) * rate_rps
    assert [gaps.mean(), gaps.std()] == pytest.approx([1, 1], abs=0.05)


def test_shipped_chat_matches_the_real_trace(shared_data: Path) -> None:
    ours, real = read_trace(find_trace("chat")), read_trace(shared_data / "traces" / "sharegpt_8k.csv")
    levels = [10, 25, 50, 75, 90, 95, 99]
    for mine, theirs in [(ours.prompt_tokens, real.prompt_tokens), (ours.output_tokens, real.output_tokens)]:
        distance = np.abs(np.percentile(mine, levels) - np.percentile(theirs, levels))
        assert distance.max() < 0.02 * theirs.max()


def test_the_long_prompt_comes_last() -> None:
    trace = read_trace(find_trace("long-prompt"))
    assert trace.prompt_tokens.tolist() == [256] * 16 + [8192]
    assert trace.arrival_s is not None
    assert trace.arrival_s.tolist() == [0.0] * 16 + [1.0]
