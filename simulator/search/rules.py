"""Two rules of thumb for a token budget, from iteration times alone; a search shows how far they carry.

Both look at one iteration: a prefill chunk that fills the budget beside running decodes of typical context.
The first is the Sarathi-Serve paper's (section 4.3): the largest budget whose iteration still meets the TBT
bound. The second is what memory-bound decodes give away: the largest budget at which the chunk and the
decodes together cost about what the decodes alone cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.batch import BatchShape, Chunk
from simulator.metrics import overall
from simulator.search.grid import TILE

if TYPE_CHECKING:
    from simulator.config import Scenario
    from simulator.latency.model import LatencyModel
    from simulator.workload import Workload

FREE_SHARE = 0.2
"""A chunk is free while it adds no more than this share to the decodes' own time."""


@dataclass(frozen=True, slots=True)
class Beside:
    """The company of the chunk: running decodes and their context, and how far the prompt has come."""

    num_decodes: int
    decode_kv_tokens: int
    """KV tokens that each decode attends."""
    prefix_tokens: int
    """Tokens of the chunk's prompt that were computed before it."""

    def shape(self, token_budget: int) -> BatchShape:
        """The batch that fills the budget; no chunk where the decodes leave no room for one."""
        chunk = max(0, token_budget - self.num_decodes)
        chunks = (Chunk(chunk, self.prefix_tokens),) if chunk else ()
        return BatchShape.of(chunks, (self.decode_kv_tokens,) * self.num_decodes)


@dataclass(frozen=True)
class RulesOfThumb:
    """Both rules for one deployment; `tbt_bound_s` is None where the SLO says nothing of TBT."""

    latency: LatencyModel
    beside: Beside
    tbt_bound_s: float | None
    top: int
    """Largest budget to consider."""

    def iteration_s(self, token_budget: int) -> float:
        """Seconds of an iteration that fills the budget."""
        return iteration_s(self.latency, self.beside.shape(token_budget))

    @property
    def decodes_alone_s(self) -> float:
        """Seconds of an iteration without a chunk."""
        return self.iteration_s(0)

    @property
    def within_slo(self) -> int | None:
        """Largest budget whose iteration meets the bound on TBT; None where not even one tile does."""
        return None if self.tbt_bound_s is None else self._largest(self.tbt_bound_s)

    @property
    def free(self) -> int | None:
        """Largest budget whose chunk costs next to nothing beside the decodes."""
        return self._largest((1 + FREE_SHARE) * self.decodes_alone_s)

    def _largest(self, bound_s: float) -> int | None:
        kept = [budget for budget in range(TILE, self.top + 1, TILE) if self.iteration_s(budget) <= bound_s]
        return max(kept, default=None)


def iteration_s(latency: LatencyModel, shape: BatchShape) -> float:
    """Seconds from launch to last stage of an iteration that waits for no other."""
    stages = sum(latency.stage_time_s(shape, stage) for stage in range(latency.num_stages))
    return stages + (latency.num_stages - 1) * latency.hop_time_s(shape.num_tokens)


def tbt_bound_s(slo: Mapping[str, float]) -> float | None:
    """The strictest bound on TBT in seconds, whatever its statistic."""
    bounds = [
        bound * (1e-3 if key.endswith("_ms") else 1.0)
        for key, bound in overall(slo).items()
        if "_tbt_" in key
    ]
    return min(bounds, default=None)


def typical_company(workload: Workload, num_decodes: int) -> Beside:
    """Decodes halfway through their answers, and a prompt halfway through, all of mean length."""
    prompt = round(float(workload.prompt_tokens.mean()))
    output = round(float(workload.output_tokens.mean()))
    return Beside(num_decodes, prompt + output // 2, prompt // 2)


def rules_for(scenario: Scenario, seed: int, num_decodes: int, top: int) -> RulesOfThumb:
    """The rules for a scenario's hardware, SLO and typical requests, over budgets up to `top`."""
    from simulator.search.inputs import latency_of, requests_of

    company = typical_company(requests_of(scenario.workload, seed), num_decodes)
    return RulesOfThumb(latency_of(scenario), company, tbt_bound_s(scenario.slo), top)
