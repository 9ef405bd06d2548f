"""Built workloads: which requests, in which order, at which times, and common random numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.errors import ConfigError, StallfreeError
from simulator.workload import Workload, WorkloadSpec, build_workload

SYNTHETIC = {
    "prompt": {"kind": "lognormal", "median": 900, "sigma": 0.8},
    "output": {"kind": "gamma", "mean": 200, "cv": 0.7},
}


def build(seed: int = 0, **keys: Any) -> Workload:
    return build_workload(WorkloadSpec.model_validate(keys), seed)


def synthetic(seed: int = 0, **keys: Any) -> Workload:
    return build(seed, **{"lengths": SYNTHETIC, "rate_rps": 2.0, "num_requests": 500, **keys})


def pairs(workload: Workload) -> list[tuple[int, int]]:
    return list(zip(workload.prompt_tokens.tolist(), workload.output_tokens.tolist(), strict=True))


def same(one: Workload, other: Workload) -> bool:
    return one.fingerprint() == other.fingerprint()


@pytest.fixture
def timed(tmp_path: Path) -> str:
    path = tmp_path / "timed.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n1,10,1\n2,20,2\n5,30,3\n")
    return str(path)


@pytest.fixture
def untimed(tmp_path: Path) -> str:
    path = tmp_path / "untimed.csv"
    path.write_text("prompt_tokens,output_tokens\n" + "".join(f"{n},{n}\n" for n in range(1, 101)))
    return str(path)


def test_a_seed_decides_everything() -> None:
    assert same(synthetic(seed=5), synthetic(seed=5))
    assert not same(synthetic(seed=5), synthetic(seed=6))


@pytest.mark.parametrize("process", [{}, {"arrivals": "gamma", "cv": 2.5}, {"truncate_at": 3.0}])
def test_another_rate_brings_the_same_requests_in_the_same_pattern(process: dict[str, Any]) -> None:
    slow, fast = synthetic(rate_rps=1.0, **process), synthetic(rate_rps=3.0, **process)
    assert pairs(slow) == pairs(fast)
    assert slow.arrival_s / 3 == pytest.approx(fast.arrival_s, rel=1e-12)
    assert same(slow.at_rate(3.0), fast)
    assert same(fast.at_rate(7.0).at_rate(1.0), slow)


def test_other_arrivals_leave_the_lengths_alone() -> None:
    assert pairs(synthetic()) == pairs(synthetic(arrivals="gamma", cv=4.0))


def test_more_requests_begin_with_the_fewer() -> None:
    many, few = synthetic(num_requests=800), synthetic(num_requests=500)
    assert pairs(many)[:500] == pairs(few)
    assert many.arrival_s[:500].tolist() == few.arrival_s.tolist()


def test_the_offered_rate_is_the_one_asked_for() -> None:
    assert synthetic(num_requests=20_000).offered_rate_rps == pytest.approx(2.0, rel=0.02)
    assert synthetic(arrivals="constant").offered_rate_rps == pytest.approx(2.0)


def test_truncated_arrivals_carry_a_note_of_their_real_load() -> None:
    workload = synthetic(truncate_at=3.0, num_requests=20_000)
    assert workload.offered_rate_rps == pytest.approx(2.0 * 1.0524, rel=0.02)
    assert workload.notes == ("gaps truncated at 3 x their mean: the real load is 1.052 x rate_rps",)


def test_all_at_once_has_no_rate() -> None:
    workload = synthetic(arrivals="all_at_once", rate_rps=None)
    assert set(workload.arrival_s) == {0.0}
    assert workload.offered_rate_rps is None
    with pytest.raises(ConfigError, match="no rate to change"):
        workload.at_rate(2.0)


def test_drawn_lengths_default_to_the_papers_number() -> None:
    assert len(synthetic(num_requests=None)) == 2048


def test_a_trace_with_times_is_replayed_in_order(timed: str) -> None:
    workload = build(trace=timed)
    assert workload.name == "timed"
    assert workload.arrival_s.tolist() == [1, 2, 5]
    assert pairs(workload) == [(10, 1), (20, 2), (30, 3)]
    assert pairs(build(trace=timed, num_requests=2)) == [(10, 1), (20, 2)]


def test_speed_divides_the_times(timed: str) -> None:
    assert build(trace=timed, speed=2.0).arrival_s.tolist() == [0.5, 1, 2.5]


@pytest.mark.parametrize("process", [{}, {"arrivals": "constant"}, {"arrivals": "gamma", "cv": 2.0}])
@pytest.mark.parametrize("rate", [1e-15, 1e-310])
def test_no_request_arrives_later_than_is_believed(process: dict[str, Any], rate: float) -> None:
    with pytest.raises(ConfigError, match=rf"rate_rps {rate:g}: the last .* \(allowed: up to 1e\+09 s\)"):
        synthetic(rate_rps=rate, **process)
    with pytest.raises(ConfigError, match="rate_rps"):
        synthetic(**process).at_rate(rate)


@pytest.mark.parametrize("keys", [{"speed": 1e-15}, {"speed": 1e-310}, {"speed": 1e-7, "num_requests": 400}])
def test_a_replay_is_not_stretched_beyond_belief(timed: str, keys: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"workload.speed 1e-\d+: the last request would arrive at"):
        build(trace=timed, **keys)
    assert build(trace=timed, speed=5e-9).arrival_s[-1] == 1e9


def test_a_replay_past_the_end_repeats_and_says_so(timed: str) -> None:
    workload = build(trace=timed, num_requests=5)
    assert workload.arrival_s.tolist() == [1, 2, 5, 7, 8]
    assert pairs(workload)[3:] == [(10, 1), (20, 2)]
    assert workload.notes == ("the 3 requests of trace timed are repeated to make 5",)


def test_replay_at_a_rate_only_when_asked(timed: str) -> None:
    stretched = build(trace=timed, arrivals="trace", rate_rps=2.0)
    assert stretched.arrival_s.tolist() == [0.25, 0.5, 1.25]
    assert stretched.offered_rate_rps == pytest.approx(2.0)
    assert same(build(trace=timed).at_rate(2.0), stretched)
    poisson = build(trace=timed, rate_rps=2.0)
    assert same(poisson, build(trace=timed, rate_rps=2.0, arrivals="poisson"))
    assert not same(poisson, stretched)


def test_drawn_arrivals_shuffle_the_rows_by_seed(untimed: str) -> None:
    one, two = build(1, trace=untimed, rate_rps=1.0), build(2, trace=untimed, rate_rps=1.0)
    assert sorted(pairs(one)) == sorted(pairs(two)) == [(n, n) for n in range(1, 101)]
    assert pairs(one) != pairs(two)
    assert pairs(build(1, trace=untimed, rate_rps=9.0)) == pairs(one)


def test_shuffled_rows_are_each_used_before_any_again(untimed: str) -> None:
    workload = build(trace=untimed, rate_rps=1.0, num_requests=250)
    first, second, rest = (pairs(workload)[start : start + 100] for start in (0, 100, 200))
    assert sorted(first) == sorted(second)
    assert first != second
    assert len(set(rest)) == 50
    assert pairs(build(trace=untimed, rate_rps=1.0, num_requests=40)) == first[:40]


def test_too_long_requests_are_left_to_the_simulation(untimed: str) -> None:
    workload = build(trace=untimed, rate_rps=1.0, max_total_tokens=100)
    assert len(workload) == 100
    assert workload.max_total_tokens == 100


def test_too_long_requests_are_dropped_before_arrivals_are_drawn(untimed: str) -> None:
    workload = build(trace=untimed, rate_rps=1.0, max_total_tokens=100, on_too_long="drop")
    assert sorted(pairs(workload)) == [(n, n) for n in range(1, 51)]
    assert workload.notes == ("50 of 100 requests over 100 tokens are dropped",)
    assert workload.max_total_tokens is None
    plain = build(trace=untimed, rate_rps=1.0, num_requests=50)
    assert workload.arrival_s.tolist() == plain.arrival_s.tolist()


def test_dropped_requests_leave_their_gap_in_a_replay(timed: str) -> None:
    assert build(trace=timed, max_total_tokens=22, on_too_long="drop").arrival_s.tolist() == [1, 2]


def test_too_long_requests_are_scaled_in_proportion(untimed: str) -> None:
    workload = build(trace=untimed, rate_rps=1.0, max_total_tokens=101, on_too_long="scale")
    assert max(prompt + output for prompt, output in pairs(workload)) == 101
    assert sorted(pairs(workload))[:50] == [(n, n) for n in range(1, 51)]
    assert set(sorted(pairs(workload))[50:]) == {(50, 51)}


def test_scaling_leaves_at_least_one_token_each() -> None:
    lengths = {"prompt": 1, "output": 10_000}
    workload = build(lengths=lengths, rate_rps=1.0, num_requests=1, max_total_tokens=2, on_too_long="scale")
    assert pairs(workload) == [(1, 1)]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, "workload.rate_rps is missing: poisson arrivals of untimed need a rate"),
        ({"arrivals": "constant"}, "constant arrivals of untimed need a rate"),
        ({"arrivals": "trace"}, "trace untimed has no times"),
        ({"speed": 2.0}, "no times to replay"),
        ({"rate_rps": 1.0, "max_total_tokens": 2, "on_too_long": "drop", "num_requests": 1}, "every request"),
    ],
)
def test_keys_that_do_not_fit_the_trace(untimed: str, keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build(seed=3, trace=untimed, **keys)


def test_truncation_has_no_place_in_a_replay(timed: str) -> None:
    with pytest.raises(ConfigError, match="own times are replayed"):
        build(trace=timed, truncate_at=3.0)


def test_one_moment_cannot_be_stretched(tmp_path: Path) -> None:
    path = tmp_path / "burst.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n1,10,1\n1,20,2\n")
    with pytest.raises(ConfigError, match="no rate to change"):
        build(trace=str(path), arrivals="trace", rate_rps=2.0)


def test_scaled_prompts_share_nothing_and_say_so(tmp_path: Path) -> None:
    path = tmp_path / "blocks.csv"
    path.write_text("prompt_tokens,output_tokens,block_ids\n16,1,1\n32,1,1 2\n")
    workload = build(trace=str(path), rate_rps=1.0, prompt_scale=1.5)
    assert workload.block_ids is None
    assert workload.notes == (
        "shared prefixes of trace blocks are left out: prompt_scale changes its prompts",
    )
    assert build(trace=str(path), rate_rps=1.0, prompt_scale=1.0).notes == ()


def test_scaled_prompts_stay_believable() -> None:
    lengths = {"prompt": 20_000, "output": 1}
    assert set(synthetic(lengths=lengths, prompt_scale=500).prompt_tokens) == {10_000_000}
    with pytest.raises(ConfigError, match=r"prompt_scale: 501 makes a prompt of 10020000 tokens \(allowed"):
        synthetic(lengths=lengths, prompt_scale=501)


def test_a_fingerprint_sees_every_array() -> None:
    base = {"arrival_s": [0, 1], "prompt_tokens": [3, 4], "output_tokens": [1, 2]}
    changed = [
        {"arrival_s": [0, 2]},
        {"prompt_tokens": [3, 5]},
        {"output_tokens": [1, 3]},
        {"max_total_tokens": 9},
        {"prompt_tokens": [1, 2], "output_tokens": [3, 4]},
    ]
    prints = {Workload(**{**base, **change}).fingerprint() for change in [{}, *changed]}
    assert len(prints) == 6
    assert Workload(**base, name="other", notes=("x",)).fingerprint() in prints


@pytest.mark.parametrize(
    "change",
    [{"arrival_s": [0]}, {"arrival_s": [1, 0]}, {"arrival_s": [-1, 0]}, {"arrival_s": [0, np.nan]},
     {"prompt_tokens": [0, 4]}, {"output_tokens": [1, 0]}],
)  # fmt: skip
def test_an_impossible_workload_is_refused(change: dict[str, Any]) -> None:
    base = {"arrival_s": [0, 1], "prompt_tokens": [3, 4], "output_tokens": [1, 2]}
    with pytest.raises(StallfreeError):
        Workload(**{**base, **change})
