"""What real machines have shown about token budgets: the simulator has to point the same way."""

from __future__ import annotations

import pytest

from simulator.reproduce.evidence import DIRECTIONS
from simulator.reproduce.lab import Lab
from simulator.reproduce.paper import load_paper

SLOW = "8-relaxed-slo-wants-a-larger-budget"
KNEE = "5-knee-moves-with-compute"
UNLIKE = pytest.mark.xfail(
    strict=True,
    reason="the fitted kernels disagree: 70B at TP4 reaches nine tenths of its prefill speed at 640 tokens on"
    " the H100 and, where waves of tiles fit badly, at 1,152 on the A100",
)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[UNLIKE] if name == KNEE else []) for name in DIRECTIONS if name != SLOW],
)
def test_direction(name: str) -> None:
    answer = DIRECTIONS[name](Lab(load_paper("sarathi-osdi24")))
    assert answer.holds, answer.figures


def test_a_strict_slo_wants_the_smaller_budget() -> None:
    """Half of the eighth, in two runs in place of its searches: the larger budget fails long before."""
    lab = Lab(load_paper("sarathi-osdi24"))
    bound = lab.deployment("mistral").tbt_s["strict"]
    small, large = (
        lab.outcome(lab.scenario("mistral", scheduler__token_budget=budget), 1.5) for budget in (512, 2048)
    )
    assert small.p99_tbt_s < bound < large.p99_tbt_s


@pytest.mark.xfail(strict=True, reason="on the fitted A100 kernels 512 carries 2 % more than 2048, not less")
def test_a_relaxed_slo_wants_the_larger_budget() -> None:
    """The other half: both hold under any load, and throughput decides."""
    lab = Lab(load_paper("sarathi-osdi24"))
    bound = lab.deployment("mistral").tbt_s["relaxed"]
    small, large = (
        lab.trial(lab.scenario("mistral", scheduler__token_budget=budget).with_({"workload.rate_rps": 10.0}))
        for budget in (512, 2048)
    )
    assert all((trial.value("tbt_s", "p99") or 0.0) < bound for trial in (small, large))
    assert large.document["throughput_rps"] > small.document["throughput_rps"]
