"""How many copies of a layer's weights or KV cache take turns, so that a cache holds what a model's would.

Between two uses of one layer's weights a model reads all its others. As many bytes are rotated, but no more
than leave the last cache for certain, and no more copies than a CUDA graph of calls can hold.
"""

from __future__ import annotations

from math import ceil

from profiler.device import BYTES
from profiler.tables import KernelRow
from simulator.hardware import ModelSpec

MAX_COPIES = 40
_CACHE_MULTIPLE = 5


def rotated_bytes(point: KernelRow) -> int:
    """Bytes of the weights or of the KV cache that one call reads; 0 for operators without."""
    size = BYTES.get(point.dtype, 0)
    if point.op == "gemm":
        return point.n * point.k * size
    if point.op == "attention":
        tokens = point.decode_kv_tokens + point.num_chunks * (point.chunk_tokens + point.prefix_tokens)
        return 2 * tokens * point.kv_heads * point.head_dim * size
    return 0


def num_copies(point: KernelRow, model: ModelSpec, cache_bytes: int) -> int:
    """Copies to rotate for a point; 1 for operators whose inputs a layer has just produced."""
    size = rotated_bytes(point)
    if not size:
        return 1
    between = min(_CACHE_MULTIPLE * cache_bytes, model.num_parameters() * BYTES[point.dtype])
    return min(ceil(between / size) + 1, MAX_COPIES)
