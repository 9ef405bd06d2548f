"""Drawn lengths: the right distribution, within bounds, one stream each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from simulator.workload.lengths import draw_lengths
from simulator.workload.spec import LengthSpec
from simulator.workload.streams import stream

SPEC: TypeAdapter[LengthSpec] = TypeAdapter(LengthSpec)
COUNT = 40_000


def draw(count: int = COUNT, seed: int = 1, **keys: Any) -> np.ndarray:
    return draw_lengths(SPEC.validate_python(keys), count, stream(seed, "prompts"))


def test_fixed_lengths_do_not_vary() -> None:
    assert draw(5, kind="fixed", tokens=7).tolist() == [7] * 5


@pytest.mark.parametrize("spread", [{"sigma": 0.45}, {"p90": 370.3}, {"mean": 230.2}])
def test_lognormal_is_the_same_by_any_spread(spread: dict[str, float]) -> None:
    lengths = draw(kind="lognormal", median=208, **spread)
    assert np.median(lengths) == pytest.approx(208, rel=0.01)
    assert np.percentile(lengths, 90) == pytest.approx(370, rel=0.015)
    assert lengths.mean() == pytest.approx(230, rel=0.01)


@pytest.mark.parametrize("spread", [{"shape": 4.0}, {"cv": 0.5}])
def test_gamma_has_its_mean_and_spread(spread: dict[str, float]) -> None:
    lengths = draw(kind="gamma", mean=1000, **spread)
    assert lengths.mean() == pytest.approx(1000, rel=0.01)
    assert lengths.std() == pytest.approx(500, rel=0.02)


def test_uniform_reaches_both_ends_equally() -> None:
    values, counts = np.unique(draw(kind="uniform", low=3, high=6), return_counts=True)
    assert values.tolist() == [3, 4, 5, 6]
    assert counts / COUNT == pytest.approx(0.25, abs=0.01)


def test_zipf_follows_its_power_law() -> None:
    lengths = draw(kind="zipf", alpha=1.0, low=1, high=4)
    shares = np.bincount(lengths, minlength=5)[1:] / COUNT
    harmonic = 1 + 1 / 2 + 1 / 3 + 1 / 4
    assert shares == pytest.approx([1 / harmonic / k for k in (1, 2, 3, 4)], abs=0.01)


def test_zipf_without_exponent_is_uniform() -> None:
    lengths = draw(kind="zipf", alpha=0.0, low=10, high=13)
    assert np.bincount(lengths)[10:] / COUNT == pytest.approx(0.25, abs=0.01)


def test_quantiles_come_back() -> None:
    points = {0: 1.0, 0.5: 415.0, 0.9: 834.0, 1: 1024.0}
    lengths = draw(kind="quantiles", points=points)
    assert np.quantile(lengths, list(points)) == pytest.approx(list(points.values()), rel=0.02)


def test_bounds_hold_the_tails() -> None:
    lengths = draw(kind="lognormal", median=100, sigma=2.0, low=50, high=200)
    assert (lengths.min(), lengths.max()) == (50, 200)


def test_a_longer_draw_begins_with_the_shorter() -> None:
    assert (
        draw(50, kind="gamma", mean=90, cv=2.0).tolist()
        == draw(99, kind="gamma", mean=90, cv=2.0)[:50].tolist()
    )


def test_streams_of_one_seed_are_independent_and_repeatable() -> None:
    draws = {name: stream(3, name).random(4).tolist() for name in ("arrivals", "prompts", "outputs", "rows")}
    assert len(set(map(tuple, draws.values()))) == 4
    assert draws["rows"] == stream(3, "rows").random(4).tolist()
    assert draws["rows"] != stream(4, "rows").random(4).tolist()


TOKENS = st.integers(1, 10_000)
ORDERED = st.tuples(TOKENS, TOKENS).map(sorted)
SPECS = st.one_of(
    st.builds(lambda n: {"kind": "fixed", "tokens": n}, TOKENS),
    st.builds(lambda m, s: {"kind": "lognormal", "median": m, "sigma": s}, TOKENS, st.floats(0, 10)),
    st.builds(lambda m, k: {"kind": "gamma", "mean": m, "shape": k}, TOKENS, st.floats(1e-6, 1e6)),
    st.builds(lambda m, cv: {"kind": "gamma", "mean": m, "cv": cv}, TOKENS, st.floats(1e-3, 1e3)),
    st.builds(lambda r: {"kind": "uniform", "low": r[0], "high": r[1]}, ORDERED),
    st.builds(
        lambda r, a: {"kind": "zipf", "alpha": a, "low": r[0], "high": r[1]}, ORDERED, st.floats(0, 20)
    ),
    st.builds(lambda r: {"kind": "quantiles", "points": {0: r[0], 1: r[1]}}, ORDERED),
)


@given(spec=SPECS, seed=st.integers(0, 2**32))
def test_every_length_is_within_its_distribution(spec: dict[str, Any], seed: int) -> None:
    lengths = draw(64, seed, **spec)
    assert lengths.dtype == np.int64
    low, high = spec.get("low", 1), spec.get("high", 10_000_000)
    assert low <= lengths.min() <= lengths.max() <= high
