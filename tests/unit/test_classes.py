"""Classes of requests in one run: their own metrics, SLOs and goodput."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from simulator.config import Scenario
from simulator.errors import ConfigError
from simulator.latency.model import ConstantLatency
from simulator.metrics import Result, overall, slo_class, split_slo_key
from simulator.report.comparison import comparison_page
from simulator.report.formats import to_text
from simulator.report.simulation import simulation_page
from simulator.run import simulate
from simulator.search.comparison import compare
from simulator.search.effort import Effort
from simulator.search.replicate import Variant, run_variants
from simulator.search.trials import Trial
from simulator.workload import Classes, Workload

MIX = {
    "chat": {"share": 3, "lengths": {"prompt": 8, "output": 20}},
    "batch": {"share": 1, "lengths": {"prompt": 90, "output": 4}},
}


def scenario(slo: dict[str, Any] | None = None, **changes: Any) -> Scenario:
    settings: dict[str, Any] = {
        "name": "mixed",
        "model": "tiny",
        "gpu": "cpu",
        "memory": {"num_blocks": 1000},
        "scheduler": {"token_budget": 32, "max_num_seqs": 8},
        "workload": {"mix": MIX, "rate_rps": 0.2, "num_requests": 200},
        "slo": slo or {},
    }
    return Scenario.model_validate(settings | changes)


def run(slo: dict[str, Any] | None = None, **changes: Any) -> Result:
    return simulate(scenario(slo, **changes), 0, latency=ConstantLatency(1, 1.0))


def test_metrics_of_a_class_are_those_of_its_requests() -> None:
    result = run()
    assert result.classes is not None
    codes = result.classes.codes[result.records.requests["id"]]
    for code, name in enumerate(("chat", "batch")):
        of = result.class_metrics[name]
        assert of["ttft_s"]["mean"] == pytest.approx(result.latencies["ttft_s"][codes == code].mean())
        assert of["e2e_s"]["max"] == result.latencies["e2e_s"][codes == code].max()
    assert result.class_metrics["batch"]["ttft_s"]["p50"] > result.class_metrics["chat"]["ttft_s"]["p50"]


def test_gaps_are_shared_out_between_the_classes() -> None:
    """The pooled mean of TBT is the mean of the classes' means, weighted by their gaps."""
    result = run()
    tokens = result.records.requests["output_tokens"] - 1
    gaps = {name: int(tokens[members].sum()) for name, members in result._of_class.items()}
    pooled = sum(result.class_metrics[name]["tbt_s"]["mean"] * gaps[name] for name in gaps)
    assert pooled / sum(gaps.values()) == pytest.approx(result.metrics["tbt_s"]["mean"])


def test_the_slo_of_a_class_is_judged_by_its_requests_alone() -> None:
    ttft = {name: metrics["ttft_s"]["p50"] for name, metrics in run().class_metrics.items()}
    bound = (ttft["chat"] + ttft["batch"]) / 2
    slo = {"chat": {"p50_ttft_s": bound}, "batch": {"p50_ttft_s": bound}}
    result = run(slo)
    assert result.violations() == ("batch.p50_ttft_s",)
    assert result.value("batch.p50_ttft_s") == pytest.approx(ttft["batch"])
    assert not result.meets()


def test_goodput_asks_of_each_request_what_its_class_is_promised() -> None:
    everyone = run().good_requests
    kept = run({"batch": {"max_ttft_s": 1e-6}})
    assert everyone == 200
    assert kept.good_requests == int(kept._of_class["chat"].sum())
    documents = kept.to_dict()["classes"]
    assert documents["batch"]["goodput_rps"] == 0.0
    assert documents["chat"]["goodput_rps"] == pytest.approx(kept.goodput_rps)
    late = run({"chat": {"max_tbt_s": 0.5}})
    assert late.good_requests == int(late._of_class["batch"].sum())


def test_the_document_has_every_class_and_no_nan() -> None:
    document = json.loads(json.dumps(run().to_dict(), allow_nan=False))
    assert list(document["classes"]) == ["chat", "batch"]
    completed = [each["requests_completed"] for each in document["classes"].values()]
    assert sum(completed) == document["requests_completed"] == 200


def test_rejections_are_counted_by_class() -> None:
    result = run(scheduler={"token_budget": 32, "max_num_seqs": 8, "max_model_len": 50})
    classes = result.to_dict()["classes"]
    assert classes["chat"]["requests_rejected"] == 0
    assert classes["batch"]["requests_rejected"] == result.requests_rejected > 0
    assert classes["batch"]["metrics"]["ttft_s"]["p50"] is None


def test_a_trace_may_bring_the_classes() -> None:
    workload = Workload(
        np.zeros(2), np.array([8, 8]), np.array([2, 2]), classes=Classes(("a", "b"), np.array([0, 1]))
    )
    result = simulate(scenario({"b": {"p50_e2e_s": 1}}), workload=workload, latency=ConstantLatency(1, 1.0))
    assert set(result.class_metrics) == {"a", "b"}


def test_an_slo_of_an_unknown_class_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no class 'chatt' \(did you mean 'chat'\?\)"):
        run({"chatt": {"p50_ttft_s": 1}})
    with pytest.raises(ConfigError, match=r"no class 'chat' \(allowed: none\)"):
        run({"chat": {"p50_ttft_s": 1}}, workload={"lengths": {"prompt": 8, "output": 4}, "rate_rps": 1.0})


def test_a_workload_without_classes_has_none() -> None:
    result = run(workload={"lengths": {"prompt": 8, "output": 4}, "rate_rps": 1.0, "num_requests": 5})
    assert "classes" not in result.to_dict()


# Keys.


def test_bounds_of_a_class_may_stand_below_its_name() -> None:
    slo = scenario({"p99_itl_ms": 50, "chat": {"p50_ttft_ms": 500, "p99_itl_ms": 40}}).slo
    assert slo == {"p99_tbt_ms": 50, "chat.p50_ttft_ms": 500, "chat.p99_tbt_ms": 40}
    assert overall(slo) == {"p99_tbt_ms": 50}
    assert scenario(slo).slo == slo


def test_overrides_reach_the_bounds_of_a_class() -> None:
    before = scenario({"p99_tbt_ms": 50, "chat": {"p50_ttft_ms": 500, "p99_tbt_ms": 40}})
    assert before.with_({"slo.chat.p50_ttft_s": 1}).slo == {
        "p99_tbt_ms": 50,
        "chat.p99_tbt_ms": 40,
        "chat.p50_ttft_s": 1,
    }
    assert before.with_({"slo.chat": {"max_e2e_s": 9}}).slo == {"p99_tbt_ms": 50, "chat.max_e2e_s": 9}
    assert before.with_({"slo.chat": None}).slo == {"p99_tbt_ms": 50}
    assert before.with_({"slo.chat.p50_ttft_ms": None}).slo == {"p99_tbt_ms": 50, "chat.p99_tbt_ms": 40}


def test_a_key_is_taken_apart() -> None:
    assert split_slo_key("chat.p99_tbt_ms") == ("p99", "tbt_s", 1e-3)
    assert (slo_class("chat.p99_tbt_ms"), slo_class("p99_tbt_ms")) == ("chat", "")


def test_a_bad_key_of_a_class_is_named() -> None:
    with pytest.raises(ConfigError, match=r"slo.chat.p98_ttft_ms: unknown statistic 'p98'"):
        scenario().with_({"slo.chat": {"p98_ttft_ms": 1}})


# Pages.


class Constant:
    """Runs every trial on an engine whose iterations take one second."""

    def __call__(self, scenario: Scenario, seed: int, *, only_verdict: bool = False) -> Trial:
        result = simulate(scenario, seed, latency=ConstantLatency(1, 1.0))
        return Trial.of(result, scenario, seed)


def test_the_page_of_a_run_has_a_table_for_each_class() -> None:
    effort = Effort(runs=2, jobs=1, run=Constant())
    [runs] = run_variants([("", scenario({"batch": {"p50_ttft_s": 0.5}}))], effort)
    page = simulation_page(runs, effort)
    titles = [table.title for table in page.tables]
    assert "Class chat:" in titles
    assert "Class batch:" in titles
    assert "median TTFT of batch" in page.answer
    marked = [table.title for table in page.tables if table.breaks_slo]
    assert marked == ["Class batch:"]
    assert set(page.document["classes"]) == {"chat", "batch"}
    assert Variant("", scenario()).classes == ()


def test_a_comparison_pairs_the_classes() -> None:
    two = scenario().with_({"scheduler.policy": "prefill_first"})
    comparison = compare([("a", scenario()), ("b", two)], Effort(runs=3, jobs=1, run=Constant()))
    page = comparison_page(comparison)
    assert "batch: TTFT median (ms)" in to_text(page)
    difference = page.document["rows"][1]["differences"]["classes"]["batch"]["ttft_s"]["p50"]
    assert difference["difference"] < 0
    assert difference["is_noise"] is False
