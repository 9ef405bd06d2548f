"""The timing protocol, one for all operators: median and spread of samples taken as in a running model.

On a GPU a sample is the replay of a CUDA graph of n calls between two events, divided by n, so that launches
cost what they cost in a serving graph. On a CPU it is one call. Call i works on copy i of the weights or of
the KV cache, as layer i of a model does, so that nothing is found in a cache that a model would not find
there. Inputs that a layer has just produced stay hot, as in a model.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from profiler.device import Device

Call = Callable[[], object]

SPREAD_LIMIT = 1.1
"""p90/p10 above which a row is flagged `spread`."""
_SAMPLES = 7
_CPU_SAMPLES = 15
_WARM_CALLS = 3
_SAMPLE_US = 2000.0
_MOST_CALLS = 20


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds of one call: median, 10th and 90th percentile of the samples."""

    median_us: float
    p10_us: float
    p90_us: float
    num_samples: int
    flags: str = ""

    @classmethod
    def of(cls, samples_us: Sequence[float], flags: Sequence[str] = ()) -> Timing:
        """Statistics of samples; wide ones are flagged."""
        p10, median, p90 = (float(value) for value in np.percentile(samples_us, [10, 50, 90]))
        words = [*flags, "spread"] if p90 > SPREAD_LIMIT * p10 else [*flags]
        return cls(median, p10, p90, len(samples_us), ";".join(words))


class Clock(ABC):
    """Times calls on one device."""

    @abstractmethod
    def measure(self, calls: Sequence[Call]) -> Timing:
        """Time of one call; the calls are those of the copies, to be run in turn."""

    def preheat(self, call: Call, seconds: float) -> None:
        """Run a call for so many seconds, so that clocks have settled."""
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            self.measure([call])


def calls_per_sample(call_us: float, copies: int) -> int:
    """About two milliseconds of calls, at most 20 of them or one round over the copies, in whole rounds."""
    wanted = min(_MOST_CALLS, _SAMPLE_US / max(call_us, 1e-3))
    return copies * max(1, int(wanted / copies))


def clock_for(device: Device, between: Call | None = None) -> Clock:
    """The clock of a device; `between` is for CPUs, see there."""
    return CudaClock(device) if device.is_cuda else CpuClock(between)


class CpuClock(Clock):
    """Times single calls on a CPU, whose kernels have run when their call returns.

    `between` runs untimed before every call: with a layer of the model for it, caches and branch predictors
    hold what they would hold there, instructions included, which a loop over one operator would not show.
    With one torch thread it is that thread's CPU time that counts, so that other processes do not.
    """

    def __init__(self, between: Call | None = None, now: Callable[[], float] | None = None) -> None:
        self._between = between
        self._now = now or _cpu_timer()

    def measure(self, calls: Sequence[Call]) -> Timing:
        """Median over single calls, the copies in turn."""
        turns = cycle(calls)
        for _ in range(_WARM_CALLS):
            self._once_us(next(turns))
        return Timing.of([self._once_us(next(turns)) for _ in range(_CPU_SAMPLES)])

    def _once_us(self, call: Call) -> float:
        if self._between is not None:
            self._between()
        start = self._now()
        call()
        return (self._now() - start) * 1e6


def _cpu_timer() -> Callable[[], float]:
    import torch

    return time.thread_time if torch.get_num_threads() == 1 else time.perf_counter


class CudaClock(Clock):
    """Device time between events, around replays of a CUDA graph.

    A call that cannot be captured is timed without a graph and its row flagged `eager`. Not yet run on a GPU.
    """

    def __init__(self, device: Device) -> None:
        import torch

        self._cuda = torch.cuda
        self._device = device
        self._pool: Any = torch.cuda.graph_pool_handle()
        # A memory pool dies with its last graph: this one keeps it.
        cell = torch.zeros(1, device=device.handle)
        self._keeper = self._capture([cell.zero_], 1)

    def measure(self, calls: Sequence[Call]) -> Timing:
        """Median over graph replays, the first of which is dropped."""
        for i in range(max(_WARM_CALLS, len(calls))):
            calls[i % len(calls)]()
        call_us = self._between_events_us(lambda: _round(calls, len(calls))) / len(calls)
        count = calls_per_sample(call_us, len(calls))
        try:
            graph = self._capture(calls, count)
        except RuntimeError:
            self._device.synchronise()
            return Timing.of(self._samples(lambda: _round(calls, count), count), ["eager"])
        try:
            return Timing.of(self._samples(graph.replay, count))
        finally:
            graph.reset()

    def _capture(self, calls: Sequence[Call], count: int) -> Any:
        graph = self._cuda.CUDAGraph()
        with self._cuda.graph(graph, pool=self._pool):
            _round(calls, count)
        return graph

    def _samples(self, run: Call, count: int) -> list[float]:
        self._between_events_us(run)
        return [self._between_events_us(run) / count for _ in range(_SAMPLES)]

    def _between_events_us(self, run: Call) -> float:
        start, end = (self._cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e3


def _round(calls: Sequence[Call], count: int) -> None:
    for i in range(count):
        calls[i % len(calls)]()
