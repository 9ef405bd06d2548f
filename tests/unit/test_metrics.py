"""Metrics against plain recomputation, token by token."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from builders import PerToken, make_request, make_scheduler, serve
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import ConfigError
from simulator.load import load_scenario
from simulator.metrics import Result, split_slo_key
from simulator.quantiles import LEVELS, summarise
from simulator.record import Records
from simulator.run import simulate


def token_times(records: Records) -> list[list[float]]:
    """Output token times of each finished request, one by one, straight from the segments."""
    clock, segments = records.token_times_s, records.segments
    stretches = iter(zip(segments["start"], segments["stop"], strict=True))
    return [
        [float(t) for _ in range(count) for t in clock[slice(*next(stretches))]]
        for count in records.requests["num_segments"]
    ]


@given(
    st.lists(st.tuples(st.floats(0.0, 10.0), st.integers(0, 5)), min_size=1, max_size=30).filter(
        lambda sample: any(weight for _, weight in sample)
    )
)
def test_weighted_statistics_are_those_of_the_repeated_sample(sample: list[tuple[float, int]]) -> None:
    values, weights = (np.array(column) for column in zip(*sample, strict=True))
    repeated = np.repeat(values, weights)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simulator.quantiles._VALUES_PER_PIECE", 4)
        summary = summarise(values, weights)
    assert summarise(repeated) == pytest.approx(summary)
    assert summary["mean"] == pytest.approx(repeated.mean())
    assert summary["max"] == repeated.max()
    for name, level in LEVELS.items():
        assert summary[name] == pytest.approx(np.percentile(repeated, 100 * level))


def test_statistics_of_nothing_are_none() -> None:
    assert set(summarise(np.array([])).values()) == {None}


def crowded_run(policy: str, stages: int = 1, num_blocks: int = 40) -> Result:
    """Requests of all sizes, so crowded that some are preempted."""
    rng = np.random.default_rng(7)
    arrivals = np.sort(rng.uniform(0, 40, 60)).tolist()
    requests = [
        make_request(i, prompt=int(rng.integers(1, 30)), output=int(rng.integers(1, 30)), arrival_s=at)
        for i, at in enumerate(arrivals)
    ]
    scheduler = make_scheduler(policy, budget=16, max_num_seqs=16, max_model_len=64, num_blocks=num_blocks)
    return serve(
        requests,
        scheduler,
        PerToken(0.1, 0.01, stages),
        slo={"p90_tbt_ms": 200.0 * stages, "p50_ttft_s": 5.0 * stages},
    )


@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("policy", ["stall_free", "prefill_first", "chunked_only"])
def test_latencies_equal_those_of_the_tokens(policy: str, stages: int) -> None:
    result = crowded_run(policy, stages)
    assert result.preemptions > 0
    times, requests = token_times(result.records), result.records.requests
    assert [len(t) for t in times] == requests["output_tokens"].tolist()
    assert [t[0] for t in times] == requests["first_token_s"].tolist()
    assert [t[-1] for t in times] == requests["finished_s"].tolist()
    gaps = np.concatenate([np.diff(t) for t in times])
    assert gaps.min() > 0
    tbt = result.metrics["tbt_s"]
    assert tbt["mean"] == pytest.approx(gaps.mean())
    assert tbt["max"] == pytest.approx(gaps.max())
    assert tbt["p99"] == pytest.approx(np.percentile(gaps, 99))
    good = [
        (np.diff(t) > 0.2 * stages).sum() <= math.floor(0.1 * (len(t) - 1) + 1e-9)
        and t[0] - arrival <= 5.0 * stages
        for t, arrival in zip(times, requests["arrival_s"], strict=True)
    ]
    assert 0 < sum(good) < len(good)
    assert result.good_requests == sum(good)


@pytest.mark.parametrize("policy", ["stall_free", "chunked_only"])
def test_adding_up_in_blocks_changes_nothing(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = crowded_run(policy, stages=3)
    monkeypatch.setattr("simulator.record.ITERATIONS_PER_BLOCK", 7)
    blocks = crowded_run(policy, stages=3)
    assert whole.iterations > 70
    for result in (whole, blocks):
        rows, batch = result.records.iterations, result.batch
        tokens, duration = rows["num_decodes"] + rows["prefill_tokens"], rows["end_s"] - rows["start_s"]
        assert batch["mean_num_decodes"] == rows["num_decodes"].mean()
        assert (batch["mean_tokens"], batch["max_tokens"]) == (tokens.mean(), tokens.max())
        mixed = (rows["num_decodes"] > 0) & (rows["prefill_tokens"] > 0)
        assert batch["share_mixed"] == pytest.approx(mixed.mean())
        assert batch["mean_iteration_s"] == pytest.approx(duration.mean())
        assert batch["max_iteration_s"] == duration.max()
        kv = np.average(rows["kv_blocks_used"], weights=duration) / result.num_blocks
        assert result.kv["mean_utilisation"] == pytest.approx(kv)
    assert token_times(blocks.records) == token_times(whole.records)
    assert blocks.metrics == whole.metrics
    assert all((blocks.records.iterations[name] == whole.records.iterations[name]).all() for name in rows)


def test_two_replicas_merge_into_one_account() -> None:
    requests = [make_request(i, prompt=6, output=5, arrival_s=0.3 * i) for i in range(20)]
    result = serve(requests, [make_scheduler(), make_scheduler()], PerToken(0.1, 0.01))
    times = token_times(result.records)
    assert result.metrics["tbt_s"]["mean"] == pytest.approx(
        np.concatenate([np.diff(t) for t in times]).mean()
    )
    assert sorted(result.records.requests["id"]) == list(range(20))


def test_warm_up_is_simulated_but_not_counted() -> None:
    requests = [make_request(i, prompt=4, output=2 + 3 * (i == 0), arrival_s=10.0 * i) for i in range(3)]
    whole = serve(requests, make_scheduler())
    late = serve(
        [make_request(i, 4, 2 + 3 * (i == 0), 10.0 * i) for i in range(3)], make_scheduler(), warmup_s=5.0
    )
    assert late.requests_completed == whole.requests_completed == 3
    assert whole.metrics["e2e_s"]["max"] == 5.0
    assert late.metrics["e2e_s"]["max"] == 2.0


@given(seed=st.integers(0, 99), warmup_s=st.floats(0, 5))
def test_rates_are_of_those_who_count(seed: int, warmup_s: float) -> None:
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(0.5, 30))
    requests = [make_request(i, 4, int(rng.integers(1, 9)), at) for i, at in enumerate(arrivals.tolist())]
    result = serve(requests, make_scheduler(), warmup_s=warmup_s, slo={"max_ttft_s": 3.0})
    late = [request for request in requests if request.arrival_s >= warmup_s]
    served_s = max(request.finished_s for request in late) - min(request.arrival_s for request in late)
    assert result.requests_counted == len(late)
    assert result.throughput_rps == pytest.approx(len(late) / served_s)
    assert result.output_tokens_per_s == pytest.approx(sum(r.output_tokens for r in late) / served_s)
    assert result.goodput_rps <= result.throughput_rps
    assert result.meets() == (result.goodput_rps == result.throughput_rps)


def test_a_warm_up_that_takes_all_requests_is_refused() -> None:
    scenario = load_scenario("default", ["kernels=roofline", "workload.num_requests=20", "warmup_s=1000"])
    with pytest.raises(
        ConfigError, match=r"warmup_s 1000: nothing is left to measure, as the last of 20 req"
    ):
        simulate(scenario)


def test_one_token_answers_have_no_gaps_and_the_json_no_nan() -> None:
    result = serve([make_request(i, prompt=4, output=1) for i in range(3)], make_scheduler())
    assert set(result.metrics["tbt_s"].values()) == set(result.metrics["tpot_s"].values()) == {None}
    assert result.meets({"p99_tbt_ms": 1.0})
    json.dumps(result.to_dict(), allow_nan=False)


def test_values_come_in_the_unit_of_the_key() -> None:
    result = serve([make_request(prompt=4, output=3)], make_scheduler())
    assert result.value("p99_tbt_ms") == 1000.0
    assert result.value("max_ttft_s") == 1.0
    assert result.violations({"p99_tbt_ms": 999.0, "max_ttft_s": 1.0}) == ("p99_tbt_ms",)
    assert split_slo_key("p50_scheduling_delay_s") == ("p50", "scheduling_delay_s", 1.0)


@pytest.mark.parametrize(("gap_s", "verdict"), [(1.5, "stable"), (0.85, "backlogged"), (0.5, "overloaded")])
def test_stability_tells_whether_the_engine_keeps_up(gap_s: float, verdict: str) -> None:
    requests = [make_request(i, prompt=8, output=1, arrival_s=gap_s * i) for i in range(2000)]
    assert serve(requests, make_scheduler(budget=8)).stability == verdict


def test_a_burst_has_no_stability_verdict() -> None:
    requests = [make_request(i, prompt=8, output=1) for i in range(40)]
    assert serve(requests, make_scheduler(budget=8)).stability == "n/a"


def test_the_composition_of_batches_is_told() -> None:
    result = serve([make_request(0, prompt=12, output=3)], make_scheduler(budget=8))
    assert result.batch["share_prefill_only"] == result.batch["share_decode_only"] == 0.5
    assert result.batch["mean_tokens"] == (8 + 4 + 1 + 1) / 4
    assert result.kv["max_utilisation"] == 4 / 64
