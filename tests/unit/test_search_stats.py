"""Intervals of means against a statistics library."""

from __future__ import annotations

import pytest

from simulator.search.stats import Interval, mean, mean_interval, t_quantile


@pytest.mark.parametrize("degrees", [1, 2, 9, 30, 31, 60, 500])
def test_quantiles_of_student_t(degrees: int):
    stats = pytest.importorskip("scipy.stats")
    assert t_quantile(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), abs=2e-3)


def test_interval_of_a_known_sample():
    # Mean 3, sample variance 2.5, 4 degrees of freedom: 3 +- 2.776 * sqrt(2.5 / 5).
    interval = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert interval is not None
    assert interval == pytest.approx((1.0370, 4.9630), abs=1e-3)
    assert interval.half == pytest.approx(1.963, abs=1e-3)


def test_equal_values_leave_no_doubt():
    assert mean_interval([2.0, 2.0]) == Interval(2.0, 2.0)


def test_equal_values_of_a_coarse_search_leave_its_resolution():
    interval = mean_interval([2.0] * 4, resolution=0.12)
    assert interval is not None
    assert interval.half == pytest.approx(3.182 * 0.12 / 12**0.5 / 2)


def test_one_value_has_no_interval():
    assert mean_interval([2.0]) is None


def test_mean():
    assert mean([1.0, 2.0, 6.0]) == 3.0


@pytest.mark.parametrize(("value", "inside"), [(0.9, False), (1.0, True), (2.0, True), (2.1, False)])
def test_an_interval_contains_its_ends(value: float, inside: bool):
    assert Interval(1.0, 2.0).contains(value) is inside
