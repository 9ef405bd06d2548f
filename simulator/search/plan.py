"""The plan: which deployments hold an SLO at a load, the cheapest first.

Bounds from iteration times rule out most splits; short runs of one replica find how many the others need and
with which settings; whole fleets at full length, with every seed, have the last word. What a round of trials
does depends on the answers of the rounds before it alone, so the plan is the same on any number of processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.errors import InfeasibleError
from simulator.search.budget import excess
from simulator.search.capacity import describe_miss
from simulator.search.plan_binding import Binding, find_binding
from simulator.search.plan_bounds import Prospect, prospect
from simulator.search.plan_confirm import (
    SPAN,
    Deployment,
    Fleet,
    allowed,
    confirm,
    describe,
    holds_with_fresh_seeds,
    try_fleets,
)
from simulator.search.plan_screen import Screened, first_settings, screen
from simulator.search.plan_space import Question, Settings, Split, fits, longest_request
from simulator.search.replicate import Variant, run_variants

if TYPE_CHECKING:
    from simulator.config import Scenario
    from simulator.search.effort import Effort
    from simulator.search.trials import RunTrial, Trial

SCREENED_AT_ONCE = 8
"""Splits of one round; those of the next are left out if the cheapest so far makes them too dear."""
LARGER = 3
"""So many deployments are tried with one more replica, for the front."""
MORE_LOAD = 1.2
LONGER_PROMPTS = 1.25


@dataclass(frozen=True, slots=True)
class Census:
    """What became of the splits of a plan's space."""

    considered: int
    ruled_out: tuple[Prospect, ...]
    """By bounds: they do not fit, or cannot hold."""
    too_dear: int
    """Whose least cost is more than SPAN times that of another."""
    screened: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The deployments found, the cheapest first, and what is known of them."""

    question: Question
    effort: Effort
    deployments: tuple[Deployment, ...]
    """The smallest fleet of each split that holds the SLO."""
    larger: tuple[Deployment, ...]
    """Some of them with one more replica."""
    bindings: tuple[Binding, ...]
    """Of each of the deployments."""
    sensitivity: tuple[Variant, ...]
    """The choice under changes."""
    census: Census

    @property
    def choice(self) -> Deployment:
        """The cheapest; of several, the one that answers soonest."""
        return self.deployments[0]

    @property
    def front(self) -> tuple[Deployment, ...]:
        """Those to which no other is both no dearer and no slower (median E2E), the cheapest first."""
        best: list[Deployment] = []
        for found in _cheapest_first([*self.deployments, *self.larger]):
            if not best or found.e2e_s < best[-1].e2e_s:
                best.append(found)
        return tuple(best)


def find_plan(question: Question, effort: Effort) -> Plan:
    """The deployments that hold the question's SLO at its load.

    Raises InfeasibleError, with the nearest miss, where none within the bounds does.
    """
    prospects = _prospects(question, effort)
    hopeful = [each for each in prospects if not each.obstacle]
    hopeful.sort(key=lambda each: question.cost_per_hour(each.split, each.replicas))
    deployments: list[Deployment] = []
    while hopeful and not deployments:
        screened, hopeful = _screened(hopeful, question, effort)
        promising = [Fleet.of(each) for each in screened if each.replicas]
        deployments = _checked(confirm(promising, question, effort), question, effort)
    if not deployments:
        raise InfeasibleError(_nearest_miss(prospects, question, effort))
    deployments = [each for each in deployments if each.cost_per_hour <= SPAN * deployments[0].cost_per_hour]
    ruled_out = tuple(each for each in prospects if each.obstacle)
    return Plan(
        question,
        effort,
        tuple(deployments),
        _larger(deployments, question, effort),
        _bindings(deployments, question, effort),
        _sensitivity(deployments[0], effort),
        Census(
            considered=len(prospects),
            ruled_out=ruled_out,
            too_dear=len(hopeful),
            screened=len(prospects) - len(ruled_out) - len(hopeful),
        ),
    )


def _cheapest_first(deployments: Sequence[Deployment]) -> list[Deployment]:
    return sorted(deployments, key=lambda found: (found.cost_per_hour, found.e2e_s))


def _checked(deployments: Sequence[Deployment], question: Question, effort: Effort) -> list[Deployment]:
    """The deployments, the cheapest first, which holds with as many fresh seeds again.

    The cheapest of many is often one that its seeds flattered: where a fresh one fails, it grows.
    """
    found = _cheapest_first(deployments)
    while found and not holds_with_fresh_seeds(found[0], effort):
        flattered = found.pop(0)
        found = _cheapest_first([*found, *confirm([flattered.fleet.larger], question, effort)])
    return found


def _prospects(question: Question, effort: Effort) -> list[Prospect]:
    splits = question.splits()
    effort.progress(f"{len(splits)} splits of {question.scenario.model}: memory and bounds")
    calls = [(question, split, effort.seed) for split in splits]
    return effort.fan_out(prospect, calls)


def _screened(
    hopeful: list[Prospect], question: Question, effort: Effort
) -> tuple[list[Screened], list[Prospect]]:
    """Screen splits, sorted by their least cost; also those left out, too dear beside the others."""
    done: list[Screened] = []
    while hopeful:
        limit = SPAN * min(
            (question.cost_per_hour(each.split, each.replicas) for each in done if each.replicas),
            default=float("inf"),
        )
        batch = hopeful[:SCREENED_AT_ONCE]
        going = [each for each in batch if question.cost_per_hour(each.split, each.replicas) <= limit]
        if not going:
            break
        effort.progress(f"one replica each of {', '.join(describe(_least(each)) for each in going)}")
        calls = [(question, each, effort.seed, effort.run) for each in going]
        done += effort.fan_out(screen, calls)
        hopeful = hopeful[len(going) :]
    return done, hopeful


def _least(prospect: Prospect) -> Fleet:
    return Fleet(prospect.split, prospect.replicas, ())


def _larger(deployments: Sequence[Deployment], question: Question, effort: Effort) -> tuple[Deployment, ...]:
    """The cheapest deployments with one more replica, where that costs no more than the others may."""
    fleets = [each.fleet.larger for each in deployments[:LARGER]]
    limit = SPAN * deployments[0].cost_per_hour
    going = [each for each in allowed(fleets, question) if each.cost_per_hour(question) <= limit]
    return tuple(found for found in try_fleets(going, question, effort) if found is not None)


def _bindings(deployments: Sequence[Deployment], question: Question, effort: Effort) -> tuple[Binding, ...]:
    effort.progress("what binds them")
    calls = [(question, each.fleet, effort.seed, effort.run) for each in deployments]
    return tuple(effort.fan_out(find_binding, calls))


def _sensitivity(choice: Deployment, effort: Effort) -> tuple[Variant, ...]:
    """The choice with more load, with longer prompts, and with one replica less."""
    effort.progress("what the cheapest of them withstands")
    scenario, workload = choice.scenario, choice.scenario.workload
    changes: list[tuple[str, dict[str, object]]] = [
        (
            f"{100 * (MORE_LOAD - 1):.0f} % more load",
            {"workload.rate_rps": MORE_LOAD * (workload.rate_rps or 0.0)},
        ),
        (
            f"{100 * (LONGER_PROMPTS - 1):.0f} % longer prompts",
            {
                "workload.prompt_scale": LONGER_PROMPTS * workload.prompt_scale,
                # Prompts beyond the model's limit would be turned away, and the load would shrink.
                "workload.max_total_tokens": longest_request(scenario),
                "workload.on_too_long": "scale",
            },
        ),
    ]
    if choice.replicas > 1:
        changes.append(("one replica less", {"replicas": choice.replicas - 1}))
    return tuple(run_variants([(name, scenario.with_(updates)) for name, updates in changes], effort))


def _nearest_miss(prospects: Sequence[Prospect], question: Question, effort: Effort) -> str:
    """The run that came nearest to the SLO, of every split on as many GPUs as allowed, in words."""
    effort.progress("nothing holds: looking for the nearest miss")
    fitting = [each.split for each in prospects if each.fits_memory]
    bounds = f"no deployment of up to {question.max_gpus} GPUs"
    if not fitting:
        return f"{bounds} has room for the model: {prospects[0].obstacle}" if prospects else bounds
    calls = [(question, split, effort.seed, effort.run) for split in fitting]
    found = zip(fitting, effort.fan_out(_best_miss, calls), strict=True)
    misses = [(split, *miss) for split, miss in found if miss is not None]
    if not misses:
        return f"{bounds} has room for a request with {question.policies[0]}"
    split, settings, trial = min(misses, key=lambda miss: excess(miss[2]))
    fleet = describe(Fleet(split, question.most_replicas(split), ()))
    return (
        f"{bounds} holds the SLO at {question.rate_rps:,.6g} requests/s; nearest: {fleet}, {settings.policy}"
        f" with budget {settings.token_budget}, each replica {describe_miss(trial)}"
    )


def _best_miss(question: Question, split: Split, seed: int, run: RunTrial) -> tuple[Settings, Trial] | None:
    """The settings of a split that come nearest, of the smallest, the usual and the largest budget.

    With as few sequences as allowed where the usual number leaves no room; None where no setting does.
    """
    usual = first_settings(question, split, seed)
    budgets = dict.fromkeys((usual.token_budget, min(question.budgets), max(question.budgets)))
    tried: list[tuple[Settings, Trial]] = []
    for sequences in dict.fromkeys((usual.max_num_seqs, min(question.sequences))):
        for budget in budgets:
            settings = usual._replace(token_budget=budget, max_num_seqs=sequences)
            scenario: Scenario = question.sample(split, settings, question.most_replicas(split))
            if fits(scenario, seed):
                tried.append((settings, run(scenario, seed)))
        if tried:
            break
    return min(tried, key=lambda each: excess(each[1]), default=None)
