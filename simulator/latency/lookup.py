"""Lookup tables filled from vectorised kernels a block at a time, and read in well under a microsecond.

A table holds what was asked for and its neighbours: a run touches a small part of what it could touch.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt

import numpy as np

from simulator.latency.kernels import Array

TOKENS_PER_BLOCK = 256
ROWS_PER_BLOCK = 64
SPARE_KNOTS = 32
KNOTS_PER_ROOT = 4
SQUARED_KNOTS = KNOTS_PER_ROOT**2


class IntegerTable(dict[int, float]):
    """A function of a whole number, exact at each: `table[n]`."""

    def __init__(self, function: Callable[[Array], Array]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, key: int) -> float:
        first = key - key % TOKENS_PER_BLOCK
        sizes = np.arange(first, first + TOKENS_PER_BLOCK)
        values = self._function(np.maximum(sizes, 1).astype(float))
        self.update(zip(sizes.tolist(), values.tolist(), strict=True))
        return self[key]


class SurfaceTable:
    """A function f(row, length), exact in the whole number `row` and linear between knots in `length`.

    Knot j lies at (j / KNOTS_PER_ROOT) ** 2: closely where an attention kernel still pays for its launch and
    bends from one measured length to the next, widely where it has become proportional. Near 100 tokens
    knots are 5 apart, near 100,000 tokens 158.
    """

    def __init__(self, function: Callable[[Array, Array], Array]) -> None:
        self._function = function
        self._rows: dict[int, list[float]] = {}

    def at(self, row: int, length: int) -> float:
        """The value, interpolated along `length`."""
        square = length * SQUARED_KNOTS
        knot = isqrt(square)
        try:
            values = self._rows[row]
            high = values[knot + 1]
        except LookupError:
            values = self._grow(row, knot + 2)
            high = values[knot + 1]
        low = values[knot]
        return low + (high - low) * (square - knot * knot) / (2 * knot + 1)

    def _grow(self, row: int, num_knots: int) -> list[float]:
        """Lengthen a block of neighbouring rows to `num_knots` values and some to spare."""
        first = row - row % ROWS_PER_BLOCK
        rows = [self._rows.setdefault(number, []) for number in range(first, first + ROWS_PER_BLOCK)]
        knots = np.arange(len(rows[0]), num_knots + SPARE_KNOTS, dtype=float)
        numbers = np.maximum(np.arange(first, first + ROWS_PER_BLOCK, dtype=float), 1)
        mesh = np.meshgrid(numbers, (knots / KNOTS_PER_ROOT) ** 2, indexing="ij")
        values = self._function(mesh[0].ravel(), mesh[1].ravel()).reshape(mesh[0].shape)
        for known, new in zip(rows, values.tolist(), strict=True):
            known.extend(new)
        return self._rows[row]
