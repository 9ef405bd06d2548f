"""What real machines have shown about token budgets: the simulator has to point the same way."""

from __future__ import annotations

import pytest

from simulator.reproduce.evidence import DIRECTIONS
from simulator.reproduce.lab import Lab
from simulator.reproduce.paper import load_paper

SLOW = "8-relaxed-slo-wants-a-larger-budget"


@pytest.mark.parametrize("name", [name for name in DIRECTIONS if name != SLOW])
def test_direction(name: str) -> None:
    answer = DIRECTIONS[name](Lab(load_paper("sarathi-osdi24")))
    assert answer.holds, answer.figures


def test_a_relaxed_slo_wants_a_larger_budget() -> None:
    """The eighth, in four runs in place of its searches: what limits each budget at each SLO."""
    lab = Lab(load_paper("sarathi-osdi24"))
    bound = lab.deployment("mistral").tbt_s
    strict = {budget: lab.scenario("mistral", scheduler__token_budget=budget) for budget in (512, 2048)}

    # At the strict SLO the larger budget fails long before the smaller one.
    assert (
        lab.outcome(strict[512], 1.5).p99_tbt_s < bound["strict"] < lab.outcome(strict[2048], 1.5).p99_tbt_s
    )
    # At the relaxed one both hold under any load, and throughput decides.
    saturated = {budget: lab.trial(strict[budget].with_({"workload.rate_rps": 10.0})) for budget in strict}
    assert all((trial.value("tbt_s", "p99") or 0.0) < bound["relaxed"] for trial in saturated.values())
    assert saturated[2048].document["throughput_rps"] > saturated[512].document["throughput_rps"]
