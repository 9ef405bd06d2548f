"""Kernel times from first principles: arithmetic, bytes moved, launches, and the tiles of matrix products.

It stands in where nothing was measured, and fits build on it: they learn log(measured / roofline).
The constants were chosen on public A100, A40 and H100 operator tables; docs/latency-model.md has the errors.
"""

from __future__ import annotations

import sys
from math import ceil, inf, log2

import numpy as np

from simulator.hardware import GPUSpec, LinkSpec
from simulator.latency.kernels import Array, AttentionHeads, AttentionRange

ELEMENT_BYTES = 2  # bf16 and fp16
PARTIAL_BYTES = 8  # a split-k partial sum in float32 is written once and read once

GEMM_TILES = ((64, 64), (128, 128), (256, 128))
GEMM_SPLITS = (1, 2)
LARGE_TILE = 256 * 128
SMALL_TILE_EFFICIENCY = 0.93  # a smaller tile reads more operands per product

ATTENTION_TILE = 128  # queries that share one pass over the KV, and KV tokens read at a time
ATTENTION_LAUNCHES = 4  # scheduling, a slow start, the kernel, and the combination of split results
LINK_EFFICIENCY = 0.75  # of a link's peak that a large collective reaches
PREFILL_EFFICIENCY = 0.8  # of what a matrix product reaches: the softmax is in the way
DECODE_EFFICIENCY = 0.9  # of what a stream reaches: pages are gathered

ELEMENTWISE_PASSES = {  # times each value is read or written
    "rmsnorm": 4,  # input and residual, both read and written
    "rope": 2,
    "activation": 3,  # gate and up read, product written
    "kv_write": 2,
    "embedding": 2,
    "sampler": 4,  # logits to float32, read once more
}
SAMPLER_LAUNCHES = 10


class RooflineKernels:
    """Analytic `Kernels` of one GPU."""

    attention_includes_kv_write = False
    gap_s = 0.0  # each kernel pays a launch already

    def __init__(self, gpu: GPUSpec) -> None:
        self.name = f"roofline-{gpu.name}"
        self.notes: tuple[str, ...] = (f"{gpu.name}: analytic roofline in place of measured kernels",)
        self._flops = gpu.tflops_bf16 * 1e12 * gpu.gemm_efficiency
        self._bandwidth = gpu.memory_bandwidth_gbps * 1e9 * gpu.memory_efficiency
        self._launch_s = gpu.launch_us * 1e-6
        self._num_sms = gpu.sm_count

    def gemm_s(self, m: Array, n: int, k: int) -> Array:
        """Waves of the best output tiles over the SMs; the stream of weights overlaps with them in part."""
        candidates = [self._tiled_s(m, n, k, tile, split) for tile in GEMM_TILES for split in GEMM_SPLITS]
        compute = np.minimum.reduce(candidates)
        memory = ELEMENT_BYTES * (float(n) * k + m * k + m * n) / self._bandwidth
        return self._launch_s + np.hypot(compute, memory)

    def _tiled_s(self, m: Array, n: int, k: int, tile: tuple[int, int], split: int) -> Array:
        rows, columns = tile
        waves = np.ceil(np.ceil(m / rows) * ceil(n / columns) * split / self._num_sms)
        efficiency = 1.0 if rows * columns >= LARGE_TILE else SMALL_TILE_EFFICIENCY
        wave_s = 2 * rows * columns * (k / split) * self._num_sms / (self._flops * efficiency)
        partials_s = PARTIAL_BYTES * split * m * n / self._bandwidth if split > 1 else 0.0
        return waves * wave_s + partials_s

    def prefill_attention_s(self, chunk: Array, prefix: Array, heads: AttentionHeads) -> Array:
        """Scores and values over the prefix and the triangle; each tile of queries reads the KV anew.

        Tiles at the end of the triangle take longest, and in a single wave all others wait for them.
        """
        tiles = np.ceil(chunk / ATTENTION_TILE)
        waves = np.maximum(1, tiles * heads.q_heads / self._num_sms)
        context = prefix + (chunk + ATTENTION_TILE + chunk / waves) / 2
        if heads.window:
            context = np.minimum(context, heads.window)
        pairs = tiles * ATTENTION_TILE * context * heads.q_heads
        compute = 4 * pairs * heads.head_dim / (self._flops * PREFILL_EFFICIENCY)
        memory = tiles * self._kv_bytes(context, heads) / self._bandwidth
        return ATTENTION_LAUNCHES * self._launch_s + np.maximum(compute, memory)

    def decode_attention_s(self, num_decodes: Array, kv_mean: Array, heads: AttentionHeads) -> Array:
        """The keys and values of every sequence are read once, half a tile too many on average."""
        context = np.minimum(kv_mean, heads.window) if heads.window else kv_mean
        moved = num_decodes * self._kv_bytes(context + ATTENTION_TILE / 2, heads)
        return ATTENTION_LAUNCHES * self._launch_s + moved / (self._bandwidth * DECODE_EFFICIENCY)

    def _kv_bytes(self, tokens: Array, heads: AttentionHeads) -> Array:
        return tokens * (2 * heads.kv_heads * heads.head_dim * ELEMENT_BYTES)

    def mixed_attention_s(
        self, chunk: Array, prefix: Array, num_decodes: Array, kv_mean: Array, heads: AttentionHeads
    ) -> None:
        """Nothing measured: a chunk and decodes cost the sum of the two."""
        return

    def uneven_slowdown(self, heads: AttentionHeads) -> None:
        """Nothing measured: decodes cost what they cost at their mean length."""
        return

    def all_reduce_s(self, message_bytes: Array, world_size: int, link: LinkSpec) -> Array:
        """A ring moves 2 (w - 1) / w of the message over each link; a tree's depth gives the latency."""
        moved = 2 * (world_size - 1) / world_size * message_bytes
        latency_s = ceil(log2(world_size)) * link.latency_us * 1e-6
        return self._launch_s + latency_s + moved / _reached_bandwidth(link)

    def send_recv_s(self, message_bytes: Array, link: LinkSpec) -> Array:
        """One latency and the message over the link."""
        return self._launch_s + link.latency_us * 1e-6 + message_bytes / _reached_bandwidth(link)

    def elementwise_s(self, op: str, tokens: Array, width: int) -> Array:
        """Bytes over bandwidth and the launches."""
        moved = ELEMENTWISE_PASSES[op] * ELEMENT_BYTES * tokens * width
        launches = SAMPLER_LAUNCHES if op == "sampler" else 1
        return launches * self._launch_s + moved / self._bandwidth

    def gemm_range(self, n: int, k: int) -> int | None:
        """A formula has no measured range to leave."""
        return sys.maxsize

    def attention_range(self, heads: AttentionHeads) -> AttentionRange:
        """A formula has no measured range to leave."""
        return AttentionRange(inf, inf, inf, inf)


def _reached_bandwidth(link: LinkSpec) -> float:
    """Bytes per second."""
    return link.bandwidth_gbps * 1e9 * LINK_EFFICIENCY
