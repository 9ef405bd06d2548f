"""Prints what a prediction costs and how long its tables take to fill.

python tests/benchmarks/bench_latency.py [key=value ...]     such as gpu=h200_sxm kernels=roofline

Without arguments it prints the default deployment, and one whose GPU has measured batches of a chunk beside
decodes and of unequal lengths.
"""

from __future__ import annotations

import random
import sys
import time

from simulator.batch import BatchShape
from simulator.latency import LatencyModel, build_latency
from simulator.load import load_scenario

CALLS = 20_000
REPEATS = 5
MEASURED_TOGETHER = ["model=llama-3.1-8b", "gpu=rtx_pro_6000"]


def cpu_s(model: LatencyModel, shapes: list[BatchShape]) -> float:
    """CPU seconds to ask for every shape once."""
    start = time.process_time()
    for shape in shapes:
        model.stage_time_s(shape, 0)
    return time.process_time() - start


def decodes(rng: random.Random, number: int) -> BatchShape:
    return mixed(rng, number, ())


def mixed(rng: random.Random, number: int, chunks: tuple[tuple[int, int], ...]) -> BatchShape:
    """About `number` decodes of 500 to 4,000 tokens beside some chunks."""
    number = max(1, number + rng.randint(-8, 8))
    return BatchShape.of(chunks, tuple(rng.choices(range(500, 4000), k=number)))


def chunk(rng: random.Random) -> tuple[int, int]:
    return rng.randint(300, 500), rng.randint(0, 8000)


def main() -> None:
    cases = [sys.argv[1:]] if sys.argv[1:] else [[], MEASURED_TOGETHER]
    for settings in cases:
        report(settings)


def report(settings: list[str]) -> None:
    scenario = load_scenario("default", settings)
    rng = random.Random(0)
    workloads = {
        "20 decodes": [decodes(rng, 20) for _ in range(CALLS)],
        "140 decodes": [decodes(rng, 140) for _ in range(CALLS)],
        "1 chunk + 20 decodes": [mixed(rng, 20, (chunk(rng),)) for _ in range(CALLS)],
        "1 chunk + 140 decodes": [mixed(rng, 140, (chunk(rng),)) for _ in range(CALLS)],
        "short chunk + 8 decodes": [mixed(rng, 8, ((rng.randint(1, 64), 500),)) for _ in range(CALLS)],
        "3 chunks + 20 decodes": [mixed(rng, 20, (chunk(rng), chunk(rng), chunk(rng))) for _ in range(CALLS)],
        "whole prompts": [BatchShape.of(((rng.randint(1, 8192), 0),)) for _ in range(CALLS)],
    }
    start = time.process_time()
    model = build_latency(scenario)
    model.stage_time_s(workloads["1 chunk + 20 decodes"][0], 0)
    print(f"{scenario.model} on {scenario.gpu}; {'; '.join(model.notes)}")
    print(f"build and first prediction  {(time.process_time() - start) * 1e3:8.1f} ms of CPU")
    print(f"{'batches':24} {'us a prediction':>15} {'filling, ms':>12}")
    for name, shapes in workloads.items():
        first_s = cpu_s(model, shapes)
        warm_s = min(cpu_s(model, shapes) for _ in range(REPEATS))
        print(f"{name:24} {warm_s / CALLS * 1e6:15.2f} {max(0.0, first_s - warm_s) * 1e3:12.1f}")


if __name__ == "__main__":
    main()
