"""How the arrival rate moves with time: in phases, or along a curve; one on average.

A profile tells when a given load has arrived, the load being counted in seconds at the average rate. So the
gaps of a Poisson process, drawn once, follow any profile at any rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simulator.errors import ConfigError
from simulator.workload.streams import stream

Seconds = NDArray[np.float64]


MAX_BURSTS = 2_000_000
"""Most bursts drawn for one workload: each takes memory, and many in a run are a steady rate."""


class Profile(Protocol):
    """The course of a rate."""

    def when(self, load_s: Seconds) -> Seconds:
        """The times at which the rate's integral reaches each load."""


@dataclass(frozen=True)
class Phases:
    """On and off in turn, each for an exponential time: Poisson arrivals become Markov-modulated ones.

    While off the rate is `off_share` of what it is while on. The average is one over many phases, not few.
    """

    on_s: float
    off_s: float
    off_share: float
    seed: int

    def when(self, load_s: Seconds) -> Seconds:
        """Times by straight interpolation: within a phase the rate does not change.

        ConfigError where that takes more bursts than anyone would draw.
        """
        bursts = load_s[-1] / (self.on_s + self.off_s) if len(load_s) else 0
        if bursts > MAX_BURSTS:
            raise ConfigError(
                f"workload.on_off: {self.on_s:g} s on and {self.off_s:g} s off are {bursts:.6g} bursts until"
                f" the last request (allowed: up to {MAX_BURSTS})"
            )
        count = 16
        while True:
            time_s, area = self._phases(count)
            if not len(load_s) or area[-1] >= load_s[-1]:
                return np.interp(load_s, area, time_s)
            count *= 2

    def _phases(self, count: int) -> tuple[Seconds, Seconds]:
        """Ends of the first phases, and the load that has come by then; more of them begin with the same."""
        rng = stream(self.seed, "phases")
        on_share = self.on_s / (self.on_s + self.off_s)
        is_on = (np.arange(count) + (rng.random() >= on_share)) % 2 == 0
        lasts_s = rng.standard_exponential(count) * np.where(is_on, self.on_s, self.off_s)
        on_rate = 1 / (on_share + (1 - on_share) * self.off_share)
        arrives = lasts_s * np.where(is_on, on_rate, on_rate * self.off_share)
        return np.cumsum([0.0, *lasts_s]), np.cumsum([0.0, *arrives])


@dataclass(frozen=True)
class Curve:
    """A rate through points (seconds, rate), straight between them, that starts over after the last point."""

    points: tuple[tuple[float, float], ...]

    def when(self, load_s: Seconds) -> Seconds:
        """Times by solving a quadratic equation: within a segment the load grows with the time's square."""
        time_s, rate = np.array(self.points).T
        width = np.diff(time_s)
        area = np.cumsum([0.0, *(width * (rate[:-1] + rate[1:]) / 2)])
        scale = time_s[-1] / area[-1]  # the average becomes one
        rate, area = rate * scale, area * scale
        passes, rest = np.divmod(load_s, time_s[-1])
        segment = np.minimum(np.searchsorted(area, rest, side="right"), len(width)) - 1
        start, slope = rate[segment], (np.diff(rate) / width)[segment]
        missing = np.maximum(rest - area[segment], 0.0)
        # The root in the form that neither a flat segment nor one from zero spoils.
        divisor = start + np.sqrt(np.maximum(start**2 + 2 * slope * missing, 0.0))
        within = np.divide(2 * missing, divisor, out=np.zeros_like(missing), where=divisor > 0)
        times = passes * time_s[-1] + time_s[segment] + np.minimum(within, width[segment])
        return np.maximum.accumulate(times)  # two that are next to each other may be an ulp out of order
