"""What a split cannot do, from iteration times alone: rules out most of a plan's space without a simulation.

The bound on a replica's load is a fluid one: requests that flow through iterations of one ideal mix of
prefill and decodes, in the proportion in which they need them, with no queue and no idle moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from simulator.batch import BatchShape, Chunk
from simulator.metrics import overall, split_slo_key
from simulator.quantiles import LEVELS
from simulator.run import blocks_per_replica, misfit
from simulator.search.inputs import latency_of, requests_of
from simulator.search.plan_space import Question, Settings, Split
from simulator.search.rules import iteration_s

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from simulator.latency.model import LatencyModel
    from simulator.workload import Workload

SLACK = 1.1
"""Means of lengths stand in for lengths: the bound is loosened by this factor."""
RESOLUTION = 1.1
TAIL = ("p99", "p999", "max")
"""Statistics whose bound the mean iteration has to respect as well: under load no policy here keeps its slow
iterations to one gap in a hundred."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """A split and the fewest replicas that could carry the load, or why there is no such number."""

    split: Split
    replicas: int = 0
    obstacle: str = ""
    fits_memory: bool = True


class Mix(NamedTuple):
    """Means over a workload's tokens."""

    prompt_tokens: float
    prefix_tokens: float
    """Tokens of its own prompt before a prompt token."""
    decodes: float
    """Output tokens beyond the first."""
    context_tokens: float
    """Tokens that a decode attends."""

    @classmethod
    def of(cls, requests: Workload) -> Mix:
        """The mix of all requests together."""
        prompt, decodes = requests.prompt_tokens.astype(float), requests.output_tokens - 1.0
        context = decodes @ (prompt + decodes / 2) / max(decodes.sum(), 1.0)
        prefix = (prompt**2).sum() / 2 / prompt.sum()
        return cls(float(prompt.mean()), float(prefix), float(decodes.mean()), float(context))

    def shape(self, requests: float) -> BatchShape:
        """The iteration that brings so many requests (usually a small part of one) from start to end."""
        chunk, decodes = int(requests * self.prompt_tokens), int(requests * self.decodes)
        chunks = (Chunk(chunk, max(0, round(self.prefix_tokens - chunk / 2))),) if chunk else ()
        return BatchShape.of(chunks, (round(self.context_tokens),) * decodes)


def prospect(question: Question, split: Split, seed: int) -> Prospect:
    """The least replicas of a split that could carry the load within the SLO."""
    roomy = Settings("stall_free", min(question.budgets), min(question.sequences))
    scenario = question.sample(split, roomy, 1)
    requests = requests_of(scenario.workload, seed)
    if obstacle := misfit(scenario, requests):
        return Prospect(split, obstacle=obstacle, fits_memory=False)
    latency = latency_of(scenario)
    if obstacle := _slow_prompts(latency, requests, scenario.slo):
        return Prospect(split, obstacle=obstacle)
    kv_tokens = blocks_per_replica(scenario) * scenario.memory.block_size_tokens
    rate = SLACK * _fluid_rate(latency, Mix.of(requests), kv_tokens, question)
    if not rate:
        return Prospect(split, obstacle="not even one sequence decodes within the bound on TBT")
    replicas = max(1, ceil(question.rate_rps / rate))
    if replicas > question.most_replicas(split):
        gpus = replicas * split.gpus
        return Prospect(split, obstacle=f"the load needs at least {gpus} GPUs")
    return Prospect(split, replicas)


def _fluid_rate(latency: LatencyModel, mix: Mix, kv_tokens: int, question: Question) -> float:
    """Most requests per second through one replica; zero where no mix keeps the bound on TBT.

    The more an iteration holds the more it yields, so the largest one that keeps all limits decides.
    """
    stages = latency.num_stages
    tbt_s = SLACK * _tail_tbt_s(question.scenario.slo)
    most_decodes = min(max(question.sequences), kv_tokens / mix.context_tokens) / stages
    high = min(most_decodes / max(mix.decodes, 1.0), max(question.budgets) / mix.prompt_tokens)
    low = min(high, 1 / max(mix.decodes, 1.0))

    def keeps(requests: float) -> bool:
        return iteration_s(latency, mix.shape(requests)) <= tbt_s

    if not keeps(low):
        return 0.0
    if not keeps(high):
        low, high = _bisect(keeps, low, high)
    shape = mix.shape(low)
    return high / max(latency.stage_time_s(shape, stage) for stage in range(stages))


def _bisect(keeps: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Narrow the bracket of a limit to a ratio of RESOLUTION."""
    while high > RESOLUTION * low:
        middle = sqrt(low * high)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low, high


def _tail_tbt_s(slo: Mapping[str, float]) -> float:
    """The strictest bound on the tail of TBT in seconds."""
    bounds = [bound * split_slo_key(key)[2] for key, bound in overall(slo).items() if _is_tail_tbt(key)]
    return min(bounds, default=float("inf"))


def _is_tail_tbt(key: str) -> bool:
    statistic, metric, _ = split_slo_key(key)
    return metric == "tbt_s" and statistic in TAIL


def _slow_prompts(latency: LatencyModel, requests: Workload, slo: Mapping[str, float]) -> str:
    """Why prompts alone take too long, if they do: no request beats the slowest stage of its own prefill.

    With a prefix cache parts of prompts need no computing, so nothing is said there.
    """
    for key, bound in overall(slo).items():
        statistic, metric, unit_s = split_slo_key(key)
        level = 1.0 if statistic == "max" else LEVELS.get(statistic)
        if metric != "ttft_s" or level is None or requests.block_ids is not None:
            continue
        tokens = int(np.quantile(requests.prompt_tokens, level, method="lower"))
        shape = BatchShape.of((Chunk(tokens, 0),), prompts_ended=1)
        prefill_s = max(latency.stage_time_s(shape, stage) for stage in range(latency.num_stages))
        if prefill_s > SLACK * bound * unit_s:
            return f"{key}: a prompt of {tokens} tokens alone takes {1e3 * prefill_s:.0f} ms"
    return ""
