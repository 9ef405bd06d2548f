"""Which part of an error is step time, and which the rest: scheduling above all.

A diagnosis with the answer in hand, never a prediction: all iterations are stretched by the one factor with
which the mean TPOT comes out as measured. What the factor changes is the effect of wrong step times, queueing
included; what it leaves is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.validate.compare import LEAST_MEASURED, Errors, Replay, errors_pct, replay

if TYPE_CHECKING:
    from simulator.batch import BatchShape
    from simulator.config import Scenario
    from simulator.latency.model import LatencyModel
    from simulator.validate.recorded import RecordedRun

TOLERANCE = 5e-4
MAX_TRIES = 6


class Stretched:
    """A latency model whose every time is another one's times a factor."""

    def __init__(self, latency: LatencyModel, factor: float) -> None:
        self._latency = latency
        self._factor = factor
        self.num_stages = latency.num_stages
        self.num_queries = 0
        self.num_extrapolated = 0
        self.notes = latency.notes

    def stage_time_s(self, shape: BatchShape, stage: int) -> float:
        """The stretched time of a stage, in seconds."""
        self.num_queries += 1
        return self._factor * self._latency.stage_time_s(shape, stage)

    def hop_time_s(self, num_tokens: int) -> float:
        """The stretched time of a hop, in seconds."""
        return self._factor * self._latency.hop_time_s(num_tokens)

    def breakdown(self, shape: BatchShape, stage: int) -> dict[str, float]:
        """The stretched parts, in seconds."""
        return {name: self._factor * part for name, part in self._latency.breakdown(shape, stage).items()}


@dataclass(frozen=True)
class Split:
    """The factor that step times lack, and the errors that remain with it, in percent."""

    factor: float
    remaining_pct: Errors


def split_error(run: RecordedRun, scenario: Scenario, latency: LatencyModel, first: Replay) -> Split | None:
    """How much of the errors of a replay wrong step times explain; None where no TPOT was measured."""
    target = run.served.metrics["tpot_s"]["mean"]
    if target is None or target < LEAST_MEASURED:
        return None
    factor, served = 1.0, first.served
    for _ in range(MAX_TRIES):
        ratio = target / (served.metrics["tpot_s"]["mean"] or target)
        if abs(ratio - 1) < TOLERANCE:
            break
        factor *= ratio
        served = replay(run, scenario, Stretched(latency, factor)).served
    return Split(factor, errors_pct(run.served, served))
