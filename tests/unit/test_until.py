"""A run that is cut off counts what has finished, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.config import Scenario
from simulator.latency.model import ConstantLatency
from simulator.run import simulate
from simulator.watch import SLOBroken, Watch
from simulator.workload import Workload


def scenario(until_s: float | None) -> Scenario:
    """One request after the other, each taking 1 s for its prompt and 9 s for the rest of its answer."""
    return Scenario.model_validate(
        {
            "model": "tiny",
            "gpu": "cpu",
            "memory": {"num_blocks": 100},
            "scheduler": {"max_num_seqs": 1},
            "workload": {
                "lengths": {"prompt": 8, "output": 10},
                "arrivals": "constant",
                "rate_rps": 0.1,
                "num_requests": 20,
            },
            "slo": {"p50_scheduling_delay_s": 2},
            "until_s": until_s,
        }
    )


def test_only_what_finished_counts() -> None:
    cut = simulate(scenario(45.0), latency=ConstantLatency())
    assert cut.requests_completed == 4
    assert cut.makespan_s == pytest.approx(40.0)
    assert simulate(scenario(None), latency=ConstantLatency()).requests_completed == 20


def test_a_limit_beyond_the_end_changes_nothing() -> None:
    cut, whole = (simulate(scenario(until_s), latency=ConstantLatency()).to_dict() for until_s in (1e6, None))
    assert cut == whole


def test_the_bubble_of_work_that_was_cut_off_is_counted() -> None:
    result = simulate(scenario(45.0), latency=ConstantLatency(num_stages=2))
    assert [stage["bubble_share"] for stage in result.stages] == pytest.approx([0.5, 0.5], abs=0.05)


def test_a_stage_is_busy_for_no_longer_than_the_run() -> None:
    """A lone long answer: no event lies between its arrival and the cut in the middle of an iteration."""
    workload = Workload(np.array([0.0]), np.array([8]), np.array([500]), "one")
    result = simulate(scenario(45.5), workload=workload, latency=ConstantLatency())
    assert result.stages == ({"utilisation": 1.0, "bubble_share": 0.0},)


def test_a_cut_between_two_requests_counts_the_time_up_to_it() -> None:
    workload = Workload(np.array([0.0, 500.0]), np.array([8, 8]), np.array([10, 10]), "two")
    result = simulate(scenario(100.0), workload=workload, latency=ConstantLatency())
    assert result.stages == ({"utilisation": 0.1, "bubble_share": 0.0},)


def test_nothing_finished_is_an_answer() -> None:
    document = simulate(scenario(5.0), latency=ConstantLatency()).to_dict()
    assert document["requests_completed"] == 0
    assert document["throughput_rps"] == document["makespan_s"] == 0.0
    assert document["metrics"]["ttft_s"]["p50"] is None


def test_whoever_is_left_behind_is_told_of_and_judges_the_stability() -> None:
    """Two arrive while one is served: half of them wait at the end, and more the longer it lasts."""
    workload = Workload(np.arange(400) * 5.0, np.full(400, 8), np.full(400, 10), "twice what it can")
    result = simulate(scenario(2001.0), workload=workload, latency=ConstantLatency())
    assert (result.requests_completed, result.requests_unfinished) == (200, 200)
    assert result.stability == "overloaded"
    assert any("200 requests had not finished" in note for note in result.notes)
    early = simulate(scenario(1001.0), workload=workload, latency=ConstantLatency())
    assert early.requests_completed + early.requests_unfinished == 201  # the others had not arrived


def test_a_watch_does_not_judge_those_who_would_not_have_counted() -> None:
    # Seven are served at once; then thirty come together, of which eight finish before the end.
    arrival_s = np.array([*range(7), *[6.5] * 30], dtype=float)
    lengths = np.full(37, 10)
    workload = Workload(arrival_s, lengths, lengths, "burst")
    tenths = ConstantLatency(seconds=0.1)
    whole = scenario(None)
    with pytest.raises(SLOBroken):
        simulate(whole, workload=workload, latency=tenths, watch=Watch(whole.slo, workload))
    cut = scenario(15.0)
    result = simulate(cut, workload=workload, latency=tenths, watch=Watch(cut.slo, workload))
    assert result.requests_completed == 15
    assert result.meets()


@pytest.mark.parametrize("until_s", [1e-6, 5.0])
def test_a_cut_before_anything_finished_counts_nothing(until_s: float) -> None:
    cut = simulate(scenario(until_s), latency=ConstantLatency())
    assert cut.requests_completed == 0
    document = cut.to_dict()
    assert document["iterations"] == len(range(1, int(until_s)))  # the one in flight has not ended
    values = [*document["batch"].values(), *document["kv"].values()]
    assert all(np.isfinite(value) for value in values)
    if until_s < 1:
        assert not any(document["batch"].values())
