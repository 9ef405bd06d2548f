"""The store behind the searches: the same answers with and without it, after kills, and `stallfree runs`."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from killing import answer_after_kills

from simulator.search.store import TrialStore


@pytest.fixture
def store(tmp_path: Path) -> TrialStore:
    """An empty store."""
    return TrialStore(tmp_path / "trials.sqlite")


@pytest.mark.parametrize(
    "question",
    [
        ("capacity", "--runs", "2", "--set", "slo.p99_tbt_ms=12"),
        ("budget", "--runs", "1", "--budgets", "256", "512"),
        ("compare", "--policy", "orca", "--policy", "stall_free", "--runs", "2"),
        ("plan", "--rate", "8", "--gpus", "h100_sxm", "--max-gpus", "1", "--budgets", "512", "--runs", "1"),
    ],
)
def test_the_answer_is_the_same_without_with_and_from_a_store(stallfree, small, store, question):
    arguments = (question[0], small, *question[1:], "--json", "--quiet", "--jobs", "1")
    bare = stallfree(*arguments, "--no-store")
    assert bare.code == 0
    assert stallfree(*arguments, "--store", str(store.path)) == bare
    before = store.newest()
    assert before
    assert stallfree(*arguments, "--store", str(store.path)) == bare
    assert store.newest() == before


def test_trials_of_other_searches_do_not_change_an_answer(stallfree, small, store):
    """A whole run of a rate knows more than a search's, which ended when its SLO was broken."""
    arguments = ("capacity", small, "--runs", "1", "--set", "slo.p99_tbt_ms=12", "--json", "--quiet")
    bare = stallfree(*arguments, "--no-store")
    beyond = json.loads(bare.out)["by_seed"][0]["fails_rps"]
    loaded = ("--set", "slo.p99_tbt_ms=12", "--set", "slo.p50_scheduling_delay_s=2.0")
    whole = stallfree(
        "compare", small, *loaded, "--set", "workload.arrivals=poisson", "--runs", "1",
        "--variant", f"a: workload.rate_rps={beyond}", "--store", str(store.path),
    )  # fmt: skip
    assert whole.code == 0
    assert stallfree(*arguments, "--store", str(store.path)) == bare


def test_the_default_store_is_in_the_users_cache(stallfree, small, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    arguments = ("compare", small, "--policy", "orca", "--policy", "stall_free", "--runs", "1", "--jobs", "1")
    assert stallfree(*arguments, "--no-store").code == 0
    assert not (tmp_path / "cache").exists()
    assert stallfree(*arguments).code == 0
    assert len(TrialStore(tmp_path / "cache" / "stallfree" / "trials.sqlite")) == 2


def test_no_default_store_is_no_reason_to_fail_and_a_named_one_is(stallfree, small, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    arguments = ("compare", small, "--policy", "orca", "--policy", "stall_free", "--runs", "1", "--jobs", "1")
    outcome = stallfree(*arguments)
    assert outcome.code == 0
    assert outcome.err.startswith("no trials are kept: ")
    named = stallfree(*arguments, "--store", str(tmp_path / "file" / "x.sqlite"))
    assert named.code == 2
    assert "cannot be used as a store" in named.err
    assert stallfree(*arguments, "--store", "x", "--no-store").code == 2


def test_a_search_that_is_killed_again_and_again_ends_as_an_undisturbed_one(stallfree, small, tmp_path):
    question = ["capacity", small, "--runs", "4", "--json", "--quiet", "--jobs", "2"]
    expected = stallfree(*question, "--store", str(tmp_path / "calm"))
    answer = answer_after_kills(question, tmp_path / "calm", tmp_path / "killed", kills=3)
    assert answer == expected.out.encode()


@pytest.fixture
def filled(stallfree, small, store) -> TrialStore:
    """A store with two trials."""
    arguments = ("--policy", "orca", "--policy", "stall_free", "--runs", "1", "--jobs", "1")
    assert stallfree("compare", small, *arguments, "--store", str(store.path)).code == 0
    return store


def test_list_shows_the_newest_trials_by_what_a_reader_knows(stallfree, filled):
    outcome = stallfree("runs", "list", "--store", str(filled.path), "--limit", "1")
    assert outcome.out.startswith(f"2 trials in {filled.path}, the newest 1 of them below.")
    header, row = outcome.out.splitlines()[2:4]
    names = "key finished scenario model gpu policy budget rate seed code outcome"
    assert header.split() == names.split()
    assert row.split()[2:5] == ["small", "llama-3-8b", "h100_sxm"]
    trials = json.loads(stallfree("runs", "list", "--store", str(filled.path), "--json").out)["trials"]
    assert {trial["policy"] for trial in trials} == {"orca", "stall_free"}


def test_show_takes_the_start_of_a_key(stallfree, filled):
    trial = filled.newest(1)[0]
    shown = stallfree("runs", "show", trial.key[:12], "--store", str(filled.path), "--json")
    answer = json.loads(shown.out)
    assert answer["key"] == trial.key
    assert answer["document"] == trial.contents()["document"]
    assert "TTFT" in stallfree("runs", "show", trial.key, "--store", str(filled.path)).out
    for wrong in ("", "x"):
        assert stallfree("runs", "show", wrong, "--store", str(filled.path)).code == 2


def test_export_writes_every_latency(stallfree, filled, tmp_path):
    path = tmp_path / "trials.csv"
    assert stallfree("runs", "export", "--store", str(filled.path), "--output", str(path)).code == 0
    rows = {row["key"]: row for row in csv.DictReader(path.read_text().splitlines())}
    for trial in filled.newest():
        exact = trial.contents()["document"]["metrics"]["tbt_s"]["p99"]
        assert float(rows[trial.key]["tbt_s_p99"]) == exact


def test_gc_deletes_what_no_search_can_find(stallfree, filled):
    filled.put(filled.newest(1)[0]._replace(key="other", code="x"))
    outcome = stallfree("runs", "gc", "--store", str(filled.path), "--json")
    assert json.loads(outcome.out)["deleted"] == 1
    assert len(filled) == 2
    stallfree("runs", "gc", "--older-than-days", "1", "--store", str(filled.path))
    assert len(filled) == 2
    filled.put(filled.newest(1)[0]._replace(key="old", created="2020-01-01T00:00:00+00:00"))
    stallfree("runs", "gc", "--older-than-days", "1", "--store", str(filled.path))
    assert len(filled) == 2


def test_a_store_that_is_not_there_is_named(stallfree, tmp_path):
    outcome = stallfree("runs", "list", "--store", str(tmp_path / "none.sqlite"))
    assert outcome.code == 2
    assert "none.sqlite: no such file" in outcome.err
    assert not (tmp_path / "none.sqlite").exists()


def test_without_a_home_trials_are_not_kept(stallfree, small, monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("pathlib.Path.home", homeless)
    arguments = ("compare", small, "--policy", "orca", "--policy", "stall_free", "--runs", "1", "--jobs", "1")
    outcome = stallfree(*arguments)
    assert outcome.code == 0
    assert outcome.err.startswith("no trials are kept: no home directory")
    listed = stallfree("runs", "list")
    assert listed.code == 2
    assert "choose a --store" in listed.err
