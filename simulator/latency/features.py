"""What fitted kernels learn from: a reference time of first principles, and features that explain the rest.

A fit learns log(measured / reference) from the features, and a prediction multiplies the reference back, so
the reference carries the scale to shapes that were not measured. Times are in microseconds, sizes in tokens.
The formulas belong to the artefacts that were fitted with them: changing one means fitting all of them anew,
under a new `FEATURES_VERSION`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.latency.kernels import Array

FEATURES_VERSION = 1
ELEMENT_BYTES = 2

GEMM_TILES = ((64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128))
GEMM_TILE_EFFICIENCY = (0.6, 0.75, 0.75, 0.9, 1.0, 1.0)
GEMM_SPLITS = (1, 2, 3, 4, 6, 8, 16)
PROLOGUE_K = 64  # a tile's start and end cost about as much as this many columns of k

ELEMENTWISE_PASSES = {  # times each element is read or written
    "rmsnorm": 4,
    "rope": 2,
    "activation": 3,
    "kv_write": 2,
    "embedding": 2,
    "sampler": 4,
}

ATTENTION_EFFICIENCY = 0.6  # of the peak throughput, in the reference time of a prompt
ATTENTION_TILES = (64, 128)  # queries of one thread block
KV_BLOCK = 128  # keys that a thread block reads at a time
DECIMALS = 5
MAX_WAVES = 64.0  # beyond this many the remainder of a wave no longer matters


@dataclass(frozen=True, slots=True)
class Device:
    """The peak rates of a GPU that reference times are made of."""

    tflops: float
    bandwidth_gbps: float
    sm_count: int
    launch_us: float

    def compute_us(self, flops: Array) -> Array:
        """Time of that much arithmetic at the peak."""
        return flops / (self.tflops * 1e6)

    def memory_us(self, moved_bytes: Array) -> Array:
        """Time of that much traffic at the peak."""
        return moved_bytes / (self.bandwidth_gbps * 1e3)


@dataclass(frozen=True, slots=True)
class AttentionShapes:
    """Attention calls as arrays that broadcast: equal chunks on equal prefixes beside decodes."""

    num_chunks: Array
    chunk: Array
    prefix: Array
    num_decodes: Array
    kv_mean: Array
    kv_max: Array
    q_heads: Array
    kv_heads: Array
    head_dim: Array


Features = tuple[Array, Array]
"""Reference times in microseconds (n,), features (n, number of features)."""


def gemm_features(device: Device, m: Array, n: Array, k: Array) -> Features:
    """A roofline, and for each output tile the waves over the SMs with the best split of k."""
    m, n, k = np.broadcast_arrays(m, n, k)
    compute = device.compute_us(2 * m * n * k)
    memory = device.memory_us(ELEMENT_BYTES * (m * k + k * n + m * n))
    reference = np.maximum(compute, memory) + device.launch_us
    columns = [m, n, k, compute / memory, compute, memory, m * n]
    counts: list[Array] = []
    best = []
    for (rows, cols), efficiency in zip(GEMM_TILES, GEMM_TILE_EFFICIENCY, strict=True):
        tiles = np.ceil(m / rows) * np.ceil(n / cols)
        product = 2 * rows * cols * device.sm_count / efficiency
        costs = np.stack(
            [
                np.ceil(tiles * split / device.sm_count)
                * device.compute_us(product * (k / split + PROLOGUE_K))
                + (device.memory_us(8 * split * m * n) + device.launch_us if split > 1 else 0.0)
                for split in GEMM_SPLITS
            ]
        )
        best.append(costs.min(axis=0))
        columns += [costs[0] / reference, best[-1] / reference]
        counts += [*_waves(tiles, device), costs.argmin(axis=0).astype(float)]
    cheapest = np.minimum.reduce(best)
    columns += [cheapest / reference, np.hypot(cheapest, memory) / reference]
    return reference, _table(columns, counts)


def prefill_features(device: Device, shapes: AttentionShapes) -> Features:
    """Prompts or chunks alone: query-key pairs, the KV that they read, thread blocks in waves."""
    s = shapes
    pairs = s.num_chunks * s.q_heads * s.chunk * (s.prefix + (s.chunk + 1) / 2)
    compute = device.compute_us(4 * pairs * s.head_dim)
    context = s.prefix + s.chunk
    moved = 2 * s.num_chunks * s.head_dim * ELEMENT_BYTES * (s.chunk * s.q_heads + context * s.kv_heads)
    memory = device.memory_us(moved)
    reference = np.maximum(compute / ATTENTION_EFFICIENCY, memory) + device.launch_us
    columns = [
        *(s.num_chunks, s.chunk, s.prefix + 1, s.q_heads, s.kv_heads, s.head_dim, s.q_heads / s.kv_heads),
        *(compute, memory, compute / memory, context, s.prefix / s.chunk + 0.01),
        *(s.num_chunks * s.q_heads, s.num_chunks * s.chunk, np.ceil(context / KV_BLOCK) * KV_BLOCK / context),
    ]
    counts: list[Array] = []
    for rows in ATTENTION_TILES:
        tiles = np.ceil(s.chunk / rows)
        blocks = s.num_chunks * s.q_heads * tiles
        packed = s.num_chunks * s.kv_heads * np.ceil(s.chunk * s.q_heads / s.kv_heads / rows)
        per_key = device.compute_us(4.0 * rows * s.head_dim * device.sm_count)
        mean_wave = np.ceil(blocks / device.sm_count) * (s.prefix + (s.chunk + rows) / 2) * per_key
        columns += [
            tiles * rows / s.chunk,
            blocks,
            packed,
            mean_wave / reference,
            np.maximum(mean_wave, context * per_key) / reference,
        ]
        counts += [*_waves(blocks, device), *_waves(packed, device)]
    return reference, _table(columns, counts)


def decode_features(device: Device, shapes: AttentionShapes) -> Features:
    """Decodes alone: the KV is streamed once, by thread blocks that may share a sequence."""
    s = shapes
    memory, kv = _decode_us(device, s)
    reference = memory + device.launch_us
    blocks = s.num_decodes * s.kv_heads
    per_key = device.memory_us(4.0 * s.head_dim * ELEMENT_BYTES * device.sm_count)
    columns = [
        *(s.num_decodes, kv, s.q_heads, s.kv_heads, s.head_dim, s.q_heads / s.kv_heads, s.kv_max / kv),
        *(memory, device.compute_us(4 * s.num_decodes * s.q_heads * kv * s.head_dim)),
        *(s.num_decodes * s.q_heads, s.num_decodes * kv, blocks, blocks * np.ceil(kv / KV_BLOCK)),
    ]
    for keys in ATTENTION_TILES:
        parts = np.ceil(kv / keys)
        columns += [
            parts * keys / kv,
            np.ceil(blocks * parts / device.sm_count) * keys * per_key / reference,
            np.ceil(blocks / device.sm_count) * parts * keys * per_key / reference,
        ]
    counts = [*_waves(blocks, device), *_waves(s.num_decodes * s.q_heads, device)]
    return reference, _table(columns, counts)


def mixed_features(device: Device, shapes: AttentionShapes) -> Features:
    """Chunks beside decodes in one launch: a decode is a tile with one live row, and all share the SMs."""
    s = shapes
    memory, kv = _decode_us(device, s)
    rows = ATTENTION_TILES[0]
    tiles = s.num_chunks * np.ceil(s.chunk / rows)
    kv_padded, kv_longest = np.ceil(kv / KV_BLOCK) * KV_BLOCK, np.ceil(s.kv_max / KV_BLOCK) * KV_BLOCK
    context = s.prefix + s.chunk
    chunk_blocks, decode_blocks = s.q_heads * tiles, s.q_heads * s.num_decodes
    chunk_keys = chunk_blocks * (s.prefix + (s.chunk + rows) / 2)
    decode_keys = decode_blocks * kv_padded
    per_key = device.compute_us(4.0 * rows * s.head_dim * device.sm_count)
    share = (chunk_keys + decode_keys) / device.sm_count
    longest = np.maximum(context, kv_longest)
    busy = np.maximum(share, longest) * per_key
    reference = np.maximum(busy, memory) + device.launch_us
    chunk_waves = np.ceil(chunk_blocks / device.sm_count)
    decode_waves = np.ceil(decode_blocks / device.sm_count)
    all_waves = np.ceil((chunk_blocks + decode_blocks) / device.sm_count)
    free = chunk_waves * device.sm_count - chunk_blocks
    left = np.maximum(0.0, decode_blocks - free * np.floor(context / kv_padded))
    columns = [
        *(s.chunk, s.prefix + 1, s.num_decodes, kv, s.q_heads, s.kv_heads, s.head_dim),
        *(chunk_keys, decode_keys, share, longest, share / longest, memory, memory / busy, reference),
        *(
            chunk_keys / (chunk_keys + decode_keys),
            context / kv_padded,
            tiles * rows / s.chunk,
            kv_padded / kv,
        ),
        np.maximum(
            busy, per_key * np.maximum(chunk_waves * (s.prefix + s.chunk / 2), decode_waves * kv_padded)
        )
        / reference,
        chunk_waves * context * per_key / reference,
        decode_waves * kv_padded * per_key / reference,
        all_waves * longest * per_key / reference,
        (left + 1) / device.sm_count,
    ]
    counts = [
        *_waves(chunk_blocks + decode_blocks, device),
        *_waves(chunk_blocks, device),
        *_waves(decode_blocks, device),
    ]
    return reference, _table(columns, counts)


def elementwise_reference_us(device: Device, op: str, elements: Array) -> Array:
    """A launch, and the bytes over the bandwidth."""
    return device.launch_us + device.memory_us(ELEMENTWISE_PASSES[op] * ELEMENT_BYTES * elements)


def _decode_us(device: Device, s: AttentionShapes) -> tuple[Array, Array]:
    """Time to stream the KV, queries and outputs of the decodes; and their KV length."""
    kv = np.maximum(s.kv_mean, 1.0)
    moved = 2 * s.num_decodes * s.head_dim * ELEMENT_BYTES * (kv * s.kv_heads + s.q_heads)
    return device.memory_us(moved), kv


def _waves(blocks: Array, device: Device) -> list[Array]:
    """Rounds of thread blocks over the SMs, and how full the last one is."""
    waves = blocks / device.sm_count
    return [np.minimum(np.ceil(waves), MAX_WAVES), waves % 1.0]


def _table(positive: list[Array], counts: list[Array]) -> Array:
    """Feature columns: logarithms of the positive ones, and the counts as they are.

    They are rounded, so that what differs by a rounding error alone never lies on two sides of a split.
    """
    logs = [np.log(np.maximum(column, 1e-6)) for column in positive]
    table: Array = np.stack(np.broadcast_arrays(*logs, *counts), axis=-1)
    return np.round(table, DECIMALS)
