"""What real machines have shown about token budgets: the simulator has to point the same way."""

from __future__ import annotations

import pytest

from simulator.reproduce.evidence import DIRECTIONS
from simulator.reproduce.lab import Lab
from simulator.reproduce.paper import load_paper
from simulator.reproduce.rule import DELAY_S, Outcome

SLOW = "8-relaxed-slo-wants-a-larger-budget"


@pytest.mark.parametrize("name", [name for name in DIRECTIONS if name != SLOW])
def test_direction(name: str) -> None:
    answer = DIRECTIONS[name](Lab(load_paper("sarathi-osdi24")))
    assert answer.holds, answer.figures


def test_a_relaxed_slo_wants_a_larger_budget() -> None:
    """The eighth, in four runs in place of its searches: between the capacities of the two budgets."""
    lab = Lab(load_paper("sarathi-osdi24"))
    bound = lab.deployment("yi").tbt_s

    def outcome(budget: int, rate_rps: float) -> Outcome:
        return lab.outcome(lab.scenario("yi", scheduler__token_budget=budget), rate_rps)

    assert outcome(512, 0.5).p99_tbt_s < bound["strict"] < outcome(2048, 0.5).p99_tbt_s
    small, large = outcome(512, 1.1), outcome(2048, 1.1)
    assert max(small.p99_tbt_s, large.p99_tbt_s) < bound["relaxed"]
    assert large.delay_s < DELAY_S < small.delay_s
