"""How much a search may do: which seeds, how fine, on how many processes, and how it runs a trial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator.search.trials import RunTrial, run_trial

Progress = Callable[[str], None]
"""Takes one line on what a search does next."""


def silent(line: str) -> None:
    """Progress that nobody watches."""


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
    progress: Progress = silent
    run: RunTrial = run_trial
    """How a trial is run; tests put a formula in its place."""

    @property
    def seeds(self) -> range:
        """One seed a replication."""
        return range(self.seed, self.seed + self.runs)
