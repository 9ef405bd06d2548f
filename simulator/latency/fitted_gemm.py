"""Fitted matrix products: per weight, what the trees say on a lattice of m, interpolated between."""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np

from simulator.latency.estimators import gemm_log_ratio
from simulator.latency.features import Device, gemm_features
from simulator.latency.kernels import Array
from simulator.latency.trees import BoostedTrees

BLOCK = 4096  # tokens whose lattice is computed at once
TILE = 64


class FittedGemm:
    """Matrix products of one GPU."""

    def __init__(self, fit: dict[str, Any], device: Device) -> None:
        self._trees = BoostedTrees.from_json(fit["trees"])
        self._k_axis = np.asarray(fit["k_axis"], dtype=float)
        self._device = device
        self.largest_m = {(int(n), int(k)): int(largest) for n, k, largest in fit["weights"]}
        self._lattices: dict[tuple[int, int], tuple[Array, Array]] = {}

    def us(self, m: Array, n: int, k: int) -> Array:
        """Microseconds."""
        log_m, log_ratio = self._lattice(n, k, float(m.max(initial=1.0)))
        reference = gemm_features(self._device, m, np.asarray(float(n)), np.asarray(float(k)))[0]
        result: Array = reference * np.exp(np.interp(np.log(m), log_m, log_ratio))
        return result

    def _lattice(self, n: int, k: int, largest: float) -> tuple[Array, Array]:
        known = self._lattices.get((n, k))
        if known is None or known[0][-1] < log(largest):
            m = _lattice_of(largest)
            ratio = gemm_log_ratio(
                self._trees, self._k_axis, self._device, m, np.asarray(float(n)), np.asarray(float(k))
            )
            known = self._lattices[n, k] = (np.log(m), ratio)
        return known


def _lattice_of(largest: float) -> Array:
    """Sizes at which trees are asked: both sides of every tile edge, and powers of two below the first."""
    top = np.ceil(largest / BLOCK) * BLOCK
    edges = np.arange(TILE, top + 1, TILE)
    return np.unique(np.concatenate([[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 48.0], edges, edges[:-1] + 1]))
