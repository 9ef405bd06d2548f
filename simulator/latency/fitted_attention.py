"""Fitted attention: per head counts, what the trees say on a lattice of sizes, interpolated between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.latency.estimators import decode_us, mixed_us, prefill_us, prefix_us
from simulator.latency.features import AttentionShapes, Device
from simulator.latency.kernels import Array, AttentionHeads, AttentionRange
from simulator.latency.trees import BoostedTrees

NONE = np.zeros(())
_TILE_EDGES = np.arange(0, 2049, 64.0)
_OCTAVES = 2.0 ** np.arange(0, 18, 0.5)
CHUNK_LATTICE = np.unique(
    np.concatenate(
        [_OCTAVES[_OCTAVES < 64], _TILE_EDGES[1:], _TILE_EDGES[1:] + 1, 2048 * 2 ** np.arange(0.25, 5, 0.25)]
    )
)
PREFIX_LATTICE = np.concatenate([[0.0], 64 * _OCTAVES[: 2 * 12 + 1]])
DECODES_LATTICE = np.unique(
    np.concatenate([np.arange(1, 33), np.arange(36, 65, 4), np.arange(72, 257, 8), 256 * _OCTAVES[:9]])
)
KV_LATTICE = np.concatenate([[1.0], _OCTAVES[2:]])


class FittedAttention:
    """Attention of one GPU, in microseconds: lattices of chunk x prefix, and of decodes x KV length."""

    def __init__(self, artefact: dict[str, Any], device: Device) -> None:
        prefill, decode, mixed = artefact["prefill"], artefact["decode"], artefact.get("mixed")
        self._device = device
        self._prefill = BoostedTrees.from_json(prefill["trees"])
        self._chunk_axis = np.asarray(prefill["chunk_axis"], dtype=float)
        self._decode = BoostedTrees.from_json(decode["trees"])
        self._kv_axis = np.asarray(decode["kv_axis"], dtype=float)
        self._mixed = BoostedTrees.from_json(mixed["trees"]) if mixed else None
        self._prefix_fitted = bool(prefill["prefix_fitted"])
        self._ranges = (
            float(prefill["max_chunk"]),
            float(prefill["max_prefix"]),
            float(decode["max_num_decodes"]),
            float(decode["max_kv"]),
        )
        self._heads = {tuple(heads) for heads in prefill["heads"]} & {
            tuple(heads) for heads in decode["heads"]
        }
        self._surfaces: dict[tuple[str, AttentionHeads], _Surface] = {}

    def prefill_us(self, chunk: Array, prefix: Array, heads: AttentionHeads) -> Array:
        """One chunk; a window shortens what it attends."""
        surface = self._surface("prefill", heads, CHUNK_LATTICE, PREFIX_LATTICE, self._prefill_us)
        return surface.at(chunk, _windowed(prefix, heads))

    def decode_us(self, num_decodes: Array, kv_mean: Array, heads: AttentionHeads) -> Array:
        """Decodes of equal lengths."""
        surface = self._surface("decode", heads, DECODES_LATTICE, KV_LATTICE, self._decode_us)
        return surface.at(num_decodes, _windowed(kv_mean, heads))

    def mixed_us(
        self, chunk: Array, prefix: Array, num_decodes: Array, kv_mean: Array, heads: AttentionHeads
    ) -> Array | None:
        """A chunk and decodes in one launch; None where such launches were not measured."""
        if self._mixed is None:
            return None
        kv = _windowed(kv_mean, heads)
        shapes = _shapes(heads, chunk, _windowed(prefix, heads), num_decodes, kv)
        return mixed_us(self._mixed, self._device, shapes)

    def range(self, heads: AttentionHeads) -> AttentionRange:
        """What was measured."""
        measured = (heads.q_heads, heads.kv_heads, heads.head_dim) in self._heads
        return AttentionRange(*self._ranges, measured_heads=measured)

    def _surface(
        self,
        name: str,
        heads: AttentionHeads,
        rows: Array,
        columns: Array,
        function: Callable[[AttentionHeads, Array, Array], Array],
    ) -> _Surface:
        key = (name, heads)
        if key not in self._surfaces:
            mesh_rows, mesh_columns = np.meshgrid(rows, columns, indexing="ij")
            values = function(heads, mesh_rows.ravel(), mesh_columns.ravel())
            self._surfaces[key] = _Surface(rows, columns, values.reshape(mesh_rows.shape))
        return self._surfaces[key]

    def _prefill_us(self, heads: AttentionHeads, chunk: Array, prefix: Array) -> Array:
        shapes = _shapes(heads, chunk, prefix, NONE, NONE)
        if self._prefix_fitted:
            return prefill_us(self._prefill, self._chunk_axis, self._device, shapes)
        alone = _shapes(heads, chunk, NONE, NONE, NONE)
        return prefill_us(self._prefill, self._chunk_axis, self._device, alone) + prefix_us(
            self._device, shapes
        )

    def _decode_us(self, heads: AttentionHeads, num_decodes: Array, kv: Array) -> Array:
        shapes = _shapes(heads, NONE, NONE, num_decodes, kv)
        return decode_us(self._decode, self._kv_axis, self._device, shapes)


@dataclass(frozen=True)
class _Surface:
    """A function on a lattice, bilinear between; beyond, each axis goes on as it ended."""

    rows: Array
    columns: Array
    values: Array

    def at(self, row: Array, column: Array) -> Array:
        """The interpolated value."""
        row, column = np.broadcast_arrays(row, column)
        i, u = _place(self.rows, row)
        j, v = _place(self.columns, column)
        low = self.values[i, j] * (1 - v) + self.values[i, j + 1] * v
        high = self.values[i + 1, j] * (1 - v) + self.values[i + 1, j + 1] * v
        result: Array = np.maximum(low * (1 - u) + high * u, self.values[0, 0])
        return result


def _place(axis: Array, at: Array) -> tuple[Any, Array]:
    """The cell that a size lies in, or the last one, and how far into it."""
    cell = np.clip(np.searchsorted(axis, at, side="right") - 1, 0, len(axis) - 2)
    return cell, (at - axis[cell]) / (axis[cell + 1] - axis[cell])


def _windowed(tokens: Array, heads: AttentionHeads) -> Array:
    return np.minimum(tokens, heads.window) if heads.window else tokens


def _shapes(
    heads: AttentionHeads, chunk: Array, prefix: Array, num_decodes: Array, kv: Array
) -> AttentionShapes:
    return AttentionShapes(
        num_chunks=np.where(chunk > 0, 1.0, 0.0),
        chunk=chunk,
        prefix=prefix,
        num_decodes=num_decodes,
        kv_mean=kv,
        kv_max=kv,
        q_heads=np.asarray(float(heads.q_heads)),
        kv_heads=np.asarray(float(heads.kv_heads)),
        head_dim=np.asarray(float(heads.head_dim)),
    )
