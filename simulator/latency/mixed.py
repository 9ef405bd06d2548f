"""How far a batch of a chunk and decodes is from the sum of the two, where such batches were measured."""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt

import numpy as np

from simulator.latency.kernels import Array

RatioFunction = Callable[[Array, Array, Array, Array], Array]
"""(chunk, prefix, decodes, mean KV length) -> measured time over the sum of its halves."""

CHUNK_UNIT = 4  # grid of chunks: 4 x squares, near 512 tokens 90 apart, since kernels change their mind there
PREFIX_UNIT = 64  # grid of prefixes: 64 (2^i - 1); decodes and KV lengths: powers of two
PREFIX_OCTAVES = 14
DECODE_OCTAVES = 12
KV_OCTAVES = 21

Plane = list[list[list[float]]]
Position = tuple[int, float]


class MixedRatio:
    """The ratio on a grid of the four sizes, linear between; a plane of equal chunks is computed at once."""

    def __init__(self, function: RatioFunction) -> None:
        self._planes = _Planes(function)

    def at(self, chunk: int, prefix: int, decodes: int, kv_mean: int) -> float:
        """The interpolated ratio."""
        root = isqrt(chunk // CHUNK_UNIT)
        weight = (chunk / CHUNK_UNIT - root * root) / (2 * root + 1)
        place = (_octave(prefix // PREFIX_UNIT + 1), _octave(decodes), _octave(kv_mean))
        low = _blend(self._planes[root], *place)
        return low + (_blend(self._planes[root + 1], *place) - low) * weight


class _Planes(dict[int, Plane]):
    """The ratio over prefix x decodes x KV length, by the root of the chunk."""

    def __init__(self, function: RatioFunction) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, root: int) -> Plane:
        prefixes = PREFIX_UNIT * (2.0 ** np.arange(PREFIX_OCTAVES) - 1)
        mesh = np.meshgrid(
            np.array([max(1.0, CHUNK_UNIT * root**2)]),
            prefixes,
            2.0 ** np.arange(DECODE_OCTAVES),
            2.0 ** np.arange(KV_OCTAVES),
            indexing="ij",
        )
        ratios = self._function(*(sizes.ravel() for sizes in mesh)).reshape(mesh[0].shape)
        plane: Plane = ratios[0].tolist()
        self[root] = plane
        return plane


def _octave(size: int) -> Position:
    """The power of two at or below a size, and how far the size is on its way to the next."""
    power = size.bit_length() - 1
    return power, size / (1 << power) - 1


def _blend(plane: Plane, prefix: Position, decodes: Position, kv: Position) -> float:
    """Trilinear interpolation."""
    (i, u), (j, v), (k, w) = prefix, decodes, kv
    near, far = plane[i], plane[i + 1]
    a, b, c, d = near[j], near[j + 1], far[j], far[j + 1]
    start = (a[k] + (a[k + 1] - a[k]) * w) * (1 - v) + (b[k] + (b[k + 1] - b[k]) * w) * v
    end = (c[k] + (c[k + 1] - c[k]) * w) * (1 - v) + (d[k] + (d[k + 1] - d[k]) * w) * v
    return start + (end - start) * u
