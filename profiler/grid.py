"""Which points to measure for a model: the shapes of its layers on every rank, in blocks by priority.

A point is a table row without its time. The first block is what a simulation cannot do without.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np

from profiler.tables import KernelRow, row_key
from simulator.hardware import ModelSpec


@dataclass(frozen=True, slots=True)
class Axes:
    """The sizes along each axis of the grid, in tokens or sequences."""

    chunk: tuple[int, ...]
    prefix: tuple[int, ...]
    decodes: tuple[int, ...]
    kv: tuple[int, ...]
    mixed_chunk: tuple[int, ...]
    mixed_prefix: tuple[int, ...]
    mixed_decodes: tuple[int, ...]
    mixed_kv: tuple[int, ...]
    tokens: tuple[int, ...]
    elementwise_tokens: tuple[int, ...]
    max_kv_tokens: int
    """KV tokens of all sequences of a point together."""
    messages: tuple[int, ...]
    """Bytes."""
    skewed: int = 24
    held_out: float = 0.1
    """Random points off the grid, as a share of the prefill and decode points."""


FULL = Axes(
    chunk=(16, 64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192),
    prefix=(0, 512, 1024, 2048, 4096, 8192, 16384, 32768),
    decodes=(1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256),
    kv=(128, 512, 1024, 2048, 4096, 8192, 16384, 32768),
    mixed_chunk=(128, 256, 512, 1024, 2048),
    mixed_prefix=(0, 2048, 8192),
    mixed_decodes=(4, 16, 48, 128),
    mixed_kv=(512, 2048, 8192),
    tokens=(
        *(1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512),
        *(576, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 4096, 6144, 8192),
    ),
    elementwise_tokens=(1, 8, 32, 64, 128, 256, 512, 1024, 2048, 4096, 6144, 8192),
    max_kv_tokens=512 * 1024,
    messages=tuple(2**power for power in range(10, 29)),
)
"""A GPU's grid: minutes. Off-grid decode lengths and tile edges come on top, see `model_grid`."""

SMALL = Axes(
    chunk=(1, 8, 16, 32, 48, 64, 96, 128, 192, 256),
    prefix=(0, 32, 64, 128, 256, 512),
    decodes=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32),
    kv=(16, 32, 64, 128, 256, 512),
    mixed_chunk=(16, 32, 64, 128),
    mixed_prefix=(0, 128),
    mixed_decodes=(2, 4, 8, 16),
    mixed_kv=(64, 256),
    tokens=(1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 320),
    elementwise_tokens=(1, 4, 16, 32, 64, 128, 256, 320),
    max_kv_tokens=8192,
    messages=tuple(2**power for power in range(10, 21, 2)),
    skewed=6,
)
"""A tiny model's grid on a CPU: seconds."""

GRIDS = {"full": FULL, "small": SMALL}
OFF_GRID = "off_grid"
"""Flag of the random points between the grid's, which tell how well a fit interpolates."""
_SEQUENCES = 256  # the most that sample in one iteration


class Block(NamedTuple):
    """Points of one priority; a run finishes a block before it begins the next."""

    name: str
    points: tuple[KernelRow, ...]


def model_grid(
    model: ModelSpec,
    tensor_parallel: Sequence[int],
    axes: Axes,
    dtype: str,
    *,
    longest: int,
    passes: int = 2,
    seed: int = 0,
) -> list[Block]:
    """The blocks of a model's grid with sequences up to `longest` tokens; every pass has its own rows.

    ConfigError for a tensor-parallel size that the model cannot be split by.
    """
    rng = np.random.default_rng(seed)
    heads = _head_shapes(model, tensor_parallel, dtype)
    first, others = heads[0], heads[1:]
    blocks = [
        Block("attention", _separate(axes, first, longest, rng)),
        Block("linear", _linear(model, tensor_parallel, axes, dtype)),
        Block("elementwise", _elementwise(model, tensor_parallel, axes, dtype)),
        Block("mixed", _mixed(axes, first, longest)),
        Block("other heads", _other_heads(axes, others, longest, rng)),
        Block("collectives", _collectives(tensor_parallel, axes, dtype)),
    ]
    seen: set[object] = set()
    passes_of_blocks = []
    for number in range(1, passes + 1):
        for name, points in blocks:
            numbered = (replace(point, pass_id=str(number)) for point in points)
            fresh = tuple(point for point in numbered if not _repeats(point, seen))
            if fresh:
                passes_of_blocks.append(Block(f"{name}, pass {number}", fresh))
    return passes_of_blocks


def _repeats(point: KernelRow, seen: set[object]) -> bool:
    key = row_key(point)
    if key in seen:
        return True
    seen.add(key)
    return False


def _head_shapes(model: ModelSpec, tensor_parallel: Sequence[int], dtype: str) -> list[KernelRow]:
    """An attention row without a batch for the heads of each rank."""
    return [
        KernelRow(
            "attention",
            dtype,
            q_heads=model.heads_per_rank(tensor),
            kv_heads=model.kv_heads_per_rank(tensor),
            head_dim=model.head_dim,
            window=model.sliding_window or 0,
        )
        for tensor in tensor_parallel
    ]


def _separate(axes: Axes, heads: KernelRow, longest: int, rng: np.random.Generator) -> tuple[KernelRow, ...]:
    """Chunks on prefixes; decodes of equal and of unequal lengths; random points of both kinds."""
    prefills = [_prefill(heads, c, p) for c, p in product(axes.chunk, axes.prefix) if c + p <= longest]
    decodes = [
        _decode(heads, count, count * kv, kv)
        for count, kv in product(axes.decodes, axes.kv)
        if kv <= longest and count * kv <= axes.max_kv_tokens
    ]
    held_out = int(axes.held_out * (len(prefills) + len(decodes))) // 2
    off_grid = [_random_prefill(axes, heads, longest, rng) for _ in range(held_out)]
    off_grid += [_random_decode(axes, heads, longest, rng) for _ in range(held_out)]
    skewed = [_skewed(axes, heads, longest, rng) for _ in range(axes.skewed)]
    return (*prefills, *decodes, *skewed, *(replace(point, flags=OFF_GRID) for point in off_grid))


def _mixed(axes: Axes, heads: KernelRow, longest: int) -> tuple[KernelRow, ...]:
    """One chunk beside decodes of one length, in one call."""
    sizes = product(axes.mixed_chunk, axes.mixed_prefix, axes.mixed_decodes, axes.mixed_kv)
    return tuple(
        replace(_prefill(heads, c, p), num_decodes=b, decode_kv_tokens=b * kv, decode_kv_max_tokens=kv)
        for c, p, b, kv in sizes
        if c + p <= longest and kv <= longest and b * kv <= axes.max_kv_tokens
    )


def _other_heads(
    axes: Axes, others: Iterable[KernelRow], longest: int, rng: np.random.Generator
) -> tuple[KernelRow, ...]:
    points: list[KernelRow] = []
    for heads in others:
        points += _separate(axes, heads, longest, rng)
        points += _mixed(axes, heads, longest)
    return tuple(points)


def _linear(
    model: ModelSpec, tensor_parallel: Sequence[int], axes: Axes, dtype: str
) -> tuple[KernelRow, ...]:
    """Every weight of a layer at every number of tokens, and just past each power of two, where tiles begin;
    the head at numbers of sequences."""
    edges = [m + 1 for m in axes.tokens if m >= 64 and m & (m - 1) == 0 and m < axes.tokens[-1]]
    points = []
    for tensor in tensor_parallel:
        for op in model.linear_ops(tensor):
            points += [KernelRow("gemm", dtype, m=m, n=op.n, k=op.k) for m in (*axes.tokens, *edges)]
        head = model.lm_head(tensor)
        sampled = [m for m in axes.tokens if m <= _SEQUENCES]
        points += [KernelRow("gemm", dtype, m=m, n=head.n, k=head.k) for m in sampled]
    return tuple(points)


def _elementwise(
    model: ModelSpec, tensor_parallel: Sequence[int], axes: Axes, dtype: str
) -> tuple[KernelRow, ...]:
    """Norm, rotary embedding, activation, cache write, embedding, sampler, and the host's own time."""
    widths: list[tuple[str, int]] = [("rmsnorm", model.hidden_size), ("embedding", model.hidden_size)]
    for tensor in tensor_parallel:
        heads, kv_heads = model.heads_per_rank(tensor), model.kv_heads_per_rank(tensor)
        rotated = (heads + kv_heads) * model.head_dim
        widths += [("rope", rotated), ("kv_write", 2 * kv_heads * model.head_dim)]
        widths.append(("activation", model.intermediate_size // tensor))
        if model.qk_norm:
            widths.append(("rmsnorm", rotated))
    points = [KernelRow(op, dtype, m=m, width=width) for op, width in widths for m in axes.elementwise_tokens]
    sequences = [m for m in axes.elementwise_tokens if m <= _SEQUENCES]
    points += [KernelRow("sampler", dtype, m=m, width=model.vocab_size) for m in sequences]
    points += [KernelRow("host", m=m) for m in sequences]
    return tuple(points)


def _collectives(tensor_parallel: Sequence[int], axes: Axes, dtype: str) -> tuple[KernelRow, ...]:
    """All-reduce over every group size asked for, and a message between two GPUs."""
    groups = [tensor for tensor in tensor_parallel if tensor > 1]
    points = [
        KernelRow("all_reduce", dtype, message_bytes=size, world_size=world)
        for world in groups
        for size in axes.messages
    ]
    if groups:
        points += [KernelRow("send_recv", dtype, message_bytes=size, world_size=2) for size in axes.messages]
    return tuple(points)


def _prefill(heads: KernelRow, chunk: int, prefix: int) -> KernelRow:
    return replace(heads, num_chunks=1, chunk_tokens=chunk, prefix_tokens=prefix)


def _decode(heads: KernelRow, count: int, total: int, largest: int) -> KernelRow:
    return replace(heads, num_decodes=count, decode_kv_tokens=total, decode_kv_max_tokens=largest)


def _skewed(axes: Axes, heads: KernelRow, longest: int, rng: np.random.Generator) -> KernelRow:
    """Decodes of lognormal lengths whose sum is that of a grid point with equal lengths."""
    counts = [count for count in axes.decodes if count >= 4]
    count = int(rng.choice(counts))
    means = [kv for kv in axes.kv if 4 * kv <= longest and count * kv <= axes.max_kv_tokens]
    mean = int(rng.choice(means or axes.kv[:1]))
    lengths = rng.lognormal(sigma=0.8, size=count)
    largest = int(min(longest, lengths.max() / lengths.mean() * mean))
    return _decode(heads, count, count * mean, max(largest, mean))


def _random_prefill(axes: Axes, heads: KernelRow, longest: int, rng: np.random.Generator) -> KernelRow:
    chunk = _log_uniform(axes.chunk[0], min(axes.chunk[-1], longest), rng)
    prefix = _log_uniform(1, max(1, min(axes.prefix[-1], longest - chunk)), rng)
    return _prefill(heads, chunk, prefix)


def _random_decode(axes: Axes, heads: KernelRow, longest: int, rng: np.random.Generator) -> KernelRow:
    count = _log_uniform(1, axes.decodes[-1], rng)
    kv = _log_uniform(axes.kv[0], min(axes.kv[-1], longest, axes.max_kv_tokens // count), rng)
    return _decode(heads, count, count * kv, kv)


def _log_uniform(low: int, high: int, rng: np.random.Generator) -> int:
    return round(float(np.exp(rng.uniform(np.log(low), np.log(max(low, high))))))
