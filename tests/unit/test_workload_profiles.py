"""Arrivals in bursts and along a curve: the right average, the right shape, the same draws at any rate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simulator.errors import ConfigError
from simulator.spec import parse
from simulator.workload import WorkloadSpec, build_workload
from simulator.workload.profiles import Curve, Phases

LENGTHS = {"prompt": 8, "output": 4}
DAY = {0: 1.0, 6: 0.0, 12: 3.0, 24: 1.0}


def arrivals(rate: float = 50.0, count: int = 20_000, seed: int = 1, **keys: Any) -> np.ndarray:
    spec = {"lengths": LENGTHS, "rate_rps": rate, "num_requests": count, **keys}
    return build_workload(WorkloadSpec.model_validate(spec), seed).arrival_s


def bursts(on_s: float = 2.0, off_s: float = 6.0, off_share: float = 0.0, **keys: Any) -> np.ndarray:
    on_off = {"on_s": on_s, "off_s": off_s, "off_share": off_share}
    return arrivals(arrivals="on_off", on_off=on_off, **keys)


@pytest.mark.parametrize("off_share", [0.0, 0.3])
def test_bursts_keep_the_average_rate(off_share: float) -> None:
    times = bursts(off_share=off_share, count=100_000)
    assert len(times) / times[-1] == pytest.approx(50.0, rel=0.1)


def test_counts_of_bursts_are_dispersed_as_theory_says() -> None:
    """Variance over mean of counts in long windows, of a two-state Markov-modulated Poisson process.

    1 + 2 (a - b)^2 p q / ((r + s) m) for rates a and b, phases left at rates r and s, shares p and q, mean m.
    """
    on_s, off_s, off_share, mean = 0.5, 1.0, 0.2, 50.0
    times = bursts(on_s, off_s, off_share, rate=mean, count=400_000)
    window_s = 50.0
    counts = np.bincount((times / window_s).astype(int))[:-1]
    share_on = on_s / (on_s + off_s)
    on = mean / (share_on + (1 - share_on) * off_share)
    gap = on * (1 - off_share)
    expected = 1 + 2 * gap**2 * share_on * (1 - share_on) / ((1 / on_s + 1 / off_s) * mean)
    assert counts.var() / counts.mean() == pytest.approx(expected, rel=0.25)
    assert expected > 5  # Poisson arrivals would have 1


def test_nothing_arrives_between_bursts_without_a_share() -> None:
    phases = Phases(on_s=2.0, off_s=6.0, off_share=0.0, seed=1)
    times = phases.when(np.linspace(0.0, 1000.0, 200_001))
    gaps = np.diff(times)
    long = gaps[gaps > 0.01]  # within a burst a step takes 0.005 / 4 s
    assert len(long) > 100
    assert long.mean() == pytest.approx(6.0, rel=0.2)
    assert np.median(gaps) == pytest.approx(0.005 / 4)


def test_pauses_do_not_last_beyond_belief() -> None:
    with pytest.raises(
        ConfigError, match=r"workload.arrivals: the last request would arrive at .* \(allowed"
    ):
        bursts(on_s=1.0, off_s=1e9, count=5000, seed=2)


def test_bursts_are_not_too_many_to_draw() -> None:
    with pytest.raises(ConfigError, match=r"0.001 s off are .* bursts .* \(allowed: up to 2000000\)"):
        bursts(on_s=1e-3, off_s=1e-3, rate=1e-3, count=100)


def test_a_shorter_workload_is_the_start_of_a_longer_one() -> None:
    assert bursts(count=100).tolist() == bursts(count=5000)[:100].tolist()


def test_bursts_come_when_they_come_at_any_rate() -> None:
    """Their times are the deployment's, not the load's: twice the rate is not half the burst."""
    slow, fast = bursts(rate=500.0), bursts(rate=1000.0)
    start = lambda times: times[1:][np.diff(times) > 1.0]  # noqa: E731
    shared = min(len(start(slow)), len(start(fast)))
    assert shared > 1
    assert start(slow)[:shared] == pytest.approx(start(fast)[:shared], abs=0.05)


def test_a_workload_at_another_rate_equals_one_drawn_at_it() -> None:
    spec = WorkloadSpec.model_validate(
        {"lengths": LENGTHS, "rate_rps": 2.0, "num_requests": 500, "arrivals": "curve", "curve": DAY}
    )
    faster = build_workload(spec, 0).at_rate(8.0)
    drawn = build_workload(spec.model_copy(update={"rate_rps": 8.0}), 0)
    assert faster.arrival_s.tolist() == drawn.arrival_s.tolist()


def test_a_curve_is_followed_in_every_pass() -> None:
    times = arrivals(arrivals="curve", curve=DAY, rate=400.0, count=48 * 400)
    assert times[-1] == pytest.approx(48.0, rel=0.02)
    counts = np.histogram(times, bins=[0, 6, 12, 24, 30, 36, 48])[0]
    area = np.array([3.0, 9.0, 24.0])
    expected = np.tile(area / area.sum() * 24 * 400, 2)
    assert counts == pytest.approx(expected, rel=0.08)


def test_a_curve_is_inverted_exactly() -> None:
    """The load at each of its times is the load that was asked for: against a fine numerical integral."""
    curve = Curve(tuple((float(at), rate) for at, rate in DAY.items()))
    fine = np.linspace(0, 48, 480_001)
    rate = np.interp(fine % 24, list(DAY), list(DAY.values())) / (36.0 / 24)
    load = np.concatenate([[0.0], np.cumsum((rate[1:] + rate[:-1]) / 2 * np.diff(fine))])
    asked = np.array([0.0, 0.5, 1.9, 2.1, 7.0, 8.5, 20.0, 23.9, 24.0, 26.0, 40.0])
    assert np.interp(curve.when(asked), fine, load) == pytest.approx(asked, abs=1e-3)
    assert np.all(np.diff(curve.when(np.linspace(0, 100, 100_001))) >= 0)


def test_a_flat_curve_is_poisson() -> None:
    flat = arrivals(arrivals="curve", curve={0: 2.0, 10: 2.0}, count=500)
    assert flat == pytest.approx(arrivals(arrivals="poisson", count=500))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"arrivals": "on_off"}, "on_off belongs to arrivals: on_off, which needs it"),
        ({"arrivals": "poisson", "curve": {0: 1, 9: 2}}, "curve belongs to arrivals: curve"),
        ({"arrivals": "curve", "curve": {5: 1, 9: 2}}, "curve needs a point at 0 s"),
        ({"arrivals": "curve", "curve": {0: 1}}, "at least one later"),
        ({"arrivals": "curve", "curve": {0: 0, 9: 0}}, "zero everywhere"),
        ({"arrivals": "curve", "curve": {0: 1e-310, 9: 1e-310}}, "zero everywhere"),
        ({"arrivals": "curve", "curve": {0: 1, 1e300: 2}}, "less than or equal to 1000000000"),
        ({"arrivals": "curve", "curve": {0: 1, 9: 1e308}}, "less than or equal to 1000000"),
        ({"arrivals": "curve", "curve": {0: 1, 1e-310: 2}}, "0.001 s or more between its points"),
        ({"arrivals": "curve", "curve": {0: 1, 9: -1}}, "greater than or equal to 0"),
        (
            {"arrivals": "on_off", "on_off": {"on_s": 1e-9, "off_s": 1}},
            "on_s must be greater than or equal to 0",
        ),
        (
            {"arrivals": "on_off", "on_off": {"on_s": 1, "off_s": 1e10}},
            "off_s must be less than or equal to 1",
        ),
        ({"arrivals": "on_off", "on_off": {"on_s": 1}}, "on_off.off_s is required"),
        ({"arrivals": "on_off", "on_off": {"on_s": 1, "off_s": 1, "off_share": 1}}, "less than 1"),
    ],
)
def test_keys_are_checked(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse(WorkloadSpec, {"lengths": LENGTHS, "rate_rps": 1.0, **keys}, "workload")
