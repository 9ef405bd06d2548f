"""The families of kernels that are fitted: which rows, which axes, which features.

Everything that fits or judges a fit sees a table as one `Family` at a time: sizes in, times out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from profiler.boosting import Boosting
from profiler.tables import KernelTable
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

Sizes = Mapping[str, Array]


@dataclass(frozen=True)
class Kind:
    """A family of kernels, before any table."""

    name: str
    axes: tuple[str, ...]
    """Sizes that vary from batch to batch or model to model."""
    shape: tuple[str, ...]
    """Sizes that a model fixes: one weight, or one set of heads."""
    features: Callable[[Device, Sizes], Features]
    boosting: Boosting


@dataclass(frozen=True)
class Family:
    """The measured points of one kind in one table, repeated measurements merged."""

    kind: Kind
    device: Device
    sizes: Sizes
    latency_us: Array
    off_grid: np.ndarray
    """Points that the profiler drew at random between those of its grid."""

    def __len__(self) -> int:
        return len(self.latency_us)

    def features(self) -> Features:
        """Reference times and features of every point."""
        return self.kind.features(self.device, self.sizes)

    def where(self, mask: np.ndarray) -> Family:
        """The points for which `mask` holds."""
        sizes = {name: values[mask] for name, values in self.sizes.items()}
        return Family(self.kind, self.device, sizes, self.latency_us[mask], self.off_grid[mask])


def _attention(sizes: Sizes) -> AttentionShapes:
    return AttentionShapes(**{name: sizes[name] for name in AttentionShapes.__dataclass_fields__})


_HEADS = ("q_heads", "kv_heads", "head_dim")
_ATTENTION_TREES = Boosting(max_trees=200, max_leaves=31, max_depth=8, learning_rate=0.12, max_min_leaf=10)

GEMM = Kind(
    "gemm",
    axes=("m", "n", "k"),
    shape=("n", "k"),
    features=lambda device, sizes: gemm_features(device, sizes["m"], sizes["n"], sizes["k"]),
    boosting=Boosting(max_trees=400, max_leaves=31, max_depth=10, learning_rate=0.08, max_min_leaf=20),
)
PREFILL = Kind(
    "prefill",
    axes=("num_chunks", "chunk", "prefix", "q_heads", "kv_heads"),
    shape=_HEADS,
    features=lambda device, sizes: prefill_features(device, _attention(sizes)),
    boosting=_ATTENTION_TREES,
)
DECODE = Kind(
    "decode",
    axes=("num_decodes", "kv_mean", "q_heads", "kv_heads"),
    shape=_HEADS,
    features=lambda device, sizes: decode_features(device, _attention(sizes)),
    boosting=_ATTENTION_TREES,
)
MIXED = Kind(
    "mixed",
    axes=("chunk", "prefix", "num_decodes", "kv_mean", "q_heads", "kv_heads"),
    shape=_HEADS,
    features=lambda device, sizes: mixed_features(device, _attention(sizes)),
    boosting=Boosting(max_trees=250, max_leaves=63, max_depth=7, learning_rate=0.12, max_min_leaf=10),
)
KINDS = (GEMM, PREFILL, DECODE, MIXED)


def families(table: KernelTable, device: Device) -> list[Family]:
    """The families that a table has rows of."""
    found = (_family(table, kind, device) for kind in KINDS)
    return [family for family in found if len(family)]


def _family(table: KernelTable, kind: Kind, device: Device) -> Family:
    rows = _rows(table, kind)
    rows = rows.where(rows["dtype"] == _main_dtype(rows))
    sizes = sizes_of(rows, kind)
    off_grid = np.char.find(rows["flags"].astype(str), "off_grid") >= 0
    return _merge_repeats(Family(kind, device, sizes, rows["latency_us"], off_grid))


def sizes_of(rows: KernelTable, kind: Kind) -> dict[str, Array]:
    """The sizes of a kind's rows, one by one."""
    columns = _gemm_sizes(rows) if kind is GEMM else _attention_sizes(rows)
    return {name: values.astype(float) for name, values in columns.items()}


def _rows(table: KernelTable, kind: Kind) -> KernelTable:
    if kind is GEMM:
        return table.select("gemm")
    attention = table.select("attention")
    chunks, decodes = attention["num_chunks"] > 0, attention["num_decodes"] > 0
    wanted = {
        PREFILL.name: chunks & ~decodes,
        DECODE.name: decodes & ~chunks,
        MIXED.name: chunks & decodes,
    }
    return attention.where(wanted[kind.name] & (attention["window"] == 0))


def _main_dtype(rows: KernelTable) -> str:
    counted = Counter(rows["dtype"].tolist()).most_common(1)
    return counted[0][0] if counted else ""


def _gemm_sizes(rows: KernelTable) -> dict[str, np.ndarray]:
    return {name: rows[name] for name in ("m", "n", "k")}


def _attention_sizes(rows: KernelTable) -> dict[str, np.ndarray]:
    decodes = rows["num_decodes"]
    return {
        "num_chunks": rows["num_chunks"],
        "chunk": rows["chunk_tokens"],
        "prefix": rows["prefix_tokens"],
        "num_decodes": decodes,
        "kv_mean": rows["decode_kv_tokens"] / np.maximum(decodes, 1),
        "kv_max": np.where(decodes > 0, rows["decode_kv_max_tokens"], 0),
        **{name: rows[name] for name in _HEADS},
    }


def _merge_repeats(family: Family) -> Family:
    """One point per shape, at the median of its measurements."""
    if not len(family):
        return family
    keys = np.stack(list(family.sizes.values()), axis=1)
    _, first, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    merged = family.where(np.sort(first))
    if len(merged) == len(family):
        return family
    group = group.ravel()
    order = np.argsort(group, kind="stable")
    parts = np.split(family.latency_us[order], np.cumsum(np.bincount(group))[:-1])
    medians = np.array([np.median(part) for part in parts])
    latency = medians[group[np.sort(first)]]
    return Family(merged.kind, merged.device, merged.sizes, latency, merged.off_grid)
