"""Start-up, and what a long trace costs: CPU time and peak memory, each in a process of its own.

    python tests/benchmarks/bench_scale.py [TRACE] [--requests 10000 100000 1000000]

The trace (by default the shipped chat trace) is repeated until there are enough requests.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys

STALLFREE = [sys.executable, "-m", "simulator"]


def run(command: list[str]) -> tuple[str, float]:
    """What a command prints, and the CPU seconds that it takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("trace", nargs="?", default="chat")
    parser.add_argument("--requests", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    options = parser.parse_args()
    for words in (["--help"], ["simulate", "--set", "workload.num_requests=1", "--quiet"]):
        print(f"stallfree {' '.join(words)}: {min(run(STALLFREE + words)[1] for _ in range(5)):.2f} CPU-s")
    for count in options.requests:
        overrides = [f"workload.trace={options.trace}", f"workload.num_requests={count}"]
        if options.trace == "chat":
            overrides.append("workload.rate_rps=4.2")
        words = ["simulate", "--json", "--quiet"] + [part for key in overrides for part in ("--set", key)]
        output, seconds = run(STALLFREE + words)
        # The largest of all children so far, and the runs grow.
        peak_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        iterations = json.loads(output)["iterations"]
        print(
            f"{count:9,} requests, {iterations:11,} iterations: {seconds:7.2f} CPU-s,"
            f" {seconds / count * 1e6:4.0f} us a request; peak {peak_bytes / 2**30:.2f} GiB,"
            f" {peak_bytes / count:,.0f} bytes a request"
        )


if __name__ == "__main__":
    main()
