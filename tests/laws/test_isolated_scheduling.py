"""With measured iteration times in place of kernels, what is left of the paper's capacities is scheduling."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.reproduce.capacity import ISOLATED, POLICIES
from simulator.reproduce.lab import Lab
from simulator.reproduce.paper import SLOS, Slo, load_paper

SHARE = 0.12


@pytest.mark.parametrize("slo", SLOS)
@pytest.mark.parametrize("policy", POLICIES)
def test_capacity_is_within_12_percent_of_the_papers(shared_data: Path, policy: str, slo: Slo) -> None:
    """On the paper's own lengths: the SLO holds 12 % below its capacity, and no longer 12 % above."""
    paper = load_paper("sarathi-osdi24")
    lab = Lab(paper, chat_trace=str(shared_data / "traces" / "sharegpt_8k.csv"))
    published = paper.published(f"capacity/isolated/chat/{slo}/{policy}")
    assert published is not None
    assert published.value is not None
    scenario = lab.under_policy("mistral", "chat", slo, policy, kernels=ISOLATED)
    verdicts = [
        outcome.p99_tbt_s <= paper.deployments["mistral"].tbt_s[slo] and outcome.delay_s <= 2.0
        for outcome in (
            lab.outcome(scenario, round(published.value * share, 3)) for share in (1 - SHARE, 1 + SHARE)
        )
    ]
    assert verdicts == [True, False]
