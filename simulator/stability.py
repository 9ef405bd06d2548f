"""Whether an engine keeps up with its load, from when its requests came and went."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOOKS = 16
"""Steps into which the second half of the arrivals is cut to see how much the queue wanders."""
CHANCE_SDS, POISSON_SDS = 2.0, 3.0
OVERLOADED_SHARE = 0.25


def stability_of(arrival_s: NDArray[np.float64], finished_s: NDArray[np.float64]) -> str:
    """`stable`, `backlogged` or `overloaded`; `n/a` for a burst and for fewer than eight requests.

    Compares the unfinished requests seen by arrivals of the last quarter with those of the quarter before.
    Growth is stable within three standard deviations of a Poisson number, or within two of what a random walk
    with the queue's own ups and downs makes by chance; by more than 25 % of the quarter's arrivals it is
    overload: the queue grows as long as the load lasts.
    """
    arrival_s = np.sort(arrival_s)
    quarter = len(arrival_s) // 4
    if quarter < 2 or arrival_s[0] == arrival_s[-1]:
        return "n/a"
    finished_before = np.searchsorted(np.sort(finished_s), arrival_s, side="right")
    unfinished = (np.arange(len(arrival_s)) - finished_before)[-2 * quarter :]
    before = float(unfinished[:quarter].mean())
    growth = float(unfinished[quarter:].mean()) - before
    if growth <= max(POISSON_SDS * math.sqrt(max(before, 1.0)), CHANCE_SDS * _chance(unfinished)):
        return "stable"
    return "overloaded" if growth > OVERLOADED_SHARE * quarter else "backlogged"


def _chance(unfinished: NDArray[np.int64]) -> float:
    """Standard deviation of the growth between two quarters if the queue were a random walk without drift.

    At its capacity a queue is one: its ups and downs add up, and what a Poisson number allows is soon
    exceeded. Below capacity it comes back and wanders less. The steps are the queue's own, so they have the
    spread of its arrivals and lengths; a drift is no part of it.
    """
    looks = np.linspace(0, len(unfinished) - 1, LOOKS + 1).round().astype(int)
    step = float(np.diff(unfinished[looks]).std(ddof=1))
    # Two neighbouring means over m steps each of a random walk differ with variance 2/3 m times a step's.
    return step * math.sqrt(2 / 3 * LOOKS / 2)
