"""Bad traces, presets and deployments, through the command: one line that says where, exit 2 or 3."""

from __future__ import annotations

from pathlib import Path

import pytest

HEADER = "arrival_s,prompt_tokens,output_tokens\n"

BAD_TRACES = {
    "missing column": ("t.csv", b"arrival_s,prompt_tokens\n0,5\n", "output_tokens"),
    "negative length": ("t.csv", f"{HEADER}0,-5,3\n".encode(), "-5"),
    "zero length": ("t.csv", f"{HEADER}0,5,0\n".encode(), "0"),
    "NaN": ("t.csv", f"{HEADER}0,nan,3\n".encode(), "nan"),
    "fraction of a token": ("t.csv", f"{HEADER}0,1.5,3\n".encode(), "1.5"),
    "times out of order": ("t.csv", f"{HEADER}5,5,3\n1,5,3\n".encode(), "line 3"),
    "time that is no number": ("t.csv", f"{HEADER}soon,5,3\n".encode(), "soon"),
    "negative time": ("t.csv", f"{HEADER}-1,5,3\n".encode(), "-1"),
    "ragged row": ("t.csv", f"{HEADER}0,5\n".encode(), "line 2"),
    "header only": ("t.csv", HEADER.encode(), "t.csv"),
    "empty file": ("t.csv", b"", "t.csv"),
    "wrong encoding": ("t.csv", HEADER.encode() + b"0,\xff\xfe,3\n", "t.csv"),
    "truncated JSONL": ("t.jsonl", b'{"arrival_s": 0, "prompt_tokens": 5, "output_to', "line 1"),
    "JSONL of numbers": ("t.jsonl", b"1\n2\n", "t.jsonl"),
    "unknown suffix": ("t.xlsx", b"PK", "t.xlsx"),
    "no parquet": ("t.parquet", b"PAR0", "t.parquet"),
}


@pytest.mark.parametrize("case", BAD_TRACES)
def test_bad_traces(stallfree, small: str, tmp_path: Path, case: str):
    name, content, said = BAD_TRACES[case]
    path = tmp_path / name
    path.write_bytes(content)
    outcome = stallfree(
        "simulate", small, "--set", "workload.lengths=null", "--set", f"workload.trace={path}"
    )
    assert_one_line(outcome, 2, said)


BAD_SETTINGS = {
    "no such trace": (["workload.lengths=null", "workload.trace=chatt"], "chatt"),
    "a folder as a trace": (["workload.lengths=null", "workload.trace=/"], "/"),
    "trace and lengths": (["workload.trace=chat"], "exclude each other"),
    "unknown GPU": (["gpu=h100"], "unknown gpu 'h100'"),
    "unknown engine": (["engine=vlm"], "unknown engine 'vlm'"),
    "unknown cluster": (["cluster=nvlink"], "unknown cluster 'nvlink'"),
    "unknown kernels": (["kernels=h1000"], "h1000"),
    "unknown policy": (["scheduler.policy=stallfree"], "stall_free"),
    "unknown routing": (["routing=fastest"], "routing"),
    "unknown unit": (["slo.p99_tbt_us=5"], "p99_tbt_us"),
    "no unit": (["slo.p99_tbt=5"], "p99_tbt"),
    "unknown metric": (["slo.p99_latency_ms=5"], "latency"),
    "a bound of zero": (["slo.p99_tbt_ms=0"], "p99_tbt_ms"),
    "a text as a number": (["scheduler.token_budget=many"], "scheduler.token_budget"),
    "a fraction of a token": (["scheduler.token_budget=1.5"], "scheduler.token_budget"),
    "memory over 100 %": (["memory.utilization=1.5"], "memory.utilization"),
    "heads that do not divide": (["parallel.tensor=3"], "parallel.tensor"),
    "more stages than layers": (["parallel.pipeline=99"], "parallel.pipeline"),
    "too large a model": (["model=llama-3-70b"], "does not fit"),
    "bad YAML": (["workload={trace"], "--set"),
    "a scalar for a mapping": (["scheduler=5"], "scheduler"),
    "a rate and no rate": (["workload.arrivals=all_at_once"], "rate"),
    "infinite rate": (["workload.rate_rps=.inf"], "rate_rps"),
}


@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_bad_settings(stallfree, small: str, case: str):
    sets, said = BAD_SETTINGS[case]
    outcome = stallfree("simulate", small, *(part for each in sets for part in ("--set", each)))
    assert_one_line(outcome, 2, said)


def test_a_prompt_longer_than_the_kv_cache_is_told(stallfree, small: str):
    outcome = stallfree("simulate", small, "--set", "memory.num_blocks=4")
    assert_one_line(outcome, 3, "KV blocks")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "must be a mapping"),
        (b"- a\n- b\n", "must be a mapping"),
        (b"model: [", "line 1"),
        (b"modle: llama-3-8b\n", "modle"),
        (b"model: llama-3-8b\n", "required"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b"model: a\nmodel: b\n", "twice"),
    ],
)
def test_bad_scenario_files(stallfree, tmp_path: Path, content: bytes, said: str):
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    assert_one_line(stallfree("simulate", str(path)), 2, said)


def assert_one_line(outcome, code: int, said: str) -> None:
    assert outcome.code == code, outcome.err
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert said in outcome.err
