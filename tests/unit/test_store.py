"""The store runs each trial once, on disk, for as long as nothing that decides it has changed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from simulator.config import Scenario
from simulator.errors import ConfigError
from simulator.search.store import StoredRun, TrialStore, trial_key
from simulator.search.trials import Trial

KV = {"num_blocks": 100}
WORKLOAD = {
    "lengths": {"prompt": 8, "output": 4},
    "arrivals": "poisson",
    "rate_rps": 1.0,
    "num_requests": 5,
}


def scenario(**changes: Any) -> Scenario:
    settings = {"model": "tiny", "gpu": "cpu", "memory": KV, "workload": WORKLOAD, "slo": {"p99_tbt_ms": 900}}
    return Scenario.model_validate(settings | changes)


class Counted:
    """A way to run trials that counts them; `stops` gives verdicts without a document."""

    def __init__(self, *, stops: bool = False) -> None:
        self.calls = 0
        self.stops = stops

    def __call__(self, scenario: Scenario, seed: int, *, only_verdict: bool = False) -> Trial:
        self.calls += 1
        if self.stops and only_verdict:
            return Trial(scenario, seed, {}, {"p99_tbt_ms": None})
        return Trial(scenario, seed, {"requests_completed": 5, "stability": "stable"}, {})


def test_a_trial_is_run_once_and_kept_on_disk(tmp_path: Path) -> None:
    run = Counted()
    path = tmp_path / "deep" / "trials.sqlite"
    first = StoredRun(TrialStore(path), run)(scenario(), 0)
    second = StoredRun(TrialStore(path), run)(scenario(), 0)
    assert run.calls == 1
    assert first == second
    assert len(TrialStore(path)) == 1


def test_a_verdict_does_not_stand_in_for_a_run_but_a_run_does_for_a_verdict(tmp_path: Path) -> None:
    run = Counted(stops=True)
    stored = StoredRun(TrialStore(tmp_path / "trials.sqlite"), run)
    assert not stored(scenario(), 0, only_verdict=True).holds
    assert not stored(scenario(), 0, only_verdict=True).holds
    assert run.calls == 1
    assert stored(scenario(), 0).document
    assert stored(scenario(), 0, only_verdict=True).document
    assert run.calls == 2


@pytest.mark.parametrize(
    "change",
    [
        {"slo": {"p99_tbt_ms": 901}},
        {"engine": "ideal"},
        {"model": "qwen2.5-0.5b"},
        {"workload": WORKLOAD | {"rate_rps": 2.0}},
        {"until_s": 10.0},
    ],
)
def test_what_decides_a_trial_decides_its_key(change: dict[str, Any]) -> None:
    assert trial_key(scenario(**change), 0) != trial_key(scenario(), 0)


def test_seed_decides_and_name_does_not() -> None:
    assert trial_key(scenario(), 0) != trial_key(scenario(), 1)
    assert trial_key(scenario(name="other"), 0) == trial_key(scenario(), 0)


def test_the_content_of_a_preset_and_a_trace_decides_and_not_its_name(tmp_path: Path) -> None:
    def key(name: str, host_us: int, output: int) -> str:
        (engine := tmp_path / f"{name}.yaml").write_text(
            f"name: e\nhost_fixed_us: {host_us}\nhost_per_seq_us: 0\nasynchronous: false\n"
        )
        (trace := tmp_path / f"{name}.csv").write_text(f"prompt_tokens,output_tokens\n8,{output}\n")
        return trial_key(
            scenario(engine=str(engine), workload={"trace": str(trace), "rate_rps": 1.0}, name=name), 0
        )

    keys = [key("a", 1, 4), key("b", 2, 4), key("c", 1, 5)]
    assert len(set(keys)) == 3


def test_two_processes_share_a_file(tmp_path: Path) -> None:
    store = TrialStore(tmp_path / "trials.sqlite")
    store.put("mine", [0])
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(put_many, [(store, name) for name in "ab"]))
    assert len(store) == 101
    assert store.get("a7") == {"of": "a"}


def put_many(work: tuple[TrialStore, str]) -> None:
    store, name = work
    for number in range(50):
        store.put(f"{name}{number}", {"of": name})


def no_database(path: Path) -> Path:
    path.write_text("not a database, but some text that is long enough to be looked at as one" * 9)
    return path


def below_a_file(path: Path) -> Path:
    path.write_text("")
    return path / "trials.sqlite"


@pytest.mark.parametrize("spoil", [no_database, below_a_file])
def test_an_unusable_file_is_named(tmp_path: Path, spoil: Callable[[Path], Path]) -> None:
    path = spoil(tmp_path / "file")
    with pytest.raises(ConfigError, match=str(path)):
        TrialStore(path).get("key")
