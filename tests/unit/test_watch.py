"""A run is ended early only if it would have broken its SLO anyway."""

from __future__ import annotations

import numpy as np
import pytest
from builders import PerToken, make_request, make_scheduler, serve
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.load import load_scenario
from simulator.metrics import Result
from simulator.request import Request
from simulator.run import simulate
from simulator.watch import SLOBroken, Watch
from simulator.workload import Workload


def random_requests(rate: float, seed: int, count: int = 80) -> list[Request]:
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / rate, count)).tolist()
    return [
        make_request(i, int(rng.integers(1, 24)), int(rng.integers(1, 20)), at)
        for i, at in enumerate(arrivals)
    ]


def workload_of(requests: list[Request]) -> Workload:
    return Workload(
        arrival_s=np.array([r.arrival_s for r in requests]),
        prompt_tokens=np.array([r.prompt_tokens for r in requests]),
        output_tokens=np.array([r.output_tokens for r in requests]),
        name="random",
    )


def run(
    policy: str, rate: float, seed: int, slo: dict[str, float], stages: int, *, watched: bool
) -> Result | str:
    requests = random_requests(rate, seed)
    schedulers = [make_scheduler(policy, num_blocks=24, max_model_len=48) for _ in range(2)]
    latency = PerToken(0.2, 0.02, stages)
    if not watched:
        return serve(requests, schedulers, latency, slo=slo)
    watch = Watch(slo, workload_of(requests))
    try:
        return serve(requests, schedulers, latency, slo=slo, new_recorder=watch.recorder)
    except SLOBroken as broken:
        return str(broken)


@settings(max_examples=80, deadline=None)
@given(
    policy=st.sampled_from(["stall_free", "prefill_first", "chunked_only", "decode_first"]),
    rate=st.floats(0.05, 3.0),
    seed=st.integers(0, 99),
    statistic=st.sampled_from(["p50", "p90", "p99", "max"]),
    tbt_s=st.floats(0.2, 3.0),
    delay_statistic=st.sampled_from(["p50", "p99", "max"]),
    delay_s=st.floats(0.1, 30.0),
    stages=st.integers(1, 3),
)
def test_who_is_ended_would_have_failed(
    policy: str,
    rate: float,
    seed: int,
    statistic: str,
    tbt_s: float,
    delay_statistic: str,
    delay_s: float,
    stages: int,
) -> None:
    slo = {f"{statistic}_tbt_s": tbt_s, f"{delay_statistic}_scheduling_delay_s": delay_s}
    outcome = run(policy, rate, seed, slo, stages, watched=True)
    whole = run(policy, rate, seed, slo, stages, watched=False)
    assert isinstance(whole, Result)
    if isinstance(outcome, str):
        assert outcome in whole.violations()
    else:
        assert outcome.metrics == whole.metrics


@pytest.mark.parametrize(("replicas", "stages"), [(2, 1), (4, 1), (4, 3)])
def test_whoever_runs_for_the_first_time_does_not_wait(replicas: int, stages: int) -> None:
    """Every request is scheduled as it arrives, and its first iteration is longer than the bound."""
    requests = [make_request(i, prompt=40, output=3, arrival_s=2.0 * i) for i in range(200)]
    slo = {"max_scheduling_delay_s": 0.1}
    watch = Watch(slo, workload_of(requests))
    schedulers = [make_scheduler("stall_free", budget=64, num_blocks=999) for _ in range(replicas)]
    result = serve(requests, schedulers, PerToken(0.2, 0.045, stages), slo=slo, new_recorder=watch.recorder)
    assert not result.violations()


def test_a_hopeless_queue_is_ended_when_half_have_waited_too_long() -> None:
    requests = [make_request(i, prompt=8, output=1, arrival_s=0.1 * i) for i in range(1000)]
    watch = Watch({"p50_scheduling_delay_s": 5.0}, workload_of(requests))
    with pytest.raises(SLOBroken, match="p50_scheduling_delay_s"):
        serve(requests, make_scheduler(budget=8), new_recorder=watch.recorder)
    assert watch.num_scheduled < 100


def test_long_gaps_end_a_run() -> None:
    requests = [make_request(i, prompt=8, output=50, arrival_s=5.0 * i) for i in range(100)]
    watch = Watch({"p99_tbt_ms": 900.0}, workload_of(requests))
    with pytest.raises(SLOBroken, match="p99_tbt_ms"):
        serve(requests, make_scheduler(num_blocks=999), new_recorder=watch.recorder)
    assert watch.num_scheduled < 10


def test_requests_that_are_rejected_do_not_wait() -> None:
    """Most requests can never run; those that can are served at once, so the median delay holds."""
    scenario = load_scenario("default", ["scheduler.max_model_len=4096", "kernels=roofline"])
    lengths = np.array([10, 5000, 5000, 5000] * 50)
    workload = Workload(
        arrival_s=np.arange(200) * 1.0, prompt_tokens=lengths, output_tokens=np.full(200, 8), name="half"
    )
    slo = {"p50_scheduling_delay_s": 0.5}
    watched = simulate(scenario, workload=workload, watch=Watch(slo, workload))
    assert watched.requests_rejected == 150
    assert watched.meets(slo)
