"""Options that commands share; cyclopts turns every field into an option and its docstring into help."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter, validators

from simulator.errors import ConfigError

if TYPE_CHECKING:
    from simulator.search.effort import Effort
    from simulator.search.progress import Progress
    from simulator.search.store import TrialStore
    from simulator.search.trials import RunTrial

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
LARGEST = 2**32 - 1
"""Of whole numbers: what follows from them, such as the seeds of later runs, must fit the store."""
AtLeastOne = Annotated[int, Parameter(validator=validators.Number(gte=1, lte=LARGEST))]
Seed = Annotated[int, Parameter(validator=validators.Number(gte=0, lte=LARGEST))]
Positive = Annotated[float, Parameter(validator=validators.Number(gt=0))]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """How the answer is written."""

    json: Flag = False
    """Print one JSON document instead of text."""
    output: Path | None = None
    """Also write the answer to a file: .json, .csv, .md or .txt."""
    quiet: Flag = False
    """No progress and no warnings on stderr."""
    debug: Flag = False
    """Show the traceback of an error (also: STALLFREE_DEBUG=1)."""

    def surroundings(self) -> AbstractContextManager[None]:
        """What has to be in place while the work is done."""
        return nullcontext()

    def progress(self) -> Progress:
        """Where a search says how far it is."""
        from simulator.cli.progress import progress

        return progress(quiet=self.quiet)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WorkOptions(OutputOptions):
    """Which processes do the work, and where finished trials are kept."""

    jobs: AtLeastOne | None = None
    """Processes to use, by default one per core; the answer does not depend on it."""
    backend: Literal["processes", "ray", "dask"] = "processes"
    """Processes of this machine, or of a Ray or Dask cluster; the answer does not depend on it."""
    address: str | None = None
    """HOST:PORT of the cluster; by default what Ray or Dask is configured with."""
    store: Path | None = None
    """File of finished trials, so that none is run twice; by default one in the user's cache. On a cluster
    each machine has its own."""
    no_store: Flag = False
    """Keep no trials, and use none that were kept."""

    def surroundings(self) -> AbstractContextManager[None]:
        """The cluster, if there is one."""
        if self.backend == "processes":
            if self.address is not None:
                raise ConfigError("--address belongs to --backend ray or dask")
            return nullcontext()
        from simulator.search.on_cluster import on_cluster

        return on_cluster(self.backend, self.address)

    def run(self) -> RunTrial:
        """How trials are run: each once where there is a store; ConfigError if a named one cannot be used."""
        from simulator.search.store import StoredRun, TrialStore, default_path
        from simulator.search.trials import run_trial

        if self.no_store:
            if self.store is not None:
                raise ConfigError("--store and --no-store exclude each other")
            return run_trial
        try:
            store = TrialStore(self.store or default_path())
            store.check()
        except ConfigError as error:
            if self.store is not None:
                raise
            self.progress()(f"no trials are kept: {error}")
            return run_trial
        return StoredRun(store)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ScenarioOptions(OutputOptions):
    """What is changed in the scenario, and how the answer is written."""

    sets: Annotated[tuple[str, ...], Parameter(name="--set", negative="", show_default=False)] = ()
    """Change one key of the scenario, e.g. --set scheduler.token_budget=1024; may be repeated."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunOptions(ScenarioOptions):
    """What is simulated, how often, and how the answer is written."""

    seed: Seed = 0
    """Seed of arrivals and lengths; replications use the seeds that follow it."""
    runs: AtLeastOne | None = None
    """Replications with different seeds; two or more give an interval. By default 1 for simulate,
    3 for budget, 5 for capacity, plan and compare."""
    jobs: AtLeastOne | None = None
    """Processes to use, by default one per core; the answer does not depend on it."""

    def effort(self, default_runs: int) -> Effort:
        """The same as a search takes it."""
        from simulator.search.effort import Effort

        runs = self.runs or default_runs
        return Effort(runs=runs, seed=self.seed, jobs=self.jobs, progress=self.progress())


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SearchOptions(RunOptions, WorkOptions):
    """What is simulated, on which processes, and how the answer is written."""

    def effort(self, default_runs: int) -> Effort:
        """The same as a search takes it."""
        return replace(RunOptions.effort(self, default_runs), run=self.run())


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StoreOptions(OutputOptions):
    """Which store, and how the answer is written."""

    store: Path | None = None
    """File of finished trials, by default the one in the user's cache."""

    def opened(self) -> TrialStore:
        """The store; ConfigError where there is none."""
        from simulator.search.store import TrialStore, default_path

        path = self.store or default_path()
        if not path.exists():
            raise ConfigError(f"{path}: no such file; budget, capacity, compare and plan keep their trials")
        return TrialStore(path)


OUTPUT_DEFAULTS = OutputOptions()
SCENARIO_DEFAULTS = ScenarioOptions()
WORK_DEFAULTS = WorkOptions()
RUN_DEFAULTS = RunOptions()
SEARCH_DEFAULTS = SearchOptions()
STORE_DEFAULTS = StoreOptions()
