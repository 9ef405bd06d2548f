"""What a replay found: predicted against measured iterations, and what the requests of a live run saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from simulator.batch import BatchShape

if TYPE_CHECKING:
    from profiler.watch import HostCost
    from simulator.metrics import Result

COMPOSITIONS = ("decode", "prefill", "mixed")
Mode = Literal["sample", "live"]
_LIVE_METRICS = ("ttft_s", "tbt_s", "tpot_s", "e2e_s")


def composition(shape: BatchShape) -> str:
    """decode, prefill or mixed."""
    if not shape.chunks:
        return "decode"
    return "mixed" if shape.num_decodes else "prefill"


class Measured(NamedTuple):
    """One iteration: predicted and measured seconds."""

    shape: BatchShape
    predicted_s: float
    measured_s: float

    @property
    def error_pct(self) -> float:
        """Predicted against measured time, in per cent; positive where the prediction is too long."""
        return (self.predicted_s / self.measured_s - 1) * 100


@dataclass(frozen=True)
class ReplayReport:
    """Predicted against measured iterations, and for a live run what its requests saw."""

    scenario: str
    mode: Mode
    device: str
    backend: str
    iterations: tuple[Measured, ...] = field(repr=False)
    notes: tuple[str, ...]
    live: Result | None = None
    simulated: Result | None = None
    host: HostCost | None = None
    """Host time of an iteration in a live run."""

    @property
    def iteration_error_pct(self) -> dict[str, float]:
        """Median and 90th percentile of the absolute error, and the median signed one, in per cent."""
        return _errors(self.iterations)

    def by_composition(self) -> dict[str, dict[str, float]]:
        """The same errors, with counts and median times, for each kind of batch that occurred."""
        groups = {
            name: [item for item in self.iterations if composition(item.shape) == name]
            for name in COMPOSITIONS
        }
        return {name: _summary(group) for name, group in groups.items() if group}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        data: dict[str, Any] = {
            "scenario": self.scenario,
            "mode": self.mode,
            "device": self.device,
            "backend": self.backend,
            "iterations": len(self.iterations),
            "iteration_error_pct": self.iteration_error_pct,
            "by_composition": self.by_composition(),
            "notes": list(self.notes),
        }
        if self.live is not None and self.simulated is not None:
            data["live"] = _served(self.live)
            data["simulated"] = _served(self.simulated)
        if self.host is not None:
            data["host"] = self.host._asdict()
        return data


def _errors(iterations: Sequence[Measured]) -> dict[str, float]:
    errors = np.array([item.error_pct for item in iterations])
    p50, p90 = np.percentile(np.abs(errors), [50, 90])
    return {"p50": float(p50), "p90": float(p90), "bias": float(np.median(errors))}


def _summary(iterations: Sequence[Measured]) -> dict[str, float]:
    return {
        "count": float(len(iterations)),
        "measured_ms": float(np.median([item.measured_s for item in iterations])) * 1e3,
        "predicted_ms": float(np.median([item.predicted_s for item in iterations])) * 1e3,
        **_errors(iterations),
    }


def _served(result: Result) -> dict[str, Any]:
    metrics = {name: result.metrics[name] for name in _LIVE_METRICS}
    return {
        "metrics": metrics,
        "requests_completed": result.requests_completed,
        "throughput_rps": result.throughput_rps,
        "output_tokens_per_s": result.output_tokens_per_s,
    }
