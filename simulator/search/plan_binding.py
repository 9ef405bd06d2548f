"""What keeps a deployment from carrying more: the limit whose doubling lets it.

One replica gets more load, step by step, until its SLO breaks; then its token budget, its sequences and its
KV memory are doubled one by one (more of one never takes from another). Where none of them helps, time binds:
the links where collectives and hops between stages take the most of an iteration, else the GPU or the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.batch import BatchShape, Chunk
from simulator.run import blocks_per_replica
from simulator.search.inputs import latency_of
from simulator.search.plan_confirm import Fleet
from simulator.search.plan_space import Question, serves
from simulator.search.trials import Trial

if TYPE_CHECKING:
    from simulator.config import Scenario
    from simulator.search.trials import RunTrial

STEP = 1.1
MOST_STEPS = 12
LINK_PARTS = ("collective", "hop")


@dataclass(frozen=True, slots=True)
class Binding:
    """What binds a deployment, and what shows it."""

    limits: tuple[str, ...]
    """Of tokens, sequences, KV memory: those whose doubling helps; else compute, links or host. None where
    even the largest load held."""
    load_share: float
    """The load at which a replica breaks the SLO, or the largest tried, as a share of what it is given."""
    breaks: Trial | None
    """The replica's run at that load; None where it held."""
    parts: Mapping[str, float]
    """Shares of an average iteration's time, summed over the stages."""


def find_binding(question: Question, fleet: Fleet, seed: int, run: RunTrial) -> Binding:
    """What binds one replica of a fleet, from short runs."""
    share = 1.0
    trial = run(_loaded(question, fleet, share), seed)
    for _ in range(MOST_STEPS):
        if not serves(trial):
            break
        share *= STEP
        trial = run(_loaded(question, fleet, share), seed)
    parts = _parts(trial)
    if serves(trial):
        return Binding((), share, None, parts)
    relieved = [
        name
        for name, scenario in _relaxed(trial.scenario).items()
        if serves(run(scenario, seed, only_verdict=True))
    ]
    return Binding(tuple(relieved) or (_slowest(parts),), share, trial, parts)


def _loaded(question: Question, fleet: Fleet, share: float) -> Scenario:
    """One replica with its KV blocks written down, so that they stay when something else is doubled."""
    scenario = question.sample(fleet.split, fleet.settings, fleet.replicas, share)
    return scenario.with_({"memory.num_blocks": blocks_per_replica(scenario)})


def _relaxed(scenario: Scenario) -> dict[str, Scenario]:
    """The scenario with each limit doubled in turn."""
    scheduler, blocks = scenario.scheduler, scenario.memory.num_blocks or 0
    limits = {
        "sequences": {"scheduler.max_num_seqs": 2 * scheduler.max_num_seqs},
        "KV memory": {"memory.num_blocks": 2 * blocks},
    }
    if scheduler.has_budget:
        limits = {"tokens": {"scheduler.token_budget": 2 * scheduler.token_budget}} | limits
    return {name: scenario.with_(updates) for name, updates in limits.items()}


def _parts(trial: Trial) -> dict[str, float]:
    """Shares of the time of an iteration of mean size, by what takes it."""
    scenario, batch, kv = trial.scenario, trial.document["batch"], trial.document["kv"]
    latency = latency_of(scenario)
    decodes = round(batch["mean_num_decodes"])
    tokens = round(batch["mean_tokens"]) - decodes
    running_kv = round(kv["mean_utilisation"] * kv["num_blocks"]) * scenario.memory.block_size_tokens
    chunks = (Chunk(tokens, 0),) if tokens > 0 else ()
    shape = BatchShape.of(chunks, (max(1, running_kv // max(1, decodes)),) * decodes)
    seconds: dict[str, float] = {"hop": (latency.num_stages - 1) * latency.hop_time_s(shape.num_tokens)}
    for stage in range(latency.num_stages):
        for name, value in latency.breakdown(shape, stage).items():
            seconds[name] = seconds.get(name, 0.0) + value
    total = sum(seconds.values())
    return {name: value / total for name, value in seconds.items()}


def _slowest(parts: Mapping[str, float]) -> str:
    """Links, the host, or what the GPU computes: whichever takes the most time."""
    groups = {"compute": 0.0, "links": 0.0, "host": 0.0}
    for name, share in parts.items():
        groups["links" if name in LINK_PARTS else "host" if name == "host" else "compute"] += share
    return max(groups, key=lambda name: groups[name])
