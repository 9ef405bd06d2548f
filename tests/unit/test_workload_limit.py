"""A workload's own limit on tokens: over-long requests arrive, are turned away and counted."""

from __future__ import annotations

import pytest

from simulator.errors import InfeasibleError
from simulator.latency.model import ConstantLatency
from simulator.load import load_scenario
from simulator.metrics import Result
from simulator.run import simulate


def run(limit: int) -> Result:
    sets = [f"workload.max_total_tokens={limit}", "memory.num_blocks=4000"]
    return simulate(load_scenario("long-prompt", sets), latency=ConstantLatency(1, 0.01))


def test_over_long_requests_are_rejected_with_the_reason() -> None:
    result = run(limit=8319)
    assert result.requests_completed == 16
    assert result.rejections == ((16, "8320 tokens exceed workload.max_total_tokens 8319"),)


def test_requests_at_the_limit_are_served() -> None:
    assert run(limit=8320).requests_completed == 17


def test_a_limit_that_fits_nobody_has_no_answer() -> None:
    with pytest.raises(InfeasibleError, match="not one of 17 requests fits"):
        run(limit=100)
