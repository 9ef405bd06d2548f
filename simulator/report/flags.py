"""The flags that set a token budget in real engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.report.page import Table, table

if TYPE_CHECKING:
    from simulator.config import Scenario


def engine_flags(scenario: Scenario) -> dict[str, str]:
    """Flags by engine. SGLang counts the decodes of a mixed batch within its chunk size, as vLLM does."""
    scheduler, parallel = scenario.scheduler, scenario.parallel
    vllm = [
        f"--max-num-batched-tokens {scheduler.token_budget}",
        f"--max-num-seqs {scheduler.max_num_seqs}",
        "--enable-chunked-prefill",
    ]
    sglang = [
        f"--chunked-prefill-size {scheduler.token_budget}",
        "--enable-mixed-chunk",
        f"--max-running-requests {scheduler.max_num_seqs}",
    ]
    if parallel.tensor > 1:
        vllm.append(f"--tensor-parallel-size {parallel.tensor}")
        sglang.append(f"--tp-size {parallel.tensor}")
    if parallel.pipeline > 1:
        vllm.append(f"--pipeline-parallel-size {parallel.pipeline}")
        sglang.append(f"--pp-size {parallel.pipeline}")
    return {"vllm": " ".join(vllm), "sglang": " ".join(sglang)}


def flags_table(scenario: Scenario) -> Table:
    """The flags, one row an engine."""
    return table(("engine", "flags to set"), list(engine_flags(scenario).items()), left=True)
