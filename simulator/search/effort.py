"""How much a search may do: which seeds, how fine, on how many processes, and how it runs a trial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from simulator.search.fanout import fan_out
from simulator.search.progress import SILENT, Progress
from simulator.search.trials import RunTrial, run_trial

Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class Effort:
    """Settings that every search shares; the answer does not depend on `jobs` or `progress`."""

    runs: int
    """Replications, with the seeds from `seed` on."""
    seed: int = 0
    tolerance: float = 0.025
    """Width of the last bracket of a bisection, as a share of the rate (the paper's number)."""
    jobs: int | None = None
    """Processes; None: one per core."""
    progress: Progress = SILENT
    run: RunTrial = run_trial
    """How a trial is run; tests put a formula in its place."""

    @property
    def seeds(self) -> range:
        """One seed a replication."""
        return range(self.seed, self.seed + self.runs)

    def fan_out(
        self,
        function: Callable[..., Outcome],
        calls: Sequence[tuple[Any, ...]],
        on_done: Callable[[Outcome], None] | None = None,
    ) -> list[Outcome]:
        """`[function(*call) for call in calls]` on the processes, with progress; see `fanout.fan_out`."""
        return fan_out(function, calls, jobs=self.jobs, on_done=on_done, progress=self.progress)
