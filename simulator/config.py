"""The scenario: everything that decides a simulation but its seed, as frozen, validated settings.

Names of presets (model, gpu, cluster, engine) stay names here; `simulator.load` resolves them. An SLO is a
bound on one statistic of one latency: `p99_tbt_ms: 50`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeFloat, PositiveFloat
from pydantic_core import PydanticCustomError

from simulator.errors import suggest
from simulator.spec import Count, Spec, parse
from simulator.workload.spec import WorkloadSpec

Policy = Literal[
    "stall_free", "prefill_first", "decode_first", "orca", "hybrid_only", "chunked_only", "vllm_v1"
]

Routing = Literal["round_robin", "random", "least_outstanding", "power_of_two", "prefix_affinity"]

Ways = Annotated[int, Field(ge=1, le=1024)]

BUDGET_POLICIES = ("stall_free", "vllm_v1", "chunked_only")
"""Those that look at the token budget."""
SLO_STATISTICS = ("mean", "p50", "p90", "p95", "p99", "p999", "max")
SLO_METRICS = ("ttft", "tbt", "tpot", "e2e", "scheduling_delay")
SLO_UNITS = ("ms", "s")
SLO_SYNONYMS = {"itl": "tbt", "e2el": "e2e"}
SLO_KEY = re.compile(
    r"(?P<statistic>[a-z0-9]+?)_(?P<metric>[a-z0-9_]+?)(?:_(?P<unit>ms|s|us|sec|seconds|min))?"
)


def slo_key(key: str) -> str:
    """The canonical form of `<statistic>_<metric>_<unit>` (itl becomes tbt); ValueError says why not.

    Before it may stand a class of requests and a dot: `chat.p99_tbt_ms`.
    """
    of_class, dot, key = key.rpartition(".")
    return f"{of_class}{dot}{_plain_slo_key(key)}"


def _plain_slo_key(key: str) -> str:
    match = SLO_KEY.fullmatch(key)
    if match is None:
        raise ValueError("an SLO is <statistic>_<metric>_<unit>, such as p99_tbt_ms")
    statistic, metric, unit = match["statistic"], match["metric"], match["unit"]
    metric = SLO_SYNONYMS.get(metric, metric)
    if statistic not in SLO_STATISTICS:
        raise ValueError(f"unknown statistic {statistic!r}{suggest(statistic, SLO_STATISTICS)}")
    if metric not in SLO_METRICS:
        raise ValueError(f"unknown metric {metric!r}{suggest(metric, SLO_METRICS)}")
    if unit not in SLO_UNITS:
        found = f"unit {unit!r} is unknown" if unit else "the unit is missing"
        raise ValueError(f"{found}: say {statistic}_{metric}_ms or {statistic}_{metric}_s")
    return f"{statistic}_{metric}_{unit}"


def _canonical_slo(value: Any) -> Any:
    """Keys checked and put in canonical words; a bound of null is dropped, so that an override lifts it.

    The bounds of a class may stand below its name: `chat: {p99_tbt_ms: 50}` is `chat.p99_tbt_ms: 50`.
    """
    if not isinstance(value, Mapping):
        return value
    bounds: dict[str, Any] = {}
    for key, bound in _flat(value):
        try:
            name = slo_key(key)
            if _same_quantity(name, bounds):
                raise ValueError("this quantity has a bound already")
        except ValueError as error:
            context = {"key": key, "problem": str(error)}
            raise PydanticCustomError("bad_key", "{problem}", context) from None
        if bound is not None:
            bounds[name] = bound
    return bounds


def _flat(bounds: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for key, bound in bounds.items():
        if isinstance(bound, Mapping):
            yield from ((f"{key}.{inner}", value) for inner, value in bound.items())
        else:
            yield str(key), bound


def _same_quantity(key: str, bounds: Mapping[str, Any]) -> list[str]:
    """The bounds on what a canonical key bounds, whatever their unit."""
    return [name for name in bounds if name.rpartition("_")[0] == key.rpartition("_")[0]]


class ParallelSpec(Spec):
    """How one replica is spread over GPUs."""

    tensor: Ways = 1
    pipeline: Ways = 1

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor * self.pipeline


class SchedulerSpec(Spec):
    """The scheduling policy and its limits."""

    policy: Policy = "stall_free"
    token_budget: Count = 512
    """Most tokens of one iteration (vLLM: max_num_batched_tokens)."""
    max_num_seqs: Count = 128
    """Most admitted requests of a replica, those in flight in any of its pipeline stages included."""
    max_model_len: Count | None = None
    """Most tokens of one request, prompt and output; by default what the model was trained for."""
    long_prefill_token_threshold: Count | None = None
    """vllm_v1: most tokens of one prompt in an iteration; by default the budget."""
    prompt_must_fit: bool = True
    """vllm_v1: admit a request only if its whole prompt finds KV blocks, not its first chunk alone
    (vLLM: scheduler_reserve_full_isl)."""

    @property
    def has_budget(self) -> bool:
        """Whether the policy looks at the token budget."""
        return self.policy in BUDGET_POLICIES


class MemorySpec(Spec):
    """How GPU memory is shared out."""

    utilization: float = Field(default=0.9, gt=0, le=1)
    """Share of the GPU's memory that the engine may use (vLLM: gpu_memory_utilization)."""
    block_size_tokens: Count = 16
    watermark: float | None = Field(default=None, ge=0, lt=1)
    """Share of the KV blocks that admission leaves free; by default 0.01, and none in vllm_v1."""
    prefix_caching: bool = True
    """vllm_v1: find full KV blocks again, by the workload's block ids and after a preemption."""
    num_blocks: Count | None = None
    """KV blocks of a replica; by default computed from what the weights and activations leave."""


class Scenario(Spec):
    """One deployment under one workload, with the SLO it has to meet."""

    name: str = ""
    description: str = ""
    model: str = Field(min_length=1)
    gpu: str = Field(min_length=1)
    parallel: ParallelSpec = ParallelSpec()
    cluster: str | None = None
    """Interconnect; by default the GPU's usual one."""
    replicas: Annotated[int, Field(ge=1, le=10_000)] = 1
    routing: Routing = "round_robin"
    """Which replica a request goes to, at its arrival."""
    scheduler: SchedulerSpec = SchedulerSpec()
    memory: MemorySpec = MemorySpec()
    engine: str = "vllm-v1"
    kernels: str = "auto"
    """`auto` (the GPU's measured kernels, else the roofline), `roofline`, an artefact's name, or a path."""
    workload: WorkloadSpec
    slo: Annotated[dict[str, PositiveFloat], BeforeValidator(_canonical_slo)] = Field(default_factory=dict)
    warmup_s: NonNegativeFloat = 0.0
    """Requests that arrive earlier are simulated but left out of the metrics."""
    until_s: PositiveFloat | None = None
    """Where the simulation is cut off; requests that have not finished by then are not counted."""

    def with_(self, updates: Mapping[str, Any], where: str = "settings") -> Scenario:
        """A copy with dotted keys replaced ("scheduler.token_budget": 1024), validated afresh.

        A mapping replaces all that stood under its key; a bound replaces one on the same quantity in another
        unit, and null lifts it. Raises ConfigError, which starts with `where`.
        """
        data = self.model_dump()
        for key, value in updates.items():
            lifted = key.startswith("slo.") and _lift_bounds(data["slo"], key.removeprefix("slo."))
            if not (lifted and value is None):
                _set_dotted(data, key, value)
        return parse(Scenario, data, where)

    def digest(self) -> str:
        """Hash of all that decides the result (the name and the description do not), as hexadecimal."""
        content = self.model_dump(mode="json", exclude={"name", "description"})
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def _lift_bounds(bounds: dict[str, Any], key: str) -> bool:
    """Remove the bounds on the quantity of `key`, or all those of the class that it names.

    Says whether there were any; a key that is neither is left for validation to report.
    """
    lifted = [name for name in bounds if name.startswith(f"{key}.")]
    with suppress(ValueError):
        lifted += _same_quantity(slo_key(key), bounds)
    for name in lifted:
        del bounds[name]
    return bool(lifted)


def _set_dotted(data: dict[str, Any], key: str, value: Any) -> None:
    """Set a nested value; parents that are missing or null become mappings, for validation to judge."""
    *parents, last = key.split(".")
    for parent in parents:
        if not isinstance(data.get(parent), dict):
            data[parent] = {}
        data = data[parent]
    data[last] = value
