"""Predictions of fitted kernels from their trees: a reference time, times what the trees learned about it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from simulator.latency.features import (
    AttentionShapes,
    Device,
    Features,
    decode_features,
    gemm_features,
    mixed_features,
    prefill_features,
)
from simulator.latency.kernels import Array
from simulator.latency.trees import BoostedTrees

PREFIX_TILE = 64  # queries that share one pass over a prefix


def gemm_log_ratio(trees: BoostedTrees, k_axis: Array, device: Device, m: Array, n: Array, k: Array) -> Array:
    """log(time / reference). Trees predict it at measured k, and between two of them it is interpolated:
    along k alone time is smooth, where trees would have steps. Beyond all measured k it stays as it is there.
    """
    m, n, k = np.broadcast_arrays(m, n, k)
    high = np.clip(np.searchsorted(k_axis, k), 0, len(k_axis) - 1)
    low = np.where(k < k_axis[high], np.maximum(high - 1, 0), high)
    k_low, k_high = k_axis[low], k_axis[high]
    ratio = trees.predict(gemm_features(device, m, n, k_low)[1])
    between = k_low < k_high
    if between.any():
        m, n, k, k_low, k_high = (values[between] for values in (m, n, k, k_low, k_high))
        at_high = trees.predict(gemm_features(device, m, n, k_high)[1])
        ratio[between] += (at_high - ratio[between]) * np.log(k / k_low) / np.log(k_high / k_low)
    return ratio


def gemm_us(trees: BoostedTrees, k_axis: Array, device: Device, m: Array, n: Array, k: Array) -> Array:
    """Microseconds of [m, k] x [k, n]."""
    reference = gemm_features(device, m, n, k)[0]
    result: Array = reference * np.exp(gemm_log_ratio(trees, k_axis, device, m, n, k))
    return result


def _of(
    features: Callable[[Device, AttentionShapes], Features],
) -> Callable[[BoostedTrees, Device, AttentionShapes], Array]:
    def microseconds(trees: BoostedTrees, device: Device, shapes: AttentionShapes) -> Array:
        reference, table = features(device, shapes)
        result: Array = reference * np.exp(trees.predict(table))
        return result

    return microseconds


prefill_us = _of(prefill_features)
decode_us = _of(decode_features)
mixed_us = _of(mixed_features)


def prefix_us(device: Device, efficiency: float, shapes: AttentionShapes) -> Array:
    """What a prefix adds to a chunk, where chunks with a prefix were not measured.

    Each tile of queries passes over the whole prefix, at the share of the peak that long prompts reach; tiles
    fill the SMs in waves. The triangle of the chunk itself is not part of it.
    """
    s = shapes
    tiles = s.num_chunks * s.q_heads * np.ceil(s.chunk / PREFIX_TILE)
    per_key = device.compute_us(4.0 * PREFIX_TILE * s.head_dim * device.sm_count) / efficiency
    result: Array = s.prefix * np.ceil(tiles / device.sm_count) * per_key
    return result
