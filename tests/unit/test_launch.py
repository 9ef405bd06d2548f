"""Commands that start a deployment in vLLM and SGLang."""

from __future__ import annotations

import pytest

from simulator.config import Scenario
from simulator.report.launch import hub_name, launch_commands


def deployed(**updates: object) -> Scenario:
    scenario = Scenario(
        model="llama-3-70b",
        gpu="h100_sxm",
        parallel={"tensor": 4, "pipeline": 2},
        scheduler={"token_budget": 1024, "max_num_seqs": 256},
        memory={"utilization": 0.85},
        workload={"lengths": {"prompt": 1, "output": 1}},
    )
    return scenario.with_(updates)


def test_flags_of_a_policy_with_a_budget():
    commands = launch_commands(deployed())
    model = "meta-llama/Meta-Llama-3-70B-Instruct"
    assert commands["vllm"].startswith(
        f"vllm serve {model} --max-num-batched-tokens 1024 --max-num-seqs 256 "
    )
    assert "--tensor-parallel-size 4 --pipeline-parallel-size 2" in commands["vllm"]
    assert commands["vllm"].endswith("--gpu-memory-utilization 0.85")
    assert f"--model-path {model} --chunked-prefill-size 1024 --enable-mixed-chunk" in commands["sglang"]
    assert "--tp-size 4 --pp-size 2" in commands["sglang"]
    # 2 GiB for the runtime and the links, 0.6 GiB of activations: the rest of 85 % is weights and cache.
    static = float(commands["sglang"].rpartition(" ")[2])
    assert 0.80 < static < 0.85


def test_flags_of_whole_prompts():
    commands = launch_commands(deployed(**{"scheduler.policy": "prefill_first"}))
    assert "--max-num-batched-tokens 8192 --max-num-seqs 256 --no-enable-chunked-prefill" in commands["vllm"]
    assert "--chunked-prefill-size -1" in commands["sglang"]
    assert "--enable-mixed-chunk" not in commands["sglang"]


@pytest.mark.parametrize(("model", "name"), [("qwen2.5-7b", "Qwen/Qwen2.5-7B-Instruct"), ("tiny", "tiny")])
def test_names_on_the_hub(model: str, name: str):
    assert hub_name(model) == name
