"""Runs the experiments of a paper, side by side on several processes, and collects the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulator.reproduce import ablation, budget, calibration, capacity, chunking, claims, pipeline, stalls
from simulator.reproduce.experiments import Experiments, Group, Results, perform
from simulator.reproduce.rows import Ledger, Row
from simulator.search.fanout import fan_out

if TYPE_CHECKING:
    from simulator.reproduce.lab import Lab
    from simulator.search.progress import Progress

GROUPS: dict[str, Group] = {
    "capacity": capacity,
    "ablation": ablation,
    "chunking": chunking,
    "pipeline": pipeline,
    "stalls": stalls,
    "budget": budget,
    "claims": claims,
    "calibration": calibration,
}


@dataclass(frozen=True)
class Reproduction:
    """All rows, and the results of the experiments that they were made from."""

    lab: Lab
    rows: tuple[Row, ...]
    results: Results


def reproduce(lab: Lab, groups: Sequence[str], jobs: int | None, progress: Progress) -> Reproduction:
    """Run the groups' experiments on `jobs` processes (None: one per core), in the order of the groups."""
    experiments: Experiments = {}
    for group in groups:
        experiments |= GROUPS[group].experiments(lab)
    names = iter(experiments)

    def done(_: Any) -> None:
        name = next(names)
        progress(f"{name} ({list(experiments).index(name) + 1} of {len(experiments)})")

    calls = [(lab, *experiment) for experiment in experiments.values()]
    outcomes = fan_out(perform, calls, jobs=jobs, on_done=done, progress=progress)
    results = dict(zip(experiments, outcomes, strict=True))
    ledger = Ledger(lab.paper)
    for group in groups:
        GROUPS[group].report(
            ledger, {id: result for id, result in results.items() if id.partition("/")[0] == group}
        )
    return Reproduction(lab, tuple(ledger.rows), results)
