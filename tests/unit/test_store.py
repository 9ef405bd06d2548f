"""The store runs each trial once, on disk, for as long as nothing that decides it has changed."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from multiprocessing import Manager
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

import simulator
from simulator.config import Scenario
from simulator.errors import ConfigError
from simulator.search.code import code_hash
from simulator.search.store import SCHEMA_VERSION, StoredRun, StoredTrial, TrialStore, trial_key
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
    """A way to run trials that counts them; one that breaks its SLO may end early where it `stops`."""

    def __init__(self, *, breaks: bool = False, stops: bool = False) -> None:
        self.calls = 0
        self.breaks = breaks
        self.stops = stops

    def __call__(self, scenario: Scenario, seed: int, *, only_verdict: bool = False) -> Trial:
        self.calls += 1
        if self.stops and only_verdict:
            return Trial(scenario, seed, {}, {"p99_tbt_ms": None})
        violations = {"p99_tbt_ms": 901.0} if self.breaks or self.stops else {}
        return Trial(scenario, seed, {"requests_completed": 5, "stability": "stable"}, violations)


def test_a_trial_is_run_once_and_kept_on_disk(tmp_path: Path) -> None:
    run = Counted()
    path = tmp_path / "deep" / "trials.sqlite"
    first = StoredRun(TrialStore(path), run)(scenario(), 0)
    second = StoredRun(TrialStore(path), run)(scenario(), 0)
    assert run.calls == 1
    assert first == second
    assert len(TrialStore(path)) == 1


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("run", [Counted(), Counted(breaks=True), Counted(stops=True)])
def test_the_store_answers_as_a_run_would(tmp_path: Path, run: Counted, first: bool) -> None:
    """Whichever was asked for first: a verdict that came early has no document, a whole run always does."""
    stored = StoredRun(TrialStore(tmp_path / "trials.sqlite"), run)
    for only_verdict in (first, not first) * 2:
        assert stored(scenario(), 0, only_verdict=only_verdict) == run(
            scenario(), 0, only_verdict=only_verdict
        )


def test_a_run_that_holds_its_slo_serves_as_verdict_and_whole(tmp_path: Path) -> None:
    for first in (True, False):
        run = Counted()
        stored = StoredRun(TrialStore(tmp_path / f"{first}.sqlite"), run)
        stored(scenario(), 0, only_verdict=first)
        stored(scenario(), 0, only_verdict=not first)
        assert run.calls == 1


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


def row(key: str, created: str = "2026-01-02T00:00:00+00:00") -> StoredTrial:
    trial = StoredTrial.of(key, Trial(scenario(name="mine"), 3, {"stability": "stable"}, {}))
    return trial._replace(created=created)


def test_a_row_says_what_was_run() -> None:
    trial = row("k")
    assert (trial.scenario, trial.model, trial.gpu, trial.policy) == ("mine", "tiny", "cpu", "stall_free")
    assert (trial.token_budget, trial.rate_rps, trial.seed, trial.code) == (512, 1.0, 3, code_hash())
    assert trial.contents() == {"document": {"stability": "stable"}, "violations": {}}


def test_rows_are_found_by_age_and_by_prefix(tmp_path: Path) -> None:
    store = TrialStore(tmp_path / "trials.sqlite")
    for number in range(3):
        store.put(row(f"a{number}", f"2026-01-0{3 - number}T00:00:00+00:00"))
    store.put(row("b", "2026-02-01T00:00:00+00:00"))
    assert [trial.key for trial in store.newest(2)] == ["b", "a0"]
    assert len(store.newest()) == 4
    assert [trial.key for trial in store.starting_with("a")] == ["a0", "a1", "a2"]


def test_old_rows_and_those_of_other_code_can_be_dropped(tmp_path: Path) -> None:
    store = TrialStore(tmp_path / "trials.sqlite")
    store.put(row("old", "2025-12-31T23:59:59+00:00"))
    store.put(row("other")._replace(code="x"))
    store.put(row("mine"))
    assert store.drop_other_code() == 1
    assert store.drop_before(datetime(2026, 1, 1, tzinfo=UTC)) == 1
    assert [trial.key for trial in store.newest()] == ["mine"]


def test_processes_share_a_file_from_its_first_moment(tmp_path: Path) -> None:
    """All at once and many files, since what goes wrong does so while several processes make one."""
    stores = [TrialStore(tmp_path / f"{number}.sqlite") for number in range(100)]
    with Manager() as manager, ProcessPoolExecutor(4) as pool:
        together = manager.Barrier(4, timeout=20)
        for put in [pool.submit(put_some, stores, name, together) for name in "abcd"]:
            put.result()
    assert {len(store) for store in stores} == {12}
    assert stores[0].get("a2") == row("a2")


def put_some(stores: list[TrialStore], name: str, together: Barrier) -> None:
    for store in stores:
        together.wait()
        for number in range(3):
            store.put(row(f"{name}{number}"))


def test_an_older_schema_makes_room_and_a_newer_one_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "trials.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE trials (key TEXT PRIMARY KEY, document TEXT NOT NULL)")
    assert len(TrialStore(path)) == 0
    TrialStore(path).put(row("k"))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="newer stallfree"):
        TrialStore(path).get("k")
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["cluster.py", "workload/build.py", "search/trials.py"])
def test_sources_that_decide_are_hashed(tmp_path: Path, name: str) -> None:
    """A copy of the package with one of them changed has another hash; the command line decides nothing."""
    package = Path(simulator.__file__).parent
    copy = tmp_path / "simulator"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__", "_data"))
    hash_it = [sys.executable, "-c", "from simulator.search.code import code_hash; print(code_hash())"]

    def hashed() -> str:
        return subprocess.run(hash_it, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    before = hashed()
    with (copy / "cli" / "app.py").open("a") as file:
        file.write("# changed")
    assert hashed() == before
    with (copy / name).open("a") as file:
        file.write("# changed")
    assert hashed() != before


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
