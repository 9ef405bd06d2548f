"""Translates a Hugging Face config.json into a model's shape, for the dense architectures modelled here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.errors import ConfigError

CONFIG_NAME = "config.json"

SUPPORTED = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "GemmaForCausalLM",
    "FalconForCausalLM",
)

MIXTURE_KEYS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


def is_hugging_face(data: Mapping[str, Any]) -> bool:
    """Whether a mapping is a Hugging Face model config rather than one of ours."""
    return "architectures" in data or "model_type" in data


def model_mapping(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The fields of a ModelSpec; ConfigError names the architecture or key that does not serve."""
    architecture = _architecture(config, path)
    _refuse_unsupported(architecture, config, path)
    reader = _Reader(config, path)
    fields = _falcon(reader) if architecture == "FalconForCausalLM" else _llama_like(reader, architecture)
    common = {
        "name": _name(config, path),
        "hidden_size": reader.need("hidden_size"),
        "vocab_size": reader.need("vocab_size"),
        "dtype": "fp16" if reader.first("torch_dtype", "dtype") == "float16" else "bf16",
        "source": f"{architecture} in {path}",
    }
    return common | fields


class _Reader:
    """Look-ups in a config, in which an absent key and null mean the same."""

    def __init__(self, config: Mapping[str, Any], path: Path) -> None:
        self.config = config
        self.path = path

    def first(self, *keys: str, default: Any = None) -> Any:
        """The value of the first key that has one."""
        return next((self.config[key] for key in keys if self.config.get(key) is not None), default)

    def need(self, *keys: str) -> Any:
        """Like `first`; ConfigError where no key has a value."""
        value = self.first(*keys)
        if value is None:
            raise ConfigError(f"{self.path}: key {' or '.join(keys)} is required")
        return value

    def head_dim(self, num_heads: Any) -> Any:
        """The size of a head, by default the hidden size shared among the heads."""
        hidden = self.need("hidden_size")
        if not isinstance(num_heads, int) or not isinstance(hidden, int) or num_heads < 1:
            raise ConfigError(f"{self.path}: hidden_size and the number of heads must be whole numbers")
        return self.first("head_dim", default=hidden // num_heads)


def _llama_like(reader: _Reader, architecture: str) -> dict[str, Any]:
    num_heads = reader.need("num_attention_heads")
    windowed = reader.first("use_sliding_window", default=not architecture.startswith("Qwen"))
    return {
        "num_layers": reader.need("num_hidden_layers"),
        "num_heads": num_heads,
        "num_kv_heads": reader.first("num_key_value_heads", default=num_heads),
        "head_dim": reader.head_dim(num_heads),
        "intermediate_size": reader.need("intermediate_size"),
        "max_position_embeddings": reader.need("max_position_embeddings"),
        "tied_embeddings": reader.first("tie_word_embeddings", default=architecture == "GemmaForCausalLM"),
        "sliding_window": reader.first("sliding_window") if windowed else None,
        "qkv_bias": reader.first("attention_bias", default=architecture == "Qwen2ForCausalLM"),
        "qk_norm": architecture == "Qwen3ForCausalLM",
    }


def _falcon(reader: _Reader) -> dict[str, Any]:
    """Falcon in its three forms: grouped (new decoder), multi-query (7B) and multi-head (RW)."""
    num_heads = reader.need("num_attention_heads", "n_head")
    new_decoder = bool(reader.first("new_decoder_architecture", default=False))
    if new_decoder:
        num_kv_heads = reader.first("num_kv_heads", "n_head_kv", default=num_heads)
    else:
        num_kv_heads = 1 if reader.first("multi_query", default=True) else num_heads
    return {
        "num_layers": reader.need("num_hidden_layers", "n_layer"),
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "head_dim": reader.head_dim(num_heads),
        "intermediate_size": reader.first("ffn_hidden_size", default=4 * reader.need("hidden_size")),
        "gated_mlp": False,
        "parallel_block": new_decoder or bool(reader.first("parallel_attn", default=True)),
        "max_position_embeddings": reader.first("max_position_embeddings", default=2048),
        "tied_embeddings": reader.first("tie_word_embeddings", default=True),
        "qkv_bias": reader.first("bias", default=False),
    }


def _architecture(config: Mapping[str, Any], path: Path) -> str:
    names = config.get("architectures") or []
    if isinstance(names, list) and len(names) == 1 and isinstance(names[0], str):
        return names[0]
    raise ConfigError(f"{path}: architectures must name one class, such as ['{SUPPORTED[0]}']")


def _refuse_unsupported(architecture: str, config: Mapping[str, Any], path: Path) -> None:
    reason = ""
    if any(config.get(key) for key in MIXTURE_KEYS):
        reason = " (a mixture of experts)"
    elif config.get("kv_lora_rank"):
        reason = " (multi-head latent attention)"
    if reason or architecture not in SUPPORTED:
        allowed = ", ".join(SUPPORTED)
        raise ConfigError(f"{path}: architecture {architecture}{reason} is not modelled (allowed: {allowed})")
    quantisation = config.get("quantization_config")
    if quantisation:
        method = quantisation.get("quant_method", "?") if isinstance(quantisation, Mapping) else quantisation
        raise ConfigError(f"{path}: quantised weights ({method}) are not modelled: only bf16 and fp16 are")


def _name(config: Mapping[str, Any], path: Path) -> str:
    given = config.get("_name_or_path")
    stem = path.parent.name if path.name == CONFIG_NAME else path.stem
    return stem or (given if isinstance(given, str) else "") or "model"
