"""The paper's search for a capacity, on formulas in place of runs."""

from __future__ import annotations

import pytest

from simulator.reproduce.rule import Outcome, search

TBT_S = 0.1


def limited(capacity_rps: float, delay_s: float = 0.0, beyond_s: float = 3.0):
    """Delays are `delay_s` up to a capacity and `beyond_s` from there on."""
    return lambda rate: Outcome(0.05, delay_s if rate <= capacity_rps else beyond_s)


@pytest.mark.parametrize("capacity_rps", [0.13, 0.78, 1.05, 2.05, 3.9, 11.0])
def test_finds_a_capacity_to_two_and_a_half_percent(capacity_rps: float) -> None:
    found = search(limited(capacity_rps), 4.0, TBT_S)
    assert found.capacity_rps is not None
    assert found.capacity_rps <= capacity_rps
    assert capacity_rps - found.capacity_rps <= max(0.025 * capacity_rps, 0.011)


def test_first_rate_is_where_it_starts_and_rates_have_two_digits() -> None:
    rates = [rate for rate, _ in search(limited(1.3), 4.0, TBT_S).trials]
    assert rates[0] == 4.0
    assert all(rate == round(rate, 2) for rate in rates)
    assert len(rates) == len(set(rates)) <= 20


def test_a_tail_beyond_its_bound_fails_whatever_the_delay() -> None:
    found = search(lambda rate: Outcome(0.2 if rate > 1 else 0.05, 0.0), 4.0, TBT_S)
    assert found.capacity_rps == pytest.approx(1.0, rel=0.025)


def test_nothing_holds() -> None:
    assert search(lambda rate: Outcome(9.9, 0.0), 4.0, TBT_S).capacity_rps is None


def test_a_hopeless_delay_halves_the_upper_end() -> None:
    mild = [rate for rate, _ in search(limited(0.5, beyond_s=3.0), 4.0, TBT_S).trials]
    hopeless = [rate for rate, _ in search(limited(0.5, beyond_s=501.0), 4.0, TBT_S).trials]
    assert mild[1] == 2.0
    assert hopeless[1] == 1.0


def test_the_upper_end_moves_up_only_while_delays_are_small() -> None:
    for delay_s, second in ((0.1, 18.0), (0.4, 10.0), (1.9, 6.0)):
        rates = [rate for rate, _ in search(limited(100.0, delay_s), 4.0, TBT_S).trials]
        assert rates[1] == second
