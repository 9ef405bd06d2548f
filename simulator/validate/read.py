"""Recognises what wrote a recorded run, by its content, and reads it."""

from __future__ import annotations

from pathlib import Path

from simulator.errors import InputError
from simulator.validate.aiperf import is_aiperf, is_aiperf_summary, read_aiperf
from simulator.validate.document import Node, parse_document
from simulator.validate.guidellm import is_guidellm, read_guidellm
from simulator.validate.recorded import RecordedRun
from simulator.validate.rows import is_row, read_rows
from simulator.validate.vllm_bench import is_vllm_bench, read_vllm_bench
from simulator.workload.files import open_rows, shorten


def read_run(path: Path, benchmark: int | None = None) -> RecordedRun:
    """The run in a file of any known kind; `benchmark` picks one of a GuideLLM report, counted from 1.

    InputError where the file is of no known kind, lacks something, or holds what cannot be.
    """
    document = parse_document(path)
    if document is not None and is_guidellm(document):
        return read_guidellm(document, benchmark)
    if benchmark is not None:
        raise InputError(f"{path}: is no GuideLLM report, so it has no benchmark {benchmark}")
    if document is not None and is_vllm_bench(document):
        return read_vllm_bench(document)
    if document is not None:
        _refuse_unknown(document)
    rows = open_rows(path)
    if is_aiperf(rows.columns):
        return read_aiperf(rows)
    if "itls" in rows.columns:
        raise InputError(f"{path}: holds several results of vllm bench (--append-result): keep one of them")
    return read_rows(rows)


def _refuse_unknown(document: Node) -> None:
    """InputError for a JSON document that is not the only row of a table either."""
    if is_aiperf_summary(document):
        raise InputError(
            f"{document.path}: is AIPerf's summary: give the profile_export.jsonl that it writes beside it"
        )
    if not is_row(document.keys()) and not is_aiperf(document.keys()):
        found = shorten(", ".join(document.keys()), 160)
        raise InputError(
            f"{document.path}: JSON of no known kind (found keys: {found}; known: vllm bench serve with"
            " --save-detailed, GuideLLM's report, and JSON lines with one request on each)"
        )
