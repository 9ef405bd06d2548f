"""Everything that `stallfree validate` says of a run and a scenario."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.latency import build_latency
from simulator.validate.compare import Errors, Replay, errors_pct, replay
from simulator.validate.split import Split, split_error
from simulator.validate.timeline import Timeline, timeline

if TYPE_CHECKING:
    from simulator.config import Scenario
    from simulator.validate.recorded import RecordedRun


@dataclass(frozen=True, eq=False)
class Validation:
    """A recorded run beside its simulation."""

    run: RecordedRun
    scenario: Scenario
    replay: Replay
    errors_pct: Errors
    timeline: Timeline
    split: Split | None


def validate(run: RecordedRun, scenario: Scenario) -> Validation:
    """Simulate the requests of a run and compare; raises a StallfreeError for a scenario that cannot run."""
    latency = build_latency(scenario)
    first = replay(run, scenario, latency)
    return Validation(
        run=run,
        scenario=scenario,
        replay=first,
        errors_pct=errors_pct(run.served, first.served),
        timeline=timeline(run.served, first.served),
        split=split_error(run, scenario, latency, first),
    )
