"""Speed of the event loop with all metrics on: iterations and sequence-steps per CPU-second.

    python tests/benchmarks/bench_loop.py [--repeat 3] [--kernels NAME]

Each line is the best of some repetitions in one process, after a run that fills the latency tables; beside it
stands the cost of a bare SimPy timeout on the same machine, by which other machines can be compared.
"""

from __future__ import annotations

import argparse
import time

from simpy import Environment

from simulator.latency import build_latency
from simulator.load import load_scenario
from simulator.metrics import Result
from simulator.run import simulate
from simulator.schedulers import POLICIES
from simulator.workload import build_workload

# Chat has prompts five times as long as its answers, so a large batch of decodes comes with a chunk or two in
# nearly every iteration and a new request in every third; long answers to short prompts are mostly decodes.
LONG_ANSWERS = [
    "workload.trace=null",
    "workload.lengths={prompt: {kind: lognormal, median: 400, sigma: 0.8},"
    " output: {kind: lognormal, median: 1500, sigma: 0.6}}",
    "scheduler.max_num_seqs=256",
]
CASES = {
    "chat, about 20 decodes": ["workload.rate_rps=4.2"],
    "chat, about 140 decodes": [
        "workload.rate_rps=14",
        "scheduler.max_num_seqs=160",
        "scheduler.token_budget=1024",
    ],
    "long answers, about 20 decodes": [*LONG_ANSWERS, "workload.rate_rps=1.3"],
    "long answers, about 140 decodes": [*LONG_ANSWERS, "workload.rate_rps=5"],
}


def bare_timeout_us(count: int = 100_000) -> float:
    """CPU-microseconds of one SimPy event that does nothing."""
    env = Environment()

    def process():  # type: ignore[no-untyped-def]
        for _ in range(count):
            yield env.timeout(1.0)

    env.process(process())
    start = time.process_time()
    env.run()
    return (time.process_time() - start) / count * 1e6


def measure(overrides: list[str], repeat: int) -> tuple[Result, float]:
    """A run's result and its CPU time in seconds, metrics included, the best of `repeat`."""
    scenario = load_scenario("default", ["workload.num_requests=2048", *overrides])
    workload, latency = build_workload(scenario.workload, 0), build_latency(scenario)
    simulate(scenario, workload=workload, latency=latency)
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        result = simulate(scenario, workload=workload, latency=latency)
        result.to_dict()
        best = min(best, time.process_time() - start)
    return result, best


def report(label: str, overrides: list[str], repeat: int) -> None:
    result, seconds = measure(overrides, repeat)
    sums = result.records.totals.sums
    steps = sums["decodes"] + sums["chunks"]
    print(
        f"{label:44} {result.batch['mean_num_decodes']:7.1f} decodes  "
        f"{result.iterations / seconds:9,.0f} iterations/CPU-s  {steps / seconds:12,.0f} sequence-steps/CPU-s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--kernels", default="auto")
    options = parser.parse_args()
    kernels = [f"kernels={options.kernels}"]
    print(f"bare SimPy timeout: {bare_timeout_us():.2f} CPU-us")
    for label, overrides in CASES.items():
        report(f"stall_free, {label}", kernels + overrides, options.repeat)
    for stages in (2, 4):
        overrides = [f"parallel.pipeline={stages}", "workload.rate_rps=4.2"]
        report(f"stall_free, {stages} stages", kernels + overrides, options.repeat)
    for policy in POLICIES:
        overrides = [f"scheduler.policy={policy}", "workload.rate_rps=3", "scheduler.max_model_len=8192"]
        report(policy, kernels + overrides, options.repeat)


if __name__ == "__main__":
    main()
