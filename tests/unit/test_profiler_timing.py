"""The timing protocol on a clock that is moved by hand."""

from __future__ import annotations

import pytest

from profiler.timing import CpuClock, Timing, calls_per_sample, num_copies


class Work:
    """Calls that take a given number of seconds each on a clock of their own."""

    def __init__(self, *seconds: float) -> None:
        self.now_s = 0.0
        self.log: list[int] = []
        self.calls = [self._call(index, cost) for index, cost in enumerate(seconds)]

    def _call(self, index: int, cost: float):
        def call() -> None:
            self.log.append(index)
            self.now_s += cost

        return call

    def now(self) -> float:
        return self.now_s


def test_a_call_is_timed_to_the_microsecond() -> None:
    work = Work(50e-6)
    timing = CpuClock(work.now).measure(work.calls)
    assert timing.median_us == pytest.approx(50)
    assert (timing.num_samples, timing.flags) == (7, "")


def test_copies_take_turns_and_each_counts_alike() -> None:
    work = Work(10e-6, 30e-6, 50e-6)
    timing = CpuClock(work.now).measure(work.calls)
    assert timing.median_us == pytest.approx(30)
    assert work.log == [0, 1, 2] * (len(work.log) // 3)


def test_a_wide_spread_is_flagged() -> None:
    assert Timing.of([10, 10, 10, 11, 10, 10, 10]).flags == ""
    assert Timing.of([10, 10, 10, 15, 10, 10, 15], ["eager"]).flags == "eager;spread"


def test_one_slow_sample_does_not_move_the_median() -> None:
    timing = Timing.of([10, 10, 10, 10, 10, 10, 900])
    assert (timing.median_us, timing.p10_us) == (10, 10)


@pytest.mark.parametrize(
    ("num_bytes", "layers", "copies"),
    [
        (10, 32, 32),  # small: as many as the model has layers
        (10, 80, 40),  # and forty at most
        (100, 32, 6),  # 5 x 100 of cache hold five, and one more
        (10_000, 32, 2),  # large: the next one already evicts it
        (10_000, 1, 1),
    ],
)
def test_copies_leave_the_cache(num_bytes: int, layers: int, copies: int) -> None:
    assert num_copies(num_bytes, cache_bytes=100, num_layers=layers) == copies


@pytest.mark.parametrize(
    ("call_us", "copies", "count"),
    [(1, 1, 20), (1, 7, 14), (1, 40, 40), (500, 1, 4), (500, 3, 3), (9000, 1, 1), (9000, 2, 2)],
)
def test_a_sample_is_whole_rounds_of_about_two_milliseconds(call_us: float, copies: int, count: int) -> None:
    assert calls_per_sample(call_us, copies) == count
