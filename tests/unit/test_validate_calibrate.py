"""Host time fitted to the first part of a run: found again where it was put in, and judged on the rest."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from recorded_runs import record

from simulator.cli import main
from simulator.config import Scenario
from simulator.errors import ConfigError, InputError
from simulator.latency import build_latency
from simulator.load import load_engine, load_scenario
from simulator.validate import RecordedRun
from simulator.validate.calibrate import calibrate, fit

ENGINE = "{host_fixed_us: 0, host_per_seq_us: 0, asynchronous: false}"


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    engine = tmp_path / "engine.yaml"
    engine.write_text(ENGINE, encoding="utf-8")
    return load_scenario(
        "default",
        [f"engine={engine}", "kernels=roofline", "workload.num_requests=90", "workload.rate_rps=15"],
    )


def record_with_host_time(scenario: Scenario, path: Path) -> RecordedRun:
    """A run of an engine whose host takes 3000 us an iteration and 40 us a sequence."""
    engine = load_engine(scenario.engine)
    engine = engine.model_copy(update={"host_fixed_us": 3000, "host_per_seq_us": 40})
    return record(scenario, path, build_latency(scenario, engine))


def test_host_time_is_found_again(scenario: Scenario, tmp_path: Path):
    run = record_with_host_time(scenario, tmp_path / "run.csv")
    calibration = calibrate(run, scenario, 0.5)
    assert calibration.fitted_engine.host_fixed_us == pytest.approx(3000, rel=0.05)
    assert calibration.fitted_engine.host_per_seq_us == pytest.approx(40, rel=0.1)
    before, after = calibration.predicted_part_pct
    assert before["e2e_mean"] < -15
    assert abs(after["e2e_mean"]) < 0.5


def test_the_fit_does_not_see_the_rest(scenario: Scenario, tmp_path: Path):
    run = record_with_host_time(scenario, tmp_path / "run.csv")
    late = run.served.finished_s > np.quantile(run.served.finished_s, 0.5)
    run.served.finished_s[late] += 5.0
    calibration = calibrate(run, scenario, 0.5)
    assert calibration.num_fitted + calibration.num_predicted == 90
    assert abs(calibration.fitted_part_pct[1]["e2e_mean"]) < 0.5
    assert calibration.predicted_part_pct[1]["e2e_mean"] < -20


def test_fit_stays_at_or_above_zero():
    def residuals(constants: np.ndarray) -> np.ndarray:
        return np.array([0.001 * (constants[0] - 300), 0.1 * (constants[1] + 5)])

    assert fit(residuals, np.array([0.0, 20])).tolist() == pytest.approx([300, 0], abs=1)


def test_a_model_that_answers_to_nothing_keeps_its_constants():
    assert fit(lambda constants: np.ones(5), np.array([2000.0, 10])).tolist() == [2000, 10]


def test_too_few_requests(scenario: Scenario, tmp_path: Path):
    run = record_with_host_time(scenario, tmp_path / "run.csv")
    for share, said in ((0.05, "to fit to"), (0.95, "to predict")):
        with pytest.raises(InputError, match=said):
            calibrate(run, scenario, share)


def test_whole_iterations_hold_the_host_time_already(scenario: Scenario, tmp_path: Path):
    run = record_with_host_time(scenario, tmp_path / "run.csv")
    with pytest.raises(ConfigError, match="host time included"):
        calibrate(run, scenario.with_({"kernels": "niyama-a100-llama3-8b"}), 0.5)


def test_the_command(scenario: Scenario, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "run.csv"
    record_with_host_time(scenario, path)
    arguments = ["calibrate", str(path), "--set", f"engine={scenario.engine}", "--set", "kernels=roofline"]
    assert main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["num_fitted"] == 30
    assert not any("cut nothing" in note for note in document["notes"])
    assert document["fitted"]["host_fixed_us"] == pytest.approx(3000, rel=0.1)
    assert set(document["errors_pct"]["predicted_part"]) == {"before", "after"}
    assert main([*arguments, "--set", "warmup_s=2"]) == 0
    page = capsys.readouterr().out
    assert "predicted" in page
    assert "warmup_s 2 cut nothing: every request" in page
    assert main([*arguments, "--share", "1"]) == 2
