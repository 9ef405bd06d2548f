"""Statistics of samples that may stand for many equal ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEVELS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
STATISTICS = ("mean", *LEVELS, "max")

_BIN_SHIFT = 46  # leaves a double's exponent and six leading bits: bins at most 1.6 % wide


def summarise(
    values: NDArray[np.float64], weights: NDArray[np.int64] | None = None
) -> dict[str, float | None]:
    """Mean, percentiles and maximum of `values` >= 0, counted `weights` times each; None if empty.

    Percentiles interpolate linearly between neighbours, as numpy does by default: the result is that of
    `np.percentile(np.repeat(values, weights), ...)` without the repetition.
    """
    total = len(values) if weights is None else int(weights.sum())
    if not total:
        return dict.fromkeys(STATISTICS)
    ranked = np.sort(values) if weights is None else _Ranked(values, weights)
    # Not a dot product, whose last digits depend on how many threads BLAS has in this process.
    weighted = values if weights is None else values * weights
    summary: dict[str, float | None] = {"mean": float(weighted.sum() / total)}
    for name, level in LEVELS.items():
        position = (total - 1) * level
        below = int(position)
        lower, upper = ranked[below], ranked[min(below + 1, total - 1)]
        summary[name] = float(lower + (upper - lower) * (position - below))
    summary["max"] = float(ranked[total - 1])
    return summary


class _Ranked:
    """The values of a weighted sample in ascending order, by rank.

    Only the bins that are asked for are sorted: a run of a million requests has tens of millions of values.
    """

    def __init__(self, values: NDArray[np.float64], weights: NDArray[np.int64]) -> None:
        self._values, self._weights = values, weights
        # The bits of a double that is not negative ascend with it.
        bins = np.abs(values).view(np.int64)
        bins >>= _BIN_SHIFT
        bins -= bins.min()
        self._bins = bins
        self._ends = np.cumsum(np.bincount(bins, weights)).astype(np.int64)
        self._sorted: dict[int, tuple[NDArray[np.float64], NDArray[np.int64]]] = {}

    def __getitem__(self, rank: int) -> float:
        bin = int(np.searchsorted(self._ends, rank, side="right"))
        if bin not in self._sorted:
            within = np.flatnonzero(self._bins == bin)
            values = self._values[within]
            order = np.argsort(values, kind="stable")
            before = self._ends[bin - 1] if bin else 0
            self._sorted[bin] = values[order], before + np.cumsum(self._weights[within[order]])
        values, ends = self._sorted[bin]
        return float(values[np.searchsorted(ends, rank, side="right")])
