"""The reproduction as a whole: its data file, its scenarios, an answer to every published number."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from search_fakes import make_document

from simulator.cli.progress import Lines
from simulator.config import Scenario
from simulator.errors import ConfigError
from simulator.report.plots import capacity_chart, stall_chart
from simulator.report.reproduction import reproduction_page
from simulator.reproduce.lab import Lab
from simulator.reproduce.paper import Paper, Published, load_paper
from simulator.reproduce.reproduction import GROUPS, Reproduction, reproduce
from simulator.reproduce.rows import Ledger, Row
from simulator.reproduce.verdicts import verdicts
from simulator.search.progress import SILENT
from simulator.search.trials import Trial

PAPER = "sarathi-osdi24"


def fake_run(scenario: Scenario, seed: int, *, only_verdict: bool = False) -> Trial:
    """Any load holds up to one request a second; beyond, latencies grow with it."""
    load = scenario.workload.rate_rps or 2.0
    document = make_document(
        latency_s=0.01 * load if load <= 1 else 10.0 * load, stages=[{"bubble_share": 0.1}], makespan_s=1.0
    )
    violations = {} if load <= 1 else {key: 2 * bound for key, bound in scenario.slo.items()}
    return Trial(scenario, seed, document, violations)


@cache
def whole() -> Reproduction:
    """Everything, on fake trials."""
    return reproduce(Lab(load_paper(PAPER), fake_run), list(GROUPS), 1, SILENT)


# The data file.


def test_every_value_has_a_unit_a_known_certainty_and_a_source() -> None:
    paper = load_paper(PAPER)
    for id, entry in paper.values.items():
        value, unit, certainty, source = entry
        assert value is None or isinstance(value, int | float), id
        assert unit, id
        assert certainty in paper.certainties, id
        assert source, id
        assert (value is None) == (certainty == "none"), id
        assert id.partition("/")[0] in GROUPS, id


def test_an_unknown_paper_is_named_with_its_neighbour() -> None:
    with pytest.raises(ConfigError, match=PAPER):
        load_paper("sarathi-osdi23")


# The scenarios.


def test_deployments_have_the_papers_settings() -> None:
    lab = Lab(load_paper(PAPER))
    falcon = lab.under_policy("falcon", "arxiv", "relaxed", "orca")
    assert falcon.scheduler.max_num_seqs == 8
    assert falcon.scheduler.max_model_len == falcon.workload.max_total_tokens == 16_384
    assert falcon.slo == {"p99_tbt_s": 5.0}
    assert (falcon.parallel.tensor, falcon.parallel.pipeline) == (4, 2)
    mistral = lab.scenario("mistral")
    assert mistral.scheduler.token_budget == 512
    assert mistral.workload.truncate_at == 3
    assert mistral.workload.num_requests == 2048
    assert mistral.until_s == 1800


def test_engine_and_chat_lengths_can_be_replaced() -> None:
    lab = Lab(load_paper(PAPER), engine="ideal", chat_trace="mine.csv")
    assert lab.scenario("yi").engine == "ideal"
    assert lab.scenario("yi").workload.trace == "mine.csv"
    assert lab.scenario("yi", "arxiv").workload.trace == "summarisation"


# The rows.


def test_every_published_number_gets_an_answer() -> None:
    answered = {row.id for row in whole().rows}
    assert set(load_paper(PAPER).values) <= answered
    assert len(answered) == len(whole().rows)


def test_groups_only_report_their_own_rows() -> None:
    assert {row.group for row in whole().rows} == set(GROUPS)
    part = reproduce(whole().lab, ["chunking"], 1, SILENT)
    assert {row.group for row in part.rows} == {"chunking"}


def test_progress_counts_the_experiments() -> None:
    lines: list[str] = []
    reproduce(whole().lab, ["chunking"], 1, Lines(lines.append))
    assert lines == ["chunking/overhead (1 of 2)", "chunking/saturation (2 of 2)"]


def test_the_page_has_a_document_of_rows() -> None:
    page = reproduction_page(whole())
    document = json.loads(json.dumps(page.document, allow_nan=False))
    row = next(row for row in document["rows"] if row["id"] == "capacity/mistral/chat/strict/over-orca")
    assert row["group"] == "capacity"
    assert row["paper"] == 2.78
    assert row["certainty"] == "text"
    assert row["unit"] == "x"
    assert row["ours"] == pytest.approx(1.0)
    assert {table.title for table in page.tables} >= {f"{group}:" for group in GROUPS}


def test_a_scheduler_that_holds_at_no_rate_has_no_ratio() -> None:
    ledger = Ledger(load_paper(PAPER))
    group: Any = GROUPS["capacity"]
    results = {id: None if id.endswith("orca") else 1.0 for id in group.experiments(whole().lab)}
    group.report(ledger, results)
    rows = {row.id: row for row in ledger.rows}
    assert rows["capacity/yi/chat/strict/over-orca"].ours is None
    assert rows["capacity/yi/chat/strict/over-prefill_first"].ours == 1.0
    assert rows["capacity/yi/chat/strict/orca"].note == "holds at no rate"


def test_plots_are_drawn_of_what_was_run() -> None:
    results = whole().results
    assert "prefill_first" in (stall_chart(results) or "")
    assert (capacity_chart(results) or "").count("<circle") == 15
    assert stall_chart({}) is capacity_chart({}) is None


# The verdicts.


def rows_of(paper: Paper, ours: dict[str, float]) -> list[Row]:
    ledger = Ledger(paper)
    for id, value in ours.items():
        ledger.add(id, value)
    return ledger.rows


@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (1.1, True), (1.3, False), (0.7, False)])
def test_isolated_scheduling_must_be_within_12_percent(factor: float, holds: bool) -> None:
    paper = load_paper(PAPER)
    ids = [id for id in paper.values if id.startswith("capacity/isolated/")]
    [verdict] = verdicts(rows_of(paper, {id: factor * paper.values[id][0] for id in ids}))
    assert verdict.holds is holds


@pytest.mark.parametrize(
    ("factor", "expected"), [(1.0, (True, True)), (1.3, (True, False)), (0.5, (False, False))]
)
def test_ratios_must_be_on_the_right_side_and_near(factor: float, expected: tuple[bool, bool]) -> None:
    paper = load_paper(PAPER)
    ids = [id for id in paper.values if "/over-" in id and not id.startswith("capacity/over-slo")]
    assert len(ids) == 16 + 6
    side, error = verdicts(rows_of(paper, {id: factor * paper.values[id][0] for id in ids}))
    assert (side.holds, error.holds) == expected


def test_chunking_is_judged_by_its_largest_difference() -> None:
    paper = load_paper(PAPER)
    exact = {id: entry[0] for id, entry in paper.values.items() if id.startswith("chunking/4096/")}
    [good] = verdicts(rows_of(paper, exact))
    [bad] = verdicts(rows_of(paper, exact | {"chunking/4096/512": exact["chunking/4096/512"] + 0.1}))
    assert (good.holds, bad.holds) == (True, False)
    assert "chunking/4096/512" in bad.words


def test_a_missing_number_is_never_within_its_bounds() -> None:
    row = Row("capacity/isolated/chat/strict/orca", Published(0.74, "requests/s", "derived", "x"), None)
    [verdict] = verdicts([row])
    assert not verdict.holds
    [verdict] = verdicts([replace(row, ours=0.74)])
    assert verdict.holds
