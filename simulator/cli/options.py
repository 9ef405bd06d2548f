"""Options that commands share; cyclopts turns every field into an option and its docstring into help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

if TYPE_CHECKING:
    from simulator.search.effort import Effort

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
AtLeastOne = Annotated[int, Parameter(validator=validators.Number(gte=1))]
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

    seed: Annotated[int, Parameter(validator=validators.Number(gte=0))] = 0
    """Seed of arrivals and lengths; replications use the seeds that follow it."""
    runs: AtLeastOne | None = None
    """Replications with different seeds; two or more give an interval. By default 1 for simulate,
    3 for budget, 5 for capacity and compare."""
    jobs: AtLeastOne | None = None
    """Processes to use, by default one per core; the answer does not depend on it."""

    def effort(self, default_runs: int) -> Effort:
        """The same as a search takes it."""
        from simulator.cli.output import progress
        from simulator.search.effort import Effort

        runs = self.runs or default_runs
        return Effort(runs=runs, seed=self.seed, jobs=self.jobs, progress=progress(quiet=self.quiet))


OUTPUT_DEFAULTS = OutputOptions()
SCENARIO_DEFAULTS = ScenarioOptions()
RUN_DEFAULTS = RunOptions()
