"""Predictions of fitted kernels from their trees: a reference time, times what the trees learned about it.

Along one axis time over reference is smooth while trees have steps: there it is interpolated between measured
sizes, as long as these lie far apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from simulator.latency.features import (
    ATTENTION_EFFICIENCY,
    AttentionShapes,
    Device,
    decode_features,
    gemm_features,
    mixed_features,
    prefill_features,
)
from simulator.latency.kernels import Array
from simulator.latency.trees import BoostedTrees

COARSE_K = 1.0  # along k time is smooth between any two sizes
COARSE_LENGTH = 1.25  # along a sequence there are steps, which only a grid finer than this resolves
PREFIX_TILE = 64  # queries that share one pass over a prefix


def gemm_log_ratio(trees: BoostedTrees, k_axis: Array, device: Device, m: Array, n: Array, k: Array) -> Array:
    """log(time / reference) of [m, k] x [k, n]."""
    return _interpolated(lambda at: trees.predict(gemm_features(device, m, n, at)[1]), k, k_axis, COARSE_K)


def gemm_us(trees: BoostedTrees, k_axis: Array, device: Device, m: Array, n: Array, k: Array) -> Array:
    """Microseconds of [m, k] x [k, n]."""
    reference = gemm_features(device, m, n, k)[0]
    result: Array = reference * np.exp(gemm_log_ratio(trees, k_axis, device, m, n, k))
    return result


def prefill_us(trees: BoostedTrees, chunk_axis: Array, device: Device, shapes: AttentionShapes) -> Array:
    """Microseconds of chunks alone."""

    def log_ratio(chunk: Array) -> Array:
        return trees.predict(prefill_features(device, replace(shapes, chunk=chunk))[1])

    reference = prefill_features(device, shapes)[0]
    result: Array = reference * np.exp(_interpolated(log_ratio, shapes.chunk, chunk_axis, COARSE_LENGTH))
    return result


def decode_us(trees: BoostedTrees, kv_axis: Array, device: Device, shapes: AttentionShapes) -> Array:
    """Microseconds of decodes alone."""
    unevenness = shapes.kv_max / np.maximum(shapes.kv_mean, 1.0)

    def log_ratio(kv: Array) -> Array:
        return trees.predict(decode_features(device, replace(shapes, kv_mean=kv, kv_max=kv * unevenness))[1])

    reference = decode_features(device, shapes)[0]
    result: Array = reference * np.exp(_interpolated(log_ratio, shapes.kv_mean, kv_axis, COARSE_LENGTH))
    return result


def mixed_us(trees: BoostedTrees, device: Device, shapes: AttentionShapes) -> Array:
    """Microseconds of chunks and decodes in one launch."""
    reference, table = mixed_features(device, shapes)
    result: Array = reference * np.exp(trees.predict(table))
    return result


def prefix_us(device: Device, shapes: AttentionShapes) -> Array:
    """What a prefix adds to a chunk, where chunks with a prefix were not measured.

    Each tile of queries passes over the whole prefix, at the share of the peak that long prompts reach; tiles
    fill the SMs in waves. The triangle of the chunk itself is not part of it.
    """
    s = shapes
    tiles = s.num_chunks * s.q_heads * np.ceil(s.chunk / PREFIX_TILE)
    key = device.compute_us(4.0 * PREFIX_TILE * s.head_dim * device.sm_count)
    per_key = key / ATTENTION_EFFICIENCY
    result: Array = s.prefix * np.ceil(tiles / device.sm_count) * per_key
    return result


def _interpolated(predict: Callable[[Array], Array], at: Array, measured: Array, coarse: float) -> Array:
    """predict(at); between measured sizes more than `coarse` apart, linear in the logarithm from these."""
    if len(measured) < 2:
        return predict(at)
    above = np.clip(np.searchsorted(measured, at), 1, len(measured) - 1)
    low, high = measured[above - 1], measured[above]
    between = (low < at) & (at < high) & (high > coarse * low)
    if not between.any():
        return predict(at)
    weight = np.log(np.where(between, at / low, 1.0)) / np.log(high / low)
    at_low = predict(np.where(between, low, at))
    return at_low + (predict(np.where(between, high, at)) - at_low) * weight
