"""Bracketing and bisection: the answer encloses the truth, in few questions, within the range."""

from __future__ import annotations

import pytest

from simulator.search.threshold import find_threshold, tidy_rate


def search(truth: float, guess: float, tolerance: float = 0.025, floor: float = 0.01, ceiling: float = 100.0):
    asked: list[float] = []

    def holds(rate: float) -> bool:
        asked.append(rate)
        return rate <= truth

    found = find_threshold(
        holds, guess, tolerance=tolerance, floor=floor, ceiling=ceiling, first_step=2 * tolerance
    )
    return found, asked


@pytest.mark.parametrize("truth", [0.0123, 0.5, 3.0, 7.77, 60.0])
@pytest.mark.parametrize("guess", [0.02, 1.0, 7.8, 99.0])
def test_the_bracket_encloses_the_truth_and_is_as_fine_as_asked(truth: float, guess: float):
    found, _ = search(truth, guess)
    assert found.holds is not None
    assert found.fails is not None
    assert found.holds <= truth < found.fails
    assert found.fails <= found.holds * 1.0251


def test_a_good_guess_needs_few_questions():
    _, asked = search(truth=5.1, guess=5.0)
    assert len(asked) == 3


def test_no_rate_is_asked_twice():
    for truth in (0.02, 1.0, 50.0):
        _, asked = search(truth, guess=4.0)
        assert len(asked) == len(set(asked))


def test_every_rate_has_four_digits():
    _, asked = search(truth=3.3333, guess=2.0)
    assert all(rate == tidy_rate(rate) for rate in asked)


def test_nothing_holds():
    found, asked = search(truth=0.0, guess=5.0, floor=0.5)
    assert found == (None, 0.5)
    assert min(asked) == 0.5


def test_everything_holds():
    found, asked = search(truth=1e9, guess=5.0, ceiling=20.0)
    assert found == (20.0, None)
    assert max(asked) == 20.0


def test_a_guess_outside_the_range_is_moved_into_it():
    found, asked = search(truth=15.0, guess=500.0, ceiling=20.0)
    assert asked[0] == 20.0
    assert found.holds is not None
    assert found.holds <= 15.0


def test_a_tolerance_finer_than_the_digits_ends():
    found, _ = search(truth=5.0, guess=5.0, tolerance=1e-9)
    assert found.holds is not None
    assert found.fails is not None
    assert found.fails - found.holds == pytest.approx(0.001)
