"""Cuts a GuideLLM report down to requests and their times: python trim_guidellm.py REPORT > SMALLER.

Aggregates, settings and texts go; every key that stays has its value.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def trimmed_request(request: dict[str, Any]) -> dict[str, Any]:
    """A request without what it said and what was answered."""
    info = {key: value for key, value in request["info"].items() if key not in ("error", "traceback")}
    kept = {key: value for key, value in request.items() if key not in ("request_args", "output")}
    return kept | {"info": info}


def trimmed_benchmark(benchmark: dict[str, Any]) -> dict[str, Any]:
    """A benchmark without aggregates."""
    requests = {
        status: group and [trimmed_request(request) for request in group]
        for status, group in benchmark["requests"].items()
    }
    return {
        "type_": benchmark["type_"],
        "config": {"strategy": benchmark["config"]["strategy"]},
        "scheduler_metrics": {"requests_made": benchmark["scheduler_metrics"]["requests_made"]},
        "requests": requests,
    }


if __name__ == "__main__":
    report = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    version = report["metadata"]["version"]
    benchmarks = [trimmed_benchmark(benchmark) for benchmark in report["benchmarks"]]
    json.dump({"metadata": {"version": version}, "benchmarks": benchmarks}, sys.stdout, indent=1)
    sys.stdout.write("\n")
