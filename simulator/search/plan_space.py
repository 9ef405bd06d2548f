"""The deployments that a plan chooses from: which GPUs, how they are split, and the scheduler's settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from simulator.load import load_cluster, load_gpu, load_model
from simulator.memory import max_model_len
from simulator.metrics import slo_class, split_slo_key
from simulator.run import misfit
from simulator.search.capacity import capacity_scenario
from simulator.search.inputs import requests_of
from simulator.search.prices import PriceList, gpu_named

if TYPE_CHECKING:
    from simulator.config import Scenario
    from simulator.search.trials import Trial

TENSOR, PIPELINE = (1, 2, 4, 8), (1, 2, 4)
BUDGETS = (256, 512, 1024, 2048, 4096, 8192)
SEQUENCES = (64, 128, 256, 512)
POLICIES = ("stall_free", "vllm_v1", "prefill_first")

SHORT_REQUESTS = 512
"""Requests of a trial of one replica."""
FULL_REQUESTS, FULL_S = 4096, 60.0
"""Requests of a trial of a whole fleet unless the workload says, and the least time for which they arrive."""


class Split(NamedTuple):
    """The GPUs of one replica."""

    gpu: str
    tensor: int
    pipeline: int

    @property
    def gpus(self) -> int:
        """How many there are."""
        return self.tensor * self.pipeline


class Settings(NamedTuple):
    """What the scheduler of a replica is told."""

    policy: str
    token_budget: int
    max_num_seqs: int


@dataclass(frozen=True)
class Question:
    """What a plan is asked: the load and the SLO, and the bounds within which to look for an answer."""

    scenario: Scenario
    """The workload at its rate, the SLO, the routing, and all that a plan leaves as it is."""
    gpus: tuple[str, ...]
    prices: PriceList
    max_gpus: int = 64
    policies: tuple[str, ...] = POLICIES
    budgets: tuple[int, ...] = BUDGETS
    sequences: tuple[int, ...] = SEQUENCES

    @property
    def rate_rps(self) -> float:
        """The load in requests per second."""
        return self.scenario.workload.rate_rps or 0.0

    def splits(self) -> list[Split]:
        """All ways to split the model over so many GPUs; tensor groups stay within a node."""
        return [
            Split(gpu, tensor, pipeline)
            for gpu in self.gpus
            for tensor in TENSOR
            for pipeline in PIPELINE
            if tensor * pipeline <= self.max_gpus and tensor <= _gpus_per_node(self.scenario, gpu)
        ]

    def cost_per_hour(self, split: Split, replicas: int) -> float:
        """Dollars for an hour of so many replicas."""
        return self.prices.of(split.gpu) * split.gpus * replicas

    def most_replicas(self, split: Split) -> int:
        """Replicas that the bound on GPUs allows."""
        return self.max_gpus // split.gpus

    def fleet(self, split: Split, settings: Settings, replicas: int) -> Scenario:
        """The whole deployment under the whole load."""
        return self.scenario.with_(
            {
                "gpu": split.gpu,
                "cluster": _cluster(self.scenario, split.gpu),
                "kernels": _kernels(self.scenario, split.gpu),
                "parallel.tensor": split.tensor,
                "parallel.pipeline": split.pipeline,
                "replicas": replicas,
                **{f"scheduler.{name}": value for name, value in settings._asdict().items()},
            }
        )

    def sample(self, split: Split, settings: Settings, replicas: int, share: float = 1.0) -> Scenario:
        """One replica under a share of what it gets as one of several, for a short run."""
        rate = float(f"{share * self.rate_rps / replicas:.4g}")
        return self.fleet(split, settings, 1).with_(
            {"workload.rate_rps": rate, "workload.num_requests": SHORT_REQUESTS}
        )


def ask(
    scenario: Scenario,
    rate_rps: float,
    routing: str,
    prices: PriceList,
    *,
    max_gpus: int = 64,
    gpus: Sequence[str] = (),
    policies: Sequence[str] = (),
    budgets: Sequence[int] = (),
    sequences: Sequence[int] = (),
) -> Question:
    """A question about a scenario at a load; what is left empty is searched as usual. Raises ConfigError."""
    for policy in policies:
        scenario.with_({"scheduler.policy": policy}, where="--policies")
    question = Question(
        scenario=plan_scenario(scenario, rate_rps, routing),
        gpus=tuple(dict.fromkeys(map(gpu_named, gpus or prices.usd_per_gpu_hour))),
        prices=prices,
        max_gpus=max_gpus,
        policies=tuple(dict.fromkeys(policies or POLICIES)),
        budgets=tuple(sorted(set(budgets or BUDGETS))),
        sequences=tuple(sorted(set(sequences or SEQUENCES))),
    )
    for gpu in question.gpus:
        prices.of(gpu)
    return question


def plan_scenario(scenario: Scenario, rate_rps: float, routing: str) -> Scenario:
    """The scenario as a plan loads it: its SLO with a scheduling delay, its requests at a rate.

    Raises ConfigError without an SLO.
    """
    requests = scenario.workload.num_requests or max(FULL_REQUESTS, round(FULL_S * rate_rps))
    loaded = capacity_scenario(scenario).with_({"routing": routing}, where="--routing")
    return loaded.with_(
        {
            "workload.rate_rps": rate_rps,
            "workload.num_requests": requests,
            "memory.num_blocks": None,
        }
    )


def fits(scenario: Scenario, seed: int) -> bool:
    """Whether the split is one the model allows, and weights and activations leave room for requests."""
    return not misfit(scenario, requests_of(scenario.workload, seed))


def serves(trial: Trial) -> bool:
    """Whether a trial held its SLO and turned no request away that the model itself would take."""
    return trial.holds and trial.document["requests_rejected"] <= _too_long(trial.scenario, trial.seed)


def tightness(trial: Trial) -> float:
    """How near a whole trial came to its SLO: the largest ratio of a value to its bound."""
    return max(ratios(trial).values())


def ratios(trial: Trial) -> dict[str, float]:
    """Each bounded quantity of a whole trial over its bound."""
    found = {}
    for key, bound in trial.scenario.slo.items():
        statistic, metric, unit_s = split_slo_key(key)
        found[key] = (trial.value(metric, statistic, slo_class(key)) or 0.0) / (unit_s * bound)
    return found


def longest_request(scenario: Scenario) -> int:
    """Most tokens of a request, prompt and output, that the model and the workload allow."""
    limit = max_model_len(load_model(scenario.model), scenario)
    return min(limit, scenario.workload.max_total_tokens or limit)


def _too_long(scenario: Scenario, seed: int) -> int:
    """Requests that are longer than the model or the workload allows, wherever they run."""
    requests = requests_of(scenario.workload, seed)
    return int((requests.prompt_tokens + requests.output_tokens > longest_request(scenario)).sum())


def _gpus_per_node(scenario: Scenario, gpu: str) -> int:
    return load_cluster(_cluster(scenario, gpu) or load_gpu(gpu).cluster).gpus_per_node


def _cluster(scenario: Scenario, gpu: str) -> str | None:
    """The scenario's interconnect belongs to its own GPU; another GPU has its usual one."""
    return scenario.cluster if gpu == scenario.gpu else None


def _kernels(scenario: Scenario, gpu: str) -> str:
    return scenario.kernels if gpu == scenario.gpu or scenario.kernels == "roofline" else "auto"
