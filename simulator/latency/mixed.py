"""How far a batch of a chunk and decodes is from the sum of the two, where such batches were measured."""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt

import numpy as np

from simulator.latency.kernels import Array

RatioFunction = Callable[[Array, Array, Array, Array], Array]
"""(chunk, prefix, decodes, mean KV length) -> measured time over the sum of its halves."""

CHUNK_UNIT = 4  # grid of chunks: 4 x squares, near 512 tokens 90 apart, since kernels change their mind there
PREFIX_UNIT = 32  # steps of prefixes: from 32 (2^(i/2) - 1), half an octave each
KV_UNIT = 16  # grid of KV lengths: 16 x powers of two; grid of decodes: powers of two
OCTAVES = 13  # largest grid point: 8,192 decodes, 131,072 tokens of KV; beyond, the ratio stays as it is
LARGEST = 2**OCTAVES - 1

Plane = list[list[float]]


class MixedRatio:
    """The ratio: linear in the chunk, the decodes and the KV length, at the middle of the prefix's step."""

    def __init__(self, function: RatioFunction) -> None:
        self._planes = _Planes(function)
        sizes = [max(1, size) for size in range(LARGEST + 1)]
        powers = [size.bit_length() - 1 for size in sizes]
        weights = [size / 2**power - 1 for size, power in zip(sizes, powers, strict=True)]
        self._places: list[tuple[int, float]] = list(zip(powers, weights, strict=True))

    def at(self, chunk: int, prefix: int, decodes: int, kv_mean: int) -> float:
        """The interpolated ratio."""
        root = isqrt(chunk // CHUNK_UNIT)
        longer = (chunk - CHUNK_UNIT * root * root) / (CHUNK_UNIT * (2 * root + 1))
        step = ((prefix // PREFIX_UNIT + 1) ** 2).bit_length() - 1
        kv_units = kv_mean // KV_UNIT
        i, u = self._places[decodes if decodes < LARGEST else LARGEST]
        j, v = self._places[kv_units if kv_units < LARGEST else LARGEST]
        near, far = self._planes[root, step], self._planes[root + 1, step]
        low, high = near[i], near[i + 1]
        start: float = low[j] + (low[j + 1] - low[j]) * v
        start += (high[j] + (high[j + 1] - high[j]) * v - start) * u
        low, high = far[i], far[i + 1]
        end: float = low[j] + (low[j + 1] - low[j]) * v
        end += (high[j] + (high[j + 1] - high[j]) * v - end) * u
        return start + (end - start) * longer


class _Planes(dict[tuple[int, int], Plane]):
    """The ratio over decodes x KV length, by the root of the chunk and the step of the prefix."""

    def __init__(self, function: RatioFunction) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, key: tuple[int, int]) -> Plane:
        root, step = key
        powers = 2.0 ** np.arange(OCTAVES + 1)
        decodes, kv = (size.ravel() for size in np.meshgrid(powers, KV_UNIT * powers, indexing="ij"))
        chunk = np.full_like(decodes, max(1, CHUNK_UNIT * root**2))
        middle = PREFIX_UNIT * (2 ** ((step + 0.5) / 2) - 1) if step else 0.0
        prefix = np.full_like(decodes, round(middle))
        plane: Plane = self._function(chunk, prefix, decodes, kv).reshape(len(powers), -1).tolist()
        self[key] = plane
        return plane
