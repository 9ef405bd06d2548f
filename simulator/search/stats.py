"""Means and their uncertainty over a handful of replications."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

# Two-sided 95 % points of Student's t for 1, 2, ... degrees of freedom (any statistics textbook's table);
# written out because importing scipy for one number costs half a second of start-up.
_T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


class Interval(NamedTuple):
    """Both ends of a 95 % confidence interval, in the unit of the values."""

    low: float
    high: float

    @property
    def half(self) -> float:
        """Half its width."""
        return (self.high - self.low) / 2

    def contains(self, value: float) -> bool:
        """Whether `value` lies within the interval, ends included."""
        return self.low <= value <= self.high


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean of at least one value."""
    return sum(values) / len(values)


def t_quantile(degrees: int) -> float:
    """Two-sided 95 % point of Student's t; beyond the table by its expansion around the normal's."""
    if degrees <= len(_T_95):
        return _T_95[degrees - 1]
    return 1.95996 + 2.3723 / degrees + 2.822 / degrees**2


def mean_interval(values: Sequence[float], resolution: float = 0.0) -> Interval | None:
    """95 % interval of the mean of independent replications; None for fewer than two.

    Values that were only found to a `resolution`, the width of a bracket, hide a spread of that width divided
    by sqrt(12), which is added to what they show.
    """
    count = len(values)
    if count < 2:
        return None
    centre = mean(values)
    variance = sum((value - centre) ** 2 for value in values) / (count - 1) + resolution**2 / 12
    half = t_quantile(count - 1) * sqrt(variance / count)
    return Interval(centre - half, centre + half)
