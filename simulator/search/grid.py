"""Which token budgets to try: powers of two first, then finer steps around the best."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.config import Scenario

TILE = 128
"""Matrix kernels work in tiles of this many tokens: a budget that is no multiple of it wastes part of one."""
LEAST_TOP = 8192


def grid_for(scenario: Scenario, seed: int) -> list[int]:
    """The first budgets to try for a scenario's model and workload."""
    from simulator.load import load_model
    from simulator.memory import max_model_len
    from simulator.search.inputs import requests_of

    longest_prompt = int(requests_of(scenario.workload, seed).prompt_tokens.max())
    return coarse_budgets(max_model_len(load_model(scenario.model), scenario), longest_prompt)


def coarse_budgets(max_model_len: int, longest_prompt: int) -> list[int]:
    """Powers of two from one tile up to what the longest prompt can use (at least 8192), within the model's
    longest request."""
    top = min(max_model_len, max(LEAST_TOP, _power_at_least(longest_prompt)))
    budgets = [TILE << step for step in range(top.bit_length()) if TILE << step <= top]
    return budgets or [top]


def finer_budgets(tried: Iterable[int], best: int, as_good: Iterable[int] = ()) -> list[int]:
    """Untried multiples of the tile halfway (on a log scale) between the best budget and its neighbours.

    A neighbour that is as good as the best one needs nothing finer between them.
    """
    budgets = sorted(tried)
    place = budgets.index(best)
    neighbours = budgets[max(0, place - 1) : place] + budgets[place + 1 : place + 2]
    resolved = set(neighbours) - set(as_good)
    middles = {TILE * round(sqrt(best * neighbour) / TILE) for neighbour in resolved}
    return sorted(middles - set(budgets) - {0})


def _power_at_least(tokens: int) -> int:
    return 1 << max(0, tokens - 1).bit_length()
