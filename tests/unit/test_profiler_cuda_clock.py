"""The CUDA clock, on stand-ins for events and graphs; whether a GPU agrees only a GPU can tell."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="profiling needs torch: pip install 'stallfree[profile]'")

from profiler.device import open_device
from profiler.timing import CudaClock


class FakeGpu:
    """Calls take device time; a graph replays what was called while it was captured, without launch gaps."""

    def __init__(self, *call_us: float, gap_us: float = 7.0) -> None:
        self.now_us = 0.0
        self.gap_us = gap_us
        self.captured: list[float] | None = None
        self.replayed: list[int] = []
        self.eager = 0
        self.capturable = True
        self.calls = [lambda cost=cost: self._launch(cost) for cost in call_us]

    def _launch(self, cost: float) -> None:
        if self.captured is not None:
            if not self.capturable:
                raise RuntimeError("operation not permitted when stream is capturing")
            self.captured.append(cost)
            return
        self.eager += 1
        self.now_us += cost + self.gap_us


@pytest.fixture
def clock_of(monkeypatch):
    def install(gpu: FakeGpu) -> CudaClock:
        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                self.at_us = gpu.now_us

            def synchronize(self) -> None:
                pass

            def elapsed_time(self, end: Event) -> float:
                return (end.at_us - self.at_us) / 1e3

        class Graph:
            def replay(self) -> None:
                gpu.replayed.append(len(self.costs))
                gpu.now_us += sum(self.costs)

            def reset(self) -> None:
                self.costs = None

        @contextmanager
        def capture(graph: Graph, pool: object):
            gpu.captured = graph.costs = []
            try:
                yield
            finally:
                gpu.captured = None

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
        monkeypatch.setattr(torch.cuda, "graph", capture)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
        return CudaClock(replace(open_device("cpu"), capability=(9, 0)))

    return install


def test_launch_gaps_do_not_count_inside_a_graph(clock_of) -> None:
    gpu = FakeGpu(33.0)
    timing = clock_of(gpu).measure(gpu.calls)
    assert timing.median_us == pytest.approx(33.0)
    assert (timing.num_samples, timing.flags) == (7, "")
    assert gpu.replayed == [20] * 8  # one replay is dropped


def test_copies_are_captured_in_whole_rounds(clock_of) -> None:
    gpu = FakeGpu(10.0, 20.0, 60.0)
    timing = clock_of(gpu).measure(gpu.calls)
    assert timing.median_us == pytest.approx(30.0)
    assert set(gpu.replayed) == {18}


def test_a_long_call_is_captured_once(clock_of) -> None:
    gpu = FakeGpu(9000.0)
    assert clock_of(gpu).measure(gpu.calls).median_us == pytest.approx(9000.0)
    assert set(gpu.replayed) == {1}


def test_what_cannot_be_captured_is_timed_eagerly_and_flagged(clock_of) -> None:
    gpu = FakeGpu(33.0)
    clock = clock_of(gpu)
    gpu.capturable = False
    timing = clock.measure(gpu.calls)
    assert timing.flags == "eager"
    assert timing.median_us == pytest.approx(40.0)  # with the gap
    assert gpu.replayed == []
