"""Questions for plans whose trials are formulas or take a blink."""

from __future__ import annotations

from typing import Any

from search_fakes import make_scenario

from simulator.config import Scenario
from simulator.search.plan_space import Question, ask
from simulator.search.prices import PriceList

PRICES = PriceList(name="test", as_of="today", usd_per_gpu_hour={"h100_sxm": 2.0, "a100_80gb_sxm": 1.0})


def make_question(rate: float = 20.0, scenario: Scenario | None = None, **bounds: Any) -> Question:
    """Twenty requests of 100 + 10 tokens a second on H100s, unless told otherwise."""
    loaded = scenario or make_scenario(kernels="roofline")
    return ask(loaded, rate, "least_outstanding", PRICES, **({"gpus": ["h100_sxm"]} | bounds))
