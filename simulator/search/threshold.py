"""Finds where a yes/no property of a rate changes from yes to no, in as few questions as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import sqrt
from typing import NamedTuple


class Threshold(NamedTuple):
    """A bracket: the largest rate that held (None: not even the floor) and the smallest that did not
    (None: the ceiling held too)."""

    holds: float | None
    fails: float | None


def tidy_rate(rate: float) -> float:
    """The rate to four significant digits, so that the number printed is the number tried."""
    return float(f"{rate:.4g}")


def find_threshold(
    holds: Callable[[float], bool],
    guess: float,
    *,
    tolerance: float,
    floor: float,
    ceiling: float,
    first_step: float,
) -> Threshold:
    """Bracket from `guess` in growing steps, then bisect until the ends differ by `tolerance`, a share.

    `holds` should be true below some rate and false above it; rates outside [floor, ceiling] are never asked.
    """
    rate = tidy_rate(min(max(guess, floor), ceiling))
    if holds(rate):
        bracket = _climb(holds, rate, ceiling, first_step)
    else:
        bracket = _descend(holds, rate, floor, first_step)
    return _bisect(holds, bracket, tolerance)


def _climb(holds: Callable[[float], bool], low: float, ceiling: float, first_step: float) -> Threshold:
    for step in _steps(first_step):
        if low >= ceiling:
            break
        rate = min(tidy_rate(low * (1 + step)), ceiling)
        if not holds(rate):
            return Threshold(low, rate)
        low = rate
    return Threshold(low, None)


def _descend(holds: Callable[[float], bool], high: float, floor: float, first_step: float) -> Threshold:
    for step in _steps(first_step):
        if high <= floor:
            break
        rate = max(tidy_rate(high / (1 + step)), floor)
        if holds(rate):
            return Threshold(rate, high)
        high = rate
    return Threshold(None, high)


def _steps(first: float) -> Iterator[float]:
    """The first step twice, for a guess is seldom off by more; then twice as much each time."""
    yield first
    while True:
        yield first
        first *= 2


def _bisect(holds: Callable[[float], bool], bracket: Threshold, tolerance: float) -> Threshold:
    low, high = bracket
    if low is None or high is None:
        return bracket
    while high > low * (1 + tolerance):
        middle = tidy_rate(sqrt(low * high))
        if not low < middle < high:  # the bracket is already as fine as the rates are written
            break
        low, high = (middle, high) if holds(middle) else (low, middle)
    return Threshold(low, high)
