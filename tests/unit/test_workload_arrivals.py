"""Arrival processes: the right rate and spread; recorded times repeat without a seam."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.workload import arrivals
from simulator.workload.streams import stream

COUNT = 50_000


def gaps(times: np.ndarray) -> np.ndarray:
    return np.diff(times, prepend=0)


def test_poisson_gaps_have_mean_and_deviation_one() -> None:
    drawn = gaps(arrivals.poisson(COUNT, stream(1, "arrivals")))
    assert drawn.mean() == pytest.approx(1, abs=0.02)
    assert drawn.std() == pytest.approx(1, abs=0.02)


def test_truncated_gaps_raise_the_load_as_stated() -> None:
    drawn = gaps(arrivals.poisson(COUNT, stream(1, "arrivals"), truncate_at=3))
    assert drawn.max() == pytest.approx(3)
    assert arrivals.truncated_load(3) == pytest.approx(1.0524, abs=1e-4)
    assert 1 / drawn.mean() == pytest.approx(arrivals.truncated_load(3), rel=0.01)


@pytest.mark.parametrize("cv", [0.25, 1.0, 3.0])
def test_gamma_gaps_have_the_coefficient_of_variation(cv: float) -> None:
    drawn = gaps(arrivals.gamma(COUNT, stream(1, "arrivals"), cv))
    assert drawn.mean() == pytest.approx(1, abs=0.05)
    assert drawn.std() / drawn.mean() == pytest.approx(cv, rel=0.05)


def test_constant_arrivals_start_at_once() -> None:
    assert arrivals.constant(4).tolist() == [0, 1, 2, 3]


def test_fewer_times_than_recorded_are_the_first() -> None:
    assert arrivals.repeat_times(np.array([0.0, 1.0, 5.0]), 2).tolist() == [0, 1]


def test_repeated_times_go_on_one_mean_gap_after_the_last() -> None:
    times = arrivals.repeat_times(np.array([1.0, 2.0, 5.0]), 7)
    assert times.tolist() == [1, 2, 5, 7, 8, 11, 13]
    assert arrivals.mean_rate(times[:6]) == pytest.approx(arrivals.mean_rate(np.array([1.0, 2.0, 5.0])))


def test_times_of_one_moment_repeat_at_that_moment() -> None:
    assert arrivals.repeat_times(np.array([2.0, 2.0]), 5).tolist() == [2] * 5


def test_one_moment_has_no_rate() -> None:
    assert arrivals.mean_rate(np.array([1.0])) is None
    assert arrivals.mean_rate(np.array([1.0, 1.0])) is None
    assert arrivals.mean_rate(np.array([0.0, 1.0, 4.0])) == 0.5
