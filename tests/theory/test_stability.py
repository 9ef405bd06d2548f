"""The verdict on stability, on queues whose truth is known: how often it is wrong, over many seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from simulator.stability import stability_of

Queue = Callable[[float, int, int], tuple[np.ndarray, np.ndarray]]


def one_at_a_time(load: float, num_requests: int, seed: int, *, equal: bool) -> tuple[np.ndarray, np.ndarray]:
    """Arrivals and ends of a queue with one server and a mean service of 1."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1 / load, num_requests))
    service = np.ones(num_requests) if equal else rng.exponential(1.0, num_requests)
    served = np.cumsum(service)
    # The server is busy from the last arrival that found it idle: Lindley's recursion, summed up.
    return arrival, served + np.maximum.accumulate(arrival - (served - service))


def m_m_1(load: float, num_requests: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    return one_at_a_time(load, num_requests, seed, equal=False)


def m_d_1(load: float, num_requests: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    return one_at_a_time(load, num_requests, seed, equal=True)


def room_for_all(mean_present: float, num_requests: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Nobody waits, as in an engine that is far from full; the present are a Poisson number."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1.0, num_requests))
    return arrival, arrival + rng.exponential(mean_present, num_requests)


def verdicts(queue: Queue, load: float, num_requests: int, seeds: int) -> Counter[str]:
    return Counter(stability_of(*queue(load, num_requests, seed)) for seed in range(seeds))


@pytest.mark.parametrize("num_requests", [512, 2048, 4096])
@pytest.mark.parametrize("queue", [m_m_1, m_d_1])
def test_a_queue_that_is_nearly_full_is_hardly_ever_called_backlogged(queue: Queue, num_requests: int):
    """False alarms: at most 1 %, or 2 % of the shortest runs at 95 % load."""
    for load in (0.9, 0.95):
        allowed = 20 if (load, num_requests) == (0.95, 512) else 10
        found = verdicts(queue, load, num_requests, seeds=1000)
        assert found["stable"] >= 1000 - allowed, (load, found)


def test_a_poisson_number_of_requests_is_stable():
    assert verdicts(room_for_all, 350.0, 4096, seeds=1000)["stable"] >= 990


@pytest.mark.parametrize("queue", [m_m_1, m_d_1])
def test_a_queue_that_is_just_full_is_called_backlogged_in_one_run_of_twenty(queue: Queue):
    """So often chance makes as much of a queue without drift, in runs of any length."""
    for num_requests in (1024, 20_000):
        assert verdicts(queue, 1.0, num_requests, seeds=200)["stable"] >= 0.93 * 200


@pytest.mark.parametrize("queue", [m_m_1, m_d_1])
@pytest.mark.parametrize(
    ("load", "num_requests", "found_out"),
    [(1.03, 100_000, 0.9), (1.05, 100_000, 1.0), (1.1, 20_000, 0.98), (1.3, 2048, 0.98)],
)
def test_a_little_too_much_load_is_found_out_in_a_long_run(
    queue: Queue, load: float, num_requests: int, found_out: float
):
    """A limit of 5 % of a quarter's arrivals would never find 3 % too much, however long the run."""
    assert verdicts(queue, load, num_requests, seeds=50)["stable"] <= (1 - found_out) * 50


def test_much_too_much_load_is_overload():
    assert verdicts(m_m_1, 2.0, 2048, seeds=50) == {"overloaded": 50}
