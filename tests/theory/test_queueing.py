"""Queueing theory: where a formula is known, the simulated mean must agree within its own standard error."""

from __future__ import annotations

import numpy as np
import pytest
from builders import PerToken, make_request, make_scheduler, serve

from simulator.latency.model import ConstantLatency


def mean_wait(rho: float, seed: int, num_requests: int = 20_000) -> float:
    """Mean wait in service times: Poisson arrivals, one request of one iteration at a time."""
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(1 / rho, num_requests)).tolist()
    requests = (make_request(i, prompt=8, output=1, arrival_s=at) for i, at in enumerate(arrivals))
    result = serve(requests, make_scheduler(budget=8, max_num_seqs=1))
    # The queue starts empty: leave out the run-up.
    order = np.argsort(result.records.requests["id"])
    return float(result.latencies["scheduling_delay_s"][order][num_requests // 10 :].mean())


@pytest.mark.parametrize("rho", [0.3, 0.6, 0.8])
def test_waits_of_an_m_d_1_queue(rho: float) -> None:
    waits = np.array([mean_wait(rho, seed) for seed in range(8)])
    theory = rho / (2 * (1 - rho))
    standard_error = waits.std(ddof=1) / np.sqrt(len(waits))
    assert abs(waits.mean() - theory) < 3 * standard_error
    assert standard_error < 0.05 * theory, "too wide to mean anything"


def test_waits_of_an_m_g_1_queue() -> None:
    """Prompts of two sizes, one at a time: Pollaczek-Khinchine."""
    sizes, rate = np.array([4, 16]), 0.06
    means = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        arrivals = np.cumsum(rng.exponential(1 / rate, 10_000)).tolist()
        prompts = rng.choice(sizes, 10_000).tolist()
        requests = (
            make_request(i, prompt, 1, at)
            for i, (prompt, at) in enumerate(zip(prompts, arrivals, strict=True))
        )
        scheduler = make_scheduler(budget=16, max_num_seqs=1)
        means.append(serve(requests, scheduler, PerToken(0.0, 1.0)).metrics["scheduling_delay_s"]["mean"])
    waits = np.array(means)
    theory = rate * (sizes**2).mean() / (2 * (1 - rate * sizes.mean()))
    assert abs(waits.mean() - theory) < 3 * waits.std(ddof=1) / np.sqrt(len(waits))


def test_saturated_throughput_is_the_budget_over_the_iteration_time() -> None:
    """Prompts only: every iteration is full, so tokens per second = budget / iteration time."""
    requests = [make_request(i, prompt=30, output=1) for i in range(400)]
    result = serve(requests, make_scheduler(budget=16, num_blocks=999), ConstantLatency(1, 0.5))
    tokens_per_s = 400 * 30 / result.makespan_s
    assert tokens_per_s == pytest.approx(16 / 0.5, rel=0.001)


def test_decodes_alone_run_at_the_batch_over_the_iteration_time() -> None:
    requests = [make_request(i, prompt=1, output=40) for i in range(80)]
    result = serve(
        requests, make_scheduler(budget=64, max_num_seqs=8, num_blocks=999), ConstantLatency(1, 0.25)
    )
    # Each wave of 8 takes 40 iterations.
    assert result.makespan_s == pytest.approx(10 * 40 * 0.25)
    assert result.metrics["tbt_s"]["max"] == 0.25


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_little_s_law(stages: int) -> None:
    """Mean number in the system = arrival rate x mean time in it, over a run that starts and ends empty."""
    rng = np.random.default_rng(5)
    arrivals = np.cumsum(rng.exponential(2.0, 500)).tolist()
    requests = [make_request(i, 8, int(rng.integers(1, 6)), at) for i, at in enumerate(arrivals)]
    result = serve(requests, make_scheduler(num_blocks=999), ConstantLatency(stages, 0.2))
    columns = result.records.requests
    times = np.sort(np.concatenate([columns["arrival_s"], columns["finished_s"]]))
    present = [((columns["arrival_s"] <= t) & (columns["finished_s"] > t)).sum() for t in times[:-1]]
    mean_number = np.dot(present, np.diff(times)) / result.makespan_s
    assert mean_number == pytest.approx(result.throughput_rps * result.metrics["e2e_s"]["mean"])
