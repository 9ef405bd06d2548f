"""Commands that start one replica of a deployment in real engines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from simulator.load import load_gpu, load_model
from simulator.memory import KVCapacity, kv_capacity, max_model_len
from simulator.report.flags import engine_flags
from simulator.report.page import Table, table

if TYPE_CHECKING:
    from simulator.config import Scenario

HUGGING_FACE = re.compile(r"https://huggingface\.co/(\S+)")


def launch_commands(scenario: Scenario) -> dict[str, str]:
    """One command an engine, for one replica."""
    memory = kv_capacity(load_model(scenario.model), load_gpu(scenario.gpu), scenario)
    flags = engine_flags(scenario) if scenario.scheduler.has_budget else _whole_prompt_flags(scenario)
    model = hub_name(scenario.model)
    used, static = f"{scenario.memory.utilization:g}", f"{_static_share(memory):.2f}"
    return {
        "vllm": f"vllm serve {model} {flags['vllm']} --gpu-memory-utilization {used}",
        "sglang": f"python -m sglang.launch_server --model-path {model} {flags['sglang']}"
        f" --mem-fraction-static {static}",
    }


def launch_table(scenario: Scenario) -> Table:
    """The commands, one row an engine."""
    copies = f"{scenario.replicas} of these behind a router" if scenario.replicas > 1 else "one of these"
    rows = list(launch_commands(scenario).items())
    return table(("engine", f"start {copies}"), rows, left=True)


def hub_name(model: str) -> str:
    """The model's name on the Hugging Face hub where its preset tells it, else the preset's own."""
    found = HUGGING_FACE.search(load_model(model).source)
    return found.group(1) if found else model


def _whole_prompt_flags(scenario: Scenario) -> dict[str, str]:
    """Flags of prefill-first scheduling, which never cuts a prompt: as many tokens as the longest one has."""
    longest = max_model_len(load_model(scenario.model), scenario)
    whole = scenario.with_({"scheduler.token_budget": longest})
    vllm = engine_flags(whole)["vllm"].replace("--enable-chunked-prefill", "--no-enable-chunked-prefill")
    sglang = engine_flags(whole)["sglang"].replace(" --enable-mixed-chunk", "")
    return {
        "vllm": vllm,
        "sglang": sglang.replace(f"--chunked-prefill-size {longest}", "--chunked-prefill-size -1"),
    }


def _static_share(memory: KVCapacity) -> float:
    """Share of a GPU's memory for weights and KV cache, which is what SGLang is told."""
    return (memory.weights_bytes + memory.kv_bytes) / memory.memory_bytes
