"""Reads GuideLLM's JSON report (metadata version 2, as GuideLLM 0.8.1 writes it).

Times are the client's, of the first and the last token; there are none of the tokens between.
"""

from __future__ import annotations

from simulator.errors import InputError
from simulator.validate.document import Node
from simulator.validate.recorded import CLOSED_LOOP, RecordedRun, Rows, failure_notes, recorded_run

KIND = "GuideLLM"
CLOSED_LOOPS = ("synchronous", "concurrent", "throughput")


def is_guidellm(document: Node) -> bool:
    """Whether the document looks like a report of GuideLLM."""
    return "benchmarks" in document and "metadata" in document


def read_guidellm(document: Node, benchmark: int | None = None) -> RecordedRun:
    """A benchmark of the report, counted from 1; InputError where there are several and none is named."""
    chosen = _chosen(document, benchmark)
    requests = chosen.node("requests").nodes("successful")
    made = chosen.node("scheduler_metrics").node("requests_made")
    if len(requests) < made.number("successful"):
        raise InputError(
            f"{document.path}: holds only a sample of {len(requests)} requests of"
            f" {made.number('successful'):.0f}: run guidellm without a sample size"
        )
    timings = [request.node("info").node("timings") for request in requests]
    rows = Rows(
        arrival_s=[timing.number("request_start") for timing in timings],
        prompt_tokens=[request.tokens("prompt_tokens") for request in requests],
        output_tokens=[request.tokens("output_tokens") for request in requests],
        first_token_s=[timing.number("first_token_iteration") for timing in timings],
        finished_s=[timing.number("last_token_iteration") for timing in timings],
        notes=failure_notes(int(made.number("total") - made.number("successful"))) + _load_notes(chosen),
    )
    return recorded_run(document.path, KIND, rows, lambda row: requests[row].trail)


def _chosen(document: Node, benchmark: int | None) -> Node:
    benchmarks = document.nodes("benchmarks")
    if benchmark is None and len(benchmarks) > 1:
        names = "; ".join(f"{number}: {_strategy(each)}" for number, each in enumerate(benchmarks, start=1))
        raise InputError(f"{document.path}: holds {len(benchmarks)} benchmarks, choose one: {names}")
    number = benchmark or 1
    if number > len(benchmarks):
        raise InputError(f"{document.path}: has no benchmark {number} (it holds {len(benchmarks)})")
    return benchmarks[number - 1]


def _load_notes(benchmark: Node) -> list[str]:
    return [CLOSED_LOOP] if benchmark.node("config").node("strategy").text("type_") in CLOSED_LOOPS else []


def _strategy(benchmark: Node) -> str:
    strategy = benchmark.node("config").node("strategy")
    rate = f" at {strategy.number('rate'):g}/s" if "rate" in strategy else ""
    return strategy.text("type_") + rate
