"""The timing protocol on a clock that is moved by hand."""

from __future__ import annotations

import pytest

from profiler.rotation import num_copies, rotated_bytes
from profiler.tables import KernelRow
from profiler.timing import CpuClock, Timing, calls_per_sample
from simulator.hardware import ModelSpec
from simulator.load import load_model


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
    timing = CpuClock(now=work.now).measure(work.calls)
    assert timing.median_us == pytest.approx(50)
    assert (timing.num_samples, timing.flags) == (15, "")


def test_copies_take_turns() -> None:
    work = Work(10e-6, 30e-6, 50e-6)
    timing = CpuClock(now=work.now).measure(work.calls)
    assert timing.median_us == pytest.approx(30)
    assert work.log == [0, 1, 2] * 6


def test_what_runs_between_the_calls_is_not_counted() -> None:
    work = Work(10e-6, 900e-6)
    timing = CpuClock(between=work.calls[1], now=work.now).measure(work.calls[:1])
    assert timing.median_us == pytest.approx(10)
    assert work.log == [1, 0] * 18


def test_a_wide_spread_is_flagged() -> None:
    assert Timing.of([10, 10, 10, 11, 10, 10, 10]).flags == ""
    assert Timing.of([10, 10, 10, 15, 10, 10, 15], ["eager"]).flags == "eager;spread"


def test_one_slow_sample_does_not_move_the_median() -> None:
    timing = Timing.of([10, 10, 10, 10, 10, 10, 900])
    assert (timing.median_us, timing.p10_us) == (10, 10)


LLAMA, TINY = load_model("llama-3-8b"), load_model("tiny")
MIB = 2**20


def gemm(k: int, n: int) -> KernelRow:
    return KernelRow("gemm", "bf16", m=1, n=n, k=k)


@pytest.mark.parametrize(
    ("point", "model", "copies"),
    [
        (gemm(4096, 28672), LLAMA, 3),  # 224 MiB of weights: 250 MiB and one more
        (gemm(1024, 1024), LLAMA, 40),  # small ones: as many as a graph holds
        (gemm(1024, 4096), LLAMA, 33),
        (gemm(256, 4096), TINY, 6),  # the whole model is 9.4 MiB, less than the cache
        (KernelRow("rmsnorm", "bf16", m=8, width=4096), LLAMA, 1),
    ],
)
def test_copies_are_as_cold_as_in_the_model(point: KernelRow, model: ModelSpec, copies: int) -> None:
    assert num_copies(point, model, cache_bytes=50 * MIB) == copies


def test_the_kv_cache_of_all_sequences_counts() -> None:
    heads = {"q_heads": 32, "kv_heads": 8, "head_dim": 128}
    batch = KernelRow(
        "attention", "bf16", num_chunks=2, chunk_tokens=24, prefix_tokens=1000, num_decodes=4,
        decode_kv_tokens=2048, decode_kv_max_tokens=600, **heads,
    )  # fmt: skip
    assert rotated_bytes(batch) == 4096 * 2 * 8 * 128 * 2


@pytest.mark.parametrize(
    ("call_us", "copies", "count"),
    [(1, 1, 20), (1, 7, 14), (1, 40, 40), (500, 1, 4), (500, 3, 3), (9000, 1, 1), (9000, 2, 2)],
)
def test_a_sample_is_whole_rounds_of_about_two_milliseconds(call_us: float, copies: int, count: int) -> None:
    assert calls_per_sample(call_us, copies) == count
