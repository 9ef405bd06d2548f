"""Statistics of samples that may stand for many equal ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEVELS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
STATISTICS = ("mean", *LEVELS, "max")


def summarise(
    values: NDArray[np.float64], weights: NDArray[np.int64] | None = None
) -> dict[str, float | None]:
    """Mean, percentiles and maximum of `values`, each counted `weights` times; None where there are none.

    Percentiles interpolate linearly between neighbours, as numpy does by default: the result is that of
    `np.percentile(np.repeat(values, weights), ...)` without the repetition.
    """
    if weights is None:
        weights = np.ones(len(values), dtype=np.int64)
    present = weights > 0
    values, weights = values[present], weights[present]
    if not len(values):
        return dict.fromkeys(STATISTICS)
    order = np.argsort(values, kind="stable")
    values, counted = values[order], np.cumsum(weights[order])
    total = int(counted[-1])
    # Not a dot product, whose last digits depend on how many threads BLAS has in this process.
    mean = float((values * weights[order]).sum() / total)
    summary: dict[str, float | None] = {"mean": mean}
    for name, level in LEVELS.items():
        position = (total - 1) * level
        below = int(position)
        lower, upper = values[np.searchsorted(counted, (below, min(below + 1, total - 1)), side="right")]
        summary[name] = float(lower + (upper - lower) * (position - below))
    summary["max"] = float(values[-1])
    return summary
