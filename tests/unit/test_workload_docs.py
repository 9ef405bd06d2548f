"""The scenarios in docs/workloads.md are ones: they load, and their workloads can be built."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from simulator.config import Scenario
from simulator.run import require_classes
from simulator.workload import build_workload

DOCS = Path(__file__).resolve().parents[2] / "docs" / "workloads.md"
BLOCKS = re.findall(r"```yaml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("text", BLOCKS)
def test_scenarios_of_the_document_work(text: str) -> None:
    scenario = Scenario.model_validate({"model": "llama-3-8b", "gpu": "h100_sxm", **yaml.safe_load(text)})
    workload = build_workload(scenario.workload, 0)
    require_classes(scenario.slo, workload)
    assert workload.offered_rate_rps == pytest.approx(scenario.workload.rate_rps, rel=0.5)


def test_there_are_scenarios() -> None:
    assert len(BLOCKS) == 3
