"""Hugging Face configs, as published, become the shapes that are shipped; others are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.errors import ConfigError
from simulator.hardware import ModelSpec
from simulator.load import load_model

# What the published config.json files say, less the keys that do not bear on the shape.
LLAMA_3_8B = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
MISTRAL_7B = LLAMA_3_8B | {
    "architectures": ["MistralForCausalLM"],
    "max_position_embeddings": 32768,
    "sliding_window": None,
    "vocab_size": 32000,
}
QWEN2_5_7B = {
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "max_position_embeddings": 32768,
    "max_window_layers": 28,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "sliding_window": 131072,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "vocab_size": 152064,
}
QWEN3_0_6B = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "head_dim": 128,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
    "vocab_size": 151936,
}
FALCON_180B = {
    "alibi": False,
    "architectures": ["FalconForCausalLM"],
    "bias": False,
    "hidden_size": 14848,
    "multi_query": True,
    "new_decoder_architecture": True,
    "num_attention_heads": 232,
    "num_hidden_layers": 80,
    "num_kv_heads": 8,
    "parallel_attn": True,
    "vocab_size": 65024,
}
FALCON_7B = FALCON_180B | {
    "hidden_size": 4544,
    "new_decoder_architecture": False,
    "num_attention_heads": 71,
    "num_hidden_layers": 32,
    "num_kv_heads": 71,
}
GEMMA_7B = {
    "architectures": ["GemmaForCausalLM"],
    "head_dim": 256,
    "hidden_size": 3072,
    "intermediate_size": 24576,
    "max_position_embeddings": 8192,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 16,
    "vocab_size": 256000,
}


def loaded(folder: Path, config: dict[str, Any], **changes: Any) -> ModelSpec:
    (folder / "config.json").write_text(json.dumps(config | changes, indent="\t"), encoding="utf-8")
    return load_model(str(folder))


def refusal(folder: Path, config: dict[str, Any], **changes: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, config, **changes)
    assert str(caught.value).startswith(f"{folder / 'config.json'}: ")
    return str(caught.value)


@pytest.mark.parametrize(
    ("config", "shipped"),
    [
        (LLAMA_3_8B, "llama-3-8b"),
        (MISTRAL_7B, "mistral-7b"),
        (QWEN2_5_7B, "qwen2.5-7b"),
        (QWEN3_0_6B, "qwen3-0.6b"),
        (FALCON_180B, "falcon-180b"),
    ],
)
def test_published_configs_give_the_shipped_shapes(tmp_path: Path, config: dict[str, Any], shipped: str):
    model = loaded(tmp_path, config)
    aside = {"name", "source"}
    assert model.model_dump(exclude=aside) == load_model(shipped).model_dump(exclude=aside)
    assert model.name == tmp_path.name


def test_a_file_serves_as_well_as_its_folder(tmp_path: Path):
    assert loaded(tmp_path, LLAMA_3_8B) == load_model(str(tmp_path / "config.json"))


def test_falcon_7b_has_one_kv_head_and_a_parallel_block(tmp_path: Path):
    model = loaded(tmp_path, FALCON_7B)
    assert (model.num_kv_heads, model.head_dim, model.intermediate_size) == (1, 64, 4 * 4544)
    assert (model.parallel_block, model.gated_mlp) == (True, False)


def test_falcon_with_a_serial_block_and_all_heads(tmp_path: Path):
    model = loaded(tmp_path, FALCON_7B, multi_query=False, parallel_attn=False, bias=True)
    assert (model.num_kv_heads, model.parallel_block, model.qkv_bias) == (71, False, True)


def test_gemma_ties_its_embeddings_by_default(tmp_path: Path):
    model = loaded(tmp_path, GEMMA_7B)
    assert model.num_parameters() == 8_537_680_896


def test_a_sliding_window_counts_where_it_is_used(tmp_path: Path):
    assert loaded(tmp_path, MISTRAL_7B, sliding_window=4096).sliding_window == 4096
    assert loaded(tmp_path, QWEN2_5_7B, use_sliding_window=True).sliding_window == 131072


def test_heads_of_a_size_of_their_own(tmp_path: Path):
    assert loaded(tmp_path, MISTRAL_7B, hidden_size=5120, head_dim=128).head_dim == 128


def test_half_precision_is_kept(tmp_path: Path):
    assert loaded(tmp_path, LLAMA_3_8B, torch_dtype="float16").dtype == "fp16"


def test_without_kv_heads_every_head_has_its_own(tmp_path: Path):
    assert loaded(tmp_path, LLAMA_3_8B, num_key_value_heads=None).num_kv_heads == 32


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"architectures": ["MixtralForCausalLM"], "num_local_experts": 8},
            "architecture MixtralForCausalLM (a mixture of experts) is not modelled",
        ),
        (
            {"architectures": ["DeepseekV3ForCausalLM"], "n_routed_experts": 256, "kv_lora_rank": 512},
            "architecture DeepseekV3ForCausalLM (a mixture of experts) is not modelled",
        ),
        (
            {"architectures": ["MiniCPM3ForCausalLM"], "kv_lora_rank": 256},
            "architecture MiniCPM3ForCausalLM (multi-head latent attention) is not modelled",
        ),
        (
            {"architectures": ["Gemma2ForCausalLM"]},
            "architecture Gemma2ForCausalLM is not modelled (allowed: Llama",
        ),
        ({"architectures": None}, "architectures must name one class"),
        ({"architectures": "LlamaForCausalLM"}, "architectures must name one class"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantised weights (fp8) are not modelled"),
        ({"hidden_size": None}, "key hidden_size is required"),
        ({"vocab_size": "many"}, "vocab_size must be a valid integer (found 'many')"),
        ({"num_attention_heads": 0}, "hidden_size and the number of heads must be whole numbers"),
        ({"num_hidden_layers": -1}, "num_layers must be greater than or equal to 1 (found -1)"),
    ],
)
def test_what_cannot_be_modelled_is_named(tmp_path: Path, changes: dict[str, Any], expected: str):
    assert expected in refusal(tmp_path, LLAMA_3_8B, **changes)


def test_a_folder_without_a_config(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"config\.json: cannot be read: No such file"):
        load_model(f"{tmp_path}/")
