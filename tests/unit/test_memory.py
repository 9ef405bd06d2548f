"""KV capacity: sums by hand, real engines' logs, the paper's figures, and what a large budget costs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from simulator.config import Scenario
from simulator.errors import ConfigError
from simulator.hardware import GPUSpec, ModelSpec
from simulator.load import load_gpu, load_model
from simulator.memory import (
    GIB,
    LOGIT_BYTES,
    RUNTIME_BYTES,
    KVCapacity,
    activation_bytes_per_token,
    kv_capacity,
    max_model_len,
)

TINY = ModelSpec(
    name="tiny",
    num_layers=3,
    hidden_size=8,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    intermediate_size=16,
    vocab_size=10,
    max_position_embeddings=64,
)


def scenario(model: str = "llama-3-8b", gpu: str = "h100_sxm", **updates: Any) -> Scenario:
    base = Scenario(model=model, gpu=gpu, workload={"trace": "chat"})
    return base.with_({key.replace("__", "."): value for key, value in updates.items()})


def capacity(model: str = "llama-3-8b", gpu: str = "h100_sxm", **updates: Any) -> KVCapacity:
    return kv_capacity(load_model(model), load_gpu(gpu), scenario(model, gpu, **updates))


def gpu_of(memory_bytes: float) -> GPUSpec:
    return load_gpu("h100_sxm").model_copy(update={"memory_gib": memory_bytes / GIB})


def test_a_sum_by_hand():
    """One layer: qkv 8x16, o 8x8, gate and up 8x32, down 16x8 = 576 values and two norms of 8."""
    weights = 2 * (3 * (576 + 16) + 2 * 80)
    per_token = 2 * (2 * 8 + (32 + 16))
    activations = 20 * per_token + 5 * 10 * LOGIT_BYTES
    kv_per_block = 4 * (2 * 4 * 2) * 3  # four tokens, keys and values of one head of four, three layers
    memory = weights + activations + RUNTIME_BYTES + 7 * kv_per_block
    settings = scenario(
        memory__utilization=1.0,
        memory__block_size_tokens=4,
        scheduler__token_budget=20,
        scheduler__max_num_seqs=5,
    )
    found = kv_capacity(TINY, gpu_of(memory), settings)
    assert (found.weights_bytes, found.activation_bytes) == (weights, activations)
    assert (found.num_blocks, found.tokens) == (7, 28)
    assert kv_capacity(TINY, gpu_of(memory - kv_per_block), settings).num_blocks == 6


@pytest.mark.parametrize("pipeline", [1, 2, 3])
def test_the_parts_add_up_to_the_usable_memory(pipeline: int):
    found = capacity("llama-3-70b", parallel__tensor=4, parallel__pipeline=pipeline)
    parts = found.weights_bytes + found.activation_bytes + found.runtime_bytes + found.kv_bytes
    assert parts == found.usable_bytes == int(found.memory_bytes * 0.9)
    assert found.num_blocks == found.kv_bytes // found.bytes_per_block


def test_it_agrees_with_the_start_of_vllm_on_an_h100():
    """vllm-project/vllm#10511, Llama-3-8B on 79.22 GiB at 0.9 (by default 8192 tokens, 256 sequences):
    weights 14.96, activations 1.26, outside PyTorch 1.79, left for KV 53.29 GiB."""
    found = capacity(scheduler__token_budget=8192, scheduler__max_num_seqs=256)
    assert found.weights_bytes / GIB == pytest.approx(14.96, abs=0.01)
    assert found.activation_bytes / GIB == pytest.approx(1.26, rel=0.05)
    assert (found.kv_bytes + found.runtime_bytes) / GIB == pytest.approx(53.29 + 1.79, rel=0.01)


def test_it_agrees_with_the_blocks_of_vllm_on_an_a100():
    """vllm-project/vllm#2031: Llama-2-7B on one A100-80GB at 0.9: 7351 blocks."""
    found = capacity("llama-2-7b", "a100_80gb_sxm", scheduler__token_budget=4096, scheduler__max_num_seqs=256)
    assert found.num_blocks == pytest.approx(7351, rel=0.02)


@pytest.mark.parametrize(
    ("model", "gpu", "tensor", "pipeline", "weights_gb", "kv_tokens"),
    [
        ("mistral-7b", "a100_80gb_pcie", 1, 1, 14.5, 446e3),
        ("yi-34b", "a100_80gb_pcie", 2, 1, 34.4, 314e3),
        ("llama-2-70b", "a40", 4, 2, 17.2, 580e3),
        ("falcon-180b", "a100_80gb_pcie", 4, 2, 44.9, 1.37e6),
    ],
)
def test_the_papers_deployments(
    model: str, gpu: str, tensor: int, pipeline: int, weights_gb: float, kv_tokens: float
):
    """Weights of a GPU and KV tokens before activations, of a GPU's nominal 80 or 48 GiB at 0.85."""
    found = capacity(
        model, gpu, parallel__tensor=tensor, parallel__pipeline=pipeline, memory__utilization=0.85
    )
    assert found.weights_bytes / 1e9 == pytest.approx(weights_gb, rel=0.01)
    before_activations = (found.usable_bytes - found.weights_bytes) / found.bytes_per_block * 16
    assert before_activations == pytest.approx(kv_tokens, rel=0.04)


def test_a_larger_budget_costs_blocks():
    blocks = [capacity(scheduler__token_budget=budget).num_blocks for budget in (512, 2048, 8192, 16384)]
    assert blocks == sorted(set(blocks), reverse=True)


def test_a_larger_budget_costs_dearly_where_memory_is_tight():
    """Llama-3-70B on two A100s: weights leave little, as in vllm-project/vllm#17885."""
    small, large = (
        capacity(
            "llama-3-70b", "a100_80gb_sxm", parallel__tensor=2, scheduler__token_budget=budget
        ).num_blocks
        for budget in (2048, 16384)
    )
    assert large < 0.65 * small


def test_more_sequences_cost_blocks():
    assert (
        capacity(scheduler__max_num_seqs=1024).num_blocks < capacity(scheduler__max_num_seqs=128).num_blocks
    )


def test_a_budget_below_the_number_of_sequences_still_leaves_room_for_their_decodes():
    found = capacity(scheduler__token_budget=16, scheduler__max_num_seqs=128)
    assert found.max_iteration_tokens == 128


def test_policies_without_chunks_leave_room_for_whole_prompts():
    """Prefill-first and hybrid-only: one maximal request; Orca and request-level batching: one a sequence."""
    tokens = {
        policy: capacity(
            "mistral-7b",
            "a100_80gb_pcie",
            scheduler__policy=policy,
            scheduler__max_num_seqs=16,
            scheduler__max_model_len=8192,
        ).max_iteration_tokens
        for policy in ("stall_free", "chunked_only", "prefill_first", "hybrid_only", "orca", "decode_first")
    }
    assert tokens == {
        "stall_free": 512,
        "chunked_only": 512,
        "prefill_first": 8192,
        "hybrid_only": 8192,
        "orca": 16 * 8192,
        "decode_first": 16 * 8192,
    }


def test_an_iteration_cannot_hold_more_prompts_than_the_cache():
    found = capacity("llama-3.1-8b", scheduler__policy="orca", scheduler__max_num_seqs=128)
    assert found.max_iteration_tokens < 128 * 131_072
    assert 0 <= found.max_iteration_tokens - found.tokens < 16


def test_the_stage_with_the_fewest_blocks_decides():
    """Three stages of a 32-layer model hold 10, 11 and 11 or so; a stage with 11 layers has the fewest."""
    found = capacity(parallel__pipeline=3)
    assert load_model("llama-3-8b").layers_per_stage(3)[found.stage] == 11


def test_a_tied_embedding_is_held_once_but_by_both_ends_of_a_pipeline():
    model = load_model("llama-3.2-1b")
    one = capacity("llama-3.2-1b").weights_bytes
    assert one == 16 * model.layer_weight_bytes(1) + model.embedding_bytes(1)
    ends = capacity("llama-3.2-1b", parallel__pipeline=2)
    assert ends.weights_bytes == 8 * model.layer_weight_bytes(1) + model.embedding_bytes(1)


def test_a_parallel_block_keeps_one_more_stream():
    falcon = load_model("falcon-180b")
    serial = falcon.model_copy(update={"parallel_block": False})
    more = activation_bytes_per_token(falcon, 4) - activation_bytes_per_token(serial, 4)
    assert more == 2 * falcon.hidden_size


def test_the_number_of_blocks_can_be_given():
    found = capacity(memory__num_blocks=100)
    assert (found.num_blocks, found.tokens) == (100, 1600)
    assert capacity("llama-2-70b", memory__num_blocks=100).num_blocks == 100


def test_the_longest_request():
    model = load_model("llama-3-8b")
    assert max_model_len(model, scenario()) == 8192
    assert max_model_len(model, scenario(scheduler__max_model_len=100)) == 100


def test_a_model_that_does_not_fit_says_why_and_what_would():
    with pytest.raises(ConfigError) as caught:
        capacity("llama-2-70b", "a100_80gb_pcie")
    text = str(caught.value)
    assert "llama-2-70b does not fit on a100_80gb_pcie with parallel.tensor 1" in text
    assert "weights 128.48 GiB" in text
    assert text.endswith("parallel.tensor 2 would fit")
    assert capacity("llama-2-70b", "a100_80gb_pcie", parallel__tensor=2).num_blocks > 0


def test_a_model_that_no_tensor_split_fits():
    with pytest.raises(ConfigError, match=r"no parallel\.tensor would fit: raise parallel\.pipeline"):
        capacity("falcon-180b", "l40s")


def test_impossible_splits_are_refused():
    with pytest.raises(ConfigError, match="num_heads 32, which 3 ranks"):
        capacity(parallel__tensor=3)
    with pytest.raises(ConfigError, match="cannot be split into 33 stages"):
        capacity(parallel__pipeline=33)


def test_the_description_is_one_line_with_every_part():
    found = capacity()
    text = found.describe()
    assert "\n" not in text
    assert text.startswith("71.27 GiB usable of 79.19 GiB - weights 14.96 GiB - activations")
    assert text.endswith(f"{found.num_blocks} blocks, {found.tokens} tokens")
    assert dataclasses.is_dataclass(found)
