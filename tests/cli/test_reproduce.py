"""`stallfree reproduce` from the outside."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree


def test_rows_come_as_json_and_progress_apart(stallfree: Callable[..., Any], tmp_path: Path) -> None:
    outcome = stallfree(
        "reproduce", "--only", "chunking", "--json", "--jobs", "1", "--store", str(tmp_path / "trials.sqlite")
    )
    assert outcome.code == 0
    document = json.loads(outcome.out)
    assert all(
        {"id", "group", "paper", "certainty", "ours", "unit"} <= row.keys() for row in document["rows"]
    )
    assert {row["group"] for row in document["rows"]} == {"chunking"}
    assert "chunking/overhead (1 of 2)" in outcome.err


def test_a_second_run_finds_its_trials(stallfree: Callable[..., Any], tmp_path: Path) -> None:
    store, report = tmp_path / "trials.sqlite", tmp_path / "report.md"
    arguments = ("reproduce", "--only", "ablation", "--jobs", "1", "--store", str(store), "--quiet")
    first = stallfree(*arguments)
    size = store.stat().st_size
    second = stallfree(*arguments, "--output", str(report))
    assert first == second
    assert store.stat().st_size == size
    assert "| chat/stall_free/p99_tbt |" in report.read_text()


def test_plots_are_written(stallfree: Callable[..., Any], tmp_path: Path) -> None:
    outcome = stallfree(
        "reproduce", "--only", "stalls", "--plots", str(tmp_path / "plots"),
        "--store", str(tmp_path / "trials.sqlite"),
    )  # fmt: skip
    assert outcome.code == 0
    assert [path.name for path in (tmp_path / "plots").iterdir()] == ["stall.svg"]
    ElementTree.parse(tmp_path / "plots" / "stall.svg")


def test_unknown_papers_and_parts_are_refused(stallfree: Callable[..., Any]) -> None:
    unknown = stallfree("reproduce", "sarathi")
    assert unknown.code == 2
    assert "sarathi-osdi24" in unknown.err
    assert stallfree("reproduce", "--only", "everything").code == 2
