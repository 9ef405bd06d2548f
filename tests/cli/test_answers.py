"""Answers: keys of the JSON, the shape of the text, the same bytes for the same seed, files."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

METRICS = {"ttft_s", "tbt_s", "tpot_s", "e2e_s", "scheduling_delay_s"}
STATISTICS = {"mean", "p50", "p90", "p95", "p99", "p999", "max"}
BUDGETS = ("--budgets", "256", "512", "2048")


def document(stallfree, *arguments: str) -> dict:
    outcome = stallfree(*arguments, "--json", "--jobs", "1")
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def assert_common_keys(answer: dict, command: str) -> None:
    assert answer["schema_version"] == 1
    assert answer["command"] == command
    assert answer["scenario"]["model"] == "llama-3-8b"
    assert isinstance(answer["seed"], int)


def test_simulate(stallfree, small: str):
    answer = document(stallfree, "simulate", small, "--seed", "3")
    assert_common_keys(answer, "simulate")
    assert answer["seed"] == 3
    assert set(answer["metrics"]) == METRICS
    assert all(set(statistics) == STATISTICS for statistics in answer["metrics"].values())
    assert (answer["requests_completed"], answer["requests_rejected"]) == (64, 0)
    assert {"iterations", "preemptions", "stability", "notes"} <= set(answer)


def test_simulate_averages_runs(stallfree, small: str):
    answer = document(stallfree, "simulate", small, "--runs", "2")
    each = [run["metrics"]["ttft_s"]["p99"] for run in answer["per_run"]]
    assert each[0] != each[1]
    assert answer["metrics"]["ttft_s"]["p99"] == pytest.approx(sum(each) / 2)
    assert [run["seed"] for run in answer["per_run"]] == [0, 1]


def test_capacity(stallfree, small: str):
    answer = document(stallfree, "capacity", small, "--runs", "2")
    assert_common_keys(answer, "capacity")
    low, high = answer["interval_rps"]
    assert 0 < low <= answer["capacity_rps"] <= high
    assert [run["seed"] for run in answer["by_seed"]] == [0, 1]
    assert answer["breaks_beyond"]
    assert answer["scenario"]["slo"] == {"p99_tbt_ms": 30.0, "p50_scheduling_delay_ms": 100.0}


def test_budget(stallfree, small: str):
    answer = document(stallfree, "budget", small, "--runs", "2", *BUDGETS)
    assert_common_keys(answer, "budget")
    capacities = {row["token_budget"]: row["capacity_rps"] for row in answer["rows"]}
    assert set(capacities) == {256, 512, 2048}
    assert capacities[answer["best_token_budget"]] == max(capacities.values()) == answer["capacity_rps"]
    assert answer["best_token_budget"] in answer["ties"]
    assert {row["policy"] for row in answer["policies"]} == {"prefill_first", "orca", "decode_first"}
    assert set(answer["flags"]) == {"vllm", "sglang"}
    assert {"within_slo", "free"} <= set(answer["rules_of_thumb"])
    blocks = [row["kv_blocks"] for row in answer["rows"]]
    assert blocks == sorted(blocks, reverse=True)


def test_budget_at_a_rate(stallfree, small: str):
    answer = document(stallfree, "budget", small, "--rate", "10", "--runs", "2", *BUDGETS)
    assert_common_keys(answer, "budget")
    holding = {row["token_budget"] for row in answer["rows"] if row["holds"]}
    assert answer["best_token_budget"] in holding
    assert set(answer["holds"]) == holding
    broken = [row for row in answer["rows"] if not row["holds"]]
    assert [row["token_budget"] for row in broken] == [2048]
    assert broken[0]["metrics"]["tbt_s"]["p99"] > 0.03
    assert set(answer["best_by"]) == {"ttft", "e2e"}


def test_compare(stallfree, small: str):
    policies = ("--policy", "stall_free", "--policy", "prefill_first")
    answer = document(stallfree, "compare", small, "--runs", "2", *policies)
    assert_common_keys(answer, "compare")
    first, second = answer["rows"]
    assert (first["policy"], second["policy"]) == ("stall_free", "prefill_first")
    assert set(first["metrics"]) == METRICS
    assert first["differences"] == {}
    difference = second["differences"]["tbt_s"]["max"]
    expected = second["metrics"]["tbt_s"]["max"] - first["metrics"]["tbt_s"]["max"]
    assert difference["difference"] == pytest.approx(expected)
    assert difference["interval"][0] <= difference["difference"] <= difference["interval"][1]
    assert isinstance(difference["is_noise"], bool)


def test_compare_variants(stallfree, small: str):
    answer = document(
        stallfree, "compare", small, "--runs", "1", "--variant", "big: scheduler.token_budget=2048"
    )
    assert [row["label"] for row in answer["rows"]] == ["base", "big"]
    assert answer["rows"][1]["scenario"]["scheduler"]["token_budget"] == 2048


def test_the_text_starts_with_the_answer_and_marks_what_breaks_the_slo(stallfree, small: str):
    outcome = stallfree("simulate", small, "--set", "slo.p99_tbt_ms=5")
    assert outcome.out.startswith("llama-3-8b on 1 x h100_sxm, stall_free, budget 512: 64 requests")
    assert "the SLO is broken: P99 TBT" in outcome.out.splitlines()[0]
    tbt = next(line for line in outcome.out.splitlines() if line.startswith("TBT "))
    assert tbt.count("!") == 1
    assert "! = breaks the SLO: " in outcome.out
    assert "note: h100_sxm: analytic roofline" in outcome.out
    assert outcome.err == ""
    assert "\x1b" not in outcome.out
    assert not set(outcome.out) & set("│─╭╮╰╯┃━")


def test_progress_goes_to_stderr_unless_quiet(stallfree, small: str):
    loud = stallfree("budget", small, "--rate", "8", "--runs", "1", "--budgets", "512", "--jobs", "1")
    assert "budgets 512 at 8 requests/s" in loud.err
    quiet = stallfree(
        "budget", small, "--rate", "8", "--runs", "1", "--budgets", "512", "--jobs", "1", "--quiet"
    )
    assert quiet.err == ""
    assert quiet.out == loud.out


@pytest.mark.parametrize("suffix", [".json", ".csv", ".md", ".txt"])
def test_output_files(stallfree, small: str, tmp_path: Path, suffix: str):
    path = tmp_path / f"answer{suffix}"
    path.write_text("old", encoding="utf-8")
    outcome = stallfree("simulate", small, "--output", str(path))
    assert outcome.code == 0
    assert [entry.name for entry in tmp_path.iterdir() if "answer" in entry.name] == [path.name]
    text = path.read_text(encoding="utf-8")
    if suffix == ".json":
        assert json.loads(text)["requests_completed"] == 64
    elif suffix == ".csv":
        assert next(csv.reader(text.splitlines()))[:3] == ["ms", "mean", "median"]
    elif suffix == ".md":
        assert "| TTFT |" in text
    else:
        assert text == outcome.out


def test_the_same_seed_gives_the_same_bytes_in_every_process(small: str):
    command = [sys.executable, "-c", "import sys; from simulator.cli import main; sys.exit(main())"]
    arguments = ["capacity", small, "--runs", "2", "--json"]
    outputs = {
        subprocess.run([*command, *arguments, "--jobs", jobs], capture_output=True, check=True).stdout
        for jobs in ("1", "2")
    }
    assert len(outputs) == 1


def test_another_seed_gives_another_answer(stallfree, small: str):
    first, second = (document(stallfree, "simulate", small, "--seed", seed) for seed in ("0", "1"))
    assert first["metrics"] != second["metrics"]


@pytest.mark.parametrize(
    "kind",
    ["models", "gpus", "clusters", "engines", "scenarios", "kernels", "prices", "traces", "policies"],
)
def test_list(stallfree, kind: str):
    outcome = stallfree("list", kind, "--json")
    assert outcome.code == 0
    entries = json.loads(outcome.out)[kind]
    assert entries
    assert all(entry["name"] for entry in entries)


def test_list_of_everything(stallfree):
    answer = json.loads(stallfree("list", "--json").out)
    assert "llama-3-8b" in answer["models"]
    assert "default" in answer["scenarios"]
    assert "chat" in answer["traces"]
    assert "stall_free" in answer["policies"]
