"""Prints how far the analytic roofline is from public operator measurements (Vidur's, see the data's README).

python tests/benchmarks/roofline_errors.py [FOLDER]     the data folder; $STALLFREE_SHARED_DATA otherwise
"""

from __future__ import annotations

import csv
import os
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from simulator.latency.kernels import AttentionHeads
from simulator.latency.roofline import RooflineKernels
from simulator.load import load_gpu, load_model

GPUS = {"a100": "a100_80gb_sxm", "h100": "h100_sxm", "a40": "a40"}
LINEAR_COLUMNS = ("attn_pre_proj_ms", "attn_post_proj_ms", "mlp_up_proj_ms", "mlp_down_proj_ms")
BANDS = ((1, 64), (65, 256), (257, 512), (513, 1024), (1025, 4096))
DEPLOYMENTS = (  # GPU, model of the table, our preset, tensor parallel
    ("a100", "meta-llama/Meta-Llama-3-8B", "llama-3-8b", 1),
    ("a100", "codellama/CodeLlama-34b-Instruct-hf", "codellama-34b", 2),
    ("a100", "meta-llama/Meta-Llama-3-70B", "llama-3-70b", 4),
    ("a40", "meta-llama/Llama-2-70b-hf", "llama-2-70b", 4),
)
TOKENS = (1, 32, 128, 256, 264, 512, 520, 1024, 2048, 4096)


def main() -> None:
    given = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("STALLFREE_SHARED_DATA", "../shared/data")
    tables = Path(given) / "kernels_vidur"
    with (tables / "linear_ops.csv").open() as lines:
        rows = [row for row in csv.DictReader(lines) if int(row["n_head"]) % int(row["tp"]) == 0]
    print_products(rows)
    print_forwards(rows)
    print_attention(tables / "a100_flash_attention_32q_4kv")


def print_products(rows: list[dict[str, str]]) -> None:
    print("matrix products, mean absolute error and median error (%) by tokens")
    print("gpu   products " + "".join(f"{low}-{high}".rjust(16) for low, high in BANDS))
    for gpu, preset in GPUS.items():
        shapes = defaultdict(list)
        for row in (row for row in rows if row["gpu"] == gpu):
            for (n, k), column in zip(row_shapes(row), LINEAR_COLUMNS, strict=True):
                shapes[n, k].append((int(row["tokens"]), float(row[column]) * 1e-3))
        tokens, errors = product_errors(RooflineKernels(load_gpu(preset)), shapes)
        cells = [spread(errors[(tokens >= low) & (tokens <= high)]) for low, high in BANDS]
        print(f"{gpu:5} {len(errors):8} " + "".join(cell.rjust(16) for cell in cells))


def row_shapes(row: dict[str, str]) -> list[tuple[int, int]]:
    """(n, k) of qkv, o, up and down on one rank."""
    ranks, hidden, heads = int(row["tp"]), int(row["n_embd"]), int(row["n_head"])
    head_dim, inner = hidden // heads, int(row["n_expanded_embd"]) // ranks
    key_value = max(1, int(row["n_kv_head"]) // ranks) * head_dim
    gates = 2 if row["use_gated_mlp"].lower() == "true" else 1
    query = hidden // ranks
    return [(query + 2 * key_value, hidden), (hidden, query), (gates * inner, hidden), (hidden, inner)]


def product_errors(roofline, shapes) -> tuple[np.ndarray, np.ndarray]:
    tokens, errors = [], []
    for (n, k), measured in shapes.items():
        m, seconds = np.array(measured).T
        tokens.append(m)
        errors.append(roofline.gemm_s(m, n, k) / seconds - 1)
    return np.concatenate(tokens), np.concatenate(errors)


def spread(errors: np.ndarray) -> str:
    return f"{100 * np.abs(errors).mean():.0f} ({100 * np.median(errors):+.0f})"


def print_forwards(rows: list[dict[str, str]]) -> None:
    print("\nlinear operators of a forward pass, ms: measured, roofline (error)")
    print("tokens" + "".join(f"{preset} {gpu} TP{ranks}".rjust(28) for gpu, _, preset, ranks in DEPLOYMENTS))
    for tokens in TOKENS:
        print(f"{tokens:6}" + "".join(forward(rows, tokens, *each).rjust(28) for each in DEPLOYMENTS))


def forward(rows, tokens: int, gpu: str, name: str, preset: str, ranks: int) -> str:
    key = (gpu, name, str(ranks), str(tokens))
    row = next(r for r in rows if (r["gpu"], r["model"], r["tp"], r["tokens"]) == key)
    model, roofline = load_model(preset), RooflineKernels(load_gpu(GPUS[gpu]))
    measured = model.num_layers * sum(float(row[column]) for column in LINEAR_COLUMNS)
    size = np.array([float(tokens)])
    ours = (
        1e3 * model.num_layers * sum(roofline.gemm_s(size, op.n, op.k)[0] for op in model.linear_ops(ranks))
    )
    return f"{measured:.1f}  {ours:.1f} ({100 * (ours / measured - 1):+.0f} %)"


def print_attention(folder: Path) -> None:
    print("\nFlashAttention-2 on an A100, 32 query and 4 KV heads, mean absolute and median error (%)")
    roofline, heads = RooflineKernels(load_gpu("a100_80gb_sxm")), AttentionHeads(32, 4, 128)
    for name, columns, kernel in (
        ("prefill", ("chunk_tokens", "prefix_tokens"), roofline.prefill_attention_s),
        ("decode", ("decodes", "kv_tokens_each"), roofline.decode_attention_s),
    ):
        with (folder / f"{name}.csv").open() as lines:
            data = [[float(row[c]) for c in (*columns, "median_ms")] for row in csv.DictReader(lines)]
        first, second, measured = np.array(data).T
        print(f"{name:8} {len(data):6} rows  {spread(kernel(first, second, heads) / (measured * 1e-3) - 1)}")


if __name__ == "__main__":
    main()
