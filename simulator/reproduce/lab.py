"""Where experiments are run: the paper's deployments as scenarios, stored trials, and prompt answers.

An experiment is a function of the lab and plain arguments that returns plain values; many of them run at
once on several processes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any

from simulator.config import Scenario
from simulator.load import load_scenario
from simulator.reproduce.paper import Deployment, Paper, Slo
from simulator.reproduce.rule import Found, Outcome, search
from simulator.search.trials import RunTrial, Trial, run_trial


@dataclass(frozen=True)
class Lab:
    """The paper, how trials are run, and what takes the place of the shipped chat trace and engines."""

    paper: Paper
    run: RunTrial = field(default=run_trial, repr=False)
    chat_trace: str | None = None
    engine: str | None = None

    def scenario(self, model: str, dataset: str = "chat", slo: Slo = "strict", **changes: Any) -> Scenario:
        """One of the paper's deployments, with stall-free scheduling; `changes` are nested settings.

        Double underscores stand for dots: `scheduler__policy="orca"`.
        """
        deployment, data = self.paper.deployments[model], self.paper.datasets[dataset]
        trace = self.chat_trace if dataset == "chat" and self.chat_trace else data.trace
        settings: dict[str, Any] = {
            "workload.trace": trace,
            "workload.max_total_tokens": data.max_tokens,
            "scheduler.max_model_len": data.max_tokens,
            "scheduler.token_budget": deployment.budget[slo],
            "slo": {"p99_tbt_s": deployment.tbt_s[slo]},
        }
        if self.engine:
            settings["engine"] = self.engine
        settings |= {key.replace("__", "."): value for key, value in changes.items()}
        return load_scenario(deployment.scenario).with_(settings)

    def under_policy(self, model: str, dataset: str, slo: Slo, policy: str, **changes: Any) -> Scenario:
        """A deployment under another scheduler; Orca with the few sequences that the paper gives it."""
        deployment = self.paper.deployments[model]
        seqs = {"scheduler__max_num_seqs": deployment.orca_seqs} if policy == "orca" else {}
        return self.scenario(model, dataset, slo, scheduler__policy=policy, **seqs, **changes)

    def trial(self, scenario: Scenario) -> Trial:
        """A scenario with the paper's seed."""
        return self.run(scenario, self.paper.seed)

    def mean(self, scenario: Scenario, name: str, statistic: str, seeds: int) -> float:
        """A statistic of a latency in seconds, averaged over seeds from the paper's on."""
        values = [
            self.run(scenario, seed).value(name, statistic) or 0.0
            for seed in range(self.paper.seed, self.paper.seed + seeds)
        ]
        return sum(values) / len(values)

    def outcome(self, scenario: Scenario, rate_rps: float) -> Outcome:
        """What the paper's rule asks of a trial; hopeless where nothing has finished."""
        trial = self.trial(scenario.with_({"workload.rate_rps": rate_rps}))
        tbt_s, delay_s = trial.value("tbt_s", "p99"), trial.value("scheduling_delay_s", "p50")
        return Outcome(inf if tbt_s is None else tbt_s, inf if delay_s is None else delay_s)

    def capacity(self, scenario: Scenario, start_rps: float) -> Found:
        """The largest rate at which a scenario holds its bound on P99 TBT, by the paper's rule."""
        return search(lambda rate: self.outcome(scenario, rate), start_rps, scenario.slo["p99_tbt_s"])

    def deployment(self, model: str) -> Deployment:
        """The paper's settings for a model."""
        return self.paper.deployments[model]
