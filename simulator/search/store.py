"""Finished trials in an SQLite file: a search that was killed goes on where it was.

A trial is found again by the hash of everything that decides its result: the scenario and the seed, the
contents (not the names) of the presets, kernels and trace that it names, and the simulator's own code. So a
stored trial is never stale; a changed simulator simply runs it again. The file may be shared by processes.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from contextlib import closing
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.errors import ConfigError
from simulator.search.trials import RunTrial, Trial, run_trial

if TYPE_CHECKING:
    from simulator.config import Scenario

BUSY_TIMEOUT_S = 60.0
TABLE = "CREATE TABLE IF NOT EXISTS trials (key TEXT PRIMARY KEY, document TEXT NOT NULL) WITHOUT ROWID"
NOT_DECIDING = ("cli", "report", "reproduce", "search", "validate")
"""Packages of the simulator that only ask for trials or show them."""


def default_path() -> Path:
    """Where trials are kept unless told otherwise: the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "stallfree" / "trials.sqlite"


class TrialStore:
    """JSON documents by key in a file, which is opened anew each time; ConfigError where that fails."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, key: str) -> Any:
        """The document stored under a key, or None."""
        rows = self._execute("SELECT document FROM trials WHERE key = ?", key)
        return json.loads(rows[0][0]) if rows else None

    def put(self, key: str, document: Any) -> None:
        """Store a document; it is on disk, whole, once this returns."""
        self._execute(
            "INSERT OR REPLACE INTO trials VALUES (?, ?)", key, json.dumps(document, allow_nan=False)
        )

    def __len__(self) -> int:
        return int(self._execute("SELECT count(*) FROM trials")[0][0])

    def _execute(self, statement: str, *values: str) -> list[Any]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Without a transaction of ours every statement commits by itself.
            with closing(sqlite3.connect(self.path, BUSY_TIMEOUT_S, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(TABLE)
                return connection.execute(statement, values).fetchall()
        except (sqlite3.Error, OSError) as error:
            raise ConfigError(f"{self.path}: cannot be used as a store of trials ({error})") from None


class StoredRun:
    """Runs trials as another `RunTrial` does, but each only once: the store remembers it."""

    def __init__(self, store: TrialStore, run: RunTrial = run_trial) -> None:
        self.store = store
        self.run = run

    def __call__(self, scenario: Scenario, seed: int, *, only_verdict: bool = False) -> Trial:
        """The stored trial, or a fresh one that is stored; a run to its end serves as a verdict too."""
        key = trial_key(scenario, seed)
        kept = self.store.get(key) or (self.store.get(f"{key}/verdict") if only_verdict else None)
        if kept is not None:
            return Trial(scenario, seed, kept["document"], kept["violations"])
        trial = self.run(scenario, seed, only_verdict=only_verdict)
        contents = {"document": dict(trial.document), "violations": dict(trial.violations)}
        # A run that was ended early has no document, and says nothing but its verdict.
        self.store.put(key if trial.document else f"{key}/verdict", contents)
        return trial


def trial_key(scenario: Scenario, seed: int) -> str:
    """Hash of all that decides a trial's result, as hexadecimal."""
    names = (scenario.model, scenario.gpu, scenario.cluster, scenario.engine, scenario.kernels)
    return _hash([scenario.digest(), seed, _hardware(*names), _trace(scenario.workload.trace), _code()])


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
def _trace(name: str | None) -> str | None:
    from simulator.workload.traces import find_trace

    return None if name is None else _file(find_trace(name))


@cache
def _code() -> str:
    """Hash of the sources that decide a result, and of numpy's version, which draws the requests."""
    package = Path(__file__).parent.parent
    sources = [
        path
        for path in sorted(package.rglob("*.py"))
        if path.relative_to(package).parts[0] not in NOT_DECIDING
    ]
    return _hash([np.__version__, *(_file(path) for path in sources)])


def _file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
