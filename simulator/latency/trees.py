"""Boosted regression trees as plain arrays: what scikit-learn fitted, evaluated with numpy alone."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.latency.kernels import Array

Indices = npt.NDArray[np.int32]

ROWS_PER_BLOCK = 512
VALUE_STEP = 1e-4  # leaf values are stored as multiples of it: logarithms, so 0.01 % of the time


class BoostedTrees:
    """A sum of trees, each a run of nodes: a node, then its left branch, then its right one.

    So a left child is the next node, and only the distance to the right child is kept: 0 in a leaf.
    """

    def __init__(
        self,
        baseline: float,
        sizes: Indices,
        feature: Indices,
        threshold: Array,
        right: Indices,
        value: Array,
    ) -> None:
        self.baseline = baseline
        self.sizes, self.feature, self.threshold, self.right, self.value = (
            sizes,
            feature,
            threshold,
            right,
            value,
        )
        nodes = np.arange(len(feature), dtype=np.int32)
        self._roots: Indices = (np.cumsum(sizes) - sizes).astype(np.int32)
        self._left: Indices = (nodes + (right > 0)).astype(np.int32)
        self._right: Indices = (nodes + right).astype(np.int32)
        self._depth = self._measure_depth()

    def predict(self, features: Array) -> Array:
        """The sum over the trees for each row of features."""
        starts = range(0, len(features), ROWS_PER_BLOCK)
        blocks = [self._sum(features[start : start + ROWS_PER_BLOCK]) for start in starts]
        return np.concatenate(blocks) if blocks else np.zeros(0)

    def _sum(self, features: Array) -> Array:
        flat = np.ascontiguousarray(features).ravel()
        offset = (np.arange(len(features), dtype=np.int32) * features.shape[1])[:, None]
        node = np.broadcast_to(self._roots, (len(features), len(self._roots)))
        for _ in range(self._depth):
            goes_left = flat[offset + self.feature[node]] <= self.threshold[node]
            node = np.where(goes_left, self._left[node], self._right[node])
        total: Array = self.baseline + self.value[node].sum(axis=1)
        return total

    def _measure_depth(self) -> int:
        """Steps from a root to the deepest leaf."""
        level, depth = self._roots, 0
        while True:
            inner = level[self.right[level] > 0]
            if not len(inner):
                return depth
            level, depth = np.concatenate([self._left[inner], self._right[inner]]), depth + 1

    def to_json(self) -> dict[str, Any]:
        """The trees as JSON-ready data; thresholds are kept once per feature, and named by their rank."""
        inner = self.right > 0
        thresholds = {
            int(f): np.unique(self.threshold[inner & (self.feature == f)]) for f in set(self.feature[inner])
        }
        rank = np.zeros(len(self.feature), dtype=np.int32)
        for f, values in thresholds.items():
            mask = inner & (self.feature == f)
            rank[mask] = np.searchsorted(values, self.threshold[mask])
        return {
            "baseline": round(self.baseline, 6),
            "thresholds": {str(f): [round(x, 6) for x in thresholds[f].tolist()] for f in sorted(thresholds)},
            "sizes": _pack(self.sizes, "u1"),
            "feature": _pack(self.feature, "u1"),
            "rank": _pack(rank, "u1"),
            "right": _pack(self.right, "u1"),
            "value": _pack(np.round(self.value / VALUE_STEP), "<i2"),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> BoostedTrees:
        """Reads `to_json`; raises KeyError, ValueError or IndexError where the data are damaged."""
        feature = _unpack(data["feature"], "u1").astype(np.int32)
        right = _unpack(data["right"], "u1").astype(np.int32)
        rank = _unpack(data["rank"], "u1")
        threshold = np.zeros(len(feature))
        for name, values in data["thresholds"].items():
            mask = (feature == int(name)) & (right > 0)
            threshold[mask] = np.asarray(values, dtype=float)[rank[mask]]
        sizes = _unpack(data["sizes"], "u1").astype(np.int32)
        if sizes.sum() != len(feature) or len(rank) != len(feature) or len(right) != len(feature):
            raise ValueError("trees whose parts differ in length")
        value = _unpack(data["value"], "<i2") * VALUE_STEP
        return cls(float(data["baseline"]), sizes, feature, threshold, right, value)


def _pack(values: npt.NDArray[Any], dtype: str) -> str:
    """Base64 of the deflated bytes."""
    return base64.b64encode(zlib.compress(values.astype(dtype).tobytes(), 9)).decode("ascii")


def _unpack(text: str, dtype: str) -> npt.NDArray[Any]:
    try:
        return np.frombuffer(zlib.decompress(base64.b64decode(text, validate=True)), dtype=dtype)
    except zlib.error as error:
        raise ValueError(str(error)) from None
