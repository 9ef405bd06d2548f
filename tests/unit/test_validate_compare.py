"""A run against its simulation: a run that the simulator itself made must come out without error."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from builders import PerToken
from recorded_runs import record

from simulator.cli import main
from simulator.config import Scenario
from simulator.errors import ConfigError
from simulator.load import load_scenario
from simulator.validate import read_run
from simulator.validate.compare import error_pct, errors_pct, replay
from simulator.validate.served import Served
from simulator.validate.split import Stretched, split_error
from simulator.validate.timeline import timeline

SETTINGS = (
    "workload.num_requests=60",
    "workload.rate_rps=20",
    "scheduler.max_num_seqs=16",
    "kernels=roofline",
)


@pytest.fixture
def scenario() -> Scenario:
    return load_scenario("default", SETTINGS).with_({"slo": {}})


def test_a_simulated_run_has_no_error(scenario: Scenario, tmp_path: Path):
    latency = PerToken(0.01, 1e-4)
    run = record(scenario, tmp_path / "run.csv", latency)
    errors = errors_pct(run.served, replay(run, scenario, latency).served)
    assert len(errors) == 8
    assert all(abs(error) < 1e-6 for error in errors.values())


def test_the_run_brings_its_own_workload(scenario: Scenario, tmp_path: Path):
    latency = PerToken(0.01, 1e-4)
    run = record(scenario, tmp_path / "run.csv", latency)
    other = scenario.with_(
        {"workload.num_requests": 5, "warmup_s": 1, "until_s": 0.5, "slo": {"p99_tbt_ms": 0.001}}
    )
    assert errors_pct(run.served, replay(run, other, latency).served)["per_request_e2e"] < 1e-6


def test_errors_are_simulated_over_measured():
    def served(e2e_s: list[float]) -> Served:
        count = len(e2e_s)
        return Served(np.zeros(count), np.ones(count), np.array(e2e_s), np.full(count, 3))

    errors = errors_pct(served([3, 5]), served([2, 7]))
    assert errors["ttft_mean"] == 0
    assert errors["tpot_mean"] == pytest.approx(100 * (7 / 6 - 1))
    assert errors["makespan"] == pytest.approx(40)
    assert errors["per_request_e2e"] == pytest.approx(100 * (1 / 3 + 2 / 5) / 2)
    assert error_pct(None, 1.0) is error_pct(0.0, 1.0) is None
    assert error_pct(1e-320, 1.0) is error_pct(-1e-5, 1.0) is None


def test_a_stretched_run_is_all_step_time(scenario: Scenario, tmp_path: Path):
    latency = PerToken(0.01, 1e-4)
    run = record(scenario, tmp_path / "run.csv", Stretched(latency, 1.1))
    first = replay(run, scenario, latency)
    split = split_error(run, scenario, latency, first)
    assert errors_pct(run.served, first.served)["e2e_mean"] < -9
    assert split is not None
    assert split.factor == pytest.approx(1.1, rel=2e-3)
    assert abs(split.remaining_pct["e2e_mean"]) < 0.3


def test_another_policy_is_not_step_time(scenario: Scenario, tmp_path: Path):
    latency = PerToken(0.01, 1e-4)
    run = record(scenario, tmp_path / "run.csv", latency)
    other = scenario.with_({"scheduler.max_num_seqs": 8})
    split = split_error(run, other, latency, replay(run, other, latency))
    assert split is not None
    assert abs(split.remaining_pct["ttft_mean"]) > 20


def test_outputs_of_one_token_have_no_split(scenario: Scenario, tmp_path: Path):
    single = scenario.with_({"workload.trace": None, "workload.lengths": {"prompt": 100, "output": 1}})
    latency = PerToken(0.01, 1e-4)
    run = record(single, tmp_path / "run.csv", latency)
    assert split_error(run, single, latency, replay(run, single, latency)) is None


def test_tokens_that_came_at_one_moment_have_no_split(scenario: Scenario, tmp_path: Path):
    path = tmp_path / "run.csv"
    path.write_text(
        "arrival_s,prompt_tokens,output_tokens,first_token_s,last_token_s\n0,100,5,1.00005,1\n",
        encoding="utf-8",
    )
    run, latency = read_run(path), PerToken(0.01, 1e-4)
    assert split_error(run, scenario, latency, replay(run, scenario, latency)) is None


def test_timeline_counts_requests():
    served = Served(np.zeros(2), np.array([2.0, 4]), np.array([3.0, 6]), np.ones(2), np.array([1.0, 3]))
    line = timeline(served, served)
    at = {float(t): i for i, t in enumerate(line.at_s)}
    for moment, running, waiting in ((0.5, 0, 2), (1.5, 1, 1), (2.5, 1, 1), (5.5, 1, 0), (6, 0, 0)):
        index = min(at.items(), key=lambda item: abs(item[0] - moment))[1]
        assert (line.running[0][index], line.waiting[1][index]) == (running, waiting)


def test_timeline_without_scheduling_waits_for_the_first_token():
    measured = Served(np.zeros(1), np.array([2.0]), np.array([3.0]), np.ones(1))
    simulated = Served(np.zeros(1), np.array([2.0]), np.array([3.0]), np.ones(1), np.array([0.5]))
    line = timeline(measured, simulated)
    assert line.until_first_token
    assert np.array_equal(line.waiting[0], line.waiting[1])


def test_a_request_that_does_not_fit(scenario: Scenario, tmp_path: Path):
    run = record(scenario, tmp_path / "run.csv", PerToken(0.01))
    with pytest.raises(ConfigError, match=r"cannot serve request \d+ .* exceed max_model_len"):
        replay(run, scenario.with_({"scheduler.max_model_len": 2000}), PerToken(0.01))


# The command.


def test_validate_as_json(scenario: Scenario, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "run.csv"
    record(scenario, path)
    sets = [part for setting in SETTINGS for part in ("--set", setting)]
    assert main(["validate", str(path), "default", *sets, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["errors_pct"]) == {
        *(
            "ttft_mean",
            "ttft_p50",
            "ttft_p99",
            "tpot_mean",
            "e2e_mean",
            "e2e_p99",
            "makespan",
            "per_request_e2e",
        )
    }
    assert document["errors_pct"]["per_request_e2e"] < 1e-6
    assert document["metrics"]["e2e_s"]["p99"]["error_pct"] == document["errors_pct"]["e2e_p99"]
    assert document["metrics"]["tbt_s"]["mean"]["measured"] is None
    assert document["phases_mean_s"]["waiting"]["measured"] is not None
    assert document["timeline"]["running"]["measured"] == document["timeline"]["running"]["simulated"]
    assert document["split"]["step_time_factor"] == 1
    assert "workload" not in document["scenario"]
    assert document["run"] == {
        "name": "run",
        "kind": "a table of requests",
        "requests": 60,
        "queued_ttft_mean_s": None,
    }


def test_validate_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    runs = Path(__file__).resolve().parent.parent / "data" / "runs"
    assert main(["validate", str(runs / "vllm-bench.json"), "--set", "kernels=roofline"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(
        "llama-3-8b on 1 x h100_sxm, stall_free, budget 512, against 9 requests (vllm bench serve):"
    )
    for words in ("TTFT mean (ms)", "TBT P99 (ms)", "makespan (s)", "scheduling and the rest", "first token"):
        assert words in shown


def test_unknown_prefixes_are_noted_where_they_matter(capsys: pytest.CaptureFixture[str]):
    run = Path(__file__).resolve().parent.parent / "data" / "runs" / "aiperf.jsonl"
    for policy, noted in (("vllm_v1", True), ("stall_free", False)):
        assert (
            main(["validate", str(run), "--set", f"scheduler.policy={policy}", "--set", "kernels=roofline"])
            == 0
        )
        assert ("share a prefix" in capsys.readouterr().out) is noted


@pytest.mark.parametrize("command", ["validate", "calibrate"])
def test_bad_runs_exit_2_with_one_line(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "run.json"
    path.write_text("{}", encoding="utf-8")
    for arguments in ([str(path)], [str(tmp_path / "none")], [str(tmp_path)], []):
        assert main([command, *arguments]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("error: ")
        assert captured.err.count("\n") == 1


def test_a_scenario_that_cuts_off_a_run_does_not_cut_a_recorded_one(
    scenario: Scenario, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "run.csv"
    record(scenario, path)
    arguments = ["validate", str(path), *(part for setting in SETTINGS for part in ("--set", setting))]
    documents = []
    for cuts in ([], ["--set", "warmup_s=1", "--set", "until_s=20"]):
        assert main([*arguments, *cuts, "--json"]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    whole, cut = documents
    said = "warmup_s 1 and until_s 20 cut nothing: every request of the run counts"
    assert [note for note in cut["notes"] if note not in whole["notes"]] == [said]
    assert cut["errors_pct"] == whole["errors_pct"]
