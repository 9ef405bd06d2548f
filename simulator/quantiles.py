"""Statistics of samples that may stand for many equal ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEVELS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
STATISTICS = ("mean", *LEVELS, "max")

_BIN_SHIFT = 47  # leaves a double's exponent and five leading bits: bins at most 3 % wide
_NUM_BINS = 1 << 63 - _BIN_SHIFT
_VALUES_PER_PIECE = 2**18


def summarise(
    values: NDArray[np.float64], weights: NDArray[np.int32] | None = None
) -> dict[str, float | None]:
    """Mean, percentiles and maximum of `values` >= 0, counted `weights` times each; None if empty.

    Percentiles interpolate linearly between neighbours, as numpy does by default: the result is that of
    `np.percentile(np.repeat(values, weights), ...)` without the repetition.
    """
    total = len(values) if weights is None else int(weights.sum(dtype=np.int64))
    if not total:
        return dict.fromkeys(STATISTICS)
    ranked = np.sort(values) if weights is None else _Ranked(values, weights)
    summary: dict[str, float | None] = {"mean": float(ranked.sum()) / total}
    for name, level in LEVELS.items():
        position = (total - 1) * level
        below = int(position)
        lower, upper = ranked[below], ranked[min(below + 1, total - 1)]
        summary[name] = float(lower + (upper - lower) * (position - below))
    summary["max"] = float(ranked[total - 1])
    return summary


class _Ranked:
    """The values of a weighted sample in ascending order, by rank.

    Works in pieces and sorts only the bins that are asked for, since a run of a million requests has tens of
    millions of values. Those that count zero times may be negative.
    """

    def __init__(self, values: NDArray[np.float64], weights: NDArray[np.int32]) -> None:
        self._values, self._weights = values, weights
        self._sum = 0.0
        self._sorted: dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
        counts = np.zeros(_NUM_BINS)
        for first in range(0, len(values), _VALUES_PER_PIECE):
            piece = slice(first, first + _VALUES_PER_PIECE)
            # Not a dot product, whose last digits depend on how many threads BLAS has in this process.
            self._sum += float((values[piece] * weights[piece]).sum())
            # The bits of a double that is not negative ascend with it.
            bins = np.abs(values[piece]).view(np.int64) >> _BIN_SHIFT
            counts += np.bincount(bins, weights[piece], _NUM_BINS)
        self._ends = np.cumsum(counts)  # whole numbers, exact as doubles up to 2**53

    def sum(self) -> float:
        """The sum of all values."""
        return self._sum

    def __getitem__(self, rank: int) -> float:
        bin = int(np.searchsorted(self._ends, rank, side="right"))
        if bin not in self._sorted:
            low, high = (np.array([bin, bin + 1]) << _BIN_SHIFT).view(np.float64)
            within = np.flatnonzero((self._values >= low) & (self._values < high))
            values = self._values[within]
            order = np.argsort(values, kind="stable")
            before = self._ends[bin - 1] if bin else 0.0
            ends = before + np.cumsum(self._weights[within[order]], dtype=np.float64)
            self._sorted[bin] = values[order], ends
        values, ends = self._sorted[bin]
        return float(values[np.searchsorted(ends, rank, side="right")])
