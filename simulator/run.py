"""One simulation: a scenario, a seed, a result."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from simpy import Environment

from simulator.cluster import feed, router_named
from simulator.errors import ConfigError, InfeasibleError, suggest
from simulator.kv import KVBlocks
from simulator.latency import build_latency
from simulator.load import load_engine, load_gpu, load_model
from simulator.memory import kv_capacity, max_model_len
from simulator.metrics import Result, slo_class
from simulator.prefix_cache import PrefixCache, engine_block_ids
from simulator.record import Recorder, Records
from simulator.replica import Replica
from simulator.request import Request
from simulator.schedulers import VLLMV1, Scheduler, policy_named
from simulator.workload import Workload, build_workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from simulator.config import Scenario
    from simulator.latency.model import LatencyModel
    from simulator.watch import Watch

REQUESTS_PER_BLOCK = 2**14


def simulate(
    scenario: Scenario,
    seed: int = 0,
    *,
    workload: Workload | None = None,
    latency: LatencyModel | None = None,
    watch: Watch | None = None,
    keep_iterations: bool = False,
) -> Result:
    """Serve a workload to its end, or until the scenario's `until_s`.

    `workload` and `latency` are built from the scenario where they are not given. With a `watch` the run ends
    with SLOBroken once its SLO is certainly broken; nobody knows that of a run with `until_s`, which counts
    only what finishes, so there it does nothing. With `keep_iterations` the result's records have a row for
    each iteration, 36 bytes of memory. Raises a StallfreeError for a scenario that cannot run,
    InfeasibleError if not one request fits.
    """
    if scenario.until_s is not None:
        watch = None
    workload = workload if workload is not None else build_workload(scenario.workload, seed)
    require_classes(scenario.slo, workload)
    latency = latency if latency is not None else build_latency(scenario)
    _require_requests_after(scenario.warmup_s, workload)
    block_size = scenario.memory.block_size_tokens if finds_prefixes(scenario) else None
    num_blocks = blocks_per_replica(scenario)
    queries, extrapolated = latency.num_queries, latency.num_extrapolated

    env = Environment()
    replicas = [
        Replica(
            env,
            build_scheduler(scenario, num_blocks),
            latency,
            watch.recorder() if watch else Recorder(keep_iterations=keep_iterations),
        )
        for _ in range(scenario.replicas)
    ]
    rejections: list[tuple[int, str]] = []

    def reject(request: Request, reason: str) -> None:
        rejections.append((request.id, reason))
        if watch:
            watch.rejected()

    route = router_named(scenario.routing, replicas, seed)
    env.process(feed(env, within_limit(workload, reject, block_size), route, reject))
    _advance(env, scenario.until_s)

    if len(rejections) == len(workload):
        raise InfeasibleError(_nothing_fits(workload, rejections[0][1]))
    queries = latency.num_queries - queries
    records = Records.merged([replica.recorder.records() for replica in replicas])
    until_s = max(env.now, *(replica.last_end_s for replica in replicas))
    has_ended = np.zeros(len(workload), dtype=bool)
    has_ended[records.requests["id"]] = True
    has_ended[[number for number, _ in rejections]] = True
    left_s = workload.arrival_s[~has_ended]
    if scenario.until_s is not None and len(left_s):
        until_s = scenario.until_s  # cut off, and not at an event: replicas run ahead of the clock
    unfinished_s = left_s[left_s < until_s]
    return Result(
        records=records,
        rejections=tuple(rejections),
        slo=scenario.slo,
        warmup_s=scenario.warmup_s,
        num_blocks=num_blocks,
        preemptions=sum(replica.scheduler.num_preemptions for replica in replicas),
        recomputed_tokens=sum(replica.scheduler.recomputed_tokens for replica in replicas),
        stages=tuple(stage for replica in replicas for stage in replica.stage_use(until_s)),
        extrapolated_share=(latency.num_extrapolated - extrapolated) / max(queries, 1),
        notes=(
            *workload.notes,
            *unused_ids_note(scenario, workload),
            *_cut_off_note(scenario, len(unfinished_s)),
            *latency.notes,
        ),
        prefix_cache=prefix_cache_use([replica.scheduler.kv for replica in replicas]),
        classes=workload.classes,
        unfinished_arrival_s=unfinished_s,
    )


def _require_requests_after(warmup_s: float, workload: Workload) -> None:
    """ConfigError where the warm-up takes all requests, and so leaves nothing to measure."""
    last_s = float(workload.arrival_s[-1])
    if warmup_s > last_s:
        raise ConfigError(
            f"warmup_s {warmup_s:g}: nothing is left to measure, as the last of {len(workload)} requests"
            f" arrives at {last_s:.4g} s (allowed: up to that; more workload.num_requests last longer)"
        )


def _cut_off_note(scenario: Scenario, unfinished: int) -> tuple[str, ...]:
    if not unfinished:
        return ()
    return (
        f"cut off at until_s {scenario.until_s:g}: {unfinished} requests had not finished, and do not count",
    )


def require_classes(slo: Mapping[str, float], workload: Workload) -> None:
    """ConfigError where an SLO bounds a class of requests that the workload does not have."""
    names = () if workload.classes is None else workload.classes.names
    for name in filter(None, map(slo_class, slo)):
        if name not in names:
            raise ConfigError(f"slo: the workload has no class {name!r}{suggest(name, names)}")


def _advance(env: Environment, until_s: float | None) -> None:
    """Run until nothing happens any more, or up to a time; the clock then stands at the last event."""
    if until_s is None:
        env.run()
    else:
        env.timeout(until_s)  # replicas do not run ahead of it
        while env.peek() < until_s:
            env.step()


def misfit(scenario: Scenario, workload: Workload) -> str:
    """Why not one request of a workload could run; empty where one can."""
    try:
        scheduler = build_scheduler(scenario, blocks_per_replica(scenario))
    except ConfigError as error:
        return str(error)
    reasons: list[str] = []
    for request in within_limit(workload, lambda _, reason: reasons.append(reason)):
        reason = scheduler.add(request)
        if reason is None:
            return ""
        reasons.append(reason)
    return _nothing_fits(workload, reasons[0])


def _nothing_fits(workload: Workload, reason: str) -> str:
    return f"not one of {len(workload)} requests fits: request 0: {reason}"


def blocks_per_replica(scenario: Scenario) -> int:
    """KV blocks of one replica: the scenario's own number, or what its GPUs have room for."""
    if scenario.memory.num_blocks is not None:
        return scenario.memory.num_blocks
    return kv_capacity(load_model(scenario.model), load_gpu(scenario.gpu), scenario).num_blocks


def build_scheduler(scenario: Scenario, num_blocks: int) -> Scheduler:
    """The scheduler of one replica, with an empty KV cache of so many blocks."""
    settings, memory = scenario.scheduler, scenario.memory
    policy = policy_named(settings.policy)
    share = policy.default_watermark if memory.watermark is None else memory.watermark
    watermark = 0 if policy.reserves_worst_case else int(share * num_blocks)
    pool = PrefixCache if finds_prefixes(scenario) else KVBlocks
    kv = pool(num_blocks, memory.block_size_tokens, watermark)
    build: Callable[..., Scheduler] = policy
    if issubclass(policy, VLLMV1):
        build = partial(
            policy,
            long_prefill_token_threshold=settings.long_prefill_token_threshold,
            prompt_must_fit=settings.prompt_must_fit,
        )
    return build(
        kv,
        token_budget=settings.token_budget,
        max_num_seqs=settings.max_num_seqs,
        max_model_len=max_model_len(load_model(scenario.model), scenario),
        decides_ahead=decides_ahead(scenario),
    )


def decides_ahead(scenario: Scenario) -> bool:
    """Whether an iteration is put together while the one before it runs, as asynchronous engines do.

    In a pipeline there is no need: while one batch is being prepared others run, in vLLM too.
    """
    return scenario.parallel.pipeline == 1 and load_engine(scenario.engine).asynchronous


def finds_prefixes(scenario: Scenario) -> bool:
    """Whether the engine finds KV blocks again that it has computed before."""
    return scenario.memory.prefix_caching and issubclass(policy_named(scenario.scheduler.policy), VLLMV1)


def unused_ids_note(scenario: Scenario, workload: Workload) -> tuple[str, ...]:
    """Says so where a workload tells of shared prefixes and the engine does not share them, or where the
    routing goes by them and there are none."""
    if scenario.routing == "prefix_affinity" and not (workload.block_ids and finds_prefixes(scenario)):
        return ("prefix_affinity: no prefixes to go by (no block ids or no prefix cache): least_outstanding",)
    if workload.block_ids is None or finds_prefixes(scenario):
        return ()
    caches = issubclass(policy_named(scenario.scheduler.policy), VLLMV1)
    reason = (
        "memory.prefix_caching is false" if caches else f"{scenario.scheduler.policy} has no prefix cache"
    )
    return (f"{reason}: shared prefixes are computed each time",)


def prefix_cache_use(pools: Sequence[KVBlocks]) -> dict[str, int] | None:
    """What the prefix caches of all replicas were asked for and had, in tokens; None where there are none."""
    caches = [pool for pool in pools if isinstance(pool, PrefixCache)]
    if not caches:
        return None
    return {
        "queried_tokens": sum(cache.queried_tokens for cache in caches),
        "hit_tokens": sum(cache.hit_tokens for cache in caches),
    }


def within_limit(
    workload: Workload, reject: Callable[[Request, str], None], block_size: int | None = None
) -> Iterator[Request]:
    """The requests of a workload but for those over its own limit, which are rejected."""
    limit = workload.max_total_tokens
    for request in requests_of(workload, block_size):
        if limit is None or request.max_tokens + 1 <= limit:
            yield request
        else:
            reject(request, f"{request.max_tokens + 1} tokens exceed workload.max_total_tokens {limit}")


def requests_of(workload: Workload, block_size: int | None = None) -> Iterator[Request]:
    """The requests of a workload, one at a time, numbered in order of arrival.

    With an engine's block size they have the ids of their prompts' blocks, where the workload has any.
    """
    recorded = workload.block_ids
    columns = (workload.prompt_tokens, workload.output_tokens, workload.arrival_s)
    rows = zip(*map(_numbers, columns), strict=True)
    for number, (prompt_tokens, output_tokens, arrival_s) in enumerate(rows):
        ids: Sequence[int] = ()
        if recorded is not None and block_size is not None:
            own = recorded.of(number).tolist()
            ids = engine_block_ids(own, recorded.block_tokens, prompt_tokens, block_size)
        yield Request(number, prompt_tokens, output_tokens, arrival_s, ids)


def _numbers(column: NDArray[Any]) -> Iterator[Any]:
    """A column as Python numbers, of which only some exist at a time."""
    for first in range(0, len(column), REQUESTS_PER_BLOCK):
        yield from column[first : first + REQUESTS_PER_BLOCK].tolist()
