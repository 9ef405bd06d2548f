"""Kernel profiles of LLMServingSim 2: one model's layers and attention under vLLM, mixed batches included.

The folder holds `meta.yaml`, `dense.csv`, `per_sequence.csv`, `attention.csv` and perhaps `skew.csv`, in
microseconds, of one layer of an unsharded model. What a reader has to know: KV lengths do not count the new
token; the times of `skew.csv` are sums over `measurement_iterations` runs, those of the others are means.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from profiler.import_.csv_rows import read_csv
from profiler.import_.report import ImportReport, write_table
from profiler.tables import KernelRow, TableMeta
from simulator.errors import ConfigError, InputError, suggest
from simulator.hardware import ModelSpec
from simulator.load import load_model

GPUS = {"NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtx_pro_6000"}
SKEW_PASS = "skew"
"""`pass_id` of the batches of unequal KV lengths."""


@dataclass(frozen=True)
class _Layout:
    """What a layer's name means for the profiled model."""

    weights: dict[str, tuple[int, int]]
    """(n, k) by layer."""
    widths: dict[str, tuple[str, int]]
    """(op, width) by layer."""
    heads: dict[str, Any]


def import_llmservingsim(folder: Path, out: Path) -> ImportReport:
    """Writes the table of a profile; raises InputError."""
    meta = _read_meta(folder / "meta.yaml")
    layout = _layout(_model(meta, folder))
    rows = [
        *_dense_rows(folder / "dense.csv", "tokens", layout),
        *_dense_rows(folder / "per_sequence.csv", "sequences", layout),
        *_attention_rows(folder / "attention.csv", layout),
    ]
    if (folder / "skew.csv").exists():
        rows += _skew_rows(folder / "skew.csv", layout, int(meta.get("measurement_iterations", 1)))
    return write_table(out, _table_meta(meta, folder), rows)


def _read_meta(path: Path) -> dict[str, Any]:
    try:
        meta = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: file is missing") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(meta, dict) or "gpu" not in meta or "model" not in meta:
        raise InputError(f"{path}: keys 'gpu' and 'model' are expected")
    return meta


def _model(meta: dict[str, Any], folder: Path) -> ModelSpec:
    name = str(meta["model"]).rsplit("/", 1)[-1].lower()
    try:
        return load_model(name)
    except ConfigError as error:
        raise InputError(f"{folder / 'meta.yaml'}: model {meta['model']!r}: {error}") from None


def _table_meta(meta: dict[str, Any], folder: Path) -> TableMeta:
    if meta["gpu"] not in GPUS:
        raise InputError(
            f"{folder / 'meta.yaml'}: unknown gpu {meta['gpu']!r}{suggest(str(meta['gpu']), GPUS)}"
        )
    engine = meta.get("engine_effective") or {}
    return TableMeta(
        device=GPUS[meta["gpu"]],
        libraries={"vllm": str(meta.get("vllm_version", "")), "cuda": str(meta.get("cuda_version", ""))},
        backend="vllm",
        page_size=int(engine.get("block_size", 0)),
        kv_write="included",
        gaps="excluded",
        protocol=f"CUDA kernel times, mean of {meta.get('measurement_iterations', '?')}, dummy weights",
        source=f"casys-kaist/LLMServingSim, profile of {meta['model']}",
        licence="MIT",
    )


def _layout(model: ModelSpec) -> _Layout:
    weights = {f"{op.name}_proj": (op.n, op.k) for op in model.linear_ops(1)}
    head = model.lm_head(1)
    query_and_key = (model.num_heads + model.num_kv_heads) * model.head_dim
    return _Layout(
        weights=weights | {"lm_head": (head.n, head.k)},
        widths={
            "layernorm": ("rmsnorm", model.hidden_size),
            "final_layernorm": ("rmsnorm", model.hidden_size),
            "rotary_emb": ("rope", query_and_key),
            "act_fn": ("activation", model.intermediate_size),
            "embedding": ("embedding", model.hidden_size),
            "sampler": ("sampler", model.vocab_size),
        },
        heads={"q_heads": model.num_heads, "kv_heads": model.num_kv_heads, "head_dim": model.head_dim},
    )


def _dense_rows(path: Path, size: str, layout: _Layout) -> Iterator[KernelRow]:
    for line in read_csv(path, ("layer", size, "time_us")):
        layer, m, time_us = line.text("layer"), line.count(size), line.number("time_us")
        if layer in layout.weights:
            n, k = layout.weights[layer]
            yield KernelRow("gemm", "bf16", m=m, n=n, k=k, latency_us=time_us)
        elif layer in layout.widths:
            op, width = layout.widths[layer]
            yield KernelRow(op, "bf16", m=m, width=width, latency_us=time_us)
        else:
            known = [*layout.weights, *layout.widths]
            raise InputError(f"{path}: unknown layer {layer!r}{suggest(layer, known)}")


def _attention_rows(path: Path, layout: _Layout) -> Iterator[KernelRow]:
    for line in read_csv(path, ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us")):
        decodes, kv = line.count("n_decode"), line.count("kv_decode") + 1
        yield KernelRow(
            "attention",
            "bf16",
            **_chunk(line.count("prefill_chunk"), line.count("kv_prefill")),
            **_decodes(decodes, decodes * kv, kv),
            **layout.heads,
            latency_us=line.number("time_us"),
        )


def _skew_rows(path: Path, layout: _Layout, iterations: int) -> Iterator[KernelRow]:
    """The batches as they were: `nb` sequences of `kv_big` beside the others of `kvs`."""
    for line in read_csv(path, ("n", "nb", "pc", "kp", "kvs", "kv_big", "t_skew_us")):
        decodes, big, kv, kv_big = (line.count(name) for name in ("n", "nb", "kvs", "kv_big"))
        total = (decodes - big) * (kv + 1) + big * (kv_big + 1)
        yield KernelRow(
            "attention",
            "bf16",
            **_chunk(line.count("pc"), line.count("kp")),
            **_decodes(decodes, total, kv_big + 1),
            **layout.heads,
            decode_kv_lengths=f"{big}x{kv_big + 1} {decodes - big}x{kv + 1}",
            latency_us=line.number("t_skew_us") / iterations,
            pass_id=SKEW_PASS,
        )


def _chunk(tokens: int, prefix: int) -> dict[str, Any]:
    return {"num_chunks": 1, "chunk_tokens": tokens, "prefix_tokens": prefix} if tokens else {}


def _decodes(number: int, kv_tokens: int, kv_max: int) -> dict[str, Any]:
    if not number:
        return {}
    return {"num_decodes": number, "decode_kv_tokens": kv_tokens, "decode_kv_max_tokens": kv_max}
