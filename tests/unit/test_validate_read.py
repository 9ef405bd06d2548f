"""Recorded runs of every kind, read whole, cut short and damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.errors import InputError
from simulator.validate import read_run

RUNS = Path(__file__).resolve().parent.parent / "data" / "runs"
VLLM, GUIDELLM, AIPERF = RUNS / "vllm-bench.json", RUNS / "guidellm.json", RUNS / "aiperf.jsonl"

TABLE = "arrival_s,prompt_tokens,output_tokens,first_token_s,last_token_s\n"


def written(folder: Path, text: str | bytes, name: str = "run.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# Real load generators, against a server that answers after 30 ms, then every 5 ms, and fails now and then.


@pytest.mark.parametrize(
    ("path", "benchmark", "count", "tokens"),
    [(VLLM, None, 9, 99), (GUIDELLM, 1, 7, 90), (GUIDELLM, 2, 7, 74), (AIPERF, None, 9, 118)],
)
def test_load_generators(path: Path, benchmark: int | None, count: int, tokens: int):
    run = read_run(path, benchmark)
    assert len(run) == count
    assert run.served.output_tokens.sum() == tokens
    assert run.served.arrival_s[0] == 0
    assert np.all(np.diff(run.served.arrival_s) >= 0)
    assert 0.03 < run.served.metrics["ttft_s"]["p50"] < 0.06
    assert 0.004 < run.served.metrics["tpot_s"]["p50"] < 0.008
    assert any("failed requests are left out" in note and "(1)" in note for note in run.notes)


def test_vllm_bench_agrees_with_its_own_summary():
    run, said = read_run(VLLM), json.loads(VLLM.read_text())
    assert said["mean_ttft_ms"] == pytest.approx(1e3 * run.served.metrics["ttft_s"]["mean"])
    assert said["mean_tpot_ms"] == pytest.approx(1e3 * run.served.metrics["tpot_s"]["mean"], rel=1e-3)
    assert said["p99_itl_ms"] == pytest.approx(1e3 * run.served.metrics["tbt_s"]["p99"])
    assert said["total_input_tokens"] == run.prompt_tokens.sum()


def test_gaps_are_known_where_events_are():
    assert read_run(VLLM).served.metrics["tbt_s"]["p50"] == pytest.approx(0.005, rel=0.2)
    assert read_run(AIPERF).served.metrics["tbt_s"]["p50"] == pytest.approx(0.005, rel=0.2)
    assert read_run(GUIDELLM, 1).served.metrics["tbt_s"]["p50"] is None


def test_several_tokens_in_an_event_are_noted(tmp_path: Path):
    result = json.loads(VLLM.read_text())
    result["itls"][0] = result["itls"][0][::2]
    assert any("8 of 90 gaps" in note for note in read_run(written(tmp_path, json.dumps(result))).notes)


def test_a_fixed_number_in_flight_is_noted(tmp_path: Path):
    result, report = json.loads(VLLM.read_text()), json.loads(GUIDELLM.read_text())
    result["max_concurrency"] = 4
    report["benchmarks"][0]["config"]["strategy"] = {"type_": "concurrent", "streams": 4}
    assert not any(
        "as others finished" in note for note in read_run(VLLM).notes + read_run(GUIDELLM, 1).notes
    )
    for content, benchmark in ((result, None), (report, 1)):
        run = read_run(written(tmp_path, json.dumps(content)), benchmark)
        assert any("as others finished" in note for note in run.notes)


# Tables.


def test_table_in_any_order(tmp_path: Path):
    run = read_run(written(tmp_path, f"{TABLE}102,5,3,103,104\n100,7,1,101,101\n"))
    assert run.served.arrival_s.tolist() == [0, 2]
    assert run.prompt_tokens.tolist() == [7, 5]
    assert run.served.ttft_s.tolist() == [1, 1]
    assert run.served.tpot_s.tolist() == [0.5]
    assert run.served.scheduled_s is None


def test_table_with_token_times(tmp_path: Path):
    row = {"arrival_s": 1, "prompt_tokens": 5, "output_tokens": 3, "token_s": [2, 2.5, 4], "scheduled_s": 1.5}
    run = read_run(written(tmp_path, json.dumps(row)))
    assert run.served.finished_s.tolist() == [3]
    assert run.served.metrics["tbt_s"]["max"] == 1.5
    assert run.served.phase_mean_s("waiting") == 0.5
    header = "arrival_s,prompt_tokens,output_tokens,token_s\n"
    assert read_run(written(tmp_path, f"{header}1,5,3,2 2.5 4\n")).served.metrics["tbt_s"]["max"] == 1.5


def test_parquet_table(tmp_path: Path):
    import pyarrow
    from pyarrow import parquet

    columns = {"arrival_s": [0.0], "prompt_tokens": [5], "output_tokens": [2], "token_s": [[1.0, 3.0]]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "run.parquet")
    run = read_run(tmp_path / "run.parquet")
    assert (run.served.ttft_s.tolist(), run.served.tpot_s.tolist()) == ([1], [2])


def engine_row(arrival: float, queued: float, first: float, last: float) -> dict[str, float]:
    return {
        "arrival_time": arrival,
        "input_toks": 40,
        "output_toks": 5,
        "queued_ts": queued,
        "scheduled_ts": queued,
        "first_token_ts": first,
        "last_token_ts": last,
    }


def test_two_clocks_are_aligned_by_the_quickest_hand_over(tmp_path: Path):
    rows = [engine_row(1e9, 500.2, 501, 502), engine_row(1e9 + 10, 510, 511, 512)]
    run = read_run(written(tmp_path, "\n".join(map(json.dumps, rows))))
    assert run.served.ttft_s.tolist() == pytest.approx([1, 1])
    assert run.queued_ttft_s == pytest.approx((0.8 + 1) / 2)


def test_prefixes_from_the_workload_beside(tmp_path: Path):
    path = written(tmp_path, f"{TABLE}0,40,3,1,2\n1,20,1,2,2\n")
    rows = [
        {"arrival_s": 0, "prompt_tokens": 40, "output_tokens": 3, "prompt_block_ids": [1, 2]},
        {"arrival_s": 1, "prompt_tokens": 20, "output_tokens": 1, "prompt_block_ids": [1]},
    ]
    written(tmp_path, "\n".join(map(json.dumps, rows)), "workload.jsonl")
    run = read_run(path)
    assert run.block_ids is not None
    assert run.block_ids.of(1).tolist() == [1]
    written(tmp_path, json.dumps(rows[0]), "workload.jsonl")
    with pytest.raises(InputError, match="not those of the run"):
        read_run(path)


def test_the_measured_run(shared_data: Path):
    run = read_run(shared_data / "vllm_rtxpro6000_llama31_8b" / "requests.jsonl")
    assert len(run) == 300
    assert run.served.metrics["e2e_s"]["mean"] == pytest.approx(28.2236, abs=1e-3)
    assert run.queued_ttft_s == pytest.approx(7.0972, abs=1e-3)
    assert run.block_ids is not None


# Bad files: the case, the file's content, and what the one line must name.

BAD = {
    "empty": (b"", "is empty"),
    "binary": (b"\0\1\2", "is binary"),
    "compressed": (b"\x1f\x8bxx", "is compressed"),
    "array": (b"[1, 2]", "JSON array"),
    "cut short": (b'{"arrival_s": 1, "prompt_tok', "line 1"),
    "unknown document": (b'{"a": 1,\n"b": 2}', "found keys: 'a, b'"),
    "columns missing": (b"arrival_s,prompt_tokens\n0,5\n", "last_token_s"),
    "header only": (TABLE.encode(), "no request"),
    "not a number": (f"{TABLE}0,5,3,soon,2\n".encode(), "line 2: first_token_s is 'soon'"),
    "no tokens": (f"{TABLE}0,5,0,1,2\n".encode(), "output_tokens is '0'"),
    "infinite": (f"{TABLE}0,5,3,1,inf\n".encode(), "last_token_s is 'inf'"),
    "token before arrival": (
        f"{TABLE}0,5,3,1,2\n5,5,3,4,6\n".encode(),
        "line 3: first token comes 1 s before",
    ),
    "end before start": (f"{TABLE}0,5,3,2,1\n".encode(), "last token comes 1 s before first token"),
    "no time": (f"{TABLE}0,5,3,1,2\n30,5,1,30,30\n".encode(), "line 3: last token comes 0 s after arrival"),
    "less than no time": (
        f"{TABLE}0,5,1,-0.00005,-0.0001\n".encode(),
        "comes -0.0001 s after arrival (allowed: 1e-06",
    ),
    "no time at all": (f"{TABLE}0,5,1,0,0\n".encode(), "line 2: last token comes 0 s after arrival"),
    "beyond belief": (
        f"{TABLE}0,5,3,1,2\n0,5,3,1,1e308\n".encode(),
        "line 3: last token, from the first arrival, is 1e+308 s (allowed: up to 1e+09 s)",
    ),
    "overflowing": (f"{TABLE}-1e308,5,3,1,1e308\n".encode(), "from the first arrival, is 1e+308 s"),
    "overflowing engine clock": (
        b"arrival_time,input_toks,output_toks,queued_ts,first_token_ts,last_token_ts\n-1e308,5,3,1e308,1,2\n",
        "queued, from the first arrival, is ",
    ),
    "fewer times than tokens": (
        b"arrival_s,prompt_tokens,output_tokens,token_s\n0,5,3,1 2\n",
        "2 times for 3 tokens",
    ),
    "times backwards": (b"arrival_s,prompt_tokens,output_tokens,token_s\n0,5,2,2 1\n", "line 2: token_s"),
    "AIPerf's summary": (b'{"aiperf_version": "0.13.0"}', "profile_export.jsonl"),
    "several results": (b'{"itls": []}\n{"itls": []}\n', "--append-result"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files(tmp_path: Path, case: str):
    content, said = BAD[case]
    path = written(tmp_path, content)
    with pytest.raises(InputError) as caught:
        read_run(path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_paths_that_are_no_files(tmp_path: Path):
    with pytest.raises(InputError, match="folder"):
        read_run(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        read_run(tmp_path / "none.json")


Edit = Callable[[dict[str, Any]], object]


def no_details(result: dict[str, Any]) -> None:
    for key in ("input_lens", "output_lens", "ttfts", "itls", "start_times", "errors"):
        del result[key]


BAD_VLLM: dict[str, tuple[Edit, str]] = {
    "no details": (no_details, "--save-detailed"),
    "no start times": (lambda result: result.pop("start_times"), "start_times"),
    "uneven lists": (lambda result: result["ttfts"].pop(), "ttfts 9"),
    "TTFT is a text": (lambda result: result["ttfts"].__setitem__(2, "fast"), "ttfts[2] is 'fast'"),
    "no tokens": (lambda result: result["output_lens"].__setitem__(3, 0), "output_lens[3] is 0"),
    "gaps are a number": (lambda result: result["itls"].__setitem__(1, 5), "itls[1] is 5"),
    "negative TTFT": (lambda result: result["ttfts"].__setitem__(0, -1), "request 0: first token comes 1 s"),
    "huge start": (lambda result: result["start_times"].__setitem__(4, 10**400), "start_times[4] is 1000"),
    "long gap": (lambda result: result["itls"][1].extend([1e300, -1e300]), "between tokens is 1e+300 s"),
    "too many tokens": (lambda result: result["output_lens"].__setitem__(3, 10**30), "1 to 10000000"),
    "all failed": (lambda result: result.update(errors=["x"] * 10), "no request"),
    "lists are numbers": (lambda result: result.update(itls=3), "itls is 3"),
}


@pytest.mark.parametrize("case", BAD_VLLM)
def test_bad_vllm_results(tmp_path: Path, case: str):
    edit, said = BAD_VLLM[case]
    result = json.loads(VLLM.read_text())
    edit(result)
    with pytest.raises(InputError) as caught:
        read_run(written(tmp_path, json.dumps(result)))
    assert said in str(caught.value)


BAD_GUIDELLM: dict[str, tuple[Edit, str]] = {
    "a sample": (
        lambda report: report["benchmarks"][0]["requests"]["successful"].pop(),
        "sample of 6 requests of 7",
    ),
    "no requests": (lambda report: report["benchmarks"][0].pop("requests"), "no key benchmarks[0].requests"),
    "no token times": (
        lambda report: report["benchmarks"][0]["requests"]["successful"][4]["info"]["timings"].update(
            first_token_iteration=None
        ),
        "benchmarks[0].requests.successful[4].info.timings.first_token_iteration is None",
    ),
    "requests are numbers": (
        lambda report: report["benchmarks"][0]["requests"].update(successful=[1]),
        "successful[0] is 1",
    ),
}


@pytest.mark.parametrize("case", BAD_GUIDELLM)
def test_bad_guidellm_reports(tmp_path: Path, case: str):
    edit, said = BAD_GUIDELLM[case]
    report = json.loads(GUIDELLM.read_text())
    edit(report)
    with pytest.raises(InputError) as caught:
        read_run(written(tmp_path, json.dumps(report)), 1)
    assert said in str(caught.value)


def test_which_benchmark():
    with pytest.raises(
        InputError, match=r"holds 2 benchmarks, choose one: 1: poisson at 8/s; 2: poisson at 16/s"
    ):
        read_run(GUIDELLM)
    with pytest.raises(InputError, match="no benchmark 3"):
        read_run(GUIDELLM, 3)
    with pytest.raises(InputError, match="no GuideLLM report"):
        read_run(VLLM, 1)


BAD_AIPERF: dict[str, tuple[Edit, str]] = {
    "strange unit": (
        lambda record: record["metrics"]["request_latency"].update(unit="weeks"),
        "line 1.metrics.request_latency.unit is 'weeks'",
    ),
    "no value": (
        lambda record: record["metrics"]["time_to_first_token"].pop("value"),
        "no key line 1.metrics",
    ),
    "no streaming": (lambda record: record["metrics"].pop("time_to_first_token"), "--streaming"),
    "no phase": (lambda record: record["metadata"].pop("benchmark_phase"), "benchmark_phase"),
}


@pytest.mark.parametrize("case", BAD_AIPERF)
def test_bad_aiperf_records(tmp_path: Path, case: str):
    edit, said = BAD_AIPERF[case]
    record = json.loads(AIPERF.read_text().splitlines()[0])
    edit(record)
    with pytest.raises(InputError) as caught:
        read_run(written(tmp_path, json.dumps(record) + "\n"))
    assert said in str(caught.value)
