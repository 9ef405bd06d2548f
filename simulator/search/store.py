"""Finished trials in an SQLite file: a search that was killed goes on where it was.

A trial is found again by the hash of everything that decides its result: the scenario and the seed, the
contents (not the names) of the presets, kernels and traces that it names, and the simulator's own code. So a
stored trial is never stale; a changed simulator simply runs it again. The file may be shared by processes.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from simulator.errors import ConfigError
from simulator.search.code import code_hash
from simulator.search.trials import RunTrial, Trial, run_trial

if TYPE_CHECKING:
    from simulator.config import Scenario

BUSY_TIMEOUT_S = 60.0
SCHEMA_VERSION = 1
"""Raised with every change of the table; rows of an older one are dropped, for no key finds them."""
TABLE = """
CREATE TABLE trials (
    key TEXT PRIMARY KEY, created TEXT NOT NULL, scenario TEXT NOT NULL, model TEXT NOT NULL,
    gpu TEXT NOT NULL, policy TEXT NOT NULL, token_budget INTEGER NOT NULL, rate_rps REAL,
    seed INTEGER NOT NULL, code TEXT NOT NULL, document TEXT NOT NULL
) WITHOUT ROWID
"""
VERDICT = "/verdict"


class StoredTrial(NamedTuple):
    """One row: how the trial is found again, what a reader knows it by, and its contents."""

    key: str
    created: str
    """UTC, ISO 8601."""
    scenario: str
    model: str
    gpu: str
    policy: str
    token_budget: int
    rate_rps: float | None
    seed: int
    code: str
    """Hash of the simulator that ran it."""
    document: str
    """JSON: the result's document and the broken bounds."""

    @classmethod
    def of(cls, key: str, trial: Trial) -> StoredTrial:
        """A trial that has finished now."""
        scenario = trial.scenario
        return cls(
            key,
            datetime.now(UTC).isoformat(timespec="seconds"),
            scenario.name,
            scenario.model,
            scenario.gpu,
            scenario.scheduler.policy,
            scenario.scheduler.token_budget,
            scenario.workload.rate_rps,
            trial.seed,
            code_hash(),
            json.dumps(
                {"document": dict(trial.document), "violations": dict(trial.violations)}, allow_nan=False
            ),
        )

    def contents(self) -> dict[str, Any]:
        """The document and the violations."""
        contents: dict[str, Any] = json.loads(self.document)
        return contents


COLUMNS = ", ".join(StoredTrial._fields)


def default_path() -> Path:
    """Where trials are kept unless told otherwise: the user's cache folder; ConfigError without a home."""
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        raise ConfigError("no home directory to keep trials in (choose a --store)") from None
    return Path(cache) / "stallfree" / "trials.sqlite"


class TrialStore:
    """Trials by key in a file, which is opened anew each time; ConfigError where that fails."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, key: str) -> StoredTrial | None:
        """The trial stored under a key."""
        return next(iter(self._select("WHERE key = ?", key)), None)

    def put(self, trial: StoredTrial) -> None:
        """Store a trial; whoever looks from now on finds it whole, even if this process is killed."""
        marks = ", ".join("?" * len(trial))
        with self._open() as connection:
            connection.execute(f"INSERT OR REPLACE INTO trials VALUES ({marks})", trial)

    def newest(self, limit: int | None = None) -> list[StoredTrial]:
        """The last trials, or all, the newest first."""
        return self._select("ORDER BY created DESC, key LIMIT ?", -1 if limit is None else limit)

    def starting_with(self, prefix: str) -> list[StoredTrial]:
        """The trials whose key starts with a prefix."""
        return self._select("WHERE substr(key, 1, ?) = ? ORDER BY key", len(prefix), prefix)

    def drop_other_code(self) -> int:
        """Delete what another version of the simulator ran and no search finds any more; how many trials."""
        return self._drop("code != ?", code_hash())

    def drop_before(self, moment: datetime) -> int:
        """Delete the trials that finished earlier; how many they were."""
        return self._drop("created < ?", moment.astimezone(UTC).isoformat(timespec="seconds"))

    def _drop(self, condition: str, value: str) -> int:
        with self._open() as connection:
            dropped = connection.execute(f"DELETE FROM trials WHERE {condition}", (value,)).rowcount
            connection.execute("VACUUM")
        return dropped

    def check(self) -> None:
        """ConfigError where the file cannot be used."""
        with self._open():
            pass

    def __len__(self) -> int:
        with self._open() as connection:
            return int(connection.execute("SELECT count(*) FROM trials").fetchone()[0])

    def _select(self, clause: str, *values: str | int) -> list[StoredTrial]:
        with self._open() as connection:
            rows = connection.execute(f"SELECT {COLUMNS} FROM trials {clause}", values)
            return [StoredTrial(*row) for row in rows]

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Without a transaction of ours every statement commits by itself. No write-ahead log: SQLite does
            # not wait, but fails, where two processes turn it on at once.
            with closing(sqlite3.connect(self.path, BUSY_TIMEOUT_S, isolation_level=None)) as connection:
                if _version(connection) != SCHEMA_VERSION:
                    self._create(connection)
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise ConfigError(f"{self.path}: cannot be used as a store of trials ({error})") from None

    def _create(self, connection: sqlite3.Connection) -> None:
        """Make the table, in place of one with another schema; of two processes that try, one does it."""
        connection.execute("BEGIN IMMEDIATE")
        if _version(connection) > SCHEMA_VERSION:
            raise ConfigError(f"{self.path}: was written by a newer stallfree (choose another --store)")
        if _version(connection) < SCHEMA_VERSION:
            connection.execute("DROP TABLE IF EXISTS trials")
            connection.execute(TABLE)
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


class StoredRun:
    """Runs trials as another `RunTrial` does, with the same answers, but each only once."""

    def __init__(self, store: TrialStore, run: RunTrial = run_trial) -> None:
        self.store = store
        self.run = run

    def __call__(self, scenario: Scenario, seed: int, *, only_verdict: bool = False) -> Trial:
        """The stored trial, or a fresh one that is stored."""
        key = trial_key(scenario, seed)
        kept = self._verdict(key) if only_verdict else self._whole(key)
        if kept is not None:
            return Trial(scenario, seed, kept["document"], kept["violations"])
        trial = self.run(scenario, seed, only_verdict=only_verdict)
        self.store.put(StoredTrial.of(key + VERDICT if only_verdict else key, trial))
        return trial

    def _whole(self, key: str) -> dict[str, Any] | None:
        """A run to its end, which some are that were only asked for a verdict."""
        return self._contents(key) or self._contents(key + VERDICT, lambda kept: bool(kept["document"]))

    def _verdict(self, key: str) -> dict[str, Any] | None:
        """What a run that may end early gives: one that broke its SLO in the end need not have got there."""
        return self._contents(key + VERDICT) or self._contents(key, lambda kept: not kept["violations"])

    def _contents(
        self, key: str, serves: Callable[[dict[str, Any]], bool] = lambda kept: True
    ) -> dict[str, Any] | None:
        row = self.store.get(key)
        contents = None if row is None else row.contents()
        return contents if contents is not None and serves(contents) else None


def trial_key(scenario: Scenario, seed: int) -> str:
    """Hash of all that decides a trial's result, as hexadecimal."""
    names = (scenario.model, scenario.gpu, scenario.cluster, scenario.engine, scenario.kernels)
    traces = [_trace(name) for name in scenario.workload.traces()]
    return _hash([scenario.digest(), seed, _hardware(*names), traces, code_hash()])


@lru_cache(maxsize=256)
def _hardware(model: str, gpu_name: str, cluster: str | None, engine: str, kernels: str) -> str:
    """Hash of the presets and the kernels behind these names."""
    from simulator.latency.build import find_artefact
    from simulator.load import load_cluster, load_engine, load_gpu, load_model

    gpu = load_gpu(gpu_name)
    presets = (load_model(model), gpu, load_cluster(cluster or gpu.cluster), load_engine(engine))
    artefact = find_artefact(kernels, gpu)
    return _hash(
        [
            *(preset.model_dump(mode="json") for preset in presets),
            None if artefact is None else _file(artefact),
        ]
    )


@lru_cache(maxsize=256)
def _trace(name: str) -> str:
    from simulator.workload.traces import find_trace

    return _file(find_trace(name))


def _file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
