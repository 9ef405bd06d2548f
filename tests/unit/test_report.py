"""Pages in each format: what is marked, aligned, escaped and rounded."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from search_fakes import make_document, make_scenario

from simulator.report.documents import averaged
from simulator.report.flags import engine_flags
from simulator.report.formats import to_csv, to_json, to_markdown, to_text
from simulator.report.latencies import latency_table
from simulator.report.numbers import count, milliseconds, percent, significant, span
from simulator.report.page import Cell, Page, table
from simulator.report.simulation import simulation_page
from simulator.report.words import bound, deployment, excess_words, policy, runs_of, slo_words
from simulator.search.effort import Effort
from simulator.search.replicate import Variant
from simulator.search.trials import Trial

PAGE = Page(
    answer="Forty-two.",
    tables=(
        table(("budget", "TBT P99"), [["512", Cell("61.2", breaks_slo=True)], ["1024", "9.5"]]),
        table(("engine", "flags"), [["vllm", "--a 1"]], left=True),
    ),
    notes=("measured on a card",),
    legend="breaks the SLO: P99 TBT <= 50 ms",
    document={"answer": 42},
)


def test_text_marks_and_explains_what_breaks_the_slo():
    assert to_text(PAGE) == (
        "Forty-two.\n"
        "\n"
        "budget  TBT P99\n"
        "512        61.2 !\n"
        "1024        9.5\n"
        "\n"
        "engine  flags\n"
        "vllm    --a 1\n"
        "\n"
        "! = breaks the SLO: P99 TBT <= 50 ms\n"
        "\n"
        "note: measured on a card\n"
    )


def test_text_without_a_break_has_no_legend():
    page = Page("Fine.", (table(("a",), [["1"]]),), legend="breaks the SLO")
    assert "SLO" not in to_text(page)


def test_colour_marks_the_same_cells_and_nothing_else_changes():
    coloured = to_text(PAGE, colour=True)
    assert "\x1b[31m   61.2 !\x1b[0m" in coloured
    for code in ("\x1b[31m", "\x1b[1m", "\x1b[0m"):
        coloured = coloured.replace(code, "")
    assert coloured == to_text(PAGE)


def test_markdown_has_pipe_tables():
    text = to_markdown(PAGE)
    assert "| budget | TBT P99 |\n| :--- | ---: |\n| 512 | **61.2 !** |\n| 1024 | 9.5 |" in text
    assert "- measured on a card" in text


def test_csv_has_a_column_for_what_breaks_the_slo():
    first, second = to_csv(PAGE).split("\n\n")
    assert list(csv.reader(io.StringIO(first))) == [
        ["budget", "TBT P99", "breaks_slo"],
        ["512", "61.2", "TBT P99"],
        ["1024", "9.5", ""],
    ]
    assert second.startswith("engine,flags,breaks_slo")


def test_json_is_strict():
    assert json.loads(to_json(PAGE)) == {"answer": 42}
    with pytest.raises(ValueError, match="JSON"):
        to_json(Page("", (), document={"answer": float("nan")}))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0"),
        (0.00123, "0.00123"),
        (1.0, "1.00"),
        (30.0, "30.0"),
        (99.94, "99.9"),
        (99.96, "100"),
        (1234.5, "1,234"),
        (-2.5, "-2.50"),
    ],
)
def test_three_significant_digits(value: float | None, text: str):
    assert significant(value) == text


def test_other_numbers():
    assert milliseconds(0.0612) == "61.2"
    assert percent(0.123) == "12.3 %"
    assert count(19366) == "19,366"
    assert span((7.911, 8.342)) == "7.91 to 8.34"
    assert span(None) == percent(None) == count(None) == "-"


def test_words():
    assert bound("p999_scheduling_delay_s", 2) == "P99.9 scheduling delay <= 2 s"
    assert slo_words({"p50_ttft_ms": 500.0, "max_tbt_ms": 50.0}) == "median TTFT <= 500 ms, max TBT <= 50 ms"
    assert slo_words({}) == "no SLO"
    assert excess_words({"p99_tbt_ms": 61.234}, {"p99_tbt_ms": 50.0}) == "P99 TBT 61.2 ms (bound 50 ms)"
    assert excess_words({"mean_e2e_s": 3.5}, {"mean_e2e_s": 3.0}) == "mean E2E 3.50 s (bound 3 s)"
    assert excess_words({"p99_tbt_ms": None}, {"p99_tbt_ms": 50.0}) == "P99 TBT over 50 ms"


def test_deployments():
    assert deployment(make_scenario()) == "llama-3-8b on 1 x h100_sxm"
    split = make_scenario(parallel={"tensor": 2, "pipeline": 2}, replicas=3)
    assert deployment(split) == "llama-3-8b on 12 x h100_sxm (TP2, PP2, 3 replicas)"
    assert policy(make_scenario()) == "stall_free, budget 512"
    assert policy(make_scenario(**{"scheduler.policy": "orca"})) == "orca"


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ([512], "512"),
        ([256, 512], "256 to 512"),
        ([128, 512, 1024], "128, 512 to 1024"),
        ([128, 512], "128, 512"),
    ],
)
def test_budgets_are_ranges_only_where_all_between_belong(chosen: list[int], words: str):
    assert runs_of(chosen, [128, 256, 512, 1024]) == words


def test_flags_of_engines():
    flags = engine_flags(make_scenario(parallel={"tensor": 2, "pipeline": 2}))
    assert flags["vllm"].startswith(
        "--max-num-batched-tokens 512 --max-num-seqs 128 --enable-chunked-prefill"
    )
    assert flags["sglang"].startswith("--chunked-prefill-size 512 --enable-mixed-chunk")
    assert "--tensor-parallel-size 2 --pipeline-parallel-size 2" in flags["vllm"]
    assert "--tp-size 2 --pp-size 2" in flags["sglang"]


def trial(latency_s: float, seed: int = 0) -> Trial:
    document = make_document(
        latency_s,
        batch={"mean_iteration_s": 0.01, "mean_num_decodes": 3.0, "mean_tokens": 5.0},
        kv={"num_blocks": 100.0, "mean_utilisation": 0.5, "max_utilisation": 0.9},
        stages=[{"utilisation": 0.9, "bubble_share": 0.1}],
    )
    violations = {"p99_tbt_ms": 1e3 * latency_s} if latency_s > 0.05 else {}
    return Trial(make_scenario(), seed, document, violations)


def test_only_the_statistic_of_the_bound_is_marked():
    rows = latency_table(Variant("", make_scenario(), (trial(0.06),))).rows
    marked = [(row[0].text, column) for row in rows for column, cell in enumerate(row) if cell.breaks_slo]
    assert marked == [("TBT", 5)]


def test_latencies_are_means_over_runs():
    rows = latency_table(Variant("", make_scenario(), (trial(0.01), trial(0.03, seed=1)))).rows
    assert rows[0][1].text == "20.0"


def test_a_simulation_says_whether_the_slo_holds():
    def answer(*trials: Trial) -> str:
        effort = Effort(runs=len(trials))
        return simulation_page(Variant("", make_scenario(), trials), effort).answer

    assert answer(trial(0.01)).endswith("the SLO holds (P99 TBT <= 50 ms).")
    assert answer(trial(0.06)).endswith("the SLO is broken: P99 TBT 60.0 ms (bound 50 ms).")
    assert "broken in 1 of 2 runs" in answer(trial(0.01), trial(0.06, seed=1))


def test_a_simulation_tells_what_its_prefix_cache_held():
    def text(*uses: dict[str, int]) -> str:
        single = trial(0.01)
        document = {**single.document, **({"prefix_cache": uses[0]} if uses else {})}
        runs = (Trial(single.scenario, 0, document, {}),)
        return to_text(simulation_page(Variant("", single.scenario, runs), Effort(runs=1)))

    held = text({"queried_tokens": 400, "hit_tokens": 50})
    assert re.search(r"prompt tokens found in the cache +12\.5 %", held)
    assert "found in the cache" not in text()


def test_documents_are_averaged_leaf_by_leaf():
    first = {"a": 1, "b": {"c": 2.0}, "d": [1, 3], "e": "x", "f": "same", "g": [1]}
    second = {"a": 2, "b": {"c": 4.0}, "d": [3, 3], "e": "y", "f": "same", "g": [1, 2]}
    assert averaged([first, second]) == {
        "a": 1.5,
        "b": {"c": 3.0},
        "d": [2, 3],
        "e": None,
        "f": "same",
        "g": None,
    }
