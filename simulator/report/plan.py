"""The page of `plan`: the cheapest deployments, what they cost, what binds them, how to start the first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from simulator.report.capacity import what_breaks
from simulator.report.documents import averaged, header
from simulator.report.latencies import bounds_s, latency_cell
from simulator.report.launch import launch_commands, launch_table
from simulator.report.notes import memory_note, run_notes, unique
from simulator.report.numbers import MISSING, count, numbered, percent, significant
from simulator.report.page import Cell, Page, Table, table
from simulator.report.words import bound, deployment, policy, slo_words
from simulator.search.inputs import requests_of
from simulator.search.plan_confirm import SPAN

if TYPE_CHECKING:
    from simulator.search.plan import Plan
    from simulator.search.plan_binding import Binding
    from simulator.search.plan_bounds import Prospect
    from simulator.search.plan_confirm import Deployment
    from simulator.search.replicate import Variant

COLUMNS = (
    ("ttft_s", "p50", "TTFT median (ms)"),
    ("ttft_s", "p99", "TTFT P99"),
    ("tbt_s", "p99", "TBT P99"),
    ("e2e_s", "p50", "E2E median"),
)


def plan_page(plan: Plan) -> Page:
    """The deployments that hold the SLO, the cheapest first."""
    choice, question = plan.choice, plan.question
    return Page(
        answer=_answer(plan),
        tables=(
            _deployments_table(plan),
            _limits_table(plan),
            _front_table(plan),
            _sensitivity_table(plan),
            launch_table(choice.scenario),
        ),
        notes=unique(
            (
                *_census_notes(plan),
                f"prices: {question.prices.name}, {question.prices.as_of}; {question.prices.source}",
                f"each deployment: {numbered(len(choice.runs.trials), 'run')} of"
                f" {choice.scenario.workload.num_requests} requests, routed by {choice.scenario.routing}",
                memory_note(choice.scenario),
                *run_notes([trial for each in plan.deployments for trial in each.runs.trials]),
            )
        ),
        legend=f"breaks the SLO: {slo_words(question.scenario.slo)}",
        document=_document(plan),
    )


def dollars_per_million(plan: Plan, found: Deployment) -> dict[str, float]:
    """What a million output tokens cost, and a million prompt and output tokens together, at full load."""
    requests = requests_of(plan.question.scenario.workload, plan.effort.seed)
    output = float(requests.output_tokens.mean())
    total = output + float(requests.prompt_tokens.mean())
    per_request = found.cost_per_hour / (3600 * plan.question.rate_rps)
    return {"output": 1e6 * per_request / output, "total": 1e6 * per_request / total}


def _answer(plan: Plan) -> str:
    choice, question = plan.choice, plan.question
    scenario = choice.scenario
    key, share = _tightest(choice)
    cost = dollars_per_million(plan, choice)
    lines = [
        f"{deployment(scenario)}: ${choice.cost_per_hour:.2f} an hour, the cheapest that holds"
        f" {slo_words(question.scenario.slo)} at {question.rate_rps:,.6g} requests/s.",
        f"Set {policy(scenario)}, {scenario.scheduler.max_num_seqs} sequences."
        f" ${cost['output']:.2f} per million output tokens, ${cost['total']:.2f} with prompts counted.",
        f"Nearest to its bound: {bound(key, scenario.slo[key])}, {percent(share)} of it."
        f" What binds: {_limits(plan.bindings[0])}.",
    ]
    return "\n".join([*lines, _withstands(plan)])


def _withstands(plan: Plan) -> str:
    """What the choice bears, in one sentence."""
    bears = [each.label for each in plan.sensitivity if each.runs_held() == len(each.trials)]
    not_these = [each.label for each in plan.sensitivity if each.label not in bears]
    sentences = [f"It bears {', '.join(bears)}."] if bears else []
    sentences += [f"It does not bear {', '.join(not_these)}."] if not_these else []
    return " ".join(sentences)


def _tightest(found: Deployment) -> tuple[str, float]:
    """The bound to which a deployment comes nearest, and the share of it that it needs."""
    shares = found.shares
    key = max(shares, key=lambda each: shares[each])
    return key, shares[key]


def _limits(binding: Binding) -> str:
    return " or ".join(binding.limits) or f"nothing up to {binding.load_share:.1f} x its load"


def _deployments_table(plan: Plan) -> Table:
    columns = ("holds the SLO", "GPUs", "$/hour", "$/M output tokens", *(words for *_, words in COLUMNS))
    rows = [_row(found, plan) for found in plan.deployments]
    return table(columns, rows, f"up to {SPAN:g} times the cheapest:")


def _row(found: Deployment, plan: Plan) -> list[Cell | str]:
    return [*_costs(found, plan), *_latencies(found.runs)]


def _costs(found: Deployment, plan: Plan) -> list[str]:
    return [
        _name(found),
        count(found.gpus),
        f"{found.cost_per_hour:.2f}",
        f"{dollars_per_million(plan, found)['output']:.2f}",
    ]


def _latencies(runs: Variant) -> list[Cell]:
    bounds = bounds_s(runs.scenario.slo)
    return [latency_cell(runs, bounds, metric, statistic) for metric, statistic, _ in COLUMNS]


def _name(found: Deployment) -> str:
    """A deployment as a row is called, e.g. "6 x h100_sxm TP4"."""
    split = found.split
    pipeline = f" PP{split.pipeline}" if split.pipeline > 1 else ""
    return f"{found.replicas} x {split.gpu} TP{split.tensor}{pipeline}"


def _limits_table(plan: Plan) -> Table:
    rows = [
        [
            _name(found),
            found.settings.policy,
            str(found.settings.token_budget),
            str(found.settings.max_num_seqs),
            f"{bound(*_bound_of(found))}, {percent(_tightest(found)[1])}",
            _limits(binding),
            what_breaks(binding.breaks) if binding.breaks else MISSING,
        ]
        for found, binding in zip(plan.deployments, plan.bindings, strict=True)
    ]
    columns = ("", "policy", "budget", "sequences", "nearest to its bound", "what binds", "breaks first")
    return table(columns, rows, left=True)


def _bound_of(found: Deployment) -> tuple[str, float]:
    key = _tightest(found)[0]
    return key, found.scenario.slo[key]


def _front_table(plan: Plan) -> Table:
    rows = [[_name(found), f"{found.cost_per_hour:.2f}", significant(found.e2e_s)] for found in plan.front]
    columns = ("cost against latency", "$/hour", "E2E median (s)")
    return table(columns, rows, "nothing found is both as cheap and as quick as these:")


def _sensitivity_table(plan: Plan) -> Table:
    rows: list[list[Cell | str]] = [
        [each.label, f"{each.runs_held()} of {len(each.trials)}", *_latencies(each)]
        for each in (_unchanged(plan), *plan.sensitivity)
    ]
    columns = (_name(plan.choice), "runs that hold", *(words for *_, words in COLUMNS))
    return table(columns, rows)


def _unchanged(plan: Plan) -> Variant:
    return replace(plan.choice.runs, label="as asked")


def _census_notes(plan: Plan) -> tuple[str, ...]:
    """What became of the splits that are not in the tables."""
    census = plan.census
    unfit = sum(not each.fits_memory for each in census.ruled_out)
    slow = len(census.ruled_out) - unfit
    return (
        f"{census.considered} splits over {', '.join(plan.question.gpus)}: {unfit} do not fit, {slow} cannot"
        f" hold by iteration times alone, {census.too_dear} cost more than {SPAN:g} times another at the"
        f" least, {census.screened} were simulated",
    )


def _document(plan: Plan) -> dict[str, Any]:
    question, census = plan.question, plan.census
    return header("plan", question.scenario, plan.effort) | {
        "rate_rps": question.rate_rps,
        "max_gpus": question.max_gpus,
        "gpus": list(question.gpus),
        "prices": question.prices.model_dump(mode="json"),
        "choice": _deployment_document(plan.choice, plan) | {"launch": launch_commands(plan.choice.scenario)},
        "deployments": [
            _deployment_document(found, plan) | {"binding": _binding_document(binding)}
            for found, binding in zip(plan.deployments, plan.bindings, strict=True)
        ],
        "front": [_deployment_document(found, plan) for found in plan.front],
        "sensitivity": [_sensitivity_document(each) for each in plan.sensitivity],
        "splits": {
            "considered": census.considered,
            "ruled_out": [_prospect_document(each) for each in census.ruled_out],
            "too_dear": census.too_dear,
            "simulated": census.screened,
        },
    }


def _deployment_document(found: Deployment, plan: Plan) -> dict[str, Any]:
    key, share = _tightest(found)
    cost = dollars_per_million(plan, found)
    return {
        **found.split._asdict(),
        "replicas": found.replicas,
        "num_gpus": found.gpus,
        **found.settings._asdict(),
        "cost_usd_per_hour": found.cost_per_hour,
        "cost_usd_per_million_output_tokens": cost["output"],
        "cost_usd_per_million_tokens": cost["total"],
        "share_of_bound": found.shares,
        "nearest_bound": {"key": key, "share": share, "margin": 1 - share},
        "metrics": averaged([trial.document["metrics"] for trial in found.runs.trials]),
    }


def _binding_document(binding: Binding) -> dict[str, Any]:
    return {
        "limits": list(binding.limits),
        "breaks": dict(binding.breaks.violations) if binding.breaks else {},
        "load_share": binding.load_share,
        "time_shares": dict(binding.parts),
    }


def _sensitivity_document(variant: Variant) -> dict[str, Any]:
    return {
        "change": variant.label,
        "runs_held": variant.runs_held(),
        "runs": len(variant.trials),
        "metrics": averaged([trial.document["metrics"] for trial in variant.trials]),
    }


def _prospect_document(prospect: Prospect) -> dict[str, Any]:
    return {**prospect.split._asdict(), "obstacle": prospect.obstacle}
