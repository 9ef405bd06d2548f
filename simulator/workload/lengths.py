"""Drawing prompt and output lengths from the distributions of `spec`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.workload.spec import Fixed, Gamma, LengthSpec, Lognormal, Quantiles, Tailed, Uniform, Zipf


def draw_lengths(spec: LengthSpec, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """`count` lengths in tokens, each at least 1; a longer draw of one seed begins with the shorter."""
    values = np.rint(_draw(spec, count, rng))
    if isinstance(spec, Tailed):
        values = np.clip(values, spec.low, spec.high)
    return values.astype(np.int64)


def _draw(spec: LengthSpec, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    match spec:
        case Fixed():
            return np.full(count, float(spec.tokens))
        case Lognormal():
            return spec.median * np.exp(spec.log_sigma * rng.standard_normal(count))
        case Gamma():
            return spec.mean / spec.gamma_shape * rng.standard_gamma(spec.gamma_shape, count)
        case Uniform():
            return spec.low + np.floor(rng.random(count) * (spec.high - spec.low + 1))
        case Zipf():
            return _zipf(spec, rng.random(count))
        case Quantiles():
            levels = sorted(spec.points)
            return np.interp(rng.random(count), levels, [spec.points[level] for level in levels])


def _zipf(spec: Zipf, uniform: NDArray[np.float64]) -> NDArray[np.float64]:
    """Inverts the exact distribution function of the cut power law."""
    lengths: NDArray[np.float64] = np.arange(spec.low, spec.high + 1, dtype=np.float64)
    weights = np.cumsum((lengths / spec.low) ** -spec.alpha)  # relative to the first, so that none overflows
    index = np.searchsorted(weights, uniform * weights[-1], side="right")
    return np.asarray(np.minimum(spec.low + index, spec.high), dtype=np.float64)
