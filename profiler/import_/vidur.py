"""Kernel tables of Vidur: operator medians by model, collectives by node, FlashAttention on an A100.

The folder holds `linear_ops.csv`, `network.csv` and `a100_flash_attention_32q_4kv/{prefill,decode}.csv`; ms.
What a reader has to know: operators are those of one layer on one GPU; models share weights; values are sums
of CUDA kernel times, so gaps between launches are left out; the send/recv of its H100 pairs are those of its
A100 pairs, and are not taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiler.import_.csv_rows import CsvRow, read_csv
from profiler.import_.report import ImportReport, combined, write_table
from profiler.tables import KernelRow, TableMeta
from simulator.errors import InputError

LICENCE = "MIT"
PROTOCOL = "Kineto: sum of CUDA kernel times in an operator, warm L2, median"
ATTENTION_FOLDER = "a100_flash_attention_32q_4kv"
ATTENTION_HEADS: dict[str, Any] = {"q_heads": 32, "kv_heads": 4, "head_dim": 128}
ATTENTION_GPU = "a100_80gb_pcie"
PAGE_SIZE = 16


@dataclass(frozen=True)
class _Device:
    gpu: str
    """Our name of it (configs/gpus)."""
    node: str | None
    """The machine of `network.csv` that has it."""
    topologies: dict[tuple[int, int], str]
    """Link by (workers, devices per node)."""


_PAIRS = {(2, 2): "nvlink_pair", (4, 4): "pcie", (2, 1): "ethernet"}
_DGX = {(2, 2): "nvlink", (4, 4): "nvlink", (8, 8): "nvlink", (2, 1): "ethernet"}
DEVICES = {
    "a100": _Device("a100_80gb_pcie", "a100_pairwise_nvlink", _PAIRS),
    "a40": _Device("a40", None, {}),
    "h100": _Device("h100_sxm", "h100_dgx", _DGX),
}

_LINEAR_COLUMNS = (
    *("gpu", "tp", "tokens", "n_head", "n_kv_head", "n_embd", "n_expanded_embd", "use_gated_mlp"),
    *("emb_ms", "input_layernorm_ms", "attn_pre_proj_ms", "attn_rope_ms", "attn_post_proj_ms"),
    *("mlp_up_proj_ms", "mlp_act_ms", "mlp_down_proj_ms"),
)
_NETWORK_COLUMNS = ("num_workers", "bytes", "devices_per_node", "median_ms", "node", "collective")


def import_vidur(folder: Path, out: Path) -> ImportReport:
    """Writes a table per GPU, `out/<gpu>`, and one of attention, `out/<gpu>-attention`; raises InputError."""
    linear = list(read_csv(folder / "linear_ops.csv", _LINEAR_COLUMNS))
    network = list(read_csv(folder / "network.csv", _NETWORK_COLUMNS))
    reports = []
    for name in dict.fromkeys(row.text("gpu") for row in linear):
        if name not in DEVICES:
            raise InputError(f"{folder / 'linear_ops.csv'}: unknown gpu {name!r}")
        device = DEVICES[name]
        rows = [row for line in linear if line.text("gpu") == name for row in _layer_rows(line)]
        rows += [
            row for line in network if line.text("node") == device.node for row in _collective(line, device)
        ]
        source = f"microsoft/vidur, data/profiling of {name}"
        reports.append(write_table(out / device.gpu, _meta(device.gpu, source), rows))
    attention = folder / ATTENTION_FOLDER
    if attention.is_dir():
        meta = _meta(ATTENTION_GPU, "microsoft/vidur, commit e2d00e9, FlashAttention-2 of an A100")
        meta = meta.model_copy(update={"backend": "flash_attn 2", "page_size": PAGE_SIZE})
        reports.append(write_table(out / f"{ATTENTION_GPU}-attention", meta, _attention_rows(attention)))
    return combined(out, reports)


def _meta(gpu: str, source: str) -> TableMeta:
    return TableMeta(device=gpu, gaps="excluded", protocol=PROTOCOL, source=source, licence=LICENCE)


def _layer_rows(line: CsvRow) -> Iterator[KernelRow]:
    """The operators of one layer at one number of tokens."""
    tp, tokens = line.count("tp"), line.count("tokens")
    hidden, heads = line.count("n_embd"), line.count("n_head")
    head_dim = hidden // heads
    kv_width = max(1, line.count("n_kv_head") // tp) * head_dim
    q_width = heads * head_dim // tp
    inner = line.count("n_expanded_embd") // tp
    up = inner * (2 if line.text("use_gated_mlp") == "true" else 1)
    for column, n, k in (
        ("attn_pre_proj_ms", q_width + 2 * kv_width, hidden),
        ("attn_post_proj_ms", hidden, q_width),
        ("mlp_up_proj_ms", up, hidden),
        ("mlp_down_proj_ms", hidden, inner),
    ):
        if line.number(column) > 0:
            yield KernelRow("gemm", "fp16", m=tokens, n=n, k=k, latency_us=line.number(column) * 1e3)
    for op, column, width in (
        ("embedding", "emb_ms", hidden),
        ("rmsnorm", "input_layernorm_ms", hidden),
        ("rope", "attn_rope_ms", q_width + kv_width),
        ("activation", "mlp_act_ms", inner),
    ):
        if line.number(column) > 0:
            yield KernelRow(op, "fp16", m=tokens, width=width, latency_us=line.number(column) * 1e3)


def _collective(line: CsvRow, device: _Device) -> Iterator[KernelRow]:
    workers, per_node = line.count("num_workers"), line.count("devices_per_node")
    if (workers, per_node) not in device.topologies:
        return
    yield KernelRow(
        line.text("collective"),
        "fp16",
        message_bytes=line.count("bytes"),
        world_size=workers,
        topology=device.topologies[workers, per_node],
        latency_us=line.number("median_ms") * 1e3,
    )


def _attention_rows(folder: Path) -> Iterator[KernelRow]:
    for line in read_csv(folder / "prefill.csv", ("chunk_tokens", "prefix_tokens", "median_ms")):
        yield KernelRow(
            "attention",
            "fp16",
            num_chunks=1,
            chunk_tokens=line.count("chunk_tokens"),
            prefix_tokens=line.count("prefix_tokens"),
            latency_us=line.number("median_ms") * 1e3,
            **ATTENTION_HEADS,
        )
    for line in read_csv(folder / "decode.csv", ("decodes", "kv_tokens_each", "median_ms")):
        decodes, kv = line.count("decodes"), line.count("kv_tokens_each")
        yield KernelRow(
            "attention",
            "fp16",
            num_decodes=decodes,
            decode_kv_tokens=decodes * kv,
            decode_kv_max_tokens=kv,
            latency_us=line.number("median_ms") * 1e3,
            **ATTENTION_HEADS,
        )
