"""What the trials of one process share: drawn requests and latency models."""

from __future__ import annotations

import json
from functools import lru_cache
from threading import get_ident

from simulator.cluster import DRAWN_ROUTINGS
from simulator.config import Scenario
from simulator.latency import LatencyModel, build_latency
from simulator.workload import Workload, WorkloadSpec, build_workload

HARDWARE = {"model", "gpu", "cluster", "parallel", "engine", "kernels"}
NO_REQUESTS = {"lengths": {"prompt": 1, "output": 1}}


def requests_of(spec: WorkloadSpec, seed: int) -> Workload:
    """The workload of one run; the same requests serve every rate, their gaps scaled."""
    if spec.rate_rps is None:
        return _drawn(spec.model_dump_json(), seed)
    unit = spec.model_copy(update={"rate_rps": 1.0})
    return _drawn(unit.model_dump_json(), seed).at_rate(spec.rate_rps)


def depends_on_seed(scenario: Scenario, seed: int) -> bool:
    """Whether another seed gives another run: a replayed trace is the same with all, unless routing draws."""
    if scenario.replicas > 1 and scenario.routing in DRAWN_ROUTINGS:
        return True
    own, next_one = (requests_of(scenario.workload, each).fingerprint() for each in (seed, seed + 1))
    return own != next_one


def latency_of(scenario: Scenario) -> LatencyModel:
    """The latency model of a scenario, which depends on nothing but its hardware.

    Each thread has its own, for a model counts its queries; Dask's workers may run several trials at a time.
    """
    return _latency(scenario.model_dump_json(include=HARDWARE), get_ident())


@lru_cache(maxsize=32)
def _drawn(spec: str, seed: int) -> Workload:
    return build_workload(WorkloadSpec.model_validate_json(spec), seed)


@lru_cache(maxsize=32)
def _latency(hardware: str, thread: int) -> LatencyModel:
    return build_latency(Scenario.model_validate({**json.loads(hardware), "workload": NO_REQUESTS}))
