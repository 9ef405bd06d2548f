"""`stallfree plan` on a scenario of short runs: its JSON, its exit codes, and that kills leave no trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from killing import answer_after_kills

from simulator.cluster import ROUTERS

PLAN = (
    "--rate", "30", "--gpus", "h100_sxm,a100_sxm", "--max-gpus", "2", "--policies", "stall_free,vllm_v1",
    "--budgets", "512", "2048", "--sequences", "128", "--runs", "3", "--price", "a100_sxm=1",
)  # fmt: skip


@pytest.fixture
def answer(stallfree, small: str, tmp_path: Path) -> dict:
    outcome = stallfree("plan", small, *PLAN, "--json", "--jobs", "1", "--store", str(tmp_path / "t.sqlite"))
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def test_the_document(answer: dict):
    assert (answer["schema_version"], answer["command"], answer["seed"]) == (1, "plan", 0)
    assert answer["scenario"]["slo"] == {"p99_tbt_ms": 30.0, "p50_scheduling_delay_ms": 100.0}
    assert answer["gpus"] == ["h100_sxm", "a100_80gb_sxm"]
    assert answer["prices"]["usd_per_gpu_hour"]["a100_80gb_sxm"] == 1.0
    cheapest = answer["deployments"][0]
    assert {key: cheapest[key] for key in cheapest if key != "binding"} == {
        key: answer["choice"][key] for key in answer["choice"] if key != "launch"
    }
    assert set(answer["choice"]["launch"]) == {"vllm", "sglang"}
    costs = [each["cost_usd_per_hour"] for each in answer["deployments"]]
    assert costs == sorted(costs)
    for each in answer["deployments"]:
        assert each["num_gpus"] == each["tensor"] * each["pipeline"] * each["replicas"] <= 2
        assert all(share <= 1 for share in each["share_of_bound"].values())
        assert each["metrics"]["tbt_s"]["p99"] <= 0.03
        assert each["cost_usd_per_million_tokens"] < each["cost_usd_per_million_output_tokens"]
        assert set(each["binding"]) == {"limits", "breaks", "load_share", "time_shares"}
    assert answer["front"][0]["cost_usd_per_hour"] == costs[0]
    assert [each["change"] for each in answer["sensitivity"]][:2] == ["20 % more load", "25 % longer prompts"]
    splits = answer["splits"]
    assert splits["considered"] == len(splits["ruled_out"]) + splits["too_dear"] + splits["simulated"]


def test_the_choice_holds_with_another_seed(stallfree, small: str, answer: dict):
    choice = answer["choice"]
    changes = {
        "gpu": choice["gpu"],
        "parallel.tensor": choice["tensor"],
        "parallel.pipeline": choice["pipeline"],
        "replicas": choice["replicas"],
        "routing": "least_outstanding",
        "scheduler.policy": choice["policy"],
        "scheduler.token_budget": choice["token_budget"],
        "scheduler.max_num_seqs": choice["max_num_seqs"],
        "workload.rate_rps": 30,
    }
    sets = [text for key, value in changes.items() for text in ("--set", f"{key}={value}")]
    again = json.loads(stallfree("simulate", small, *sets, "--seed", "17", "--json").out)
    assert again["violations"] == []
    assert again["stability"] == "stable"


def test_the_text(stallfree, small: str):
    outcome = stallfree("plan", small, *PLAN, "--jobs", "1")
    first = outcome.out.splitlines()[0]
    assert "an hour, the cheapest that holds P99 TBT <= 30 ms" in first
    assert "at 30 requests/s" in first
    for words in (
        "What binds: ",
        "up to 1.5 times the cheapest:",
        "vllm serve meta-llama/",
        "note: prices: ",
    ):
        assert words in outcome.out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (
            ("--slo", "p99_tbt_ms=2"),
            3,
            "no deployment of up to 2 GPUs holds the SLO at 30 requests/s; nearest: ",
        ),
        (("--slo", "p99_tbt=2"), 2, "--slo: slo.p99_tbt: the unit is missing"),
        (("--slo", "p99_tbt_ms"), 2, "--slo p99_tbt_ms: must be NAME=NUMBER"),
        (("--price", "h100_sxm=0"), 2, "--price h100_sxm=0: must be NAME=NUMBER"),
        (("--gpus", "h1000"), 2, "unknown gpu 'h1000'"),
        (("--gpus", "cpu"), 2, "no price of cpu"),
        (("--prices", "cheap"), 2, "unknown price 'cheap'"),
        (("--policies", "fifo"), 2, "--policies: scheduler.policy must be"),
        (
            ("--routing", "fastest"),
            2,
            f"--routing: routing must be {', '.join(map(repr, [*ROUTERS][:-1]))} or",
        ),
    ],
)
def test_what_cannot_be_answered(stallfree, small: str, arguments: tuple[str, ...], code: int, says: str):
    outcome = stallfree("plan", small, *PLAN, *arguments, "--jobs", "1", "--quiet")
    assert (outcome.code, outcome.out) == (code, "")
    assert says in outcome.err


@pytest.mark.parametrize("routing", ROUTERS)
def test_every_routing_can_be_planned_with(stallfree, small: str, routing: str):
    """With a load for which several replicas are among the answers, so that there is something to route."""
    few = ("--gpus", "h100_sxm", "--max-gpus", "4", "--budgets", "512", "--sequences", "32", "--runs", "1")
    changed = ("--set", "workload.num_requests=200", "--policies", "vllm_v1", "--routing", routing)
    outcome = stallfree("plan", small, "--rate", "45", *few, *changed, "--json", "--jobs", "1", "--no-store")
    assert outcome.code == 0, outcome.err
    document = json.loads(outcome.out)
    assert any(each["replicas"] > 1 for each in document["deployments"])
    assert document["scenario"]["routing"] == routing


def test_the_help_names_every_routing(stallfree):
    help_ = " ".join(stallfree("plan", "--help").out.split())
    assert all(name in help_ for name in ROUTERS)


def test_ten_kills_change_neither_the_answer_nor_the_store(stallfree, small: str, tmp_path: Path):
    expected = stallfree("plan", small, *PLAN, "--json", "--jobs", "1", "--store", str(tmp_path / "calm"))
    question = ["plan", small, *PLAN, "--json", "--quiet", "--jobs", "2"]
    answer = answer_after_kills(question, tmp_path / "calm", tmp_path / "killed", kills=10)
    assert answer == expected.out.encode()
