"""Small requests, schedulers and runs with defaults, so that a test names only what it is about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from simpy import Environment

from simulator.batch import Batch, BatchShape
from simulator.cluster import feed, router_named
from simulator.kv import KVBlocks
from simulator.latency.model import ConstantLatency, LatencyModel
from simulator.metrics import Result
from simulator.prefix_cache import PrefixCache
from simulator.record import Recorder, Records
from simulator.replica import Replica
from simulator.request import Request
from simulator.schedulers import POLICIES, Scheduler


def make_request(
    id: int = 0, prompt: int = 8, output: int = 4, arrival_s: float = 0.0, block_ids: Sequence[int] = ()
) -> Request:
    return Request(id, prompt, output, arrival_s, block_ids)


def make_scheduler(
    policy: str = "stall_free",
    *,
    budget: int = 8,
    max_num_seqs: int = 8,
    max_model_len: int = 64,
    num_blocks: int = 64,
    block_size: int = 4,
    watermark: int = 0,
    prefix_caching: bool = False,
    **options: Any,
) -> Scheduler:
    return POLICIES[policy](
        (PrefixCache if prefix_caching else KVBlocks)(num_blocks, block_size, watermark),
        token_budget=budget,
        max_num_seqs=max_num_seqs,
        max_model_len=max_model_len,
        **options,
    )


def describe(batch: Batch | None) -> str:
    """`d0 d1 p2:5` = one token each for requests 0 and 1, five prefill tokens of request 2; `-` = nothing."""
    if batch is None:
        return "-"
    decodes = [f"d{request.id}" for request in sorted(batch.decodes or (), key=lambda request: request.id)]
    return " ".join(decodes + [f"p{request.id}:{tokens}" for request, tokens in batch.prefills])


_DETAILED = partial(Recorder, keep_iterations=True)


class PerToken:
    """A stage takes `fixed_s` and `per_token_s` for each token of the batch."""

    notes: tuple[str, ...] = ()

    def __init__(self, fixed_s: float = 1.0, per_token_s: float = 0.0, num_stages: int = 1) -> None:
        self.num_stages = num_stages
        self.num_queries = self.num_extrapolated = 0
        self.fixed_s = fixed_s
        self.per_token_s = per_token_s

    def stage_time_s(self, shape: BatchShape, stage: int) -> float:
        self.num_queries += 1
        return self.fixed_s + self.per_token_s * shape.num_tokens

    def hop_time_s(self, num_tokens: int) -> float:
        return 0.0

    def breakdown(self, shape: BatchShape, stage: int) -> dict[str, float]:
        return {"tokens": self.stage_time_s(shape, stage)}


def serve(
    requests: Iterable[Request],
    scheduler: Scheduler | Sequence[Scheduler],
    latency: LatencyModel | None = None,
    *,
    routing: str = "round_robin",
    slo: dict[str, float] | None = None,
    warmup_s: float = 0.0,
    new_recorder: Callable[[], Recorder] = _DETAILED,
) -> Result:
    """Serve requests to their end on one replica for each scheduler."""
    schedulers = [scheduler] if isinstance(scheduler, Scheduler) else list(scheduler)
    latency = latency or ConstantLatency()
    env = Environment()
    replicas = [Replica(env, s, latency, new_recorder()) for s in schedulers]
    rejections: list[tuple[int, str]] = []
    env.process(
        feed(
            env,
            requests,
            router_named(routing, replicas),
            lambda request, reason: rejections.append((request.id, reason)),
        )
    )
    env.run()
    until_s = max(env.now, *(replica.last_end_s for replica in replicas))
    return Result(
        records=Records.merged([replica.recorder.records() for replica in replicas]),
        rejections=tuple(rejections),
        slo=slo or {},
        warmup_s=warmup_s,
        num_blocks=schedulers[0].kv.num_blocks,
        preemptions=sum(s.num_preemptions for s in schedulers),
        recomputed_tokens=sum(s.recomputed_tokens for s in schedulers),
        stages=tuple(stage for replica in replicas for stage in replica.stage_use(until_s)),
        extrapolated_share=0.0,
        notes=(),
    )
