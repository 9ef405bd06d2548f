"""Reads AIPerf's record of every request, `profile_export.jsonl` (as AIPerf 0.13.0 writes it).

Times are the client's; an event of an answer can hold several tokens. Token counts are the server's where it
reported them, else those of AIPerf's tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from simulator.errors import InputError
from simulator.validate.document import Node
from simulator.validate.recorded import RecordedRun, Rows, event_notes, failure_notes, recorded_run
from simulator.workload.files import RowFile

KIND = "AIPerf"
COLUMNS = ("metadata", "metrics")
UNITS_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "sec": 1.0}


def is_aiperf(columns: Iterable[str]) -> bool:
    """Whether a row with those keys looks like one of AIPerf's records of requests."""
    return set(COLUMNS) <= set(columns)


def is_aiperf_summary(document: Node) -> bool:
    """Whether the document is the summary that AIPerf writes beside it."""
    return "aiperf_version" in document


def read_aiperf(rows: RowFile) -> RecordedRun:
    """The run; requests that failed and those of a warm-up are left out."""
    sent = [
        record for record in _records(rows) if record.node("metadata").text("benchmark_phase") == "profiling"
    ]
    answered = [record for record in sent if "request_latency" in record.node("metrics")]
    metrics = [record.node("metrics") for record in answered]
    if metrics and not any("time_to_first_token" in each for each in metrics):
        raise InputError(f"{rows.path}: no time_to_first_token in it: run aiperf with --streaming")
    arrival = [record.node("metadata").number("request_start_ns") * 1e-9 for record in answered]
    output = [_tokens(each, "usage_completion_tokens", "output_sequence_length") for each in metrics]
    gaps = [_gaps_s(each) for each in metrics]
    found = Rows(
        arrival_s=arrival,
        prompt_tokens=[_tokens(each, "usage_prompt_tokens", "input_sequence_length") for each in metrics],
        output_tokens=output,
        first_token_s=_later(arrival, metrics, "time_to_first_token"),
        finished_s=_later(arrival, metrics, "request_latency"),
        gaps_s=gaps,
        notes=failure_notes(len(sent) - len(answered)) + event_notes(output, gaps),
    )
    return recorded_run(rows.path, KIND, found, lambda row: answered[row].trail)


def _records(rows: RowFile) -> Iterator[Node]:
    index = 0
    for block in rows.read(COLUMNS):
        for cells in zip(*block, strict=True):
            yield Node(rows.path, dict(zip(COLUMNS, cells, strict=True)), rows.place(index))
            index += 1


def _later(arrival_s: list[float], metrics: list[Node], key: str) -> list[float]:
    """Moments that lie a latency after each arrival."""
    pairs = zip(arrival_s, metrics, strict=True)
    return [arrival + each.node(key).number("value") * _unit_s(each.node(key)) for arrival, each in pairs]


def _gaps_s(metrics: Node) -> list[float]:
    """Gaps between the events of an answer; none where it came in one."""
    if "inter_chunk_latency" not in metrics:
        return []
    gaps = metrics.node("inter_chunk_latency")
    unit_s = _unit_s(gaps)
    return [gap * unit_s for gap in gaps.numbers("value")]


def _unit_s(metric: Node) -> float:
    unit = metric.text("unit")
    if unit not in UNITS_S:
        metric.refuse("unit", unit, f"one of {', '.join(UNITS_S)}")
    return UNITS_S[unit]


def _tokens(metrics: Node, reported: str, counted: str) -> int:
    """Tokens as the server reported them, else as the client counted them."""
    return metrics.node(reported if reported in metrics else counted).tokens("value")
