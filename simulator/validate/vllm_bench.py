"""Reads what `vllm bench serve --save-result --save-detailed` writes: a list a quantity, an entry a request.

Times are the client's: from sending a request to each event of its answer. An event can hold several tokens.
"""

from __future__ import annotations

from simulator.errors import InputError
from simulator.validate.document import Node
from simulator.validate.recorded import (
    CLOSED_LOOP,
    RecordedRun,
    Rows,
    event_notes,
    failure_notes,
    recorded_run,
)

KIND = "vllm bench serve"
SUMMARY_KEYS = ("request_throughput", "total_input_tokens")
DETAIL_KEYS = ("input_lens", "output_lens", "ttfts", "itls", "start_times")


def is_vllm_bench(document: Node) -> bool:
    """Whether the document looks like a result of `vllm bench serve`, detailed or not."""
    return all(key in document for key in SUMMARY_KEYS)


def read_vllm_bench(document: Node) -> RecordedRun:
    """The run; InputError for a result without details, or without the times at which requests were sent."""
    entries, count = _entries(document)
    errors = document.entries("errors") if "errors" in document else []
    served = [index for index in range(count) if not (index < len(errors) and errors[index])]
    gaps = [entries.numbers(f"itls[{index}]") for index in served]
    arrival = [entries.number(f"start_times[{index}]") for index in served]
    ttft = [entries.number(f"ttfts[{index}]") for index in served]
    output = [entries.tokens(f"output_lens[{index}]") for index in served]
    rows = Rows(
        arrival_s=arrival,
        prompt_tokens=[entries.tokens(f"input_lens[{index}]") for index in served],
        output_tokens=output,
        first_token_s=[start + first for start, first in zip(arrival, ttft, strict=True)],
        finished_s=[
            start + sum(events, first) for start, first, events in zip(arrival, ttft, gaps, strict=True)
        ],
        gaps_s=gaps,
        notes=failure_notes(count - len(served)) + event_notes(output, gaps) + _load_notes(document),
    )
    return recorded_run(document.path, KIND, rows, lambda row: f"request {served[row]}")


def _load_notes(document: Node) -> list[str]:
    return [CLOSED_LOOP] if "max_concurrency" in document else []


def _entries(document: Node) -> tuple[Node, int]:
    """Every entry under its own key, as in `ttfts[3]`, and the number of requests."""
    if not all(key in document for key in DETAIL_KEYS if key != "start_times"):
        raise InputError(
            f"{document.path}: has no entry for each request: run vllm bench with --save-detailed"
        )
    if "start_times" not in document:
        raise InputError(
            f"{document.path}: no key start_times: its vLLM did not record when requests were sent"
        )
    lists = {key: document.entries(key) for key in DETAIL_KEYS}
    sizes = {key: len(values) for key, values in lists.items()}
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{key} {size}" for key, size in sizes.items())
        raise InputError(f"{document.path}: lists of different lengths ({found})")
    entries = {
        f"{key}[{index}]": value for key, values in lists.items() for index, value in enumerate(values)
    }
    return Node(document.path, entries), sizes["ttfts"]
