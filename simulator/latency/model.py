"""The contract between the event loop and a latency model, and the simplest model there is."""

from __future__ import annotations

from typing import Protocol

from simulator.batch import BatchShape


class LatencyModel(Protocol):
    """Seconds that one iteration takes; a pure function of the shape but for the two counters."""

    num_stages: int
    num_queries: int
    """Predictions so far."""
    num_extrapolated: int
    """How many of them lay outside the measured range."""
    notes: tuple[str, ...]
    """Where the times come from and what stands in for what, one sentence each."""

    def stage_time_s(self, shape: BatchShape, stage: int) -> float:
        """Seconds that pipeline stage `stage` is busy with the batch, host overhead included; > 0."""

    def hop_time_s(self, num_tokens: int) -> float:
        """Seconds to send the activations of that many tokens to the next stage; 0.0 with one stage."""

    def breakdown(self, shape: BatchShape, stage: int) -> dict[str, float]:
        """The named parts of `stage_time_s` in seconds; they sum to it."""


class ConstantLatency:
    """Every stage takes the same time whatever the batch: for tests of the loop and of queueing laws."""

    notes: tuple[str, ...] = ()

    def __init__(self, num_stages: int = 1, seconds: float = 1.0, hop_s: float = 0.0) -> None:
        self.num_stages = num_stages
        self.num_queries = 0
        self.num_extrapolated = 0
        self._seconds = seconds
        self._hop_s = hop_s

    def stage_time_s(self, shape: BatchShape, stage: int) -> float:
        """The constant, in seconds."""
        self.num_queries += 1
        return self._seconds

    def hop_time_s(self, num_tokens: int) -> float:
        """The constant hop, in seconds."""
        return self._hop_s

    def breakdown(self, shape: BatchShape, stage: int) -> dict[str, float]:
        """One part: the constant, in seconds."""
        return {"constant": self._seconds}
